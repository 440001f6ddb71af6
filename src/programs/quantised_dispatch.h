/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_QUANTISED_DISPATCH_H
#define WEFT_PROGRAMS_QUANTISED_DISPATCH_H

#include "programs/staged_dispatch.h"

struct wp_quantised_dispatch_args {
    struct wp_staged_dispatch_args dispatch;
};

#endif
