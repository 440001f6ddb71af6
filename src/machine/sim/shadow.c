/* SPDX-License-Identifier: MIT */
/*
 * Who accessed each byte last, after FastTrack (Flanagan and Freund 2009): the last write as one
 * (fiber, time) pair, and reads as one pair until two fibers have read without order between them.
 * An access must be ordered, by the clocks, after those it conflicts with.
 */
#include <stdlib.h>
#include <string.h>

#include "machine/sim/world.h"

enum {
    WORD_BYTES = 4,
    PAGE_WORDS = 16,
    PAGE_HASH_BITS = 14,
    NUM_PAGES = 1 << PAGE_HASH_BITS, /* that a run may touch, less what keeps look-ups short */
    NUM_SPLIT_WORDS = 1 << 15,
    NUM_READ_VECTORS = 1 << 16, /* of bytes that several fibers have read */
    NOBODY = -1,
    MANY = -2
};

struct last {       /* access */
    int16_t fiber;  /* NOBODY; for reads also MANY */
    uint8_t access; /* enum sim_access */
    uint32_t time;
    const void *code;
};

struct cell { /* of one byte, or of a whole word */
    struct last write;
    struct last read;
    uint32_t *read_times; /* [SIM_MAX_FIBERS] once read.fiber was MANY in this run */
    enum sim_content content;
};

struct word {
    uint32_t run;       /* words of earlier runs count as empty, so that nothing must be cleared */
    struct cell *bytes; /* [WORD_BYTES]; NULL: all accesses were to the whole word */
    struct cell whole;
};

/* Words are found by their page: neighbours are near each other here too. */
struct page {
    uintptr_t number; /* address / WORD_BYTES / PAGE_WORDS */
    uint32_t run;
    struct word words[PAGE_WORDS];
};

static struct page pages[NUM_PAGES]; /* open addressing */
static int32_t num_pages;
static struct cell split_words[NUM_SPLIT_WORDS][WORD_BYTES];
static int32_t num_split_words;
static uint32_t read_vectors[NUM_READ_VECTORS][SIM_MAX_FIBERS];
static int32_t num_read_vectors;
static uint32_t run_number = 1;

void sim_shadow_reset(void)
{
    run_number++;
    num_pages = 0;
    num_split_words = 0;
    num_read_vectors = 0;
}

static void clear_cell(struct cell *cell, enum sim_content content)
{
    cell->content = content;
    cell->write.fiber = NOBODY;
    cell->read.fiber = NOBODY;
}

/* Where the page is, or where it belongs. */
static struct page *find_page(uintptr_t number)
{
    static struct page *last = &pages[0];
    if (last->run == run_number && last->number == number)
        return last;
    size_t slot = number * 0x9e3779b97f4a7c15u >> (64 - PAGE_HASH_BITS);
    while (pages[slot].run == run_number && pages[slot].number != number)
        slot = (slot + 1) % NUM_PAGES;
    last = &pages[slot];
    return last;
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
    word->whole.read_times = NULL;
    return word;
}

static uint32_t *new_read_vector(void)
{
    if (num_read_vectors == NUM_READ_VECTORS)
        abort(); /* as above */
    return read_vectors[num_read_vectors++];
}

static void split(struct word *word)
{
    if (num_split_words == NUM_SPLIT_WORDS)
        abort(); /* as above */
    word->bytes = split_words[num_split_words++];
    for (int i = 0; i < WORD_BYTES; i++) {
        word->bytes[i] = word->whole;
        if (word->whole.read_times != NULL)
            word->bytes[i].read_times =
                memcpy(new_read_vector(), word->whole.read_times, sizeof *read_vectors);
    }
}

/* The cell of the bytes from `address` on, of which it stands for *num_bytes. */
static struct cell *cell_of(uintptr_t address, uintptr_t end, size_t *num_bytes)
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
        clear_cell(cell_of(at, end, &num_bytes), content);
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

/* ---------------------------------------------------------------- checks */

static int is_atomic(const struct last *last)
{
    return last->access == SIM_ATOMIC_READ || last->access == SIM_ATOMIC_WRITE;
}

static int is_write(const struct last *last)
{
    return last->access == SIM_WRITE || last->access == SIM_ATOMIC_WRITE ||
           last->access == SIM_ROW_WRITE;
}

static struct sim_access_record record_of(const struct last *last)
{
    return (struct sim_access_record){sim_world->fibers[last->fiber], (enum sim_access)last->access,
                                      last->code};
}

static void report_race(const void *address, const struct last *earlier, const struct last *later)
{
    const struct sim_access_record first = record_of(earlier), second = record_of(later);
    sim_report_race(address, &first, &second);
}

static int is_before(const struct last *earlier, const struct sim_fiber *fiber)
{
    return earlier->fiber == NOBODY || fiber->clock.of[earlier->fiber] >= earlier->time;
}

