/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/low_latency/low_latency.h"

enum wp_ll_release {
    WP_LL_RELEASES_RESULT, /* the oldest one */
    WP_LL_LEAVES /* for good: this rank reads no more, and nobody reads what has stayed here */
};

struct wp_low_latency_release_args {
    struct wp_low_latency ll;
    enum wp_ll_release what;
};
