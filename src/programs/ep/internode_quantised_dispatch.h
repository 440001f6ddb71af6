/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/internode_dispatch.h"

struct wp_internode_quantised_dispatch_args {
    struct wp_internode_dispatch_args dispatch;
};
