/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/one_sided/mapped.h"

struct wp_mapped_access_args {
    struct wp_access access; /* one with an add is launched in one block */
    struct wp_mapped mapped;
};
