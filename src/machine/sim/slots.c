/* SPDX-License-Identifier: MIT */
/*
 * What each packet slot holds, whatever memory shows to whom: which packet was sent to it last, and
 * whether and by whom that was taken. Like words, slots are few and forgotten after each run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/sim/world.h"

enum { SLOT_HASH_BITS = 15, NUM_SLOTS = 1 << SLOT_HASH_BITS };

struct slot {
    const void *address;
    struct sim_packet packet;       /* the last one */
    struct sim_access_record sent;  /* no fiber: never */
    struct sim_access_record taken; /* no fiber: not yet */
    uint32_t taken_time;            /* in the time of the fiber that took it */
};

static struct slot slots[NUM_SLOTS]; /* open addressing */
static int32_t used[NUM_SLOTS];
static int32_t num_used;

static struct slot *slot_of(const void *address)
{
    size_t i = ((uintptr_t)address >> 3) * 0x9e3779b97f4a7c15u >> (64 - SLOT_HASH_BITS);
    while (slots[i].address != NULL && slots[i].address != address)
        i = (i + 1) % NUM_SLOTS;
    if (slots[i].address == NULL) {
        if (num_used == NUM_SLOTS - 1)
            abort(); /* a checker that forgets packets would miss that they are mixed up */
        slots[i].address = address;
        used[num_used++] = (int32_t)i;
    }
    return &slots[i];
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
    for (int32_t i = 0; i < num_used; i++) {
        const struct slot *slot = &slots[used[i]];
        if (is_within(slot, address, num_bytes) && slot->sent.fiber != NULL &&
            slot->taken.fiber == NULL) {
            sim_report_bad_access(slot->address, &slot->sent, NULL, "packet that nobody took");
            return; /* one tells of them all */
        }
    }
}

void sim_slots_forget(const void *address, size_t num_bytes)
{
    for (int32_t i = 0; i < num_used; i++) {
        struct slot *slot = &slots[used[i]];
        if (is_within(slot, address, num_bytes))
            *slot = (struct slot){.address = slot->address};
    }
}

void sim_slots_reset(void)
{
    for (int32_t i = 0; i < num_used; i++)
        memset(&slots[used[i]], 0, sizeof *slots);
    num_used = 0;
}
