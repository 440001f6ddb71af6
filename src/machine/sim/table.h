/* SPDX-License-Identifier: MIT */
/* The sim's notes by address, in memory of the run: as much as there is of it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct sim_table_slot {
    uintptr_t key;
    void *value;
    uint64_t run; /* slots of earlier runs count as empty, so that nothing must be cleared */
};

/* Static, with value_bytes given. Each run begins with it empty. */
struct sim_table {
    size_t value_bytes;
    uint64_t run;                 /* that the rest is of */
    struct sim_table_slot *slots; /* open addressing */
    size_t num_slots;             /* a power of two */
    void **values;                /* in the order in which they came */
    size_t num_values;
};

/* NULL: there is none. */
void *sim_table_find(const struct sim_table *table, uintptr_t key);
/* The same, but a new one, zeroed, is added. It stays where it is. */
void *sim_table_at(struct sim_table *table, uintptr_t key);
/* The table of this run. */
size_t sim_table_num_values(const struct sim_table *table);
