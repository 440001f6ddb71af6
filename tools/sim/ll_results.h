/* SPDX-License-Identifier: MIT */
/* Where low latency puts the rows of a scenario, and whether what has come is right; the host has
 * waited. */
#pragma once

#include "ll_values.h"

int ll_is_by_expert(const struct party *party);
/* Rows that combine reads, and by expert dispatch delivers. */
size_t ll_num_places(const struct party *party);
/* By expert, of quantised rows: all scales, and a column of them, 0: they lie by rows. */
size_t ll_scales_bytes(const struct party *party);
size_t ll_column_bytes(const struct party *party);

/* By rank, rows stay in their slots while their result has not ended: where those of a result are,
 * so many of which have been received after it. */
enum { LL_ENDED = -1 };
void ll_check_received(struct party *party, int32_t round, int32_t result, int32_t num_later);
/* Waits for the word of each expert, in any order, and checks the expert's rows, while dispatch may
 * go on. */
void ll_take_experts(struct party *party, int32_t round, int32_t result);
/* Writes what combine of the result is to send: to the array, or, if there is none, by rank to the
 * slots. */
void ll_fill_answers(struct party *party, int32_t round, int32_t result, int32_t num_later,
                     char *answers);
/* Answers that come late. Combine may await so many words. They are set back before combine, and
 * raised after it, each behind its answers. */
enum { LL_SIGNAL_VALUE = 2 };
size_t ll_num_words(const struct party *party);
void ll_withhold_answers(struct party *party, const struct ll_move *move);
void ll_finish_answers(struct party *party, int32_t round, const struct ll_move *move);
void ll_check_combined(struct party *party, int32_t round, const struct ll_move *move);
/* Counts of all results until now, each of which adds. */
void ll_check_totals(struct party *party, int32_t round);
