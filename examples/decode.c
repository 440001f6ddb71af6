/* SPDX-License-Identifier: MIT */
/*
 * A decode loop by low latency: each step runs some layers for two micro-batches, so that the rows of
 * one are on their way while the other computes. Experts return their input, and the weights of a
 * token sum up to 1: so tokens must come out as they went in. On GPUs a step is a graph, recorded
 * once. Run it with: weft run -n 4 -- decode
 */
#include <stdio.h>
#include <stdlib.h>

#include "weft.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != WEFT_OK) {                                                                   \
            fprintf(stderr, "%s: %s\n", #call, weft_last_error());                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { TOKENS = 4, HIDDEN = 8, TOPK = 2, EXPERTS = 16, LAYERS = 3, STEPS = 5, BATCHES = 2 };

struct batch { /* in memory of the machine, which may be a GPU */
    void *x;   /* [TOKENS][HIDDEN], what a layer gets and what it gives back */
    void *topk_idx, *topk_weights;
    void *rows; /* [local experts][capacity][HIDDEN] */
};

/* ---------------------------------------------------------------- a layer, in four phases */

static void send_tokens(const struct batch *batch, weft_ll *ll, weft_stream *stream)
{
    const weft_ll_dispatch_args args = {.size = sizeof args,
                                        .phases = WEFT_LL_SEND,
                                        .num_tokens = TOKENS,
                                        .x = batch->x,
                                        .index_type = WEFT_INT32,
                                        .topk_idx = batch->topk_idx,
                                        .topk_weights = batch->topk_weights};
    CHECK(weft_ll_dispatch(ll, &args, stream));
}

static void receive_rows(const struct batch *batch, weft_ll *ll, weft_stream *stream)
{
    const weft_ll_dispatch_args args = {
        .size = sizeof args, .phases = WEFT_LL_RECEIVE, .rows = batch->rows};
    CHECK(weft_ll_dispatch(ll, &args, stream));
}

static void send_answers(const struct batch *batch, weft_ll *ll, weft_stream *stream)
{
    const weft_ll_combine_args args = {
        .size = sizeof args, .phases = WEFT_LL_SEND, .x = batch->rows};
    CHECK(weft_ll_combine(ll, &args, stream));
}

static void receive_sums(const struct batch *batch, weft_ll *ll, weft_stream *stream)
{
    const weft_ll_combine_args args = {
        .size = sizeof args, .phases = WEFT_LL_RECEIVE, .out = batch->x};
    CHECK(weft_ll_combine(ll, &args, stream));
}

/* Two results are outstanding at a time, and operations are about the older one. Nothing runs between
 * the phases of an operation, so whatever comes there has the whole GPU. */
static void enqueue_step(const struct batch batches[BATCHES], weft_ll *ll, weft_stream *stream)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int i = 0; i < BATCHES; i++) {
            /* Here the attention of batch i, while the tokens of the one before it travel. */
            send_tokens(&batches[i], ll, stream);
        }
        for (int i = 0; i < BATCHES; i++) {
            receive_rows(&batches[i], ll, stream);
            /* Here your experts work on the rows, while those of the next batch travel. */
            send_answers(&batches[i], ll, stream);
        }
        for (int i = 0; i < BATCHES; i++)
            receive_sums(&batches[i], ll, stream);
    }
}

/* ---------------------------------------------------------------- the loop */

/* The tokens of a step; every token of every rank has others. */
static void make_tokens(float x[TOKENS][HIDDEN], int32_t rank, int batch, int step)
{
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HIDDEN; h++)
            x[t][h] =
                (float)(1 + h + HIDDEN * (t + TOKENS * (batch + BATCHES * (step + STEPS * rank))));
}

static void open_batch(struct batch *batch, weft_comm *comm, uint64_t rows_bytes, int seed)
{
    int32_t ids[TOKENS][TOPK];
    float weights[TOKENS][TOPK];
    for (int t = 0; t < TOKENS; t++) {
        ids[t][0] = (5 * seed + 3 * t) % EXPERTS;
        ids[t][1] = (ids[t][0] + 7) % EXPERTS;
        weights[t][0] = 0.25f;
        weights[t][1] = 0.75f;
    }
    CHECK(weft_memory_alloc(comm, sizeof(float[TOKENS][HIDDEN]), &batch->x));
    CHECK(weft_memory_alloc(comm, sizeof ids, &batch->topk_idx));
    CHECK(weft_memory_alloc(comm, sizeof weights, &batch->topk_weights));
    CHECK(weft_memory_alloc(comm, rows_bytes, &batch->rows));
    CHECK(weft_memory_copy(comm, batch->topk_idx, ids, sizeof ids));
    CHECK(weft_memory_copy(comm, batch->topk_weights, weights, sizeof weights));
}

