/* SPDX-License-Identifier: MIT */
/* Shared by the rounds of the operations of expert parallelism. */
#pragma once

#include "party.h"

weft_ep_handle *party_handle(const struct party *party, int32_t round);
/* Host code says what it touches, so that its order with the lanes is checked too. */
void party_clear(void *address, size_t num_bytes);
void party_clear_rows(const struct party *party, const struct rows *rows);

/* Enqueues layout and notify of a batch. */
weft_result party_route(struct party *party, int32_t round);

/* Enqueues an operation several times, and checks all of them at the end. */
weft_result party_repeat(struct party *party, int32_t round,
                         weft_result (*enqueue)(struct party *, int32_t, int32_t),
                         void (*check)(struct party *, int32_t, int32_t));

/* Expand and reduce behind a dispatch, and their checks (expand_rounds.c). */
weft_result party_expand(struct party *party, int32_t round, int32_t repeat);
void party_check_expanded(struct party *party, int32_t round, int32_t repeat);

/* A round of combine (combine_rounds.c). */
weft_result party_run_combine(struct party *party, int32_t round);

/* A round of low latency (ll_rounds.c). */
weft_result party_run_ll(struct party *party, int32_t round);

/* Rounds of the gate (gate_rounds.c), and of experts that move (move_rounds.c) or are copied
 * (copies_rounds.c). */
weft_result party_run_gate(struct party *party, int32_t round);
weft_result party_run_move(struct party *party, int32_t round);
weft_result party_run_copies(struct party *party, int32_t round);
