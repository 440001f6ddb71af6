/* SPDX-License-Identifier: MIT */
/* What the ranks of a communicator were doing, and who waited for whom. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"
#include "report/parts.h"
#include "report/plot.h"
#include "workload/json_fields.h"

enum { MAX_RANKS = 1 << 20, MAX_DRAWN_RANKS = 64, MAX_DRAWN_OPERATIONS = 24 };

int record_is_in(const json_t *json)
{
    return json_object_get(json, "entries") != NULL;
}

const char *record_check(const json_t *json)
{
    const json_t *world_size = json_object_get(json, "world_size");
    const json_t *rank = json_object_get(json, "rank");
    if (!json_is_array(json_object_get(json, "entries")))
        return "\"entries\" is not an array";
    if (!json_is_integer(world_size) || json_integer_value(world_size) < 1 ||
        json_integer_value(world_size) > MAX_RANKS)
        return "\"world_size\" is not an integer of 1 or more";
    if (!json_is_integer(rank) || json_integer_value(rank) < 0 ||
        json_integer_value(rank) >= json_integer_value(world_size))
        return "\"rank\" is not an integer below \"world_size\"";
    return NULL;
}

/* ------------------------------------------------------------------ who waited for whom */

static int write_waits(FILE *file, const json_t *records, int64_t num_ranks)
{
    size_t i, k;
    json_t *record, *peer;
    double *waited_ms = calloc((size_t)(num_ranks * num_ranks), sizeof *waited_ms);
    for (int64_t cell = 0; waited_ms != NULL && cell < num_ranks * num_ranks; cell++)
        waited_ms[cell] = (double)NAN;
    json_array_foreach ((json_t *)records, i, record)
        json_array_foreach (json_object_get(record, "peers"), k, peer) {
            const int64_t of = json_integer_of(peer, "rank");
            if (waited_ms != NULL && of >= 0 && of < num_ranks)
                waited_ms[json_integer_of(record, "rank") * num_ranks + of] =
                    (double)json_integer_of(peer, "waited_ns") / 1e6;
        }
    const struct heat heat = {.title = "waits, ms",
                              .row_title = "this rank waited",
                              .column_title = "for this rank",
                              .num_rows = (int)num_ranks,
                              .num_columns = (int)num_ranks,
                              .values = waited_ms};
    if (waited_ms != NULL)
        heat_write(file, &heat);
    free(waited_ms);
    return waited_ms != NULL ? 0 : -1;
}

/* ------------------------------------------------------------------ the last operations */

struct times {
    int64_t first, last;
};

/* 0: it has not started. */
static int64_t start_of(const json_t *entry)
{
    return json_integer_of(entry, "time_discovered_started_ns");
}

static size_t first_drawn(const json_t *entries)
{
    const size_t count = json_array_size(entries);
    return count > MAX_DRAWN_OPERATIONS ? count - MAX_DRAWN_OPERATIONS : 0;
}

static void extend(struct times *times, int64_t ns)
{
    if (ns > 0 && (times->first == 0 || ns < times->first))
        times->first = ns;
    if (ns > times->last)
        times->last = ns;
}

static struct times times_of(const json_t *records)
{
    struct times times = {0};
    size_t i;
    json_t *record;
    json_array_foreach ((json_t *)records, i, record) {
        const json_t *entries = json_object_get(record, "entries");
        for (size_t k = first_drawn(entries); k < json_array_size(entries); k++) {
            const json_t *entry = json_array_get(entries, k);
            extend(&times, start_of(entry));
            extend(&times, json_integer_of(entry, "time_discovered_completed_ns"));
        }
    }
    return times;
}

static int has_failed(const json_t *entry)
{
    return strcmp(json_text_of(entry, "end"), "failed") == 0;
}

/* One that has not ended is as long as the picture. */
static int fill_segments(const json_t *entries, const struct times *times,
                         struct lane_segment *segments)
{
    int count = 0;
    for (size_t k = first_drawn(entries); k < json_array_size(entries); k++) {
        const json_t *entry = json_array_get(entries, k);
        const int64_t start = start_of(entry);
        const int64_t end = json_integer_of(entry, "time_discovered_completed_ns");
        if (start > 0)
            segments[count++] = (struct lane_segment){
                .name = json_text_of(entry, "profiling_name"),
                .start = (double)(start - times->first) / 1e3,
                .end = (double)((end > 0 ? end : times->last) - times->first) / 1e3,
                .state = end > 0 && !has_failed(entry) ? LANE_ENDED : LANE_NOT_ENDED,
            };
    }
    return count;
}

