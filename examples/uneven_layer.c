/* SPDX-License-Identifier: MIT */
/* A MoE layer with uneven experts, one of them on two ranks, whose tokens travel as FP8.
 * docs/tutorial.md explains it. Run it with: weft run -n 4 -- uneven_layer */
#include <stdio.h>

#include "weft.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const weft_result result_ = (call);                                                        \
        if (result_ != WEFT_OK) {                                                                  \
            fprintf(stderr, "%s: %s\n", #call, weft_last_error());                                 \
            return result_;                                                                        \
        }                                                                                          \
    } while (0)

enum { TOKENS = 16, HIDDEN = 256, GROUP = 128, TOPK = 2, EXPERTS = 8 };

static const weft_quantisation fp8 = {
    .dtype = WEFT_FP8_E4M3, .scale = WEFT_SCALE_FP32_POWER_OF_TWO, .group_elements = GROUP};

struct layer {
    weft_comm *comm;
    weft_stream *stream;
    weft_ep *ep;
    weft_ep_handle *handle;
    weft_arena *arena;
};

struct tokens {         /* of this rank, in memory of the machine, which may be a GPU */
    void *x, *out;      /* [TOKENS][HIDDEN] floats */
    void *topk_idx;     /* [TOKENS][TOPK] int32_t */
    void *topk_weights; /* [TOKENS][TOPK] floats */
};

struct rows { /* that came to this rank, in the arena */
    int32_t num;
    void *x;            /* [num][HIDDEN] FP8 */
    void *scales;       /* [num][HIDDEN / GROUP] floats */
    void *topk_idx;     /* [num][TOPK] local experts, -1 for experts of other ranks */
    void *topk_weights; /* [num][TOPK] floats */
    void *y;            /* [num][HIDDEN] floats, the answers */
};

/* ---------------------------------------------------------------- set-up */

/* Expert 0, the busiest, is on the first rank, alone there, and on the last. */
static weft_result place_experts(struct layer *layer)
{
    const int32_t num_ranks = weft_comm_num_ranks(layer->comm), last = num_ranks - 1;
    int32_t offsets[EXPERTS + 1] = {0}, ranks[EXPERTS + 1], num = 0;
    ranks[num++] = 0;
    if (last > 0)
        ranks[num++] = last;
    offsets[1] = num;
    for (int32_t expert = 1; expert < EXPERTS; expert++) {
        ranks[num++] = last > 0 ? 1 + (expert - 1) % last : 0;
        offsets[expert + 1] = num;
    }
    const weft_ep_config config = {.size = sizeof config,
                                   .num_experts = EXPERTS,
                                   .max_topk = TOPK,
                                   .expert_offsets = offsets,
                                   .expert_ranks = ranks};
    return weft_ep_create(layer->comm, &config, &layer->ep);
}

/* The arena has room for the most rows that can come. */
static weft_result create_arena(struct layer *layer)
{
    const uint64_t row_bytes[] = {HIDDEN, HIDDEN / GROUP * sizeof(float), HIDDEN * sizeof(float)};
    const weft_ep_size_args batch = {.size = sizeof batch,
                                     .plane_row_bytes = row_bytes, /* of x, scales and y */
                                     .num_planes = 3,
                                     .max_tokens_per_rank = TOKENS,
                                     .num_topk = TOPK,
                                     .index_type = WEFT_INT32,
                                     .with_topk = 1};
    weft_ep_sizes sizes = WEFT_INIT(weft_ep_sizes);
    CHECK(weft_ep_query_sizes(layer->ep, &batch, &sizes));
    return weft_arena_create(layer->comm, sizes.arena_bytes, &layer->arena);
}

static weft_result open_layer(struct layer *layer)
{
    CHECK(weft_stream_create(layer->comm, &layer->stream));
    CHECK(place_experts(layer));
    CHECK(create_arena(layer));
    const weft_ep_handle_config batch = {
        .size = sizeof batch, .max_tokens = TOKENS, .num_topk = TOPK};
    return weft_ep_handle_create(layer->ep, &batch, &layer->handle);
}

/* ---------------------------------------------------------------- the layer */

