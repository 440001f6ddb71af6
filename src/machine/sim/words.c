/* SPDX-License-Identifier: MIT */
/*
 * Words that are signalled, waited for and added to, and what travels with their values.
 *
 * A wait may see an older value than the last one, as a load may: unless the next newer signal is
 * in the reader's past. Then it acquires only what that older signal released. Additions always see
 * the last value, as the machines' do.
 */
#include <stdlib.h>
#include <string.h>

#include "machine/sim/world.h"

enum { WORD_HASH_BITS = 16, NUM_WORD_SLOTS = 1 << WORD_HASH_BITS, OLDER_ONE_IN = 2 };

/* Open addressing; words are few, and forgotten after each run. Not allocated one by one: that
 * would move the programs' own allocations from run to run. */
static struct sim_word words[NUM_WORD_SLOTS];
static int32_t used_slots[NUM_WORD_SLOTS];
static int32_t num_used_slots;

struct sim_word *sim_word_of(const void *word)
{
    size_t slot = ((uintptr_t)word >> 3) * 0x9e3779b97f4a7c15u >> (64 - WORD_HASH_BITS);
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

void sim_words_forget(const void *address, size_t num_bytes)
{
    for (int32_t i = 0; i < num_used_slots; i++) {
        struct sim_word *word = &words[used_slots[i]];
        if ((uintptr_t)word->address - (uintptr_t)address < num_bytes)
            *word = (struct sim_word){.address = word->address};
    }
}

void sim_words_reset(void)
{
    for (int32_t i = 0; i < num_used_slots; i++)
        memset(&words[used_slots[i]], 0, sizeof *words);
    num_used_slots = 0;
}

static const struct sim_signal *kept_signal(const struct sim_word *word, uint64_t number)
{
    return &word->signals[number % SIM_KEPT_SIGNALS];
}

struct sim_signal *sim_signal_add(struct sim_word *word, uint64_t value)
{
    const struct sim_fiber *fiber = sim_current();
    struct sim_signal *signal = &word->signals[word->num_signals++ % SIM_KEPT_SIGNALS];
    signal->value = value;
    signal->is_credit = 0;
    signal->fiber = fiber->id;
    signal->time = sim_now(fiber);
    sim_clock_clear(&signal->clock);
    return signal;
}

struct sim_signal *sim_signal_add_to(struct sim_word *word, uint64_t before, uint64_t value)
{
    struct sim_signal *signal = sim_signal_add(word, value);
    const struct sim_signal *last =
        word->num_signals > 1 ? kept_signal(word, word->num_signals - 2) : NULL;
    if (last != NULL && last->value == before)
        sim_clock_join(&signal->clock, &last->clock);
    return signal;
}

static int is_past(const struct sim_signal *signal)
{
    return sim_clock_of(&sim_current()->clock, signal->fiber) >= signal->time;
}

const struct sim_signal *sim_signal_see(const struct sim_word *word, uint64_t at_least)
{
    if (word->num_signals == 0)
        return NULL;
    uint64_t number = word->num_signals - 1;
    const uint64_t oldest =
        word->num_signals > SIM_KEPT_SIGNALS ? word->num_signals - SIM_KEPT_SIGNALS : 0;
    while (number > oldest && !is_past(kept_signal(word, number)) &&
           kept_signal(word, number - 1)->value >= at_least && sim_random(OLDER_ONE_IN) == 0)
        number--;
    return kept_signal(word, number);
}

const struct sim_word *sim_unawaited_word(void)
{
    for (int32_t i = 0; i < num_used_slots; i++) {
        const struct sim_word *word = &words[used_slots[i]];
        if (word->num_signals == 0)
            continue;
        const struct sim_signal *last = kept_signal(word, word->num_signals - 1);
        if (last->value > word->awaited && !last->is_credit)
            return word;
    }
    return NULL;
}
