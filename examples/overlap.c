/* SPDX-License-Identifier: MIT */
/*
 * Experts that begin as soon as their rows have come, while dispatch still brings those of others.
 * Dispatch runs on one stream. The experts, on a second one, wait for their words, one after the
 * other. An expert returns its input, and the weights of a token sum up to 1: so tokens must come
 * out as they went in. Words count steps, so nobody sets them back. Run it with:
 * weft run -n 4 -- overlap, or on GPUs with WEFT_MACHINE=cuda.
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

enum { TOKENS = 4, HIDDEN = 8, TOPK = 2, LOCAL_EXPERTS = 3, STEPS = 5 };

struct layer { /* its memory is the machine's, which may be a GPU */
    weft_comm *comm;
    weft_ll *ll;
    weft_stream *dispatch, *experts;
    void *x, *topk_idx, *topk_weights;
    char *rows, *answers; /* [LOCAL_EXPERTS][capacity][HIDDEN] */
    uint64_t expert_bytes;
    uint64_t *words; /* [LOCAL_EXPERTS] */
};

/* ---------------------------------------------------------------- a step */

static void bring_rows(const struct layer *layer)
{
    const weft_ll_dispatch_args args = {.size = sizeof args,
                                        .num_tokens = TOKENS,
                                        .x = layer->x,
                                        .index_type = WEFT_INT32,
                                        .topk_idx = layer->topk_idx,
                                        .topk_weights = layer->topk_weights,
                                        .rows = layer->rows,
                                        .expert_signals = layer->words};
    CHECK(weft_ll_dispatch(layer->ll, &args, layer->dispatch));
}

/* A grouped product of yours would wait by itself, in one kernel or thread: for each expert it
 * loads the word, with an acquire, until that is `step` or more. */
static void run_expert(const struct layer *layer, int expert, uint64_t step)
{
    const weft_rma_args wait = {.size = sizeof wait, .word = layer->words + expert, .value = step};
    CHECK(weft_rma_wait_until(layer->comm, &wait, layer->experts));
    /* Here your expert; this one copies. */
    const weft_rma_args copy = {.size = sizeof copy,
                                .rank = weft_comm_rank(layer->comm),
                                .src = layer->rows + (uint64_t)expert * layer->expert_bytes,
                                .dst = layer->answers + (uint64_t)expert * layer->expert_bytes,
                                .bytes = layer->expert_bytes};
    CHECK(weft_rma_put(layer->comm, &copy, layer->experts));
}

/* Combine comes behind the experts on their stream. */
static void return_rows(const struct layer *layer)
{
    const weft_ll_combine_args args = {.size = sizeof args, .x = layer->answers, .out = layer->x};
    CHECK(weft_rma_quiet(layer->comm, layer->experts));
    CHECK(weft_ll_combine(layer->ll, &args, layer->experts));
}

static void run_step(const struct layer *layer, uint64_t step)
{
    float x[TOKENS][HIDDEN], seen[TOKENS][HIDDEN];
    const int32_t rank = weft_comm_rank(layer->comm);
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HIDDEN; h++)
            x[t][h] = (float)(1 + h + HIDDEN * (t + TOKENS * ((int)step + STEPS * rank)));
    CHECK(weft_memory_copy(layer->comm, layer->x, x, sizeof x));
    bring_rows(layer);
    for (int expert = 0; expert < LOCAL_EXPERTS; expert++)
        run_expert(layer, expert, step);
    return_rows(layer);
    CHECK(weft_stream_synchronize(layer->dispatch));
    CHECK(weft_stream_synchronize(layer->experts));
    CHECK(weft_memory_copy(layer->comm, seen, layer->x, sizeof seen));
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HIDDEN; h++)
            if (seen[t][h] != x[t][h]) {
                fprintf(stderr, "rank %d, step %d: token %d was %g and is %g\n", rank, (int)step, t,
                        x[t][h], seen[t][h]);
                exit(1);
            }
}

/* ---------------------------------------------------------------- the layer */

