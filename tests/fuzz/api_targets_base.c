/* SPDX-License-Identifier: MIT */
/* Heap, arena, streams, events, graphs, communicator. */
#include <string.h>

#include "api_targets.h"

/* ---------------------------------------------------------------- heap */

static weft_result undo_alloc(struct fuzz_arguments *a)
{
    memset(a->created, 1, a->bytes);
    return weft_heap_free(a->own_comm, a->created);
}

static void fill_free(struct fuzz_arguments *a, struct rng *rng)
{
    (void)rng;
    if (weft_heap_alloc(a->own_comm, a->bytes, &a->created) == WEFT_OK)
        a->ptr = a->created;
}

/* What fill_free allocated goes back also when the free was refused; that changes no message. */
static weft_result call_free(struct fuzz_arguments *a)
{
    const weft_result result = weft_heap_free(a->comm, a->ptr);
    if (result != WEFT_OK && weft_heap_free(a->own_comm, a->created) != WEFT_OK)
        return WEFT_ERROR_SYSTEM;
    return result;
}

static void fill_grow(struct fuzz_arguments *a, struct rng *rng)
{
    a->bytes = rng_below(rng, 3 << 20);
}

/* ---------------------------------------------------------------- arena */

FUZZ_CALL(undo_arena_create, weft_arena_destroy(a->created))

static weft_result undo_arena_alloc(struct fuzz_arguments *a)
{
    memset(a->created, 2, a->bytes);
    return weft_arena_free(a->own_arena, a->created);
}

/* ---------------------------------------------------------------- communicator, streams */

static const struct fuzz_mutation event_mutations[] = {
    FUZZ_OBJECT("event", event),
    FUZZ_OBJECT("stream", stream),
};

/* ---------------------------------------------------------------- graphs */

static weft_result unless_unsupported(weft_result result)
{
    return result == WEFT_ERROR_UNSUPPORTED ? WEFT_OK : result;
}

/* Ends a capture of the own stream. */
static weft_result undo_graph_begin(struct fuzz_arguments *a)
{
    weft_graph *graph = NULL;
    const weft_result result = weft_graph_end(a->own_stream, &graph);
    return result == WEFT_OK ? weft_graph_destroy(graph) : unless_unsupported(result);
}

FUZZ_CALL(call_graph_begin, unless_unsupported(weft_graph_begin(a->stream)))

/* What begins here ends also when the end was refused; that changes no message. */
static weft_result call_graph_end(struct fuzz_arguments *a)
{
    const weft_result begun = weft_graph_begin(a->own_stream);
    const weft_result result = unless_unsupported(weft_graph_end(a->stream, a->out));
    if (begun == WEFT_OK && result != WEFT_OK && undo_graph_begin(a) != WEFT_OK)
        return WEFT_ERROR_SYSTEM;
    return result;
}

FUZZ_CALL(undo_graph_end, a->created == NULL ? WEFT_OK : weft_graph_destroy(a->created))

/* ---------------------------------------------------------------- gathering */

static void fill_gather(struct fuzz_arguments *a, struct rng *rng)
{
    a->bytes = rng_below(rng, 4096);
    a->ptr = a->outside;
    a->out = a->result_memory;
}

FUZZ_TARGET(heap_alloc, NULL, (a->comm, a->bytes, a->out), undo_alloc, FUZZ_OBJECT("comm", comm),
            FUZZ_POINTERS("ptr", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT64, "bytes", bytes, -1, INT64_MAX, (int64_t)1 << 60, -256))
FUZZ_TARGET_BY(heap_free, heap_free, fill_free, call_free, NULL, FUZZ_OBJECT("comm", comm),
               FUZZ_POINTERS("ptr", ptr, FUZZ_OUTSIDE, FUZZ_LAST_BYTE, FUZZ_GARBAGE))
FUZZ_TARGET(heap_grow, fill_grow, (a->comm, a->bytes), NULL, FUZZ_OBJECT("comm", comm),
            FUZZ_NUMBERS(FUZZ_INT64, "bytes", bytes, -1, INT64_MAX, (int64_t)1 << 60))
FUZZ_TARGET(heap_query, fuzz_fill_output, (a->comm, a->out), NULL, FUZZ_OBJECT("comm", comm),
            FUZZ_POINTERS("info", out, FUZZ_NULL), FUZZ_OUTPUT_SIZES)
/* NULL is a comm, too. */
FUZZ_TARGET(net_query, fuzz_fill_output, (a->comm, a->out), NULL, FUZZ_STRANGER("comm", comm),
            FUZZ_POINTERS("info", out, FUZZ_NULL), FUZZ_OUTPUT_SIZES)
FUZZ_TARGET(arena_create, NULL, (a->comm, a->bytes, a->out), undo_arena_create,
            FUZZ_OBJECT("comm", comm), FUZZ_POINTERS("arena", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT64, "bytes", bytes, -1, INT64_MAX, (int64_t)1 << 60))
FUZZ_TARGET(arena_alloc, NULL, (a->arena, a->bytes, a->out), undo_arena_alloc,
            FUZZ_OBJECT("arena", arena), FUZZ_POINTERS("ptr", out, FUZZ_NULL),
            FUZZ_NUMBERS(FUZZ_INT64, "bytes", bytes, -1, INT64_MAX, (int64_t)1 << 60, -256))
FUZZ_TARGET(arena_free, NULL, (a->arena, a->ptr), NULL, FUZZ_OBJECT("arena", arena),
            FUZZ_POINTERS("ptr", ptr, FUZZ_OUTSIDE, FUZZ_LAST_BYTE, FUZZ_GARBAGE))
FUZZ_TARGET(comm_barrier, NULL, (a->comm, a->stream), fuzz_wait, FUZZ_OBJECT("comm", comm),
            FUZZ_OBJECT("stream", stream))
FUZZ_TARGET_AS(event_record, NULL, (a->event, a->stream), fuzz_wait, event)
FUZZ_TARGET_AS(stream_wait_event, NULL, (a->stream, a->event), fuzz_wait, event)
FUZZ_TARGET_BY(graph_begin, graph_begin, NULL, call_graph_begin, undo_graph_begin,
               FUZZ_OBJECT("stream", stream))
FUZZ_TARGET_BY(graph_end, graph_end, NULL, call_graph_end, undo_graph_end,
               FUZZ_OBJECT("stream", stream), FUZZ_POINTERS("graph", out, FUZZ_NULL))
FUZZ_TARGET(comm_host_all_gather, fill_gather, (a->comm, a->ptr, a->bytes, a->out), NULL,
            FUZZ_OBJECT("comm", comm),
            FUZZ_NUMBERS(FUZZ_INT64, "bytes", bytes, -1, (1 << 20) + 1, INT64_MAX))
