/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_LOW_LATENCY_RELEASE_H
#define WEFT_PROGRAMS_LOW_LATENCY_RELEASE_H

#include "programs/low_latency.h"

struct wp_low_latency_release_args {
    struct wp_low_latency ll;
};

#endif
