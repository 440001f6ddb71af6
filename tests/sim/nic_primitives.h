/* SPDX-License-Identifier: MIT */
/* Primitives of machine/nic_post.h: those of the sim, with the bugs of nic_job.h planted in them,
 * and waits of host threads. */
#pragma once

#include "machine/sim/nic_words.h"
#include "net/nic/queue.h"

struct wp_nic_wait {
    int64_t timeout_ms; /* of virtual time; INT64_MAX: none */
    int is_over;
    void (*on_deadline)(void); /* NULL, or what happens before the waiter goes on */
    struct nic_planted_seen {
        uint64_t ready, done, failure;
        uint32_t tail;
    } seen; /* at the last pause */
};

uint64_t nic_planted_load_acquire(const uint64_t *word, struct weft__sim_place place);
uint32_t nic_planted_load_tail(const uint32_t *word, struct weft__sim_place place);
void nic_planted_raise(uint64_t *word, uint64_t value, struct weft__sim_place place);
void nic_planted_store_record(uint32_t *word, uint32_t value);
void nic_planted_ring(uint64_t *doorbell, uint64_t value);
enum wp_status nic_planted_pause(struct wp_nic_wait *wait, const struct weft__nic_queue *queue);

#undef wp_nic_load_acquire
#undef wp_nic_load_tail_acquire
#undef wp_nic_raise_release
#undef wp_nic_store_record
#undef wp_nic_ring
#define wp_nic_load_acquire(word)         nic_planted_load_acquire(word, WEFT__SIM_HERE)
#define wp_nic_load_tail_acquire(word)    nic_planted_load_tail(word, WEFT__SIM_HERE)
#define wp_nic_raise_release(word, value) nic_planted_raise(word, value, WEFT__SIM_HERE)
#define wp_nic_store_record(word, value)  nic_planted_store_record(word, value)
#define wp_nic_ring(doorbell, value)      nic_planted_ring(doorbell, value)
#define wp_nic_pause(wait, queue)         nic_planted_pause(wait, queue)
