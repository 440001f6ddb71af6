/* SPDX-License-Identifier: MIT */
/* One-sided operations, of a rank with itself. */
#include "api_targets.h"

enum { DST_OFFSET = 4 << 10, WORD_OFFSET = 8 << 10, BEFORE_OFFSET = 9 << 10 };

/* The part of the arguments that an operation uses. */
enum use { USE_BYTES = 1, USE_WORD = 2, USE_BEFORE = 4 };

static void fill(struct fuzz_arguments *a, struct rng *rng, uint32_t used)
{
    weft_rma_args *args = &a->rma.known;
    FUZZ_FILL_SIZE(a, rma, rng);
    if (used & USE_BYTES) {
        args->bytes = 2 + rng_below(rng, 2000);
        args->src = a->arena_memory + rng_below(rng, 64);
        args->dst = a->arena_memory + DST_OFFSET + rng_below(rng, 64);
    }
    if (used & USE_WORD) {
        args->word = (uint64_t *)(void *)(a->arena_memory + WORD_OFFSET);
        args->value = rng_below(rng, 1000);
    }
    if (used & USE_BEFORE)
        args->before = (uint64_t *)(void *)(a->arena_memory + BEFORE_OFFSET);
}

static void fill_bytes(struct fuzz_arguments *a, struct rng *rng)
{
    fill(a, rng, USE_BYTES);
}

static void fill_put_signal(struct fuzz_arguments *a, struct rng *rng)
{
    fill(a, rng, USE_BYTES | USE_WORD);
}

static void fill_word(struct fuzz_arguments *a, struct rng *rng)
{
    fill(a, rng, USE_WORD);
}

static void fill_fetch_add(struct fuzz_arguments *a, struct rng *rng)
{
    fill(a, rng, USE_WORD | USE_BEFORE);
}

/* Any word has reached 0. */
static void fill_wait_until(struct fuzz_arguments *a, struct rng *rng)
{
    fill(a, rng, USE_WORD);
    a->rma.known.value = 0;
}

#define COMM_AND_STREAM FUZZ_OBJECT("comm", comm), FUZZ_OBJECT("stream", stream)
#define ARGS                                                                                       \
    FUZZ_POINTERS("args", config, FUZZ_NULL), FUZZ_SIZES(weft_rma_args, rma),                      \
        FUZZ_FIELD(rma, reserved, -1, 1), FUZZ_FIELD(rma, rank, -1, 1, INT32_MAX, INT32_MIN)
#define POINTER(name)                                                                              \
    FUZZ_POINTERS(#name, rma.known.name, FUZZ_NULL, FUZZ_OUTSIDE, FUZZ_LAST_BYTE, FUZZ_GARBAGE)
#define BYTES                                                                                      \
    POINTER(src), POINTER(dst),                                                                    \
        FUZZ_NUMBERS(FUZZ_INT64, "dst|src", rma.known.bytes, -1, INT64_MAX, (int64_t)1 << 40)
/* What an operation does not use. */
#define UNUSED(name) FUZZ_POINTERS(#name, rma.known.name, FUZZ_OUTSIDE, FUZZ_GARBAGE)

static const struct fuzz_mutation bytes_mutations[] = {
    COMM_AND_STREAM, ARGS, BYTES, UNUSED(word), UNUSED(before), FUZZ_FIELD(rma, value, 1, -1)};
static const struct fuzz_mutation word_mutations[] = {COMM_AND_STREAM,
                                                      ARGS,
                                                      POINTER(word),
                                                      UNUSED(before),
                                                      UNUSED(dst),
                                                      UNUSED(src),
                                                      FUZZ_FIELD(rma, bytes, 1, -1)};
static const struct fuzz_mutation fence_mutations[] = {COMM_AND_STREAM};

FUZZ_TARGET_AS(rma_put, fill_bytes, (a->comm, a->config, a->stream), fuzz_wait, bytes)
FUZZ_TARGET_AS(rma_get, fill_bytes, (a->comm, a->config, a->stream), fuzz_wait, bytes)
FUZZ_TARGET(rma_put_signal, fill_put_signal, (a->comm, a->config, a->stream), fuzz_wait,
            COMM_AND_STREAM, ARGS, BYTES, POINTER(word), UNUSED(before))
FUZZ_TARGET_AS(rma_signal, fill_word, (a->comm, a->config, a->stream), fuzz_wait, word)
FUZZ_TARGET_AS(rma_add, fill_word, (a->comm, a->config, a->stream), fuzz_wait, word)
FUZZ_TARGET(rma_fetch_add, fill_fetch_add, (a->comm, a->config, a->stream), fuzz_wait,
            COMM_AND_STREAM, ARGS, POINTER(word), POINTER(before), UNUSED(dst), UNUSED(src))
FUZZ_TARGET_AS(rma_wait_until, fill_wait_until, (a->comm, a->config, a->stream), fuzz_wait, word)
FUZZ_TARGET_AS(rma_fence, fill_word, (a->comm, a->stream), fuzz_wait, fence)
FUZZ_TARGET_AS(rma_quiet, fill_word, (a->comm, a->stream), fuzz_wait, fence)