static int write_operations(FILE *file, const json_t *records)
{
    const size_t num_records = json_array_size(records);
    const struct times times = times_of(records);
    struct lane *lanes = calloc(num_records, sizeof *lanes);
    struct lane_segment *segments = calloc(num_records * MAX_DRAWN_OPERATIONS, sizeof *segments);
    char(*labels)[32] = calloc(num_records, sizeof *labels);
    const int is_created = lanes != NULL && segments != NULL && labels != NULL;
    for (size_t i = 0; i < num_records && is_created; i++) {
        const json_t *record = json_array_get(records, i);
        struct lane_segment *own = segments + i * MAX_DRAWN_OPERATIONS;
        snprintf(labels[i], sizeof labels[i], "rank %" PRId64, json_integer_of(record, "rank"));
        lanes[i] = (struct lane){
            labels[i], fill_segments(json_object_get(record, "entries"), &times, own), own};
    }
    const struct lanes all = {.title = "the last operations; dashed: failed, or not ended",
                              .x_title = "us, by the ranks' clocks",
                              .num_lanes = (int)num_records,
                              .lanes = lanes};
    if (is_created)
        lanes_write(file, &all);
    free(labels);
    free(segments);
    free(lanes);
    return is_created ? 0 : -1;
}

/* ------------------------------------------------------------------ a table of ranks */

static void write_text_cell(FILE *file, const char *tag, const char *text)
{
    page_print(file, "<td class=\"%s\">%s</td>", tag, text);
}

static void write_slowest(FILE *file, const json_t *slowest)
{
    char text[160] = "";
    if (json_is_object(slowest))
        snprintf(text, sizeof text,
                 "rank %" PRId64 ", late in %" PRId64 " of %" PRId64 ", %.3g ms each time",
                 json_integer_of(slowest, "rank"), json_integer_of(slowest, "late"),
                 json_integer_of(slowest, "operations"),
                 (double)json_integer_of(slowest, "late_ns") / 1e6);
    write_text_cell(file, "a", text);
}

static void write_awaited(FILE *file, const json_t *ranks)
{
    size_t i;
    json_t *rank;
    fputs("<td class=\"a\">", file);
    json_array_foreach ((json_t *)ranks, i, rank)
        fprintf(file, "%s%" PRId64, i > 0 ? ", " : "", (int64_t)json_integer_value(rank));
    fputs("</td>", file);
}

static void write_rank(FILE *file, const json_t *record)
{
    const json_t *entries = json_object_get(record, "entries");
    const json_t *last = json_array_get(entries, json_array_size(entries) - 1);
    fprintf(file, "<tr><th>%" PRId64 "</th>", json_integer_of(record, "rank"));
    write_text_cell(file, "a", json_text_of(record, "host"));
    write_text_cell(file, "a", json_text_of(last, "profiling_name"));
    fprintf(file, "<td>%" PRId64 "</td>", json_integer_of(last, "collective_seq_id"));
    write_text_cell(file, "a", has_failed(last) ? "failed" : json_text_of(last, "state"));
    write_awaited(file, json_object_get(record, "waits_for"));
    write_slowest(file, json_object_get(record, "slowest"));
    write_text_cell(file, "v", json_text_of(record, "failure"));
    fputs("</tr>\n", file);
}

int records_write(FILE *file, const json_t *records)
{
    const int64_t num_ranks = json_integer_of(json_array_get(records, 0), "world_size");
    size_t i;
    json_t *record;
    int result = 0;
    fprintf(file, "<p class=\"n\">%zu of %" PRId64 " ranks, communicator ",
            json_array_size(records), num_ranks);
    page_text(file, json_text_of(json_array_get(records, 0), "key"));
    fputs("</p>\n<div class=\"s\"><table><thead><tr><th>rank</th><th class=\"a\">host</th>"
          "<th class=\"a\">last operation</th><th>number</th><th class=\"a\">state</th>"
          "<th class=\"a\">waits for</th><th class=\"a\">slowest</th><th class=\"v\">failure</th>"
          "</tr></thead><tbody>\n",
          file);
    json_array_foreach ((json_t *)records, i, record)
        write_rank(file, record);
    fputs("</tbody></table></div>\n<div class=\"p\">\n", file);
    if (num_ranks <= MAX_DRAWN_RANKS)
        result |= write_waits(file, records, num_ranks);
    if (json_array_size(records) <= MAX_DRAWN_RANKS)
        result |= write_operations(file, records);
    fputs("</div>\n", file);
    if (num_ranks > MAX_DRAWN_RANKS)
        fprintf(file, "<p class=\"n\">Drawings are for up to %d ranks.</p>\n", MAX_DRAWN_RANKS);
    return result;
}
