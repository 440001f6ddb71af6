/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_INTERNODE_QUANTISED_DISPATCH_H
#define WEFT_PROGRAMS_INTERNODE_QUANTISED_DISPATCH_H

#include "programs/internode_dispatch.h"

struct wp_internode_quantised_dispatch_args {
    struct wp_internode_dispatch_args dispatch;
};

#endif
