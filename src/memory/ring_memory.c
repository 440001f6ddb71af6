/* SPDX-License-Identifier: MIT */
#include "memory/ring_memory.h"

#include "machine/host.h"

weft_result weft__rings_allocate(weft_comm *comm, uint64_t more_bytes, struct wp_rings *rings)
{
    const struct weft__machine *machine = weft__machine_of(comm);
    void *memory;
    WEFT__TRY(machine->network_alloc(comm, wp_rings_words_bytes(rings) + more_bytes, &memory,
                                     &rings->words_place));
    rings->words = memory;
    WEFT__TRY(
        machine->staging_alloc(comm, wp_rings_slots_bytes(rings), &memory, &rings->slots_place));
    rings->slots = memory;
    return WEFT_OK;
}

void weft__rings_free(weft_comm *comm, struct wp_rings *rings)
{
    const struct weft__machine *machine = weft__machine_of(comm);
    machine->network_free(comm, rings->slots);
    machine->network_free(comm, rings->words);
}

static uint64_t num_of_each(const struct wp_rings *rings)
{
    return WP_NUM_BUFFERS * wp_rings_num_counters(rings);
}

uint64_t weft__rings_counters_bytes(const struct wp_rings *rings)
{
    return 2 * num_of_each(rings) * sizeof(uint64_t);
}

uint64_t *weft__rings_lay_counters(struct wp_rings *rings, void *memory)
{
    rings->num_sent = memory;
    rings->num_received = rings->num_sent + num_of_each(rings);
    return rings->num_received + num_of_each(rings);
}
