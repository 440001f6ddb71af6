/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/ep/combine.h"
#include "programs/ep/rounds.h"

struct wp_staged_combine_args {
    struct wp_combine_args combine;
    struct wp_rounds rounds;
};
