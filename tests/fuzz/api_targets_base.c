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

static const struct fuzz_mutation alloc_mutations[] = {
    FUZZ_OBJECT("comm", comm),
    FUZZ_POINTERS("ptr", out, FUZZ_NULL),
    FUZZ_NUMBERS(FUZZ_INT64, "bytes", bytes, -1, INT64_MAX, (int64_t)1 << 60, -256),
};

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

static const struct fuzz_mutation free_mutations[] = {
    FUZZ_OBJECT("comm", comm),
    FUZZ_POINTERS("ptr", ptr, FUZZ_OUTSIDE, FUZZ_LAST_BYTE, FUZZ_GARBAGE),
};

static void fill_grow(struct fuzz_arguments *a, struct rng *rng)
{
    a->bytes = rng_below(rng, 3 << 20);
}

static const struct fuzz_mutation grow_mutations[] = {
    FUZZ_OBJECT("comm", comm),
    FUZZ_NUMBERS(FUZZ_INT64, "bytes", bytes, -1, INT64_MAX, (int64_t)1 << 60),
};

static const struct fuzz_mutation query_mutations[] = {
    FUZZ_OBJECT("comm", comm),
    FUZZ_POINTERS("info", out, FUZZ_NULL),
    FUZZ_OUTPUT_SIZES,
};

/* NULL is a comm, too. */
static const struct fuzz_mutation net_query_mutations[] = {
    FUZZ_STRANGER("comm", comm),
    FUZZ_POINTERS("info", out, FUZZ_NULL),
    FUZZ_OUTPUT_SIZES,
};

/* ---------------------------------------------------------------- arena */

FUZZ_CALL(undo_arena_create, weft_arena_destroy(a->created))

static const struct fuzz_mutation arena_create_mutations[] = {
    FUZZ_OBJECT("comm", comm),
    FUZZ_POINTERS("arena", out, FUZZ_NULL),
    FUZZ_NUMBERS(FUZZ_INT64, "bytes", bytes, -1, INT64_MAX, (int64_t)1 << 60),
};

static weft_result undo_arena_alloc(struct fuzz_arguments *a)
{
    memset(a->created, 2, a->bytes);
    return weft_arena_free(a->own_arena, a->created);
}

static const struct fuzz_mutation arena_alloc_mutations[] = {
    FUZZ_OBJECT("arena", arena),
    FUZZ_POINTERS("ptr", out, FUZZ_NULL),
    FUZZ_NUMBERS(FUZZ_INT64, "bytes", bytes, -1, INT64_MAX, (int64_t)1 << 60, -256),
};

static const struct fuzz_mutation arena_free_mutations[] = {
    FUZZ_OBJECT("arena", arena),
    FUZZ_POINTERS("ptr", ptr, FUZZ_OUTSIDE, FUZZ_LAST_BYTE, FUZZ_GARBAGE),
};

/* ---------------------------------------------------------------- communicator, streams */

static const struct fuzz_mutation barrier_mutations[] = {
    FUZZ_OBJECT("comm", comm),
    FUZZ_OBJECT("stream", stream),
};

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

static const struct fuzz_mutation graph_begin_mutations[] = {
    FUZZ_OBJECT("stream", stream),
};

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

static const struct fuzz_mutation graph_end_mutations[] = {
    FUZZ_OBJECT("stream", stream),
    FUZZ_POINTERS("graph", out, FUZZ_NULL),
};

/* ---------------------------------------------------------------- gathering */

static void fill_gather(struct fuzz_arguments *a, struct rng *rng)
{
    a->bytes = rng_below(rng, 4096);
    a->ptr = a->outside;
    a->out = a->result_memory;
}

static const struct fuzz_mutation gather_mutations[] = {
    FUZZ_OBJECT("comm", comm),
    FUZZ_NUMBERS(FUZZ_INT64, "bytes", bytes, -1, (1 << 20) + 1, INT64_MAX),
};

FUZZ_TARGET(heap_alloc, NULL, (a->comm, a->bytes, a->out), undo_alloc, alloc)
FUZZ_TARGET_BY(heap_free, heap_free, fill_free, call_free, NULL, free)
FUZZ_TARGET(heap_grow, fill_grow, (a->comm, a->bytes), NULL, grow)
FUZZ_TARGET(heap_query, fuzz_fill_output, (a->comm, a->out), NULL, query)
FUZZ_TARGET(net_query, fuzz_fill_output, (a->comm, a->out), NULL, net_query)
FUZZ_TARGET(arena_create, NULL, (a->comm, a->bytes, a->out), undo_arena_create, arena_create)
FUZZ_TARGET(arena_alloc, NULL, (a->arena, a->bytes, a->out), undo_arena_alloc, arena_alloc)
FUZZ_TARGET(arena_free, NULL, (a->arena, a->ptr), NULL, arena_free)
FUZZ_TARGET(comm_barrier, NULL, (a->comm, a->stream), fuzz_wait, barrier)
FUZZ_TARGET(event_record, NULL, (a->event, a->stream), fuzz_wait, event)
FUZZ_TARGET(stream_wait_event, NULL, (a->stream, a->event), fuzz_wait, event)
FUZZ_TARGET_BY(graph_begin, graph_begin, NULL, call_graph_begin, undo_graph_begin, graph_begin)
FUZZ_TARGET_BY(graph_end, graph_end, NULL, call_graph_end, undo_graph_end, graph_end)
FUZZ_TARGET(comm_host_all_gather, fill_gather, (a->comm, a->ptr, a->bytes, a->out), NULL, gather)
