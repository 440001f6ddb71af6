/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_MAPPED_ACCESS_H
#define WEFT_PROGRAMS_MAPPED_ACCESS_H

#include "programs/mapped.h"

struct wp_mapped_access_args {
    struct wp_access access; /* one with an add is launched in one block */
    struct wp_mapped mapped;
};

#endif
