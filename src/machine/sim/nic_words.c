/* SPDX-License-Identifier: MIT */
#include "machine/sim/nic_words.h"

#include <string.h>

#include "machine/sim/table.h"

static struct sim_table clocks = {.value_bytes = sizeof(struct sim_clock)};

struct sim_clock *sim_nic_clock_of(const void *word)
{
    return sim_table_at(&clocks, (uintptr_t)word);
}

/* ---------------------------------------------------------------- loads */

uint64_t sim_nic_load(const uint64_t *word)
{
    sim_yield();
    return *word;
}

uint32_t sim_nic_load_u32(const uint32_t *word)
{
    sim_yield();
    return *word;
}

static void acquire(const void *word, struct weft__sim_place place)
{
    if (!sim_site_pass(place, SIM_SITE_ACQUIRE))
        sim_acquire(sim_nic_clock_of(word));
}

uint64_t sim_nic_load_acquire(const uint64_t *word, struct weft__sim_place place)
{
    sim_yield();
    acquire(word, place);
    return *word;
}

uint32_t sim_nic_load_tail(const uint32_t *word, struct weft__sim_place place)
{
    sim_yield();
    acquire(word, place);
    return *word;
}

/* ---------------------------------------------------------------- stores */

/* Others see it late. It brings what was before the last fence, and ends what releases before it
 * have brought. */
static void begin_relaxed(void *word, size_t num_bytes)
{
    struct sim_clock *clock = sim_nic_clock_of(word);
    sim_store_begin(word, num_bytes, SIM_PLAIN_STORE);
    sim_clock_clear(clock);
    sim_clock_join(clock, &sim_current()->fenced);
}

static void begin_release(void *word)
{
    struct sim_clock *clock = sim_nic_clock_of(word);
    sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
    sim_clock_clear(clock);
    sim_release(clock);
}

void sim_nic_store_release(uint64_t *word, uint64_t value, struct weft__sim_place place)
{
    sim_yield();
    if (sim_site_pass(place, SIM_SITE_RELEASE))
        begin_relaxed(word, sizeof *word);
    else
        begin_release(word);
    *word = value;
}

void sim_nic_store_release_u32(uint32_t *word, uint32_t value)
{
    sim_yield();
    begin_release(word);
    *word = value;
}

/* Additions and exchanges are seen at once, and keep what was released before. */
uint64_t sim_nic_fetch_add(uint64_t *word, uint64_t addend)
{
    sim_yield();
    const uint64_t before = *word;
    *word = before + addend;
    return before;
}

uint64_t sim_nic_exchange_if(uint64_t *word, uint64_t expected, uint64_t value)
{
    sim_yield();
    const uint64_t before = *word;
    if (before == expected)
        *word = value;
    return before;
}

void sim_nic_raise(uint64_t *word, uint64_t value, struct weft__sim_place place)
{
    sim_yield();
    if (*word >= value)
        return;
    if (sim_site_pass(place, SIM_SITE_RELEASE)) {
        sim_clock_join(sim_nic_clock_of(word), &sim_current()->fenced);
    } else {
        sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
        sim_release(sim_nic_clock_of(word));
    }
    *word = value;
}

void sim_nic_store_unit(struct weft__nic_unit *slot, const struct weft__nic_unit *unit,
                        uint32_t num_bytes)
{
    sim_yield();
    sim_check_access(slot, num_bytes, SIM_WRITE, __builtin_return_address(0));
    sim_store_begin(slot, num_bytes, SIM_PLAIN_STORE);
    memcpy(slot, unit, num_bytes);
}

void sim_nic_store_record(uint32_t *word, uint32_t value)
{
    sim_yield();
    begin_relaxed(word, sizeof *word);
    *word = value;
}

void sim_nic_fence(struct weft__sim_place place)
{
    sim_yield();
    if (sim_site_pass(place, SIM_SITE_FENCE))
        return;
    sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
    sim_release(&sim_current()->fenced);
}

void sim_nic_ring(uint64_t *doorbell, uint64_t value)
{
    sim_yield();
    sim_store_begin(doorbell, sizeof *doorbell, SIM_PLAIN_STORE);
    *doorbell = value;
}

/* ---------------------------------------------------------------- the model */

void sim_nic_model_load(enum weft__nic_load what, void *to, uint64_t from, uint32_t num_bytes)
{
    const void *at = (const void *)(uintptr_t)from;
    sim_yield();
    if (what == WEFT__NIC_LOAD_RECORD)
        sim_acquire(sim_nic_clock_of(at));
    else
        sim_check_access(at, num_bytes, SIM_READ, __builtin_return_address(0));
    memcpy(to, at, num_bytes);
}

void sim_nic_model_store(enum weft__nic_store what, uint64_t to, const void *from,
                         uint32_t num_bytes, enum sim_access access)
{
    void *at = (void *)(uintptr_t)to;
    uint32_t tail;
    if (what == WEFT__NIC_STORE_TAIL) {
        memcpy(&tail, from, sizeof tail);
        sim_nic_store_release_u32(at, tail);
        return;
    }
    sim_yield();
    sim_check_access(at, num_bytes, access, __builtin_return_address(0));
    sim_store_begin(at, num_bytes, SIM_PLAIN_STORE);
    memcpy(at, from, num_bytes);
}
