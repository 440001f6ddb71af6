/* SPDX-License-Identifier: MIT */
/* The table of cells: one for each word of four bytes, or for each byte of a word that was accessed
 * in parts. */
#include "machine/sim/shadow.h"

#include "machine/sim/table.h"

enum { WORD_BYTES = 4, PAGE_WORDS = 16, PAGE_BYTES = PAGE_WORDS * WORD_BYTES, GROUP_PAGES = 16 };

struct word {
    struct sim_cell *bytes; /* [WORD_BYTES]; NULL: all accesses were to the whole word */
    struct sim_cell whole;
};

/* Words are found by their page, and pages by their group: neighbours are near each other here too.
 * Most of a heap is never accessed: then its pages have no words. */
struct page {
    struct word *words; /* [PAGE_WORDS]; NULL: they have no past, and this content */
    enum sim_content content;
};

static struct sim_table groups = {.value_bytes = GROUP_PAGES * sizeof(struct page)};

static void clear_cell(struct sim_cell *cell, enum sim_content content)
{
    cell->content = content;
    cell->write.fiber = SIM_NOBODY;
    cell->read.fiber = SIM_NOBODY;
}

/* A group lies in a heap, which has pages of the system, or outside. */
static struct page *new_group(uintptr_t number)
{
    uint64_t offset;
    struct page *group = sim_table_at(&groups, number);
    /* Allocated entries are set after this. */
    if (sim_heap_rank((const void *)(number * GROUP_PAGES * PAGE_BYTES), &offset) >= 0)
        for (int i = 0; i < GROUP_PAGES; i++)
            group[i].content = SIM_CONTENT_UNALLOCATED;
    return group;
}

/* NULL: nothing is known of it. The groups used last are found without a look at the table, whose
 * every entry is a miss of the cache. */
static struct page *find_group(uintptr_t number)
{
    enum { NUM_RECENT = 64 };
    static struct {
        uintptr_t number;
        uint64_t run;
        struct page *group;
    } recent[NUM_RECENT];
    const size_t entry = number % NUM_RECENT;
    if (recent[entry].run == sim_run_number() && recent[entry].number == number)
        return recent[entry].group;
    struct page *group = sim_table_find(&groups, number);
    if (group != NULL) {
        recent[entry].number = number;
        recent[entry].run = sim_run_number();
        recent[entry].group = group;
    }
    return group;
}

static struct page *page_of(uintptr_t number)
{
    struct page *group = find_group(number / GROUP_PAGES);
    if (group == NULL)
        group = new_group(number / GROUP_PAGES);
    return &group[number % GROUP_PAGES];
}

static struct word *words_of(uintptr_t page_number)
{
    struct page *page = page_of(page_number);
    if (page->words == NULL) {
        page->words = sim_run_alloc(PAGE_WORDS * sizeof *page->words);
        for (int i = 0; i < PAGE_WORDS; i++)
            clear_cell(&page->words[i].whole, page->content);
    }
    return page->words;
}

/* An access goes from word to word of a page. */
static struct word *word_of(uintptr_t number)
{
    static struct {
        uintptr_t page_number;
        uint64_t run;
        struct word *words;
    } last;
    const uintptr_t page_number = number / PAGE_WORDS;
    if (last.run != sim_run_number() || last.page_number != page_number) {
        last.words = words_of(page_number);
        last.page_number = page_number;
        last.run = sim_run_number();
    }
    return &last.words[number % PAGE_WORDS];
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
        if (missing == ADD_MISSING || find_group(number / GROUP_PAGES) != NULL)
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
