/* SPDX-License-Identifier: MIT */
/* weft coll --explain: which algorithm for which size, and why. */
#pragma once

#include "coll_options.h"

/* Collective, though rank 0 alone has something to say. Returns the exit status. */
int coll_explain(const struct coll_options *options, weft_comm *comm);
