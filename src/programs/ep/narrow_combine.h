/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/staged_combine.h"

struct wp_narrow_combine_args {
    struct wp_staged_combine_args staged;
};
