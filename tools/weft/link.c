/* SPDX-License-Identifier: MIT */
#include "link.h"

#include <stdlib.h>
#include <string.h>

#include "workload/failure.h"
#include "workload/figures.h"
#include "workload/payload.h"
#include "workload/try.h"

enum { NUM_WARMUP = 3, NUM_ITERS = 20 };

/* The rows that a dispatch carries. */
struct flow {
    int32_t num_rows;
    uint64_t row_bytes;
};
static const struct flow one_row = {1, 16};
/* Enough that what a dispatch costs besides its rows does not matter at 500 GB/s. */
static const struct flow many_rows_of_gpu = {8192, 16384};
static const struct flow many_rows_of_host = {1024, 16384};

/* This rank's part in carrying one flow. The receiver's tokens are 0 of num_rows. */
struct carrier {
    weft_comm *comm;
    const struct flow *flow;
    int32_t sender, receiver;
    int32_t num_tokens;  /* of this rank */
    unsigned char *rows; /* the host's copy, [num_rows][row_bytes] on both ranks */
    weft_stream *stream;
    weft_event *start, *stop;
    weft_ep *ep;
    weft_ep_handle *handle;
    void *src, *dst, *topk_idx; /* of the machine; dst is in the heap */
};

static weft_result open_objects(struct carrier *carrier)
{
    weft_ep_config config = WEFT_INIT(weft_ep_config);
    weft_ep_handle_config handle_config = WEFT_INIT(weft_ep_handle_config);
    config.num_experts = weft_comm_num_ranks(carrier->comm); /* one on each */
    handle_config.max_tokens = carrier->flow->num_rows;
    handle_config.num_topk = 1;
    TRY(weft_stream_create(carrier->comm, &carrier->stream));
    TRY(weft_event_create(carrier->comm, &carrier->start));
    TRY(weft_event_create(carrier->comm, &carrier->stop));
    TRY(weft_ep_create(carrier->comm, &config, &carrier->ep));
    return weft_ep_handle_create(carrier->ep, &handle_config, &carrier->handle);
}

static weft_result open_buffers(struct carrier *carrier)
{
    const size_t num_rows = (size_t)carrier->flow->num_rows;
    const size_t bytes = num_rows * carrier->flow->row_bytes;
    const struct payload payload = {.seed = 1, .dtype = WEFT_UINT8};
    int32_t *topk_idx = malloc(num_rows * sizeof *topk_idx);
    carrier->rows = malloc(bytes);
    if (!carrier->rows || !topk_idx) {
        free(topk_idx);
        return LACKS_MEMORY("%zu rows of %zu bytes", num_rows, (size_t)carrier->flow->row_bytes);
    }
    for (size_t row = 0; row < num_rows; row++) {
        topk_idx[row] = carrier->receiver;
        payload_fill_row(&payload, (int64_t)row, 0, carrier->rows + row * carrier->flow->row_bytes,
                         carrier->flow->row_bytes);
    }
    weft_result result = weft_memory_alloc(carrier->comm, bytes, &carrier->src);
    if (result == WEFT_OK)
        result = weft_memory_alloc(carrier->comm, num_rows * sizeof *topk_idx, &carrier->topk_idx);
    if (result == WEFT_OK)
        result = weft_heap_alloc(carrier->comm, bytes, &carrier->dst);
    if (result == WEFT_OK)
        result = weft_memory_copy(carrier->comm, carrier->src, carrier->rows, bytes);
    if (result == WEFT_OK)
        result = weft_memory_copy(carrier->comm, carrier->topk_idx, topk_idx,
                                  num_rows * sizeof *topk_idx);
    free(topk_idx);
    return result;
}

static weft_result open_carrier(struct carrier *carrier)
{
    weft_ep_layout_args layout = WEFT_INIT(weft_ep_layout_args);
    TRY(open_objects(carrier));
    TRY(open_buffers(carrier));
    layout.num_tokens = carrier->num_tokens;
    layout.index_type = WEFT_INT32;
    layout.topk_idx = carrier->topk_idx;
    TRY(weft_ep_layout(carrier->handle, &layout, carrier->stream));
    return weft_ep_notify(carrier->handle, carrier->stream);
}

/* Ranks destroy together what is in the heap; after a failure the communicator takes it along. */
static void close_carrier(struct carrier *carrier)
{
    if (carrier->stream)
        weft_stream_destroy(carrier->stream);
    if (carrier->start)
        weft_event_destroy(carrier->start);
    if (carrier->stop)
        weft_event_destroy(carrier->stop);
    if (carrier->handle)
        weft_ep_handle_destroy(carrier->handle);
    if (carrier->ep)
        weft_ep_destroy(carrier->ep);
    weft_heap_free(carrier->comm, carrier->dst);
    weft_memory_free(carrier->comm, carrier->src);
    weft_memory_free(carrier->comm, carrier->topk_idx);
    free(carrier->rows);
}

static weft_result enqueue_dispatch(struct carrier *carrier)
{
    const int is_receiver = weft_comm_rank(carrier->comm) == carrier->receiver;
    const weft_plane plane = {.size = sizeof(weft_plane),
                              .src = carrier->src,
                              .dst = carrier->dst,
                              .row_bytes = carrier->flow->row_bytes};
    weft_ep_dispatch_args args = WEFT_INIT(weft_ep_dispatch_args);
    args.num_planes = 1;
    args.planes = &plane;
    args.capacity = is_receiver ? carrier->flow->num_rows : 0;
    return weft_ep_dispatch(carrier->handle, &args, carrier->stream);
}

