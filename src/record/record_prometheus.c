/* SPDX-License-Identifier: MIT */
/* Metrics in the text format of Prometheus, with names after its conventions: base units, and _total
 * behind counters. */
#include <inttypes.h>
#include <stddef.h>

#include "record/record.h"

struct metric {
    const char *name, *type, *help;
};

static void begin(FILE *file, const struct metric *metric)
{
    fprintf(file, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name,
            metric->type);
}

/* The name and the labels that all samples have; the caller closes the brace. */
static void write_labels(FILE *file, const char *name, const char *suffix,
                         const struct weft__record_owner *owner)
{
    fprintf(file, "%s%s{communicator=\"%016" PRIx64 "\",rank=\"%d\"", name, suffix, owner->key,
            owner->rank);
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

/* ---------------------------------------------------------------- of calls */

static double value_of(const struct weft__call_counters *call, int field)
{
    switch (field) {
    case 0:
        return (double)call->num_issued;
    case 1:
        return (double)call->num_failed;
    case 2:
        return (double)call->num_bytes;
    default:
        return seconds(call->waited_ns);
    }
}

static void write_calls(const struct weft__records *records, const struct weft__record_owner *owner,
                        FILE *file)
{
    static const struct metric metrics[] = {
        {"weft_operations_total", "counter", "Operations that were issued."},
        {"weft_operation_failures_total", "counter", "Operations that have failed."},
        {"weft_operation_bytes_total", "counter",
         "Bytes that this rank gave to operations or got."},
        {"weft_operation_wait_seconds_total", "counter",
         "Time in which operations only waited for ranks."}};
    for (int field = 0; field < (int)(sizeof metrics / sizeof *metrics); field++) {
        begin(file, &metrics[field]);
        for (int32_t i = 0; i < weft__records_num_calls(records); i++) {
            const struct weft__call_counters call = weft__records_call(records, i);
            if (call.call == NULL)
                continue;
            write_labels(file, metrics[field].name, "", owner);
            fprintf(file, ",operation=\"%s\"} %.17g\n", call.call, value_of(&call, field));
        }
    }
}

/* ---------------------------------------------------------------- of ranks */

/* Buckets count all waits up to their end. */
static void write_waits(const struct metric *metric, const struct weft__peer_counters *peer,
                        int32_t rank, const struct weft__record_owner *owner, FILE *file)
{
    uint64_t num_waits = 0;
    for (int32_t i = 0; i < WEFT__NUM_WAIT_BUCKETS; i++) {
        const int64_t end_ns = weft__wait_bucket_ns(i);
        num_waits += peer->buckets[i];
        write_labels(file, metric->name, "_bucket", owner);
        if (i == WEFT__NUM_WAIT_BUCKETS - 1)
            fprintf(file, ",peer=\"%d\",le=\"+Inf\"} %" PRIu64 "\n", rank, num_waits);
        else
            fprintf(file, ",peer=\"%d\",le=\"%.9g\"} %" PRIu64 "\n", rank,
                    seconds((uint64_t)end_ns), num_waits);
    }
    write_labels(file, metric->name, "_sum", owner);
    fprintf(file, ",peer=\"%d\"} %.17g\n", rank, seconds(peer->waited_ns));
    write_labels(file, metric->name, "_count", owner);
    fprintf(file, ",peer=\"%d\"} %" PRIu64 "\n", rank, num_waits);
}

static void write_peers(const struct weft__records *records, const struct weft__record_owner *owner,
                        FILE *file)
{
    static const struct metric waits = {"weft_peer_wait_seconds", "histogram",
                                        "Waits of this rank for another one."},
                               lasts = {"weft_peer_last_total", "counter",
                                        "Operations to which a rank came last."},
                               lateness = {"weft_peer_late_seconds_total", "counter",
                                           "Time by which a rank came after all others."};
    struct weft__peer_counters peer;
    begin(file, &waits);
    for (int32_t rank = 0; rank < weft__records_num_ranks(records); rank++) {
        weft__records_peer(records, rank, &peer);
        if (rank != owner->rank)
            write_waits(&waits, &peer, rank, owner, file);
    }
    begin(file, &lasts);
    for (int32_t rank = 0; rank < weft__records_num_ranks(records); rank++) {
        weft__records_peer(records, rank, &peer);
        write_labels(file, lasts.name, "", owner);
        fprintf(file, ",peer=\"%d\"} %" PRIu64 "\n", rank, peer.num_last);
    }
    begin(file, &lateness);
    for (int32_t rank = 0; rank < weft__records_num_ranks(records); rank++) {
        weft__records_peer(records, rank, &peer);
        write_labels(file, lateness.name, "", owner);
        fprintf(file, ",peer=\"%d\"} %.17g\n", rank, seconds(peer.late_ns));
    }
}

/* Of ranks without any of this nothing is written. */
static void write_traffic(const struct weft__records *records,
                          const struct weft__record_owner *owner, FILE *file)
{
    static const struct {
        struct metric metric;
        size_t offset;
    } rows[] = {{{"weft_peer_sent_bytes_total", "counter", "Bytes sent over the network."},
                 offsetof(struct weft__peer_counters, traffic.sent_bytes)},
                {{"weft_peer_received_bytes_total", "counter", "Bytes received over the network."},
                 offsetof(struct weft__peer_counters, traffic.received_bytes)},
                {{"weft_peer_under_way", "gauge", "Messages that the network has not handed over."},
                 offsetof(struct weft__peer_counters, traffic.num_under_way)},
                {{"weft_peer_retransmits_total", "counter", "Packets that were sent again."},
                 offsetof(struct weft__peer_counters, traffic.num_retransmits)},
                {{"weft_peer_masks", "gauge", "Objects that go on without a rank."},
                 offsetof(struct weft__peer_counters, num_masks)}};
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        begin(file, &rows[row].metric);
        for (int32_t rank = 0; rank < weft__records_num_ranks(records); rank++) {
            struct weft__peer_counters peer;
            weft__records_peer(records, rank, &peer);
            if (peer.traffic.sent_bytes + peer.traffic.received_bytes + peer.num_masks == 0)
                continue;
            write_labels(file, rows[row].metric.name, "", owner);
            fprintf(file, ",peer=\"%d\"} %" PRIu64 "\n", rank,
                    *(const uint64_t *)(const void *)((const char *)&peer + rows[row].offset));
        }
    }
}

static void write_gauge(const struct metric *metric, double value,
                        const struct weft__record_owner *owner, FILE *file)
{
    begin(file, metric);
    write_labels(file, metric->name, "", owner);
    fprintf(file, "} %.17g\n", value);
}

void weft__records_write_prometheus(const struct weft__records *records,
                                    const struct weft__record_owner *owner, FILE *file)
{
    static const struct metric slowest = {"weft_slowest_rank", "gauge",
                                          "The rank that others wait for by evidence; -1 is none."},
                               failed = {"weft_communicator_failed", "gauge",
                                         "Whether the communicator has failed."},
                               used = {"weft_heap_used_bytes", "gauge",
                                       "Bytes of the symmetric heap that are allocated."},
                               committed = {"weft_heap_committed_bytes", "gauge",
                                            "Bytes of the symmetric heap that have memory."};
    write_calls(records, owner, file);
    write_peers(records, owner, file);
    write_traffic(records, owner, file);
    write_gauge(&slowest, weft__records_find_slowest(records).rank, owner, file);
    write_gauge(&failed, owner->failure != NULL, owner, file);
    write_gauge(&used, (double)owner->heap_used_bytes, owner, file);
    write_gauge(&committed, (double)owner->heap_committed_bytes, owner, file);
}
