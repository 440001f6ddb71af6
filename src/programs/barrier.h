/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_BARRIER_H
#define WEFT_PROGRAMS_BARRIER_H

#include "programs/exchange.h"

struct weft_barrier_args {
    struct weft_exchange exchange;
    struct weft_message message;
};

#endif
