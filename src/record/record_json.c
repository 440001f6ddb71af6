/* SPDX-License-Identifier: MIT */
/* The flight record as JSON. Fields that mean the same as in the dumps of PyTorch's Flight Recorder
 * have its names. Times are of the wall clock, in nanoseconds. */
#include <inttypes.h>
#include <time.h>

#include "record/record.h"

static int64_t read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void write_text(FILE *file, const char *text)
{
    if (text == NULL) {
        fputs("null", file);
        return;
    }
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(file, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(file, "\\u%04x", *c);
        else
            fputc(*c, file);
    }
    fputc('"', file);
}

static void write_named_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, "\"%s\": ", name);
    write_text(file, text);
    fputs(", ", file);
}

static void write_time(FILE *file, const char *name, int64_t ns, int64_t offset_ns)
{
    if (ns == 0)
        fprintf(file, "\"%s\": null, ", name);
    else
        fprintf(file, "\"%s\": %" PRId64 ", ", name, ns + offset_ns);
}

/* PyTorch has three states, so how an operation ended is a field of its own. */
static const char *state_of(const struct weft__record *record)
{
    if (record->state == WEFT__RECORD_ISSUED || record->state == WEFT__RECORD_CAPTURED)
        return "scheduled";
    return record->state == WEFT__RECORD_RUNNING ? "started" : "completed";
}

static const char *end_of(const struct weft__record *record)
{
    static const char *const ends[] = {[WEFT__RECORD_DONE] = "done",
                                       [WEFT__RECORD_FAILED] = "failed",
                                       [WEFT__RECORD_CAPTURED] = "captured"};
    return record->state >= WEFT__RECORD_DONE ? ends[record->state] : NULL;
}

static void write_entry(FILE *file, const struct weft__record *record,
                        const struct weft__record_owner *owner, int64_t offset_ns)
{
    static const char *const meetings[] = {
        [WEFT__MEETS_NOBODY] = "nobody", [WEFT__MEETS_SOME] = "some", [WEFT__MEETS_ALL] = "all"};
    const int is_p2p = record->meeting == WEFT__MEETS_SOME;
    fprintf(file,
            "  {\"record_id\": %" PRIu64 ", \"pg_id\": 0, \"collective_seq_id\": %" PRIu64
            ", \"p2p_seq_id\": %" PRIu64 ", \"is_p2p\": %s, ",
            record->id, is_p2p ? 0 : record->sequence, is_p2p ? record->sequence : 0,
            is_p2p ? "true" : "false");
    write_named_text(file, "profiling_name", record->call);
    write_time(file, "time_created_ns", record->issued_ns, offset_ns);
    write_time(file, "time_discovered_started_ns", record->started_ns, offset_ns);
    write_time(file, "time_discovered_completed_ns", record->ended_ns, offset_ns);
    write_named_text(file, "state", state_of(record));
    write_named_text(file, "end", end_of(record));
    fprintf(file, "\"input_sizes\": [[%" PRIu64 "]], \"timeout_ms\": %" PRIu32 ", ",
            record->num_bytes, owner->timeout_ms);
    write_named_text(file, "program", record->program);
    write_named_text(file, "algorithm", record->algorithm);
    write_named_text(file, "reason", record->reason);
    write_named_text(file, "meets", meetings[record->meeting]);
    fprintf(file,
            "\"exchange\": %d, \"stream\": %" PRIu64 ", \"waited_ns\": %" PRId64
            ", \"last_rank\": %d, \"late_ns\": %" PRId64 "}",
            record->exchange, record->stream_id, record->waited_ns, record->last_rank,
            record->late_ns);
}

/* Commas stand before all but the first. */
static void write_comma(FILE *file, int is_first)
{
    fputs(is_first ? "\n" : ",\n", file);
}

static void write_entries(const struct weft__records *records,
                          const struct weft__record_owner *owner, int64_t offset_ns, FILE *file)
{
    const struct weft__record_range range = weft__records_range(records);
    int is_first = 1;
    fputs(" \"entries\": [", file);
    for (uint64_t id = range.first; id <= range.last; id++) {
        struct weft__record record;
        if (!weft__records_read(records, id, &record))
            continue;
        write_comma(file, is_first);
        write_entry(file, &record, owner, offset_ns);
        is_first = 0;
    }
    fputs("]", file);
}

