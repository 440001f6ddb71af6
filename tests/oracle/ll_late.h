/* SPDX-License-Identifier: MIT */
/* Rows that the experts of a low-latency case finish when combine has begun. */
#pragma once

#include "oracle/ll_seat.h"

/* Before the call that sends: takes the answers of a step away, and sets its words back. */
int ll_take_rows_away(struct ll_seat *seat, int32_t step);
/* After it: writes the rows of word after word, in any order, and raises each that has rows. */
int ll_finish_rows(struct ll_seat *seat, int32_t step);

/* Word `word` of all experts' gets a value, behind what the host has written before. */
int ll_raise_word(struct ll_seat *seat, int32_t step, int64_t word, uint32_t value);
/* The rows of a word, and how many words an expert has. */
int32_t ll_rows_per_word(const struct ll_case *problem);
int32_t ll_words_per_expert(const struct ll_case *problem);
