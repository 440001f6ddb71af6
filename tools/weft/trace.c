/* SPDX-License-Identifier: MIT */
/* weft trace: flight records as a trace in Chrome's format, which Perfetto opens: a process for
 * each rank, a thread for each stream, a slice for each operation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "flight.h"
#include "workload/options.h"

struct trace {
    struct option_texts files;
    const char *output;
};

#define AT(member) OPTION_AT(struct trace, member)

static const struct option_row option_table[] = {{OPTION_TEXT, "output", "OUT",
                                                  "Write the trace to OUT", "trace.json",
                                                  AT(output), .letter = 'o'},
                                                 {OPTION_ARGUMENTS, .arg = "FILE...", AT(files)},
                                                 {0}};

static const char documentation[] =
    "Writes the operations of flight records as a trace in Chrome's format, for ui.perfetto.dev. "
    "FILE is the record of a rank, or a directory of them, as WEFT_RECORD names it."
    "\vIf FILEs are of several jobs, the newest counts. Times are of the wall clock of "
    "rank 0's host. The exit status is 1 if a file "
    "cannot be read or written.";

static double us_of(const json_t *entry, const char *name)
{
    return (double)json_integer_of(entry, name) / 1e3;
}

/* A double has no nanoseconds since 1970: times begin with the trace. */
static int64_t begin_ns;

/* By the clock of rank 0's host. */
static int64_t when_ns(const struct flight *flight, const json_t *entry, const char *name)
{
    return json_integer_of(entry, name) - json_integer_of(flight->root, "clock_ahead_ns");
}

static double when_us(const struct flight *flight, const json_t *entry, const char *name)
{
    return (double)(when_ns(flight, entry, name) - begin_ns) / 1e3;
}

static void find_begin(const struct flights *flights)
{
    begin_ns = INT64_MAX;
    for (int32_t rank = 0; rank < flights->num_ranks; rank++) {
        const struct flight *flight = &flights->of[rank];
        const json_t *entry;
        size_t i;
        json_array_foreach ((json_t *)flight->entries, i, entry)
            if (when_ns(flight, entry, "time_created_ns") < begin_ns)
                begin_ns = when_ns(flight, entry, "time_created_ns");
    }
}

static json_t *event_of(const struct flight *flight, const char *phase, const char *name,
                        const json_t *entry, double at_us)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:f}", "ph", phase, "cat", "weft", "name", name,
                     "pid", (json_int_t)json_integer_of(flight->root, "rank"), "tid",
                     (json_int_t)json_integer_of(entry, "stream"), "ts", at_us);
}

/* An operation that has not ended has a slice up to when the record was written. */
static json_t *slice_of(const struct flight *flight, const json_t *entry)
{
    const int has_ended = json_is_integer(json_object_get(entry, "time_discovered_completed_ns"));
    const double begin_us = when_us(flight, entry, "time_discovered_started_ns");
    const double end_us = has_ended ? when_us(flight, entry, "time_discovered_completed_ns")
                                    : when_us(flight, flight->root, "time_written_ns");
    const double us = end_us > begin_us ? end_us - begin_us : 0;
    const int64_t bytes = json_integer_value(
        json_array_get(json_array_get(json_object_get(entry, "input_sizes"), 0), 0));
    json_t *slice = event_of(flight, "X", json_text_of(entry, "profiling_name"), entry, begin_us);
    json_object_set_new(slice, "dur", json_real(us));
    json_object_set_new(slice, "args",
                        json_pack("{s:I, s:I, s:f, s:s, s:s, s:s, s:f, s:I, s:f}", "number",
                                  (json_int_t)json_integer_of(entry, "collective_seq_id"), "bytes",
                                  (json_int_t)bytes, "gbps", us > 0 ? (double)bytes / us / 1e3 : 0,
                                  "program", json_text_of(entry, "program"), "algorithm",
                                  json_text_of(entry, "algorithm"), "end",
                                  has_ended ? json_text_of(entry, "end") : "unfinished",
                                  "waited_us", us_of(entry, "waited_ns"), "last_rank",
                                  (json_int_t)json_integer_of(entry, "last_rank"), "late_us",
                                  us_of(entry, "late_ns")));
    return slice;
}

