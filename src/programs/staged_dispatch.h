/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_STAGED_DISPATCH_H
#define WEFT_PROGRAMS_STAGED_DISPATCH_H

#include "programs/dispatch.h"
#include "programs/rounds.h"

struct wp_staged_dispatch_args {
    struct wp_dispatch_args dispatch;
    struct wp_rounds rounds;
};

#endif
