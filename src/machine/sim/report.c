/* SPDX-License-Identifier: MIT */
/* A run's findings, in words: source lines come from the executable's debug information. */
#include <elfutils/libdwfl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "machine/sim/world.h"

enum { MAX_REPORTED_RACES = 3 };

void sim_report(const char *format, ...)
{
    char *report = sim_world->result->report;
    const size_t num_free = WEFT__SIM_REPORT_BYTES - sim_world->report_bytes;
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(report + sim_world->report_bytes, num_free, format, arguments);
    va_end(arguments);
    if (length > 0)
        sim_world->report_bytes += (size_t)length < num_free ? (size_t)length : num_free - 1;
}

/* ---------------------------------------------------------------- accesses */

static int is_write(enum sim_access access)
{
    return access == SIM_WRITE || access == SIM_ATOMIC_WRITE || access == SIM_ROW_WRITE;
}

/* Whether it was made by a row operation that its own fiber does not know to have ended. */
static int is_under_way(const struct sim_access_record *access)
{
    return (access->access == SIM_ROW_READ || access->access == SIM_ROW_WRITE) &&
           access->fiber->rows_time != 0;
}

static const char *missing_edge(const struct sim_access_record *earlier,
                                const struct sim_access_record *later)
{
    if (is_under_way(earlier))
        return "the row operation may still be under way: a block sync or a signal by its lane "
               "must end it first";
    if (!is_write(earlier->access))
        return "the write is not ordered after the read: the writer did not learn that the reader "
               "is done";
    if (!is_write(later->access))
        return "the read is not ordered after the write: a release by the writer, or the acquire "
               "of it by the reader, is missing";
    return "the two writes are not ordered: the second writer did not learn that the first is done";
}

static void report_access(const struct sim_access_record *access)
{
    static const char *const names[] = {[SIM_READ] = "read",
                                        [SIM_WRITE] = "write",
                                        [SIM_ATOMIC_READ] = "atomic read",
                                        [SIM_ATOMIC_WRITE] = "atomic write",
                                        [SIM_ROW_READ] = "row read",
                                        [SIM_ROW_WRITE] = "row write"};
    const struct sim_fiber *fiber = access->fiber;
    if (fiber->rank == SIM_NO_RANK) {
        sim_report("%s by the network for the put at %s", names[access->access],
                   sim_line_of(access->code));
        return;
    }
    sim_report("%s by rank %d block %d warp %d lane %d at %s", names[access->access], fiber->rank,
               fiber->warp.block_idx, fiber->warp.warp_idx, fiber->warp.lane_idx,
               sim_line_of(access->code));
}

void sim_report_race(const void *address, const struct sim_access_record *earlier,
                     const struct sim_access_record *later)
{
    if (sim_world->result->num_races++ >= MAX_REPORTED_RACES)
        return;
    sim_report("race at %s: ", sim_name_of(address));
    report_access(later);
    sim_report(", ");
    report_access(earlier);
    sim_report(": %s\n", missing_edge(earlier, later));
}

void sim_report_bad_access(const void *address, const struct sim_access_record *access,
                           const struct sim_access_record *earlier, const char *why)
{
    if (sim_world->result->num_races++ >= MAX_REPORTED_RACES)
        return;
    sim_report("%s, at %s: ", why, sim_name_of(address));
    report_access(access);
    if (earlier != NULL) {
        sim_report(", after ");
        report_access(earlier);
    }
    sim_report("\n");
}

/* ---------------------------------------------------------------- traces */

void sim_trace(const char *what, struct weft__sim_place place, const void *address, uint64_t value)
{
    struct sim_fiber *fiber = sim_current();
    fiber->trace[fiber->num_events++ % SIM_TRACE_EVENTS] =
        (struct sim_event){sim_world->step, what, place, address, value};
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static void report_trace(const struct sim_fiber *fiber, uint64_t num_events)
{
    if (fiber->num_events < num_events)
        num_events = fiber->num_events;
    if (num_events > SIM_TRACE_EVENTS)
        num_events = SIM_TRACE_EVENTS;
    if (fiber->rank == SIM_NO_RANK)
        sim_report("network, path %d", fiber->id);
    else
        sim_report("rank %d block %d warp %d lane %d", fiber->rank, fiber->warp.block_idx,
                   fiber->warp.warp_idx, fiber->warp.lane_idx);
    sim_report(", last %llu events:\n", (unsigned long long)num_events);
    for (uint64_t i = fiber->num_events - num_events; i < fiber->num_events; i++) {
        const struct sim_event *event = &fiber->trace[i % SIM_TRACE_EVENTS];
        sim_report("  step %llu %s:%d %s %s = %llu\n", (unsigned long long)event->step,
                   base_name(event->place.file), event->place.line, event->what,
                   event->address != NULL ? sim_name_of(event->address) : "-",
                   (unsigned long long)event->value);
    }
}

void sim_report_traces(void)
{
    const int32_t num_events = sim_world->config->num_trace_events;
    for (int32_t i = 0; i < sim_world->num_fibers && num_events > 0; i++) {
        if (!sim_world->fibers[i]->is_host && sim_world->fibers[i]->num_events > 0)
            report_trace(sim_world->fibers[i], (uint64_t)num_events);
    }
}

/* ---------------------------------------------------------------- names */

const char *sim_name_of(const void *address)
{
    static char names[2][64];
    static int next;
    char *name = names[next++ % 2];
    uint64_t offset;
    const int32_t rank = sim_heap_rank(address, &offset);
    if (rank >= 0)
        snprintf(name, sizeof names[0], "heap of rank %d + %llu", rank, (unsigned long long)offset);
    else
        snprintf(name, sizeof names[0], "local memory %p", address);
    return name;
}

static Dwfl *open_debug_info(void)
{
    static char *no_path;
    static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_linux_proc_find_elf,
                                             .find_debuginfo = dwfl_standard_find_debuginfo,
                                             .debuginfo_path = &no_path};
    Dwfl *dwfl = dwfl_begin(&callbacks);
    if (dwfl == NULL)
        return NULL;
    dwfl_report_begin(dwfl);
    if (dwfl_linux_proc_report(dwfl, getpid()) != 0 || dwfl_report_end(dwfl, NULL, NULL) != 0) {
        dwfl_end(dwfl);
        return NULL;
    }
    return dwfl;
}

const char *sim_line_of(const void *code)
{
    static char lines[2][128];
    static int next;
    static Dwfl *dwfl; /* for the life of the process */
    char *line = lines[next++ % 2];
    if (dwfl == NULL)
        dwfl = open_debug_info();
    int number = 0;
    const char *file = NULL;
    if (dwfl != NULL) {
        /* A return address: the call is just before it. */
        const Dwarf_Addr address = (Dwarf_Addr)(uintptr_t)code - 1;
        Dwfl_Line *source = dwfl_getsrc(dwfl, address);
        if (source != NULL)
            file = dwfl_lineinfo(source, NULL, &number, NULL, NULL, NULL);
    }
    if (file != NULL)
        snprintf(line, sizeof lines[0], "%s:%d", base_name(file), number);
    else
        snprintf(line, sizeof lines[0], "%p", code);
    return line;
}
