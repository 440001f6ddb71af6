/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_WAIT_UNTIL_H
#define WEFT_PROGRAMS_WAIT_UNTIL_H

#include "machine/machine.h"

struct wp_wait_until_args {
    const uint64_t *word; /* in the own heap */
    uint64_t place;       /* its offset there */
    uint64_t at_least;
};

#endif
