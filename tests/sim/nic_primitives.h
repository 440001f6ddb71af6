/* SPDX-License-Identifier: MIT */
/* Primitives of machine/nic_post.h, by the sim: relaxed stores are visible late and in any order,
 * and clocks tell what an acquire has brought. Each that orders is a site, which can be
 * weakened. */
#pragma once

#include "machine/machine.h"
#include "net/nic/queue.h"

struct wp_nic_wait {
    int64_t timeout_ms; /* of virtual time; INT64_MAX: none */
    int is_over;
    void (*on_deadline)(void); /* NULL, or what happens before the waiter goes on */
    struct nic_sim_seen {
        uint64_t ready, done, failure;
        uint32_t tail;
    } seen; /* at the last pause */
};

uint64_t nic_sim_load(const uint64_t *word);
uint32_t nic_sim_load_body(const uint32_t *word);
uint64_t nic_sim_load_acquire(const uint64_t *word, struct weft__sim_place place);
uint32_t nic_sim_load_tail(const uint32_t *word, struct weft__sim_place place);
uint64_t nic_sim_fetch_add(uint64_t *word, uint64_t addend);
uint64_t nic_sim_exchange_if(uint64_t *word, uint64_t expected, uint64_t value);
void nic_sim_raise(uint64_t *word, uint64_t value, struct weft__sim_place place);
void nic_sim_store_release(uint64_t *word, uint64_t value, struct weft__sim_place place);
void nic_sim_store_unit(struct weft__nic_unit *slot, const struct weft__nic_unit *unit,
                        uint32_t num_bytes);
void nic_sim_store_record(uint32_t *word, uint32_t value);
void nic_sim_fence(struct weft__sim_place place);
void nic_sim_ring(uint64_t *doorbell, uint64_t value);
enum wp_status nic_sim_pause(struct wp_nic_wait *wait, const struct weft__nic_queue *queue);

#define wp_nic_load(word) nic_sim_load(word)
/* The sim's loads keep their order, so that there is nothing to weaken. An acquire here could stand
 * in for that of who waits. */
#define wp_nic_load_before(word)                  nic_sim_load(word)
#define wp_nic_load_body(word)                    nic_sim_load_body(word)
#define wp_nic_load_acquire(word)                 nic_sim_load_acquire(word, WEFT__SIM_HERE)
#define wp_nic_load_tail_acquire(word)            nic_sim_load_tail(word, WEFT__SIM_HERE)
#define wp_nic_fetch_add(word, addend)            nic_sim_fetch_add(word, addend)
#define wp_nic_exchange_if(word, expected, value) nic_sim_exchange_if(word, expected, value)
#define wp_nic_raise_release(word, value)         nic_sim_raise(word, value, WEFT__SIM_HERE)
#define wp_nic_store_release(word, value)         nic_sim_store_release(word, value, WEFT__SIM_HERE)
#define wp_nic_store_unit(slot, unit, num_bytes)  nic_sim_store_unit(slot, unit, num_bytes)
#define wp_nic_store_record(word, value)          nic_sim_store_record(word, value)
#define wp_nic_fence()                            nic_sim_fence(WEFT__SIM_HERE)
#define wp_nic_ring(doorbell, value)              nic_sim_ring(doorbell, value)
#define wp_nic_pause(wait, queue)                 nic_sim_pause(wait, queue)
