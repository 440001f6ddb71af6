/* SPDX-License-Identifier: MIT */
/* The table of cells: one for each word of four bytes, or for each byte of a word that was accessed
 * in parts. */
#include "machine/sim/shadow.h"

#include "machine/sim/table.h"

enum { WORD_BYTES = 4, PAGE_WORDS = 16, PAGE_BYTES = PAGE_WORDS * WORD_BYTES };

struct word {
    struct sim_cell *bytes; /* [WORD_BYTES]; NULL: all accesses were to the whole word */
    struct sim_cell whole;
};

/* Words are found by their page: neighbours are near each other here too. Most of a heap is never
 * accessed: then its pages have no words. */
struct page {
    struct word *words; /* [PAGE_WORDS]; NULL: they have no past, and this content */
    enum sim_content content;
};

static struct sim_table pages = {.value_bytes = sizeof(struct page)};

static void clear_cell(struct sim_cell *cell, enum sim_content content)
{
    cell->content = content;
    cell->write.fiber = SIM_NOBODY;
    cell->read.fiber = SIM_NOBODY;
}

static struct page *new_page(uintptr_t number)
{
    uint64_t offset;
    struct page *page = sim_table_at(&pages, number);
    /* Allocated entries have been set since. */
    if (sim_heap_rank((const void *)(number * PAGE_BYTES), &offset) >= 0)
        page->content = SIM_CONTENT_UNALLOCATED;
    return page;
}

/* NULL: nothing is known of it. The pages used last are found without a look at the table, whose
 * every page is a miss of the cache. */
static struct page *find_page(uintptr_t number)
{
    enum { NUM_RECENT = 64 };
    static struct {
        uintptr_t number;
        uint64_t run;
        struct page *page;
    } recent[NUM_RECENT];
    const size_t entry = number % NUM_RECENT;
    if (recent[entry].run == sim_run_number() && recent[entry].number == number)
        return recent[entry].page;
    struct page *page = sim_table_find(&pages, number);
    if (page != NULL) {
        recent[entry].number = number;
        recent[entry].run = sim_run_number();
        recent[entry].page = page;
    }
    return page;
}

static struct page *page_of(uintptr_t number)
{
    struct page *page = find_page(number);
    return page != NULL ? page : new_page(number);
}

static struct word *word_of(uintptr_t number)
{
    struct page *page = page_of(number / PAGE_WORDS);
    if (page->words == NULL) {
        page->words = sim_run_alloc(PAGE_WORDS * sizeof *page->words);
        for (int i = 0; i < PAGE_WORDS; i++)
            clear_cell(&page->words[i].whole, page->content);
    }
    return &page->words[number % PAGE_WORDS];
}

static struct sim_clock *copy_of(const struct sim_clock *clock)
{
    struct sim_clock *copy = sim_run_alloc(sizeof *copy);
    sim_clock_join(copy, clock);
    return copy;
}

static void split(struct word *word)
{
    word->bytes = sim_run_alloc(WORD_BYTES * sizeof *word->bytes);
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

static void set_page(uintptr_t number, uintptr_t begin, uintptr_t end, enum sim_content content)
{
    struct page *page = page_of(number);
    if (page->words == NULL && end - begin == PAGE_BYTES)
        page->content = content;
    else
        set_range(begin, end, content);
}

enum missing { SKIP_MISSING, ADD_MISSING };

static void set_pages(const void *address, size_t num_bytes, enum sim_content content,
                      enum missing missing)
{
    const uintptr_t begin = (uintptr_t)address, end = begin + num_bytes;
    for (uintptr_t number = begin / PAGE_BYTES; number * PAGE_BYTES < end; number++) {
        const uintptr_t first = number * PAGE_BYTES, last = first + PAGE_BYTES;
        if (missing == ADD_MISSING || find_page(number) != NULL)
            set_page(number, first > begin ? first : begin, last < end ? last : end, content);
    }
}

void sim_shadow_set(const void *address, size_t num_bytes, enum sim_content content)
{
    set_pages(address, num_bytes, content, ADD_MISSING);
}

void sim_shadow_forget(const void *address, size_t num_bytes)
{
    set_pages(address, num_bytes, SIM_CONTENT_ANY, SKIP_MISSING);
}
