/* SPDX-License-Identifier: MIT */
/*
 * The content of each packet slot, whatever memory shows to whom: which packet was sent to it last,
 * and whether and by whom that was taken.
 */
#include <stdio.h>

#include "machine/sim/table.h"
#include "machine/sim/world.h"

struct slot {
    const void *address;
    struct sim_packet packet;       /* the last one */
    struct sim_access_record sent;  /* no fiber: never */
    struct sim_access_record taken; /* no fiber: not yet */
    uint32_t taken_time;            /* in the time of the fiber that took it */
};

static struct sim_table slots = {.value_bytes = sizeof(struct slot)};

static struct slot *slot_of(const void *address)
{
    struct slot *slot = sim_table_at(&slots, (uintptr_t)address);
    slot->address = address;
    return slot;
}

void sim_slot_send(const void *address, const struct sim_packet *packet,
                   const struct sim_access_record *access)
{
    struct slot *slot = slot_of(address);
    const struct sim_access_record *taken = &slot->taken;
    if (slot->sent.fiber != NULL && taken->fiber == NULL)
        sim_report_bad_access(address, access, &slot->sent, "packet sent to a slot that is full");
    else if (taken->fiber != NULL &&
             sim_clock_of(&access->fiber->clock, taken->fiber->id) < slot->taken_time)
        sim_report_bad_access(address, access, taken,
                              "packet sent to a slot that may not have been taken: the sender did "
                              "not learn that it was emptied");
    *slot = (struct slot){.address = address, .packet = *packet, .sent = *access};
}

static void report_mix_up(const struct slot *slot, const struct sim_packet *awaited,
                          const struct sim_access_record *access)
{
    char why[160];
    snprintf(why, sizeof why,
             "packet of rank %d, operation %llu, found where one of rank %d, operation %llu, is "
             "awaited",
             slot->packet.rank, (unsigned long long)slot->packet.sequence, awaited->rank,
             (unsigned long long)awaited->sequence);
    sim_report_bad_access(slot->address, access, &slot->sent, why);
}

const struct sim_clock *sim_slot_take(const void *address, const struct sim_packet *awaited,
                                      const struct sim_access_record *access)
{
    struct slot *slot = slot_of(address);
    const struct sim_packet *packet = &slot->packet;
    if (slot->sent.fiber == NULL)
        sim_report_bad_access(address, access, NULL, "what is taken for a packet was not sent");
    else if (slot->taken.fiber != NULL)
        sim_report_bad_access(address, access, &slot->taken, "packet taken twice");
    else if (packet->rank != awaited->rank || packet->sequence != awaited->sequence ||
             packet->exchange != awaited->exchange)
        report_mix_up(slot, awaited, access);
    slot->taken = *access;
    slot->taken_time = sim_now(access->fiber);
    return packet->released;
}

static int is_within(const struct slot *slot, const void *address, size_t num_bytes)
{
    return (uintptr_t)slot->address - (uintptr_t)address < num_bytes;
}

void sim_slots_check_taken(const void *address, size_t num_bytes)
{
    for (size_t i = 0; i < sim_table_num_values(&slots); i++) {
        const struct slot *slot = slots.values[i];
        if (is_within(slot, address, num_bytes) && slot->sent.fiber != NULL &&
            slot->taken.fiber == NULL) {
            sim_report_bad_access(slot->address, &slot->sent, NULL, "packet that nobody took");
            return; /* one tells of them all */
        }
    }
}

void sim_slots_forget(const void *address, size_t num_bytes)
{
    for (size_t i = 0; i < sim_table_num_values(&slots); i++) {
        struct slot *slot = slots.values[i];
        if (is_within(slot, address, num_bytes))
            *slot = (struct slot){.address = slot->address};
    }
}
