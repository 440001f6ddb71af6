/* SPDX-License-Identifier: MIT */
/* Low latency without some of its ranks in a scenario: those that a round cuts off from each other,
 * and the one that a fault has struck, which the others find out while they run. */
#pragma once

#include "party.h"

int ll_has_masks(const struct party *party);
/* All ranks come back, but for the one that is lost, and those that the round cuts off mask each
 * other. */
weft_result ll_begin_round(struct party *party, int32_t round);
/* By all, behind that: who leaves in the round destroys its weft_ll. From then on nobody writes to
 * what it has freed. */
weft_result ll_let_leave(struct party *party, int32_t round);
/* Whom a result was without, as dispatch has told, and then combine; the host has waited. Complains
 * if it is anybody whom nothing has struck. */
void ll_note_missing_rows(struct party *party, int32_t round, int32_t result);
void ll_note_missing_sums(struct party *party, int32_t round, const struct ll_move *move);
/* Whether what this rank gets can be told: all but it may be lost for the rank that was struck. */
int ll_can_check(const struct party *party);