static void open_tokens(struct layer *layer)
{
    int32_t ids[TOKENS][TOPK];
    float weights[TOKENS][TOPK];
    const int32_t num_experts = LOCAL_EXPERTS * weft_comm_num_ranks(layer->comm);
    for (int t = 0; t < TOKENS; t++) {
        ids[t][0] = (5 * weft_comm_rank(layer->comm) + 3 * t) % num_experts;
        ids[t][1] = (ids[t][0] + 1) % num_experts;
        weights[t][0] = 0.25f;
        weights[t][1] = 0.75f;
    }
    CHECK(weft_memory_alloc(layer->comm, sizeof(float[TOKENS][HIDDEN]), &layer->x));
    CHECK(weft_memory_alloc(layer->comm, sizeof ids, &layer->topk_idx));
    CHECK(weft_memory_alloc(layer->comm, sizeof weights, &layer->topk_weights));
    CHECK(weft_memory_copy(layer->comm, layer->topk_idx, ids, sizeof ids));
    CHECK(weft_memory_copy(layer->comm, layer->topk_weights, weights, sizeof weights));
}

/* Only for weft_rma_wait_until and weft_rma_put words and rows are in the heap. */
static void open_rows(struct layer *layer, const weft_ll_sizes *sizes)
{
    const uint64_t zeros[LOCAL_EXPERTS] = {0};
    void *rows, *answers, *words;
    CHECK(weft_heap_alloc(layer->comm, sizes->rows_bytes, &rows));
    CHECK(weft_heap_alloc(layer->comm, sizes->rows_bytes, &answers));
    CHECK(weft_heap_alloc(layer->comm, sizeof zeros, &words));
    CHECK(weft_memory_copy(layer->comm, words, zeros, sizeof zeros));
    layer->rows = rows;
    layer->answers = answers;
    layer->words = words;
    layer->expert_bytes = sizes->rows_bytes / LOCAL_EXPERTS;
}

static void close_layer(const struct layer *layer)
{
    CHECK(weft_memory_free(layer->comm, layer->x));
    CHECK(weft_memory_free(layer->comm, layer->topk_idx));
    CHECK(weft_memory_free(layer->comm, layer->topk_weights));
    CHECK(weft_heap_free(layer->comm, layer->rows));
    CHECK(weft_heap_free(layer->comm, layer->answers));
    CHECK(weft_heap_free(layer->comm, layer->words));
    CHECK(weft_stream_destroy(layer->dispatch));
    CHECK(weft_stream_destroy(layer->experts));
    CHECK(weft_comm_destroy(layer->comm)); /* and what belongs to it */
}

int main(void)
{
    struct layer layer = {.comm = NULL};
    weft_ep *ep;
    CHECK(weft_comm_create_from_env(NULL, &layer.comm));
    CHECK(weft_stream_create(layer.comm, &layer.dispatch));
    CHECK(weft_stream_create(layer.comm, &layer.experts));
    const weft_ep_config experts = {.size = sizeof experts,
                                    .num_experts = LOCAL_EXPERTS * weft_comm_num_ranks(layer.comm)};
    CHECK(weft_ep_create(layer.comm, &experts, &ep));
    const weft_ll_config config = {.size = sizeof config,
                                   .hidden = HIDDEN,
                                   .max_tokens = TOKENS,
                                   .num_topk = TOPK,
                                   .dtype = WEFT_FP32,
                                   .layout = WEFT_LL_BY_EXPERT};
    weft_ll_sizes sizes = WEFT_INIT(weft_ll_sizes);
    CHECK(weft_ll_query_sizes(ep, &config, &sizes));
    CHECK(weft_ll_create(ep, &config, &layer.ll));
    open_tokens(&layer);
    open_rows(&layer, &sizes);
    for (uint64_t step = 1; step <= STEPS; step++)
        run_step(&layer, step);
    printf("rank %d: %d steps of %d experts that began early are right\n",
           weft_comm_rank(layer.comm), STEPS, LOCAL_EXPERTS);
    close_layer(&layer);
    return 0;
}