static void write_tokens(const struct batch *batch, weft_comm *comm, int i, int step)
{
    float x[TOKENS][HIDDEN];
    make_tokens(x, weft_comm_rank(comm), i, step);
    CHECK(weft_memory_copy(comm, batch->x, x, sizeof x));
}

static void check_tokens(const struct batch *batch, weft_comm *comm, int i, int step)
{
    float x[TOKENS][HIDDEN], seen[TOKENS][HIDDEN];
    make_tokens(x, weft_comm_rank(comm), i, step);
    CHECK(weft_memory_copy(comm, seen, batch->x, sizeof seen));
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HIDDEN; h++) {
            if (seen[t][h] == x[t][h])
                continue;
            fprintf(stderr, "rank %d, step %d: token %d of batch %d was %g and is %g\n",
                    weft_comm_rank(comm), step, t, i, x[t][h], seen[t][h]);
            exit(1);
        }
}

static void decode(weft_comm *comm, const struct batch batches[BATCHES], weft_ll *ll,
                   weft_stream *stream)
{
    const int has_graphs = weft_comm_machine(comm) == WEFT_MACHINE_CUDA;
    weft_graph *graph = NULL;
    if (has_graphs) {
        CHECK(weft_graph_begin(stream));
        enqueue_step(batches, ll, stream);
        CHECK(weft_graph_end(stream, &graph));
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < BATCHES; i++)
            write_tokens(&batches[i], comm, i, step);
        if (has_graphs)
            CHECK(weft_graph_launch(graph, stream));
        else
            enqueue_step(batches, ll, stream);
        CHECK(weft_stream_synchronize(stream));
        for (int i = 0; i < BATCHES; i++)
            check_tokens(&batches[i], comm, i, step);
    }
    if (has_graphs)
        CHECK(weft_graph_destroy(graph));
    printf("rank %d: %d steps of %d layers and %d batches are right, %s\n", weft_comm_rank(comm),
           STEPS, LAYERS, BATCHES, has_graphs ? "by a graph" : "without graphs");
}

int main(void)
{
    weft_comm *comm;
    weft_stream *stream;
    weft_ep *ep;
    weft_ll *ll;
    CHECK(weft_comm_create_from_env(NULL, &comm));
    CHECK(weft_stream_create(comm, &stream));
    const weft_ep_config experts = {.size = sizeof experts, .num_experts = EXPERTS};
    CHECK(weft_ep_create(comm, &experts, &ep));
    const weft_ll_config config = {.size = sizeof config,
                                   .hidden = HIDDEN,
                                   .max_tokens = TOKENS,
                                   .num_topk = TOPK,
                                   .dtype = WEFT_FP32,
                                   .layout = WEFT_LL_BY_EXPERT,
                                   .num_results = BATCHES};
    weft_ll_sizes sizes = WEFT_INIT(weft_ll_sizes);
    CHECK(weft_ll_query_sizes(ep, &config, &sizes));
    CHECK(weft_ll_create(ep, &config, &ll));

    struct batch batches[BATCHES];
    for (int i = 0; i < BATCHES; i++)
        open_batch(&batches[i], comm, sizes.rows_bytes, weft_comm_rank(comm) + i);
    decode(comm, batches, ll, stream);

    for (int i = 0; i < BATCHES; i++) {
        CHECK(weft_memory_free(comm, batches[i].x));
        CHECK(weft_memory_free(comm, batches[i].topk_idx));
        CHECK(weft_memory_free(comm, batches[i].topk_weights));
        CHECK(weft_memory_free(comm, batches[i].rows));
    }
    CHECK(weft_stream_destroy(stream));
    CHECK(weft_comm_destroy(comm)); /* and what belongs to it */
    return 0;
}
