/* SPDX-License-Identifier: MIT */
/* A layer of expert parallelism, whose experts give back what they get: again and again, each time
 * with other tokens, and checked. */
#pragma once

#include "weft.h"

struct layer;

/* Collective; NULL if a call fails. */
struct layer *layer_open(weft_comm *comm);
/* Also after a failure. */
void layer_close(struct layer *layer);

/* Collective: the layer number `round`. *num_wrong counts elements of the result, if there is
 * one. */
weft_result layer_run(struct layer *layer, int32_t round, int64_t *num_wrong);
