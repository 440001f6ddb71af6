/* SPDX-License-Identifier: MIT */
/*
 * The words of a NIC's queue (machine/nic_post.h) in the sim: relaxed stores are visible late and
 * in any order, and clocks tell what an acquire has brought. Each that orders is a site, which can
 * be weakened. Queues lie outside of the heaps.
 */
#pragma once

#include "machine/sim/world.h"
#include "net/nic/model.h"

/* Has what the last store to the word released. */
struct sim_clock *sim_nic_clock_of(const void *word);

uint64_t sim_nic_load(const uint64_t *word);
uint32_t sim_nic_load_u32(const uint32_t *word);
uint64_t sim_nic_load_acquire(const uint64_t *word, struct weft__sim_place place);
uint32_t sim_nic_load_tail(const uint32_t *word, struct weft__sim_place place);
uint64_t sim_nic_fetch_add(uint64_t *word, uint64_t addend);
uint64_t sim_nic_exchange_if(uint64_t *word, uint64_t expected, uint64_t value);
void sim_nic_raise(uint64_t *word, uint64_t value, struct weft__sim_place place);
void sim_nic_store_release(uint64_t *word, uint64_t value, struct weft__sim_place place);
void sim_nic_store_unit(struct weft__nic_unit *slot, const struct weft__nic_unit *unit,
                        uint32_t num_bytes);
void sim_nic_store_record(uint32_t *word, uint32_t value);
void sim_nic_fence(struct weft__sim_place place);
/* The register is memory that the model looks at. */
void sim_nic_ring(uint64_t *doorbell, uint64_t value);

void sim_nic_store_release_u32(uint32_t *word, uint32_t value);

/* For struct weft__nic_host. `access` is how the store is checked. */
void sim_nic_model_load(enum weft__nic_load what, void *to, uint64_t from, uint32_t num_bytes);
void sim_nic_model_store(enum weft__nic_store what, uint64_t to, const void *from,
                         uint32_t num_bytes, enum sim_access access);

#define wp_nic_load(word) sim_nic_load(word)
/* The sim's loads keep their order, so that there is nothing to weaken. An acquire here could stand
 * in for that of who waits. */
#define wp_nic_load_before(word)                  sim_nic_load(word)
#define wp_nic_load_body(word)                    sim_nic_load_u32(word)
#define wp_nic_load_acquire(word)                 sim_nic_load_acquire(word, WEFT__SIM_HERE)
#define wp_nic_load_tail_acquire(word)            sim_nic_load_tail(word, WEFT__SIM_HERE)
#define wp_nic_load_step(pointer)                 (*(pointer)) /* it never changes here */
#define wp_nic_fetch_add(word, addend)            sim_nic_fetch_add(word, addend)
#define wp_nic_exchange_if(word, expected, value) sim_nic_exchange_if(word, expected, value)
#define wp_nic_raise_release(word, value)         sim_nic_raise(word, value, WEFT__SIM_HERE)
#define wp_nic_store_release(word, value)         sim_nic_store_release(word, value, WEFT__SIM_HERE)
#define wp_nic_store_unit(slot, unit, num_bytes)  sim_nic_store_unit(slot, unit, num_bytes)
#define wp_nic_store_record(word, value)          sim_nic_store_record(word, value)
#define wp_nic_fence()                            sim_nic_fence(WEFT__SIM_HERE)
#define wp_nic_ring(doorbell, value)              sim_nic_ring(doorbell, value)
