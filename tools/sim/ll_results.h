/* SPDX-License-Identifier: MIT */
/* Where low latency puts the rows of a scenario, and whether what has come is right; the host has waited. */
#pragma once

#include "ll_values.h"
#include "party.h"

int ll_is_by_expert(const struct party *party);
/* Rows that combine reads, and by expert dispatch delivers. */
size_t ll_num_places(const struct party *party);
/* Where the row of choice k is in what this rank has received; -1: not here. */
int64_t ll_place_of(const struct party *party, struct ll_token token, int32_t k);

/* By expert, of quantised rows: all scales, and a column of them, 0: they lie by rows. */
size_t ll_scales_bytes(const struct party *party);
size_t ll_column_bytes(const struct party *party);

void ll_check_rank_counts(struct party *party, int32_t round, int32_t result);
void ll_check_experts(struct party *party, int32_t round, int32_t result);
/* By rank, while the result has not ended; so many have been received after it. */
void ll_check_slots(struct party *party, int32_t round, int32_t result, int32_t num_later);
/* By rank: the slot of row 0 of source 0 of such a result, and how far the token's is from it. */
char *ll_first_slot(struct party *party, int32_t num_later);
size_t ll_slot_offset(struct party *party, struct ll_token token);
void ll_check_combined(struct party *party, int32_t round, const struct ll_move *move);
/* Of all results until now, each of which adds. */
void ll_check_totals(struct party *party, int32_t round);