static weft_result make_room(const struct layer *layer, const struct tokens *tokens,
                             struct rows *rows)
{
    const weft_ep_layout_args layout = {.size = sizeof layout,
                                        .num_tokens = TOKENS,
                                        .index_type = WEFT_INT32,
                                        .topk_idx = tokens->topk_idx};
    CHECK(weft_ep_layout(layer->handle, &layout, layer->stream));
    CHECK(weft_ep_notify(layer->handle, layer->stream));
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    CHECK(weft_ep_wait_counts(layer->handle, &counts));

    rows->num = counts.num_recv_tokens;
    const uint64_t num = (uint64_t)rows->num;
    CHECK(weft_arena_reset(layer->arena));
    CHECK(weft_arena_alloc(layer->arena, num * HIDDEN, &rows->x));
    CHECK(weft_arena_alloc(layer->arena, num * (HIDDEN / GROUP) * sizeof(float), &rows->scales));
    CHECK(weft_arena_alloc(layer->arena, num * TOPK * sizeof(int32_t), &rows->topk_idx));
    CHECK(weft_arena_alloc(layer->arena, num * TOPK * sizeof(float), &rows->topk_weights));
    return weft_arena_alloc(layer->arena, num * HIDDEN * sizeof(float), &rows->y);
}

static weft_result dispatch(const struct layer *layer, const struct tokens *tokens,
                            const struct rows *rows)
{
    const weft_plane plane = {.size = sizeof plane,
                              .src = tokens->x, /* floats; FP8 arrives */
                              .dtype = WEFT_FP32,
                              .row_bytes = HIDDEN * sizeof(float),
                              .quantisation = fp8,
                              .dst = rows->x,
                              .scales = rows->scales};
    const weft_ep_dispatch_args args = {.size = sizeof args,
                                        .planes = &plane,
                                        .num_planes = 1,
                                        .capacity = rows->num,
                                        .index_type = WEFT_INT32,
                                        .topk_idx = tokens->topk_idx,
                                        .topk_weights = tokens->topk_weights,
                                        .recv_topk_idx = rows->topk_idx,
                                        .recv_topk_weights = rows->topk_weights};
    return weft_ep_dispatch(layer->handle, &args, layer->stream);
}

/* Expert e stands for a network: it multiplies by e + 1. */
static void run_expert(int32_t expert, float weight, const float *x, float *y)
{
    for (int h = 0; h < HIDDEN; h++)
        y[h] += weight * (float)(expert + 1) * x[h];
}

/* Your kernels take the place of this function and of the next one. Memory of the machine, which
 * may be a GPU, is not for the host, so a row is copied to the host and back. */
static weft_result run_row(const struct layer *layer, const struct rows *rows, int64_t i)
{
    float *y_of_row = (float *)rows->y + i * HIDDEN;
    float x[HIDDEN], y[HIDDEN] = {0}, weights[TOPK];
    int32_t ids[TOPK];
    CHECK(weft_memory_copy(layer->comm, x, y_of_row, sizeof x));
    CHECK(weft_memory_copy(layer->comm, ids, (int32_t *)rows->topk_idx + i * TOPK, sizeof ids));
    CHECK(weft_memory_copy(layer->comm, weights, (float *)rows->topk_weights + i * TOPK,
                           sizeof weights));
    for (int k = 0; k < TOPK; k++) {
        const int32_t rank = weft_comm_rank(layer->comm);
        if (ids[k] >= 0) /* else the choice is an expert of another rank */
            run_expert(weft_ep_global_expert(layer->ep, rank, ids[k]), weights[k], x, y);
    }
    return weft_memory_copy(layer->comm, y_of_row, y, sizeof y);
}

static weft_result run_experts(const struct layer *layer, const struct rows *rows)
{
    const weft_rows_args back = {.size = sizeof back,
                                 .src = rows->x,
                                 .scales = rows->scales,
                                 .quantisation = fp8,
                                 .dst = rows->y,
                                 .dtype = WEFT_FP32,
                                 .hidden = HIDDEN,
                                 .num_rows = rows->num};
    CHECK(weft_rows_dequantise(layer->comm, &back, layer->stream));
    CHECK(weft_stream_synchronize(layer->stream));
    for (int64_t i = 0; i < rows->num; i++)
        CHECK(run_row(layer, rows, i));
    return WEFT_OK;
}

