/* SPDX-License-Identifier: MIT */
#include "coll_run.h"

#include <stdlib.h>
#include <string.h>

#include "workload/failure.h"
#include "workload/try.h"

enum { POISON = 0xff };

weft_result coll_run_open_coll(struct coll_run *run)
{
    const struct coll_options *options = run->options;
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    config.packet_bytes = options->packet_bytes;
    config.choices =
        WEFT_ARGS(weft_coll_choice, .collective = options->op, .algorithm = options->algorithm);
    config.num_choices = 1;
    config.num_blocks = options->num_blocks;
    config.num_warps = options->num_warps;
    config.num_channels = options->num_channels;
    config.num_staging_slots = options->num_slots;
    config.staging_slot_bytes = options->slot_bytes;
    return weft_coll_create(run->comm, &config, &run->coll);
}

static weft_result alloc_buffer(struct coll_run *run, void **buffer)
{
    const uint64_t bytes = run->options->sizes.max;
    return run->options->memory == COLL_MEMORY_HEAP ? weft_heap_alloc(run->comm, bytes, buffer)
                                                    : weft_memory_alloc(run->comm, bytes, buffer);
}

static void free_buffer(struct coll_run *run, void *buffer)
{
    if (run->options->memory == COLL_MEMORY_HEAP)
        weft_heap_free(run->comm, buffer);
    else
        weft_memory_free(run->comm, buffer);
}

void coll_run_find_nodes(struct coll_run *run)
{
    for (int32_t rank = 0; rank < weft_comm_num_ranks(run->comm); rank++) {
        run->node_of_rank[rank] = weft_comm_node(run->comm, rank);
        if (run->node_of_rank[rank] >= run->num_nodes)
            run->num_nodes = run->node_of_rank[rank] + 1;
    }
}

weft_result coll_run_open(struct coll_run *run, weft_comm *comm, const struct coll_options *options)
{
    *run = (struct coll_run){.options = options, .comm = comm, .rank = weft_comm_rank(comm)};
    coll_run_find_nodes(run);
    TRY(weft_stream_create(comm, &run->stream));
    TRY(weft_event_create(comm, &run->start));
    TRY(weft_event_create(comm, &run->stop));
    TRY(coll_run_open_coll(run));
    TRY(alloc_buffer(run, &run->send));
    return alloc_buffer(run, &run->recv);
}

void coll_run_close(struct coll_run *run)
{
    if (run->stream)
        weft_stream_destroy(run->stream);
    if (run->start)
        weft_event_destroy(run->start);
    if (run->stop)
        weft_event_destroy(run->stop);
    if (run->coll)
        weft_coll_destroy(run->coll);
    if (run->send)
        free_buffer(run, run->send);
    if (run->recv)
        free_buffer(run, run->recv);
}

struct collective coll_run_at(const struct coll_run *run, uint64_t bytes)
{
    const struct coll_options *options = run->options;
    const enum element_content content =
        collective_reduces(options->op) ? ELEMENTS_NUMBERS : ELEMENTS_BITS;
    struct collective collective = {
        .kind = options->op,
        .source = {.seed = options->seed, .dtype = options->dtype, .content = content},
        .redop = options->redop,
        .factors = options->num_factors > 0 ? options->factors : NULL,
        .root = options->root,
        .num_ranks = options->job.num_ranks,
        .num_nodes = run->num_nodes,
        .node_of_rank = run->node_of_rank,
        .order = elements_order_of(options->algorithm),
    };
    collective.count = collective_count(&collective, bytes);
    return collective;
}

struct coll_buffers coll_run_buffers(const struct coll_run *run,
                                     const struct collective *collective, enum coll_place place)
{
    struct coll_buffers buffers = {run->send, run->recv};
    if (place == COLL_IN_PLACE && buffers.recv) {
        const struct collective_places places = collective_in_place(collective, run->rank);
        buffers.send = buffers.recv + places.send_offset;
        buffers.recv += places.recv_offset;
    }
    return buffers;
}

/* In place the poison comes first, for the input lies in it. */
static weft_result fill_by_pieces(const struct coll_run *run, const struct collective *collective,
                                  struct coll_buffers buffers, void *piece)
{
    const struct element_source *source = &collective->source;
    const uint64_t element_bytes = dtype_bytes(source->dtype);
    const uint64_t recv_bytes = collective_recv_bytes(collective, run->rank);
    const uint64_t send_bytes = collective_send_bytes(collective, run->rank);
    weft_result result = WEFT_OK;
    memset(piece, POISON, coll_piece_bytes(0, recv_bytes)); /* pages that are not used cost time */
    for (uint64_t at = 0; at < recv_bytes && result == WEFT_OK; at += COLL_PIECE_BYTES)
        result =
            weft_memory_copy(run->comm, buffers.recv + at, piece, coll_piece_bytes(at, recv_bytes));
    for (uint64_t at = 0; at < send_bytes && result == WEFT_OK; at += COLL_PIECE_BYTES) {
        const uint64_t bytes = coll_piece_bytes(at, send_bytes);
        elements_fill(source, run->rank, at / element_bytes, bytes / element_bytes, piece);
        result = weft_memory_copy(run->comm, buffers.send + at, piece, bytes);
    }
    return result;
}

weft_result coll_run_fill(const struct coll_run *run, const struct collective *collective,
                          enum coll_place place)
{
    void *piece = malloc(COLL_PIECE_BYTES);
    if (!piece)
        return LACKS_MEMORY("a piece of %d bytes", COLL_PIECE_BYTES);
    const weft_result result =
        fill_by_pieces(run, collective, coll_run_buffers(run, collective, place), piece);
    free(piece);
    return result;
}

weft_result coll_run_enqueue(const struct coll_run *run, const struct collective *collective,
                             enum coll_place place)
{
    const struct coll_buffers buffers = coll_run_buffers(run, collective, place);
    return run->options->calls == COLL_CALLS_GROUP
               ? collective_enqueue_group(collective, run->rank, run->coll, buffers.send,
                                          buffers.recv, run->stream)
               : collective_enqueue(collective, run->rank, run->coll, buffers.send, buffers.recv,
                                    run->stream);
}
