/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/one_sided/one_sided.h"

struct wp_remote_access_args {
    struct wp_heaps heaps;
    struct wp_access access; /* a flush is of all ranks */
};
