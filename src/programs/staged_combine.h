/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/combine.h"
#include "programs/rounds.h"

struct wp_staged_combine_args {
    struct wp_combine_args combine;
    struct wp_rounds rounds;
};
