/* SPDX-License-Identifier: MIT */
/* Vector clocks: what happened before what. */
#include <stdlib.h>
#include <string.h>

#include "machine/sim/world.h"

enum { NUM_WORD_SLOTS = 1 << 12 };

/* Open addressing; words are few, and forgotten after each run. Not allocated one by one: that would
 * move the programs' own allocations from run to run. */
static struct sim_word words[NUM_WORD_SLOTS];
static int32_t used_slots[NUM_WORD_SLOTS];
static int32_t num_used_slots;

void sim_clock_join(struct sim_clock *clock, const struct sim_clock *other)
{
    const int32_t num_fibers = sim_world->num_fibers;
    for (int32_t i = 0; i < num_fibers; i++) {
        if (clock->of[i] < other->of[i])
            clock->of[i] = other->of[i];
    }
}

void sim_release(struct sim_clock *clock)
{
    struct sim_fiber *fiber = sim_current();
    sim_clock_join(clock, &fiber->clock);
    fiber->clock.of[fiber->id]++;
}

void sim_acquire(const struct sim_clock *clock)
{
    sim_clock_join(&sim_current()->clock, clock);
}

struct sim_word *sim_word_of(const void *word)
{
    size_t slot = ((uintptr_t)word >> 3) * 0x9e3779b97f4a7c15u >> 52;
    while (words[slot].address != NULL && words[slot].address != word)
        slot = (slot + 1) % NUM_WORD_SLOTS;
    if (words[slot].address == NULL) {
        if (num_used_slots == NUM_WORD_SLOTS - 1)
            abort(); /* a checker that forgets orderings would report races that are none */
        words[slot].address = word;
        used_slots[num_used_slots++] = (int32_t)slot;
    }
    return &words[slot];
}

void sim_words_reset(void)
{
    for (int32_t i = 0; i < num_used_slots; i++)
        memset(&words[used_slots[i]], 0, sizeof *words);
    num_used_slots = 0;
}

const struct sim_word *sim_unawaited_word(void)
{
    for (int32_t i = 0; i < num_used_slots; i++) {
        const struct sim_word *word = &words[used_slots[i]];
        if (word->signalled > word->awaited)
            return word;
    }
    return NULL;
}