static int conflicts(const struct last *earlier, const struct last *later)
{
    return !(is_atomic(earlier) && is_atomic(later)) && !is_before(earlier, sim_current());
}

static int check_readers(const void *address, const struct cell *cell, const struct last *write)
{
    if (cell->read.fiber != MANY) {
        if (!conflicts(&cell->read, write))
            return 0;
        report_race(address, &cell->read, write);
        return 1;
    }
    for (int32_t id = 0; id < sim_world->num_fibers; id++) {
        const struct last reader = {(int16_t)id, cell->read.access, cell->read_times[id],
                                    cell->read.code};
        if (conflicts(&reader, write)) {
            report_race(address, &reader, write);
            return 1;
        }
    }
    return 0;
}

/* A fiber's row operation, dated later, stands for its other reads too. */
static void note_read(struct cell *cell, const struct last *read)
{
    if (cell->read.fiber == read->fiber && cell->read.time > read->time)
        return;
    if (cell->read.fiber == read->fiber ||
        (cell->read.fiber != MANY && is_before(&cell->read, sim_current()))) {
        cell->read = *read;
        return;
    }
    if (cell->read.fiber != MANY) {
        if (cell->read_times == NULL)
            cell->read_times = new_read_vector();
        memset(cell->read_times, 0, sizeof *read_vectors);
        cell->read_times[cell->read.fiber] = cell->read.time;
        cell->read.fiber = MANY;
    }
    if (!is_atomic(read))
        cell->read.access = read->access;
    cell->read.code = read->code;
    if (cell->read_times[read->fiber] < read->time)
        cell->read_times[read->fiber] = read->time;
}

/* What is wrong with an access to such memory; NULL if nothing. */
static const char *misuse(enum sim_content content, const struct last *access)
{
    switch (content) {
    case SIM_CONTENT_UNWRITTEN:
        return is_write(access) ? NULL
                                : "read of memory that nobody has written since it was allocated";
    case SIM_CONTENT_UNALLOCATED:
        return "access to heap memory that is not allocated";
    case SIM_CONTENT_FREED:
        return "access to memory that has been freed";
    default:
        return NULL;
    }
}

/* Returns 1 when something was reported, so that one access is reported once. */
static int check_cell(const void *address, struct cell *cell, const struct last *access)
{
    int is_reported = 0;
    const char *why = misuse(cell->content, access);
    if (why != NULL) {
        const struct sim_access_record record = record_of(access);
        sim_report_bad_access(address, &record, why);
        is_reported = 1;
    } else if (conflicts(&cell->write, access)) {
        report_race(address, &cell->write, access);
        is_reported = 1;
    } else if (is_write(access)) {
        is_reported = check_readers(address, cell, access);
    }
    if (why != NULL || is_write(access))
        cell->content = SIM_CONTENT_ANY; /* reported once, or written */
    if (is_write(access)) {
        cell->write = *access;
        cell->read.fiber = NOBODY; /* all reads are before this write, or were reported */
    } else {
        note_read(cell, access);
    }
    return is_reported;
}

static int check_mapping(const void *address, const struct last *access)
{
    const struct sim_access_record record = record_of(access);
    if (sim_heap_is_mapped(address, record.fiber->rank))
        return 0;
    sim_report_bad_access(address, &record,
                          "access to the heap of a communicator that the rank has destroyed");
    return 1;
}

void sim_check_access(const void *address, size_t num_bytes, enum sim_access access,
                      const void *code)
{
    const struct sim_fiber *fiber = sim_current();
    const int is_of_rows = access == SIM_ROW_READ || access == SIM_ROW_WRITE;
    const struct last last = {(int16_t)fiber->id, (uint8_t)access,
                              is_of_rows ? sim_rows_time() : fiber->clock.of[fiber->id], code};
    const uintptr_t end = (uintptr_t)address + num_bytes;
    int is_reported = num_bytes > 0 && check_mapping(address, &last);
    size_t num_cell_bytes;
    for (uintptr_t at = (uintptr_t)address; at < end; at += num_cell_bytes) {
        struct cell *cell = cell_of(at, end, &num_cell_bytes);
        if (!is_reported) {
            is_reported = check_cell((const void *)at, cell, &last);
        } else if (is_write(&last)) {
            cell->write = last;
            cell->content = SIM_CONTENT_ANY;
        }
    }
}

void weft__sim_host_reads(const void *address, size_t num_bytes)
{
    sim_check_access(address, num_bytes, SIM_READ, __builtin_return_address(0));
}

void weft__sim_host_writes(const void *address, size_t num_bytes)
{
    sim_check_access(address, num_bytes, SIM_WRITE, __builtin_return_address(0));
}
