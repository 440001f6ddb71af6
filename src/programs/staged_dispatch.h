/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/dispatch.h"
#include "programs/rounds.h"

struct wp_staged_dispatch_args {
    struct wp_dispatch_args dispatch;
    struct wp_rounds rounds;
};
