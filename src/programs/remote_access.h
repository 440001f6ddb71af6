/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_REMOTE_ACCESS_H
#define WEFT_PROGRAMS_REMOTE_ACCESS_H

#include "programs/one_sided.h"

struct wp_remote_access_args {
    struct wp_heaps heaps;
    struct wp_access access; /* a flush is of all ranks */
};

#endif
