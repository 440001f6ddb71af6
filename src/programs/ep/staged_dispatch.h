/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/dispatch.h"
#include "programs/ep/rounds.h"

struct wp_staged_dispatch_args {
    struct wp_dispatch_args dispatch;
    struct wp_rounds rounds;
};
