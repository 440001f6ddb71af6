/* SPDX-License-Identifier: MIT */
/*
 * Who accessed each byte last, after FastTrack (Flanagan and Freund 2009): the last write as one
 * (fiber, time) pair, and reads as one pair until two fibers have read without order between them.
 * An access must be ordered, by the clocks, after those it conflicts with.
 */

#include "machine/sim/shadow.h"

static int is_atomic(const struct sim_last *last)
{
    return last->access == SIM_ATOMIC_READ || last->access == SIM_ATOMIC_WRITE;
}

static int is_write(const struct sim_last *last)
{
    return last->access == SIM_WRITE || last->access == SIM_ATOMIC_WRITE ||
           last->access == SIM_ROW_WRITE;
}

static struct sim_access_record record_of(const struct sim_last *last)
{
    return (struct sim_access_record){sim_world->fibers[last->fiber], (enum sim_access)last->access,
                                      last->code};
}

static void report_race(const void *address, const struct sim_last *earlier,
                        const struct sim_last *later)
{
    const struct sim_access_record first = record_of(earlier), second = record_of(later);
    sim_report_race(address, &first, &second);
}

static int is_before(const struct sim_last *earlier, const struct sim_fiber *fiber)
{
    if (earlier->fiber == SIM_NOBODY)
        return 1;
    return (is_write(earlier) ? sim_clock_of(&fiber->clock, earlier->fiber)
                              : sim_clock_of_loads(&fiber->clock, earlier->fiber)) >= earlier->time;
}

static int conflicts(const struct sim_last *earlier, const struct sim_last *later)
{
    return !(is_atomic(earlier) && is_atomic(later)) && !is_before(earlier, sim_current());
}

static int check_readers(const void *address, const struct sim_cell *cell,
                         const struct sim_last *write)
{
    if (cell->read.fiber != SIM_MANY) {
        if (!conflicts(&cell->read, write))
            return 0;
        report_race(address, &cell->read, write);
        return 1;
    }
    for (int32_t id = 0; id < sim_times_size(&cell->readers->all); id++) {
        const struct sim_last reader = {(int16_t)id, cell->read.access,
                                        sim_clock_of(cell->readers, id), cell->read.code};
        if (conflicts(&reader, write)) {
            report_race(address, &reader, write);
            return 1;
        }
    }
    return 0;
}

/* A fiber's row operation, dated later, stands for its other reads too. */
static void note_read(struct sim_cell *cell, const struct sim_last *read)
{
    if (cell->read.fiber == read->fiber && cell->read.time > read->time)
        return;
    if (cell->read.fiber == read->fiber ||
        (cell->read.fiber != SIM_MANY && is_before(&cell->read, sim_current()))) {
        cell->read = *read;
        return;
    }
    if (cell->read.fiber != SIM_MANY) {
        if (cell->readers == NULL)
            cell->readers = sim_run_alloc(sizeof *cell->readers);
        sim_clock_clear(cell->readers);
        sim_clock_set(cell->readers, cell->read.fiber, cell->read.time);
        cell->read.fiber = SIM_MANY;
    }
    if (!is_atomic(read))
        cell->read.access = read->access;
    cell->read.code = read->code;
    if (sim_clock_of(cell->readers, read->fiber) < read->time)
        sim_clock_set(cell->readers, read->fiber, read->time);
}

/* The fault of an access to such memory; NULL if there is none. */
static const char *misuse(enum sim_content content, const struct sim_last *access)
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

/* A rank that was stalled may come back to operations that the others have given up and freed. That
 * harms nobody: they do not allocate again without it. */
static int is_late(const struct sim_last *access)
{
    const struct weft__sim_config *config = sim_world->config;
    return config->fault == WEFT__SIM_STALL && config->stall_ns > 0 &&
           sim_world->result->fault_struck &&
           sim_world->fibers[access->fiber]->rank == config->fault_rank;
}

/* Who has read the bytes since they were written last did so after that write, and has done so
 * before a write that is after its read, whatever that write's fiber knows of the one before. */
static int is_behind_reads(const struct sim_cell *cell, const struct sim_last *access)
{
    return is_write(access) && cell->read.fiber != SIM_NOBODY;
}

/* Returns 1 when something was reported, so that one access is reported once. */
static int check_cell(const void *address, struct sim_cell *cell, const struct sim_last *access)
{
    int is_reported = 0;
    if (cell->content == SIM_CONTENT_FREED && is_late(access))
        return 0;
    const char *why = misuse(cell->content, access);
    if (why != NULL) {
        const struct sim_access_record record = record_of(access);
        sim_report_bad_access(address, &record, NULL, why);
        is_reported = 1;
    } else if (!is_behind_reads(cell, access) && conflicts(&cell->write, access)) {
        report_race(address, &cell->write, access);
        is_reported = 1;
    } else if (is_write(access)) {
        is_reported = check_readers(address, cell, access);
    }
    if (why != NULL || is_write(access))
        cell->content = SIM_CONTENT_ANY; /* reported once, or written */
    if (is_write(access)) {
        cell->write = *access;
        cell->read.fiber = SIM_NOBODY; /* all reads are before this write, or were reported */
    } else {
        note_read(cell, access);
    }
    return is_reported;
}

static int check_mapping(const void *address, const struct sim_last *access)
{
    const struct sim_access_record record = record_of(access);
    if (sim_heap_is_mapped(address, record.fiber->rank))
        return 0;
    sim_report_bad_access(address, &record, NULL,
                          "access to the heap of a communicator that the rank has destroyed");
    return 1;
}

void sim_check_access(const void *address, size_t num_bytes, enum sim_access access,
                      const void *code)
{
    const struct sim_fiber *fiber = sim_current();
    const int is_of_rows = access == SIM_ROW_READ || access == SIM_ROW_WRITE;
    const struct sim_last last = {(int16_t)fiber->id, (uint8_t)access,
                                  is_of_rows ? sim_rows_time() : sim_now(fiber), code};
    const uintptr_t end = (uintptr_t)address + num_bytes;
    int is_reported = num_bytes > 0 && check_mapping(address, &last);
    size_t num_cell_bytes;
    for (uintptr_t at = (uintptr_t)address; at < end; at += num_cell_bytes) {
        struct sim_cell *cell = sim_cell_of(at, end, &num_cell_bytes);
        if (!is_reported) {
            is_reported = check_cell((const void *)at, cell, &last);
        } else if (is_write(&last)) {
            cell->write = last;
            cell->content = SIM_CONTENT_ANY;
        }
    }
}

void sim_check_packet_alignment(const void *slots, const void *code)
{
    enum { ALIGNMENT = 16 };
    if ((uintptr_t)slots % ALIGNMENT != 0 && sim_world->result->num_races++ == 0)
        sim_report(
            "the slots at %s are not aligned to %d bytes, as packets on GPUs must be; used at "
            "%s\n",
            sim_name_of(slots), ALIGNMENT, sim_line_of(code));
}

void weft__sim_host_reads(const void *address, size_t num_bytes)
{
    sim_check_access(address, num_bytes, SIM_READ, __builtin_return_address(0));
}

void weft__sim_host_writes(const void *address, size_t num_bytes)
{
    sim_check_access(address, num_bytes, SIM_WRITE, __builtin_return_address(0));
}
