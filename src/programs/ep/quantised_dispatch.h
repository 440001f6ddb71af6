/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/staged_dispatch.h"

struct wp_quantised_dispatch_args {
    struct wp_staged_dispatch_args dispatch;
};