static weft_result combine(const struct layer *layer, const struct tokens *tokens,
                           const struct rows *rows)
{
    const weft_ep_combine_args args = {.size = sizeof args,
                                       .x = rows->y,
                                       .out = tokens->out,
                                       .hidden = HIDDEN,
                                       .dtype = WEFT_FP32,
                                       .capacity = rows->num};
    CHECK(weft_ep_combine(layer->handle, &args, layer->stream));
    return weft_stream_synchronize(layer->stream);
}

/* ---------------------------------------------------------------- tokens */

/* Every second token chooses expert 0. Numbers are small, so that FP8 has them exactly. */
struct batch {
    float x[TOKENS][HIDDEN], weights[TOKENS][TOPK];
    int32_t ids[TOKENS][TOPK];
};

static void fill(struct batch *batch, int32_t rank)
{
    for (int t = 0; t < TOKENS; t++) {
        batch->ids[t][0] = t % 2 == 0 ? 0 : 1 + (t + rank) % (EXPERTS - 1);
        batch->ids[t][1] = 1 + (t + rank + 3) % (EXPERTS - 1);
        batch->weights[t][0] = 0.75f;
        batch->weights[t][1] = 0.25f;
        for (int h = 0; h < HIDDEN; h++)
            batch->x[t][h] = (float)(1 + (t + h) % 8);
    }
}

static weft_result copy_in(weft_comm *comm, const struct batch *batch, struct tokens *tokens)
{
    CHECK(weft_memory_alloc(comm, sizeof batch->x, &tokens->x));
    CHECK(weft_memory_alloc(comm, sizeof batch->x, &tokens->out));
    CHECK(weft_memory_alloc(comm, sizeof batch->ids, &tokens->topk_idx));
    CHECK(weft_memory_alloc(comm, sizeof batch->weights, &tokens->topk_weights));
    CHECK(weft_memory_copy(comm, tokens->x, batch->x, sizeof batch->x));
    CHECK(weft_memory_copy(comm, tokens->topk_idx, batch->ids, sizeof batch->ids));
    return weft_memory_copy(comm, tokens->topk_weights, batch->weights, sizeof batch->weights);
}

static int count_wrong(const struct batch *batch, float out[TOKENS][HIDDEN])
{
    int num_wrong = 0;
    for (int t = 0; t < TOKENS; t++) {
        float factor = 0;
        for (int k = 0; k < TOPK; k++)
            factor += batch->weights[t][k] * (float)(batch->ids[t][k] + 1);
        for (int h = 0; h < HIDDEN; h++)
            num_wrong += out[t][h] != factor * batch->x[t][h];
    }
    return num_wrong;
}

static weft_result run(weft_comm *comm)
{
    static struct batch batch;
    static float out[TOKENS][HIDDEN];
    const int32_t rank = weft_comm_rank(comm);
    struct layer layer = {.comm = comm};
    struct tokens tokens;
    struct rows rows;
    fill(&batch, rank);
    CHECK(copy_in(comm, &batch, &tokens));
    CHECK(open_layer(&layer));

    CHECK(make_room(&layer, &tokens, &rows));
    CHECK(dispatch(&layer, &tokens, &rows));
    CHECK(run_experts(&layer, &rows));
    CHECK(combine(&layer, &tokens, &rows));

    CHECK(weft_memory_copy(comm, out, tokens.out, sizeof out));
    printf("rank %d: experts here: %d, rows that came: %d, wrong sums: %d\n", rank,
           weft_ep_num_local_experts(layer.ep, rank), rows.num, count_wrong(&batch, out));
    return weft_stream_destroy(layer.stream);
}

int main(void)
{
    weft_comm *comm;
    if (weft_comm_create_from_env(NULL, &comm) != WEFT_OK) {
        fprintf(stderr, "no communicator: %s\n", weft_last_error());
        return 1;
    }
    const weft_result result = run(comm);
    return weft_comm_destroy(comm) == WEFT_OK && result == WEFT_OK ? 0 : 1; /* ends all of it */
}
