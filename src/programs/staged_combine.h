/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_STAGED_COMBINE_H
#define WEFT_PROGRAMS_STAGED_COMBINE_H

#include "programs/combine.h"
#include "programs/rounds.h"

struct wp_staged_combine_args {
    struct wp_combine_args combine;
    struct wp_rounds rounds;
};

#endif
