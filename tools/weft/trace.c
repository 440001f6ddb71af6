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
    "\vIf FILEs are of several jobs, the newest counts. Times are of the wall clocks of the hosts, "
    "as they are. The exit status is 1 if a file "
    "cannot be read or written.";

static double us_of(const json_t *entry, const char *name)
{
    return (double)json_integer_of(entry, name) / 1e3;
}

/* An operation that has not ended has a slice up to when the record was written. */
static json_t *slice_of(const struct flight *flight, const json_t *entry, int32_t rank)
{
    const int has_ended = json_is_integer(json_object_get(entry, "time_discovered_completed_ns"));
    const double begin_us = us_of(entry, "time_discovered_started_ns");
    const double end_us = has_ended ? us_of(entry, "time_discovered_completed_ns")
                                    : us_of(flight->root, "time_written_ns");
    const char *how = has_ended ? json_text_of(entry, "end") : "unfinished";
    return json_pack(
        "{s:s, s:s, s:s, s:i, s:I, s:f, s:f, s:{s:I, s:I, s:s, s:s, s:s, s:f, s:I, s:f}}", "ph",
        "X", "cat", "weft", "name", json_text_of(entry, "profiling_name"), "pid", rank, "tid",
        (json_int_t)json_integer_of(entry, "stream"), "ts", begin_us, "dur",
        end_us > begin_us ? end_us - begin_us : 0, "args", "number",
        (json_int_t)json_integer_of(entry, "collective_seq_id"), "bytes",
        (json_int_t)json_integer_value(
            json_array_get(json_array_get(json_object_get(entry, "input_sizes"), 0), 0)),
        "program", json_text_of(entry, "program"), "algorithm", json_text_of(entry, "algorithm"),
        "end", how, "waited_us", us_of(entry, "waited_ns"), "last_rank",
        (json_int_t)json_integer_of(entry, "last_rank"), "late_us", us_of(entry, "late_ns"));
}

/* A failure is an instant of its process. */
static json_t *failure_of(const struct flight *flight, int32_t rank)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:f}", "ph", "i", "s", "p", "cat", "weft",
                     "name", json_text_of(flight->root, "failure"), "pid", rank, "tid",
                     (json_int_t)0, "ts", us_of(flight->root, "time_written_ns"));
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
            json_array_append_new(events, slice_of(flight, entry, rank));
    if (strcmp(json_text_of(flight->root, "failure"), "") != 0)
        json_array_append_new(events, failure_of(flight, rank));
}

static int write_trace(const struct flights *flights, const char *path)
{
    json_t *events = json_array();
    for (int32_t rank = 0; rank < flights->num_ranks; rank++)
        if (flights->of[rank].root != NULL)
            add_rank(events, &flights->of[rank], rank);
    json_t *trace = json_pack("{s:o, s:s}", "traceEvents", events, "displayTimeUnit", "ns");
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