static void write_peers(const struct weft__records *records, FILE *file)
{
    int is_first = 1;
    fputs(" \"peers\": [", file);
    for (int32_t rank = 0; rank < weft__records_num_ranks(records); rank++) {
        struct weft__peer_counters peer;
        weft__records_peer(records, rank, &peer);
        const struct weft__peer_traffic *traffic = &peer.traffic;
        if (peer.num_waits == 0 && peer.num_last == 0 &&
            traffic->sent_bytes + traffic->received_bytes + traffic->num_under_way +
                    peer.num_masks ==
                0)
            continue;
        write_comma(file, is_first);
        fprintf(file,
                "  {\"rank\": %d, \"waits\": %" PRIu64 ", \"waited_ns\": %" PRIu64
                ", \"came_last\": %" PRIu64 ", \"late_ns\": %" PRIu64 ", \"sent_bytes\": %" PRIu64
                ", \"received_bytes\": %" PRIu64 ", \"under_way\": %" PRIu64
                ", \"retransmits\": %" PRIu64 ", \"masks\": %" PRIu64 ", \"waits_by_time\": [",
                rank, peer.num_waits, peer.waited_ns, peer.num_last, peer.late_ns,
                traffic->sent_bytes, traffic->received_bytes, traffic->num_under_way,
                traffic->num_retransmits, peer.num_masks);
        for (int32_t i = 0; i < WEFT__NUM_WAIT_BUCKETS; i++)
            fprintf(file, "%s%" PRIu64, i == 0 ? "" : ", ", peer.buckets[i]);
        fputs("]}", file);
        is_first = 0;
    }
    fputs("],\n", file);
}

static void write_slowest(const struct weft__records *records, FILE *file)
{
    const struct weft__slowest slowest = weft__records_find_slowest(records);
    if (slowest.rank == WEFT__RECORD_NOBODY) {
        fputs(" \"slowest\": null,\n", file);
        return;
    }
    fprintf(file, " \"slowest\": {\"rank\": %d, ", slowest.rank);
    write_named_text(file, "profiling_name", slowest.call);
    fprintf(file,
            "\"operations\": %" PRIu64 ", \"late\": %" PRIu64 ", \"late_ns\": %" PRId64 "},\n",
            slowest.num_operations, slowest.num_late, slowest.late_ns);
}

/* The last operation that all ranks meet in, of those that have come so far. */
static uint64_t last_id(const struct weft__records *records, int32_t state)
{
    const struct weft__record_range range = weft__records_range(records);
    for (uint64_t id = range.last; id >= range.first; id--) {
        struct weft__record record;
        if (weft__records_read(records, id, &record) && record.meeting == WEFT__MEETS_ALL &&
            record.state >= state)
            return id;
    }
    return 0;
}

void weft__records_write_json(const struct weft__records *records,
                              const struct weft__record_owner *owner, FILE *file)
{
    struct weft__record_totals totals;
    const int64_t written_ns = read_ns(CLOCK_REALTIME);
    const int64_t offset_ns = written_ns - read_ns(CLOCK_MONOTONIC);
    weft__records_totals(records, &totals);
    fputs("{\"version\": \"2.10\", ", file); /* of the format of PyTorch's */
    write_named_text(file, "weft_version", owner->version);
    write_named_text(file, "weft_commit", *owner->commit != '\0' ? owner->commit : NULL);
    write_named_text(file, "host", owner->host);
    write_named_text(file, "machine", owner->machine);
    fprintf(file,
            "\"pid\": %d, \"rank\": %d, \"world_size\": %d, \"job\": \"%016" PRIx64
            "\", \"key\": \"%016" PRIx64 "\", \"clock_offset_ns\": %" PRId64
            ", \"clock_ahead_ns\": %" PRId64 ", \"clock_error_ns\": %" PRId64
            ", \"time_written_ns\": %" PRId64 ",\n",
            owner->pid, owner->rank, owner->num_ranks, owner->job, owner->key, offset_ns,
            owner->clock_ahead_ns, owner->clock_error_ns, written_ns);
    fputs(" ", file);
    write_named_text(file, "failure", owner->failure);
    fprintf(file, "\"failed_rank\": %d, \"waits_for\": [", owner->failed_rank);
    for (int32_t i = 0; i < owner->num_awaited; i++)
        fprintf(file, "%s%d", i == 0 ? "" : ", ", owner->awaited[i]);
    fprintf(file,
            "],\n \"pg_config\": {\"0\": {\"name\": \"%016" PRIx64
            "\", \"desc\": \"weft\", \"size\": %d}},\n",
            owner->key, owner->num_ranks);
    fprintf(file,
            " \"pg_status\": {\"0\": {\"last_enqueued_collective\": %" PRIu64
            ", \"last_started_collective\": %" PRIu64 ", \"last_completed_collective\": %" PRIu64
            "}},\n",
            last_id(records, WEFT__RECORD_ISSUED), last_id(records, WEFT__RECORD_RUNNING),
            last_id(records, WEFT__RECORD_DONE));
    fprintf(file,
            " \"totals\": {\"issued\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"bytes\": %" PRIu64
            ", \"waited_ns\": %" PRIu64 "},\n",
            totals.num_issued, totals.num_failed, totals.num_bytes, totals.waited_ns);
    write_slowest(records, file);
    write_peers(records, file);
    write_entries(records, owner, offset_ns, file);
    fputs("}\n", file);
}
