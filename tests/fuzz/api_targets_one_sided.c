/* SPDX-License-Identifier: MIT */
/* One-sided operations, of a rank with itself. */
#include "api_targets.h"

enum { DST_OFFSET = 4 << 10, WORD_OFFSET = 8 << 10, BEFORE_OFFSET = 9 << 10 };

static void fill(struct fuzz_arguments *a, struct rng *rng)
{
    a->comm = a->own_comm;
    a->stream = a->own_stream;
    a->root = 0;
    a->bytes = 2 + rng_below(rng, 2000);
    a->send = a->arena_memory + rng_below(rng, 64);
    a->recv = a->arena_memory + DST_OFFSET + rng_below(rng, 64);
    a->out = a->arena_memory + WORD_OFFSET;
    a->ptr = a->arena_memory + BEFORE_OFFSET;
    a->count = rng_below(rng, 1000);
}

static weft_result call_put(struct fuzz_arguments *a)
{
    return weft_put_on_stream(a->comm, a->recv, a->send, a->bytes, a->root, a->stream);
}

static weft_result call_get(struct fuzz_arguments *a)
{
    return weft_get_on_stream(a->comm, a->recv, a->send, a->bytes, a->root, a->stream);
}

static weft_result call_put_signal(struct fuzz_arguments *a)
{
    return weft_put_signal_on_stream(a->comm, a->recv, a->send, a->bytes, a->out, a->count, a->root,
                                     a->stream);
}

static weft_result call_signal(struct fuzz_arguments *a)
{
    return weft_signal_on_stream(a->comm, a->out, a->count, a->root, a->stream);
}

static weft_result call_add(struct fuzz_arguments *a)
{
    return weft_atomic_add_on_stream(a->comm, a->out, a->count, a->root, a->stream);
}

static weft_result call_fetch_add(struct fuzz_arguments *a)
{
    return weft_atomic_fetch_add_on_stream(a->comm, a->ptr, a->out, a->count, a->root, a->stream);
}

static weft_result call_wait_until(struct fuzz_arguments *a)
{
    return weft_wait_until_on_stream(a->comm, a->out, 0, a->stream);
}

static weft_result call_fence(struct fuzz_arguments *a)
{
    return weft_fence_on_stream(a->comm, a->stream);
}

static weft_result call_quiet(struct fuzz_arguments *a)
{
    return weft_quiet_on_stream(a->comm, a->stream);
}

#define COMM_AND_STREAM                                                                            \
    FUZZ_POINTERS("comm", comm, FUZZ_NULL), FUZZ_POINTERS("stream", stream, FUZZ_NULL)
#define RANK FUZZ_NUMBERS(FUZZ_INT32, "rank", root, -1, 1, INT32_MAX, INT32_MIN)
#define BYTES                                                                                      \
    FUZZ_POINTERS("src", send, FUZZ_NULL, FUZZ_OUTSIDE, FUZZ_LAST_BYTE, FUZZ_GARBAGE),             \
        FUZZ_POINTERS("dst", recv, FUZZ_NULL, FUZZ_OUTSIDE, FUZZ_LAST_BYTE, FUZZ_GARBAGE),         \
        FUZZ_NUMBERS(FUZZ_INT64, "dst|src", bytes, -1, INT64_MAX, (int64_t)1 << 40)
#define WORD(name, member)                                                                         \
    FUZZ_POINTERS(name, member, FUZZ_NULL, FUZZ_OUTSIDE, FUZZ_LAST_BYTE, FUZZ_GARBAGE)

static const struct fuzz_mutation bytes_mutations[] = {COMM_AND_STREAM, RANK, BYTES};
static const struct fuzz_mutation put_signal_mutations[] = {COMM_AND_STREAM, RANK, BYTES,
                                                            WORD("signal", out)};
static const struct fuzz_mutation signal_mutations[] = {COMM_AND_STREAM, RANK, WORD("signal", out)};
static const struct fuzz_mutation add_mutations[] = {COMM_AND_STREAM, RANK, WORD("word", out)};
static const struct fuzz_mutation fetch_add_mutations[] = {COMM_AND_STREAM, RANK, WORD("word", out),
                                                           WORD("before", ptr)};
static const struct fuzz_mutation wait_until_mutations[] = {COMM_AND_STREAM, WORD("word", out)};
static const struct fuzz_mutation fence_mutations[] = {COMM_AND_STREAM};

const struct fuzz_target fuzz_one_sided_targets[] = {
    FUZZ_TARGET("weft_put_on_stream", fill, call_put, fuzz_wait_for_stream, bytes_mutations),
    FUZZ_TARGET("weft_get_on_stream", fill, call_get, fuzz_wait_for_stream, bytes_mutations),
    FUZZ_TARGET("weft_put_signal_on_stream", fill, call_put_signal, fuzz_wait_for_stream,
                put_signal_mutations),
    FUZZ_TARGET("weft_signal_on_stream", fill, call_signal, fuzz_wait_for_stream, signal_mutations),
    FUZZ_TARGET("weft_atomic_add_on_stream", fill, call_add, fuzz_wait_for_stream, add_mutations),
    FUZZ_TARGET("weft_atomic_fetch_add_on_stream", fill, call_fetch_add, fuzz_wait_for_stream,
                fetch_add_mutations),
    FUZZ_TARGET("weft_wait_until_on_stream", fill, call_wait_until, fuzz_wait_for_stream,
                wait_until_mutations),
    FUZZ_TARGET("weft_fence_on_stream", fill, call_fence, fuzz_wait_for_stream, fence_mutations),
    FUZZ_TARGET("weft_quiet_on_stream", fill, call_quiet, fuzz_wait_for_stream, fence_mutations),
};
const int fuzz_num_one_sided_targets =
    sizeof fuzz_one_sided_targets / sizeof fuzz_one_sided_targets[0];
