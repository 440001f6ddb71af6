/* SPDX-License-Identifier: MIT */
/* Rows of bytes for each local expert, or each local replica: what a scenario moves and copies. */
#pragma once

#include "party.h"

/* Row `local` of a plane of an array: the weights of an expert in a round, or of none. */
enum { WEIGHTS_OF_NOBODY = -1 };
struct weights_row {
    int32_t array, local;
    int32_t expert, round;
};

/* party->expert_weights, with one or two arrays, in the heap. */
weft_result party_alloc_weights(struct party *party, int32_t num_arrays);
char *weights_at(const struct party *party, int32_t array, int32_t plane, int32_t local);
/* Row `local` of all planes. */
void weights_fill(struct party *party, struct weights_row row);
void weights_check(struct party *party, struct weights_row row);