/* The barrier lets both ranks start together. */
static weft_result time_dispatch(struct carrier *carrier, double *us)
{
    TRY(weft_comm_barrier(carrier->comm, carrier->stream));
    TRY(weft_event_record(carrier->start, carrier->stream));
    TRY(enqueue_dispatch(carrier));
    TRY(weft_event_record(carrier->stop, carrier->stream));
    TRY(weft_stream_synchronize(carrier->stream));
    return weft_event_elapsed_us(carrier->start, carrier->stop, us);
}

static weft_result count_damaged_rows(struct carrier *carrier, int64_t *num_damaged_rows)
{
    const size_t row_bytes = carrier->flow->row_bytes;
    const size_t bytes = (size_t)carrier->flow->num_rows * row_bytes;
    *num_damaged_rows = 0;
    if (weft_comm_rank(carrier->comm) != carrier->receiver)
        return WEFT_OK;
    unsigned char *received = calloc(1, bytes);
    if (!received)
        return LACKS_MEMORY("%zu bytes that arrived", bytes);
    const weft_result result = weft_memory_copy(carrier->comm, received, carrier->dst, bytes);
    for (size_t offset = 0; offset < bytes && result == WEFT_OK; offset += row_bytes)
        *num_damaged_rows += memcmp(received + offset, carrier->rows + offset, row_bytes) != 0;
    free(received);
    return result;
}

/* What both ranks know together. */
struct outcome {
    double us[NUM_ITERS];
    int64_t num_damaged_rows;
};

static weft_result share(struct carrier *carrier, struct outcome *outcome)
{
    struct outcome both[2];
    const int num_ranks = weft_comm_num_ranks(carrier->comm);
    const weft_result result =
        weft_comm_host_all_gather(carrier->comm, outcome, sizeof *outcome, both);
    for (int rank = 0; rank < num_ranks && result == WEFT_OK; rank++) {
        for (int i = 0; i < NUM_ITERS; i++)
            if (both[rank].us[i] > outcome->us[i])
                outcome->us[i] = both[rank].us[i];
        if (rank == carrier->receiver)
            outcome->num_damaged_rows = both[rank].num_damaged_rows;
    }
    return result;
}

static weft_result carry(weft_comm *comm, int32_t sender, const struct flow *flow,
                         struct outcome *outcome)
{
    struct carrier carrier = {.comm = comm, .flow = flow, .sender = sender};
    double unused_us;
    carrier.receiver = weft_comm_num_ranks(comm) - 1 - sender;
    carrier.num_tokens = weft_comm_rank(comm) == sender ? flow->num_rows : 0;
    weft_result result = open_carrier(&carrier);
    for (int i = 0; i < NUM_WARMUP && result == WEFT_OK; i++)
        result = time_dispatch(&carrier, &unused_us);
    for (int i = 0; i < NUM_ITERS && result == WEFT_OK; i++)
        result = time_dispatch(&carrier, &outcome->us[i]);
    if (result == WEFT_OK)
        result = count_damaged_rows(&carrier, &outcome->num_damaged_rows);
    if (result == WEFT_OK)
        result = share(&carrier, outcome);
    close_carrier(&carrier);
    return result;
}

/* Collective over a communicator of one rank or two: rows go from `sender` to the other one, or, if
 * it is alone, to itself. The figures are the same on both. */
static weft_result measure_link(weft_comm *comm, int32_t sender, struct link_figures *figures)
{
    struct outcome one, many;
    const struct flow *many_rows =
        weft_comm_machine(comm) == WEFT_MACHINE_CPU ? &many_rows_of_host : &many_rows_of_gpu;
    weft_result result = carry(comm, sender, &one_row, &one);
    if (result == WEFT_OK)
        result = carry(comm, sender, many_rows, &many);
    if (result != WEFT_OK)
        return result;
    const double bytes = (double)many_rows->num_rows * (double)many_rows->row_bytes;
    figures->latency_us = figures_of(one.us, NUM_ITERS).median;
    figures->gbps = bytes / figures_of(many.us, NUM_ITERS).min / 1000;
    figures->num_damaged_rows = one.num_damaged_rows + many.num_damaged_rows;
    return WEFT_OK;
}

/* ---------------------------------------------------------------- all links of a job */

/* Both ways between ranks first < second; or of one rank to itself, if they are the same. The
 * figures of a link are noted by its sender. `own` is [num_ranks]. */
static weft_result measure_pair(weft_comm *comm, int32_t first, int32_t second,
                                struct link_figures *own)
{
    const int32_t rank = weft_comm_rank(comm);
    const int is_member = rank == first || rank == second;
    weft_comm *pair;
    weft_result result = weft_comm_split(comm, is_member ? 0 : -1, 0, NULL, &pair);
    if (result != WEFT_OK || !is_member)
        return result;
    for (int32_t sender = 0; sender < weft_comm_num_ranks(pair) && result == WEFT_OK; sender++) {
        struct link_figures figures;
        result = measure_link(pair, sender, &figures);
        if (result == WEFT_OK && sender == weft_comm_rank(pair))
            own[rank == first ? second : first] = figures;
    }
    if (result != WEFT_OK)
        weft_comm_abort(pair);
    weft_comm_destroy(pair);
    return result;
}

weft_result link_measure_all(weft_comm *comm, struct link_figures *links)
{
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    const size_t own_bytes = (size_t)num_ranks * sizeof *links;
    struct link_figures *own = calloc((size_t)num_ranks, sizeof *own);
    weft_result result = own ? WEFT_OK : LACKS_MEMORY("the links of %d ranks", num_ranks);
    for (int32_t first = 0; first < num_ranks; first++)
        for (int32_t second = first; second < num_ranks && result == WEFT_OK; second++)
            result = measure_pair(comm, first, second, own);
    if (result == WEFT_OK)
        result = weft_comm_host_all_gather(comm, own, own_bytes, links);
    free(own);
    return result;
}
