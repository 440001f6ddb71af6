/* SPDX-License-Identifier: MIT */
/*
 * Words that are signalled, waited for and added to, and what travels with their values.
 *
 * A wait may see an older value than the last one, as a load may: unless the next newer signal is
 * in the reader's past. Then it acquires only what that older signal released. Additions always see
 * the last value, as the machines' do.
 */
#include "machine/sim/table.h"
#include "machine/sim/world.h"

enum { OLDER_ONE_IN = 2 };

static struct sim_table words = {.value_bytes = sizeof(struct sim_word)};

struct sim_word *sim_word_of(const void *address)
{
    struct sim_word *word = sim_table_at(&words, (uintptr_t)address);
    word->address = address;
    return word;
}

void sim_words_forget(const void *address, size_t num_bytes)
{
    for (size_t i = 0; i < sim_table_num_values(&words); i++) {
        struct sim_word *word = words.values[i];
        if ((uintptr_t)word->address - (uintptr_t)address < num_bytes)
            *word = (struct sim_word){.address = word->address};
    }
}

void sim_word_change(struct sim_word *word, enum wp_access_adders who, const void *code)
{
    const struct sim_access_record access = {sim_current(), SIM_ATOMIC_WRITE, code};
    const uint32_t both = 1u << WP_ACCESS_ADDED_BY_NETWORK | 1u << WP_ACCESS_ADDED_BY_ALL;
    if (word->changed_by == both)
        return; /* reported once */
    word->changed_by |= 1u << who;
    if (word->changed_by == both)
        sim_report_bad_access(word->address, &access, NULL,
                              "word that a NIC adds to, changed by a processor");
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
    for (size_t i = 0; i < sim_table_num_values(&words); i++) {
        const struct sim_word *word = words.values[i];
        if (word->num_signals == 0)
            continue;
        const struct sim_signal *last = kept_signal(word, word->num_signals - 1);
        if (last->value > word->awaited && !last->is_credit)
            return word;
    }
    return NULL;
}