/* Inside the slice of the operation, before its data move: so long it only waited, in the end for
 * the rank that came last. */
static void add_wait(json_t *events, const struct flight *flight, const json_t *entry)
{
    const double us = us_of(entry, "waited_ns");
    const int64_t rank = json_integer_of(entry, "last_rank");
    char name[64];
    if (us <= 0 || rank < 0 || rank == json_integer_of(flight->root, "rank"))
        return;
    snprintf(name, sizeof name, "waits for rank %d", (int)rank);
    json_t *wait =
        event_of(flight, "X", name, entry, when_us(flight, entry, "time_discovered_started_ns"));
    json_object_set_new(wait, "dur", json_real(us));
    json_array_append_new(events, wait);
}

/* A failure is an instant of its process. */
static json_t *failure_of(const struct flight *flight)
{
    json_t *failure = event_of(flight, "i", json_text_of(flight->root, "failure"), NULL,
                               when_us(flight, flight->root, "time_written_ns"));
    json_object_set_new(failure, "s", json_string("p"));
    return failure;
}

static json_t *name_of(const struct flight *flight, int32_t rank)
{
    char name[128];
    snprintf(name, sizeof name, "rank %d on %s", rank, json_text_of(flight->root, "host"));
    return json_pack("{s:s, s:s, s:i, s:{s:s}}", "ph", "M", "name", "process_name", "pid", rank,
                     "args", "name", name);
}

static void add_rank(json_t *events, const struct flight *flight, int32_t rank)
{
    size_t i;
    const json_t *entry;
    json_array_append_new(events, name_of(flight, rank));
    json_array_foreach (flight->entries, i, entry)
        if (json_is_integer(json_object_get(entry, "time_discovered_started_ns")))
            json_array_append_new(events, slice_of(flight, entry));
    json_array_foreach (flight->entries, i, entry)
        if (json_is_integer(json_object_get(entry, "time_discovered_completed_ns")))
            add_wait(events, flight, entry);
    if (strcmp(json_text_of(flight->root, "failure"), "") != 0)
        json_array_append_new(events, failure_of(flight));
}

/* The error of the clocks, in the metadata and on standard error. */
static double align(const struct flights *flights)
{
    int64_t error_ns = 0;
    for (int32_t rank = 0; rank < flights->num_ranks; rank++)
        if (json_integer_of(flights->of[rank].root, "clock_error_ns") > error_ns)
            error_ns = json_integer_of(flights->of[rank].root, "clock_error_ns");
    if (error_ns > 0)
        fprintf(stderr, "weft trace: clocks of hosts are aligned to within %.3f ms\n",
                (double)error_ns / 1e6);
    return (double)error_ns / 1e3;
}

static int write_trace(const struct flights *flights, const char *path)
{
    json_t *events = json_array();
    find_begin(flights);
    for (int32_t rank = 0; rank < flights->num_ranks; rank++)
        if (flights->of[rank].root != NULL)
            add_rank(events, &flights->of[rank], rank);
    json_t *trace =
        json_pack("{s:o, s:s, s:{s:s, s:f}}", "traceEvents", events, "displayTimeUnit", "ns",
                  "otherData", "job", json_text_of(json_array_get(flights->roots, 0), "job"),
                  "clock_error_us", align(flights));
    const int is_written = trace != NULL && json_dump_file(trace, path, JSON_COMPACT) == 0;
    json_decref(trace);
    if (!is_written)
        fprintf(stderr, "weft trace: cannot write %s\n", path);
    return is_written ? EXIT_SUCCESS : STATUS_FAILURE;
}

int command_trace(int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, NULL};
    struct trace trace = {.files = {.count = 0}};
    struct flights flights;
    options_parse(&set, &trace, argc, argv);
    if (trace.files.count == 0) {
        fprintf(stderr, "weft trace: no FILE is given; WEFT_RECORD names the directory of them\n");
        return STATUS_USAGE;
    }
    const int is_read = flights_read(&flights, argv[0], trace.files.texts, trace.files.count) == 0;
    const int status = is_read ? write_trace(&flights, trace.output) : STATUS_FAILURE;
    flights_free(&flights);
    return status;
}
