/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_BARRIER_H
#define WEFT_PROGRAMS_BARRIER_H

#include "programs/exchange.h"

struct wp_barrier_args {
    struct wp_exchange exchange;
    struct wp_message message;
};

#endif
