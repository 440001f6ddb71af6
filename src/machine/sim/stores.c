/* SPDX-License-Identifier: MIT */
/*
 * Weak memory: a fiber's stores become visible to others late, and in any order, until a release.
 *
 * What a row operation stores becomes visible as late as that, but the release must also end it.
 *
 * Each fiber keeps the stores that nobody else may see yet. When the fiber is switched away from,
 * the old bytes are put back into memory, last store first; when it goes on, the new ones, first
 * store first. So it sees its own stores and others do not.
 */
#include <stdlib.h>
#include <string.h>

#include "machine/sim/world.h"

enum { EARLY_ONE_IN = 4 }; /* stores that become visible at a switch, before any release */

static void swap_bytes(struct sim_store *store)
{
    char bytes[sizeof store->other];
    memcpy(bytes, store->address, store->num_bytes);
    memcpy(store->address, store->other, store->num_bytes);
    memcpy(store->other, bytes, store->num_bytes);
}

static struct sim_store *new_store(struct sim_fiber *fiber)
{
    if (fiber->num_stores == fiber->max_stores) {
        const int32_t max_stores = fiber->max_stores == 0 ? 64 : 2 * fiber->max_stores;
        struct sim_store *stores =
            realloc(fiber->stores, (size_t)max_stores * sizeof(*fiber->stores));
        if (stores == NULL) {
            fiber->num_stores = 0; /* visible early is legal at any time */
            return NULL;
        }
        fiber->stores = stores;
        fiber->max_stores = max_stores;
    }
    return &fiber->stores[fiber->num_stores++];
}

void sim_store_begin(void *address, size_t num_bytes, enum sim_store_kind kind)
{
    char *to = address;
    while (num_bytes > 0) {
        struct sim_store *store = new_store(sim_current());
        if (store == NULL)
            return;
        store->address = to;
        store->kind = kind;
        store->num_bytes =
            (uint8_t)(num_bytes < sizeof store->other ? num_bytes : sizeof store->other);
        memcpy(store->other, to, store->num_bytes);
        to += store->num_bytes;
        num_bytes -= store->num_bytes;
    }
}

/* Drops the stores that have become visible: those of no bytes. */
static void drop_visible(struct sim_fiber *fiber)
{
    int32_t num_kept = 0;
    for (int32_t i = 0; i < fiber->num_stores; i++) {
        if (fiber->stores[i].num_bytes > 0)
            fiber->stores[num_kept++] = fiber->stores[i];
    }
    fiber->num_stores = num_kept;
}

void sim_stores_commit(struct sim_fiber *fiber, enum sim_store_kind kind)
{
    for (int32_t i = 0; i < fiber->num_stores; i++) {
        if (fiber->stores[i].kind == kind)
            fiber->stores[i].num_bytes = 0;
    }
    drop_visible(fiber);
}

static int overlap(const struct sim_store *a, const struct sim_store *b)
{
    return a->address < b->address + b->num_bytes && b->address < a->address + a->num_bytes;
}

/* Two stores to the same place stay in order: one with a later one pending is not made visible. */
static int may_become_visible(const struct sim_fiber *fiber, int32_t i)
{
    for (int32_t j = 0; j < fiber->num_stores; j++) {
        if (j != i && overlap(&fiber->stores[i], &fiber->stores[j]))
            return 0;
    }
    return 1;
}

static void make_some_visible(struct sim_fiber *fiber)
{
    for (int32_t i = 0; i < fiber->num_stores; i++) {
        if (sim_random(EARLY_ONE_IN) == 0 && may_become_visible(fiber, i))
            fiber->stores[i].num_bytes = 0;
    }
    drop_visible(fiber);
}

void sim_stores_hide(struct sim_fiber *fiber)
{
    make_some_visible(fiber);
    for (int32_t i = fiber->num_stores - 1; i >= 0; i--)
        swap_bytes(&fiber->stores[i]);
}

void sim_stores_show(struct sim_fiber *fiber)
{
    for (int32_t i = 0; i < fiber->num_stores; i++)
        swap_bytes(&fiber->stores[i]);
}
