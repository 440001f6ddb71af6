/* SPDX-License-Identifier: MIT */
#pragma once

#include "machine/machine.h"

struct wp_wait_until_args {
    const uint64_t *word; /* in the own heap */
    uint64_t place;       /* its offset there */
    uint64_t at_least;
};
