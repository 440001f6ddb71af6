/* SPDX-License-Identifier: MIT */
/* Disagreements between calls of several ranks, in the words of weft.h. */
#pragma once

#include "machine/machine.h"

struct weft__mismatch {
    char field[192];
    char ours[48], theirs[48];
};

/* The failure is of kind WP_FAILURE_MISMATCH. */
void weft__mismatch_describe(const struct wp_failure *failure, struct weft__mismatch *mismatch);
