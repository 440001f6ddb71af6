/* SPDX-License-Identifier: MIT */
/* The table of cells: one for each word of four bytes, or for each byte of a word that was accessed
 * in parts. */
#include "machine/sim/shadow.h"

#include <stdlib.h>
#include <string.h>

enum {
    WORD_BYTES = 4,
    PAGE_WORDS = 16,
    PAGE_HASH_BITS = 20,             /* untouched pages cost addresses alone */
    NUM_PAGES = 1 << PAGE_HASH_BITS, /* that a run may touch, less what keeps look-ups short */
    NUM_SPLIT_WORDS = 1 << 17
};

struct word {
    uint32_t run; /* words of earlier runs count as empty, so that nothing must be cleared */
    struct sim_cell *bytes; /* [WORD_BYTES]; NULL: all accesses were to the whole word */
    struct sim_cell whole;
};

/* Words are found by their page: neighbours are near each other here too. */
struct page {
    uintptr_t number; /* address / WORD_BYTES / PAGE_WORDS */
    uint32_t run;
    struct word words[PAGE_WORDS];
};

static struct page pages[NUM_PAGES]; /* open addressing */
static int32_t num_pages;
static struct sim_cell split_words[NUM_SPLIT_WORDS][WORD_BYTES];
static int32_t num_split_words;
static uint32_t run_number = 1;

void sim_shadow_reset(void)
{
    run_number++;
    num_pages = 0;
    num_split_words = 0;
}

static void clear_cell(struct sim_cell *cell, enum sim_content content)
{
    cell->content = content;
    cell->write.fiber = SIM_NOBODY;
    cell->read.fiber = SIM_NOBODY;
}

/* Where the page is, or where it belongs. The pages used last are found without a look at the
 * table, whose every page is a miss of the cache. */
static struct page *find_page(uintptr_t number)
{
    enum { NUM_RECENT = 64 };
    static struct {
        uintptr_t number;
        uint32_t run;
        struct page *page;
    } recent[NUM_RECENT];
    const size_t entry = number % NUM_RECENT;
    if (recent[entry].run == run_number && recent[entry].number == number)
        return recent[entry].page;
    size_t slot = number * 0x9e3779b97f4a7c15u >> (64 - PAGE_HASH_BITS);
    while (pages[slot].run == run_number && pages[slot].number != number)
        slot = (slot + 1) % NUM_PAGES;
    if (pages[slot].run == run_number) {
        recent[entry].number = number;
        recent[entry].run = run_number;
        recent[entry].page = &pages[slot];
    }
    return &pages[slot];
}

static struct page *page_of(uintptr_t number)
{
    struct page *page = find_page(number);
    if (page->run == run_number)
        return page;
    if (++num_pages > NUM_PAGES / 4 * 3)
        abort(); /* a checker that forgets accesses would miss races */
    page->run = run_number;
    page->number = number;
    return page;
}

static struct word *word_of(uintptr_t number)
{
    struct word *word = &page_of(number / PAGE_WORDS)->words[number % PAGE_WORDS];
    if (word->run == run_number)
        return word;
    uint64_t offset;
    const int is_in_heap = sim_heap_rank((const void *)(number * WORD_BYTES), &offset) >= 0;
    word->run = run_number;
    word->bytes = NULL;
    /* What is allocated has been set since. */
    clear_cell(&word->whole, is_in_heap ? SIM_CONTENT_UNALLOCATED : SIM_CONTENT_ANY);
    word->whole.readers = NULL;
    return word;
}

static struct sim_clock *copy_of(const struct sim_clock *clock)
{
    struct sim_clock *copy = sim_run_alloc(sizeof *copy);
    sim_clock_join(copy, clock);
    return copy;
}

static void split(struct word *word)
{
    if (num_split_words == NUM_SPLIT_WORDS)
        abort(); /* as above */
    word->bytes = split_words[num_split_words++];
    for (int i = 0; i < WORD_BYTES; i++) {
        word->bytes[i] = word->whole;
        if (word->whole.readers != NULL)
            word->bytes[i].readers = copy_of(word->whole.readers);
    }
}

struct sim_cell *sim_cell_of(uintptr_t address, uintptr_t end, size_t *num_bytes)
{
    struct word *word = word_of(address / WORD_BYTES);
    if (word->bytes == NULL && address % WORD_BYTES == 0 && end - address >= WORD_BYTES) {
        *num_bytes = WORD_BYTES;
        return &word->whole;
    }
    if (word->bytes == NULL)
        split(word);
    *num_bytes = 1;
    return &word->bytes[address % WORD_BYTES];
}

static void set_range(uintptr_t begin, uintptr_t end, enum sim_content content)
{
    size_t num_bytes;
    for (uintptr_t at = begin; at < end; at += num_bytes)
        clear_cell(sim_cell_of(at, end, &num_bytes), content);
}

void sim_shadow_set(const void *address, size_t num_bytes, enum sim_content content)
{
    set_range((uintptr_t)address, (uintptr_t)address + num_bytes, content);
}

void sim_shadow_forget(const void *address, size_t num_bytes)
{
    enum { PAGE_BYTES = PAGE_WORDS * WORD_BYTES };
    const uintptr_t begin = (uintptr_t)address, end = begin + num_bytes;
    for (uintptr_t number = begin / PAGE_BYTES; number * PAGE_BYTES < end; number++) {
        const uintptr_t first = number * PAGE_BYTES, last = first + PAGE_BYTES;
        if (find_page(number)->run == run_number)
            set_range(first > begin ? first : begin, last < end ? last : end, SIM_CONTENT_ANY);
    }
}
