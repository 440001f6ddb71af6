/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_MAPPED_ACCESS_H
#define WEFT_PROGRAMS_MAPPED_ACCESS_H

#include "programs/mapped.h"

struct weft_mapped_access_args {
    struct weft_access access; /* one with an add is launched in one block */
    struct weft_mapped mapped;
};

#endif
