/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/internode_combine.h"

struct wp_internode_log_combine_args {
    struct wp_internode_combine_args combine;
};
