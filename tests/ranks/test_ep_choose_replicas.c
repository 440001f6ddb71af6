/* SPDX-License-Identifier: MIT */
/* weft_ep_choose_replicas: which replica serves each choice of an expert, and what it refuses. */
#include <string.h>

#include "harness/cmocka.h"
#include "harness/ranks.h"
#include "workload/rng.h"

static int open_rank(struct ranks_context *context, weft_comm **comm, weft_stream **stream)
{
    CHECK_OK(ranks_comm_create(context, NULL, comm));
    CHECK_OK(weft_stream_create(*comm, stream));
    return 0;
}

static int close_rank(weft_comm *comm, weft_stream *stream)
{
    CHECK_OK(weft_stream_destroy(stream));
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

enum { NUM_TOKENS = 40, NUM_TOPK = 3, NUM_EXPERTS = 6 };
enum { NUM_CHOICES = NUM_TOKENS * NUM_TOPK };

/* [NUM_CHOICES] of a type, as the call reads and writes them. */
static int64_t read_choice(const void *choices, weft_dtype type, int32_t i)
{
    return type == WEFT_INT64 ? ((const int64_t *)choices)[i] : ((const int32_t *)choices)[i];
}

static int choose(weft_comm *comm, weft_stream *stream, weft_dtype type, int is_in_place)
{
    const uint64_t bytes = NUM_CHOICES * (type == WEFT_INT64 ? 8 : 4);
    int32_t granules[NUM_EXPERTS * WEFT_BALANCE_GRANULES];
    int64_t given[NUM_CHOICES], written[NUM_CHOICES];
    void *topk_idx, *replica_idx, *table;
    struct rng rng = {rng_key(3, type)};
    for (int32_t i = 0; i < NUM_EXPERTS * WEFT_BALANCE_GRANULES; i++)
        granules[i] = (int32_t)rng_below(&rng, 1000);
    for (int32_t i = 0; i < NUM_CHOICES; i++) {
        const int64_t expert = (int64_t)rng_below(&rng, NUM_EXPERTS + 2) - 1;
        if (type == WEFT_INT64)
            given[i] = expert == NUM_EXPERTS ? INT64_C(1) << 32 : expert;
        else
            ((int32_t *)given)[i] = (int32_t)expert;
    }
    CHECK_OK(weft_memory_alloc(comm, bytes, &topk_idx));
    CHECK_OK(weft_memory_alloc(comm, bytes, &replica_idx));
    CHECK_OK(weft_memory_alloc(comm, sizeof granules, &table));
    CHECK_OK(weft_memory_copy(comm, topk_idx, given, bytes));
    CHECK_OK(weft_memory_copy(comm, table, granules, sizeof granules));
    const weft_ep_replicas_args args = {.size = sizeof args,
                                        .topk_idx = topk_idx,
                                        .replica_idx = is_in_place ? topk_idx : replica_idx,
                                        .granules = table,
                                        .index_type = type,
                                        .num_tokens = NUM_TOKENS,
                                        .num_topk = NUM_TOPK,
                                        .num_experts = NUM_EXPERTS};
    CHECK_OK(weft_ep_choose_replicas(comm, &args, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK_OK(weft_memory_copy(comm, written, args.replica_idx, bytes));
    for (int32_t i = 0; i < NUM_CHOICES; i++) {
        const int64_t expert = read_choice(given, type, i);
        const int32_t granule = (weft_comm_rank(comm) + i / NUM_TOPK) % WEFT_BALANCE_GRANULES;
        const int64_t wanted = expert >= 0 && expert < NUM_EXPERTS
                                   ? granules[expert * WEFT_BALANCE_GRANULES + granule]
                                   : -1;
        CHECK(read_choice(written, type, i) == wanted, "choice %d of %lld is %lld, not %lld", i,
              (long long)expert, (long long)read_choice(written, type, i), (long long)wanted);
    }
    CHECK_OK(weft_memory_free(comm, topk_idx));
    CHECK_OK(weft_memory_free(comm, replica_idx));
    CHECK_OK(weft_memory_free(comm, table));
    return 0;
}

TEST_ON_RANKS(choices, RANKS_THREADS, 3)
{
    weft_comm *comm;
    weft_stream *stream;
    if (open_rank(context, &comm, &stream))
        return 1;
    for (int is_in_place = 0; is_in_place < 2; is_in_place++)
        if (choose(comm, stream, WEFT_INT32, is_in_place) ||
            choose(comm, stream, WEFT_INT64, is_in_place))
            return 1;
    return close_rank(comm, stream);
}

TEST_ON_RANKS(arguments, RANKS_THREADS, 1)
{
    weft_comm *comm;
    weft_stream *stream;
    void *memory;
    if (open_rank(context, &comm, &stream))
        return 1;
    CHECK_OK(weft_memory_alloc(comm, 1024, &memory));
    int32_t *block = memory;
    const weft_ep_replicas_args good = {sizeof good, block, block + 6, block + 12,
                                        WEFT_INT32,  2,     3,         2};
    const struct refusal {
        weft_ep_replicas_args args;
        const char *text;
    } refusals[] = {
        {{sizeof good, NULL, block, block + 12, WEFT_INT32, 2, 3, 2}, "topk_idx is NULL"},
        {{sizeof good, block, NULL, block + 12, WEFT_INT32, 2, 3, 2}, "replica_idx is NULL"},
        {{sizeof good, block, block, NULL, WEFT_INT32, 2, 3, 2}, "granules is NULL"},
        {{sizeof good, block, block + 5, block + 12, WEFT_INT32, 2, 3, 2}, "overlap"},
        {{sizeof good, block, block + 7, block + 12, WEFT_INT32, 2, 3, 2}, "overlap"},
        {{sizeof good, block, block, block + 12, WEFT_FP32, 2, 3, 2}, "index_type is"},
        {{sizeof good, block, block + 1, block + 64, WEFT_INT64, 2, 3, 2}, "must be aligned to 8"},
        {{sizeof good, block, block, block + 12, WEFT_INT32, -1, 3, 2}, "num_tokens is -1"},
        {{sizeof good, block, block, block + 12, WEFT_INT32, 2, 0, 2}, "num_topk is 0"},
        {{sizeof good, block, block, block + 12, WEFT_INT32, 2, 3, 0}, "num_experts is 0"},
    };
    CHECK_OK(weft_ep_choose_replicas(comm, &good, stream));
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        CHECK_ERROR(weft_ep_choose_replicas(comm, &refusals[i].args, stream),
                    WEFT_ERROR_INVALID_ARGUMENT, refusals[i].text);
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK_OK(weft_memory_free(comm, memory));
    return close_rank(comm, stream);
}
