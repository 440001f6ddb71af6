/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_REMOTE_ACCESS_H
#define WEFT_PROGRAMS_REMOTE_ACCESS_H

#include "programs/one_sided.h"

struct weft_remote_access_args {
    struct weft_heaps heaps;
    struct weft_access access; /* a flush is of all ranks */
};

#endif
