/* SPDX-License-Identifier: MIT */
/* Slots and lists of values are mapped, not allocated: that would move the programs' own
 * allocations from run to run. They are kept for the next run. */
#include "machine/sim/table.h"

#include <string.h>
#include <sys/mman.h>

#include "machine/sim/world.h"

enum { LEAST_SLOTS = 1 << 12, FULL_PART = 2 }; /* one in so many slots is used at most */

static void *map(size_t num_bytes)
{
    void *memory =
        mmap(NULL, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        sim_end_without_memory();
    return memory;
}

static struct sim_table_slot *slot_of(const struct sim_table *table, uintptr_t key)
{
    enum { UPPER_HALF = 32 };
    size_t i = (key * 0x9e3779b97f4a7c15u >> UPPER_HALF) & (table->num_slots - 1);
    while (table->slots[i].run == table->run && table->slots[i].key != key)
        i = (i + 1) & (table->num_slots - 1);
    return &table->slots[i];
}

static void grow(struct sim_table *table)
{
    const struct sim_table old = *table;
    const size_t num_slots = old.num_slots > 0 ? 2 * old.num_slots : LEAST_SLOTS;
    table->num_slots = num_slots;
    table->slots = map(num_slots * sizeof *table->slots);
    table->values = map(num_slots / FULL_PART * sizeof *table->values);
    for (size_t i = 0; i < old.num_slots; i++) {
        if (old.slots[i].run == old.run)
            *slot_of(table, old.slots[i].key) = old.slots[i];
    }
    if (old.num_slots == 0)
        return;
    memcpy(table->values, old.values, old.num_values * sizeof *old.values);
    munmap(old.slots, old.num_slots * sizeof *old.slots);
    munmap(old.values, old.num_slots / FULL_PART * sizeof *old.values);
}

size_t sim_table_num_values(const struct sim_table *table)
{
    return table->run == sim_run_number() ? table->num_values : 0;
}

void *sim_table_find(const struct sim_table *table, uintptr_t key)
{
    if (sim_table_num_values(table) == 0)
        return NULL;
    const struct sim_table_slot *slot = slot_of(table, key);
    return slot->run == table->run ? slot->value : NULL;
}

void *sim_table_at(struct sim_table *table, uintptr_t key)
{
    if (table->run != sim_run_number()) {
        table->run = sim_run_number();
        table->num_values = 0;
    }
    if (table->num_values == table->num_slots / FULL_PART)
        grow(table);
    struct sim_table_slot *slot = slot_of(table, key);
    if (slot->run != table->run) {
        *slot = (struct sim_table_slot){key, sim_run_alloc(table->value_bytes), table->run};
        table->values[table->num_values++] = slot->value;
    }
    return slot->value;
}
