/* SPDX-License-Identifier: MIT */
/* What operations on GPUs are given: memory that they could not access is refused by name before
 * anything is enqueued, other memory of the host works; and so for streams that are not of their
 * GPU. */
#include "cuda/driver.h"
#include "cuda/layer.h"
#include "harness/cmocka.h"
#include "harness/memory.h"

enum { NUM_RANKS = 2, NUM_ROUNDS = 8 };

static const struct layer_shape usual = {.max_tokens = 16,
                                         .num_topk = 2,
                                         .num_experts = 8,
                                         .capacity = 24,
                                         .hidden = 72,
                                         .num_blocks = 2,
                                         .num_warps = 4};

/* The same layer on both machines, each on a stream of weft's. */
struct pair {
    struct layer gpu, cpu;
    weft_stream *on_gpu, *on_cpu;
};

static int open_layer(struct layer *layer, struct ranks_context *context, const weft_unique_id *id,
                      weft_machine machine, const struct layer_shape *shape, weft_stream **stream)
{
    weft_comm *comm;
    CHECK_OK(weft_comm_create(id, context->rank, context->num_ranks,
                              WEFT_ARGS(weft_comm_config, .machine = machine), &comm));
    CHECK_OK(weft_stream_create(comm, stream));
    return layer_open(layer, context, comm, shape);
}

static int open_pair(struct pair *pair, struct ranks_context *context,
                     const struct layer_shape *shape)
{
    weft_unique_id *second = context->shared;
    if (driver_use_device(context->rank))
        return 1;
    if (context->rank == 0)
        CHECK_OK(weft_unique_id_create(second));
    ranks_barrier(context);
    return open_layer(&pair->gpu, context, &context->id, WEFT_MACHINE_CUDA, shape, &pair->on_gpu) ||
           open_layer(&pair->cpu, context, second, WEFT_MACHINE_CPU, shape, &pair->on_cpu);
}

static int close_layer(struct layer *layer, weft_stream *stream)
{
    if (layer_close(layer))
        return 1;
    CHECK_OK(weft_stream_destroy(stream));
    CHECK_OK(weft_comm_destroy(layer->comm));
    return 0;
}

static int close_pair(struct pair *pair)
{
    struct ranks_context *context = pair->gpu.context;
    if (close_layer(&pair->gpu, pair->on_gpu) || close_layer(&pair->cpu, pair->on_cpu))
        return 1;
    ranks_barrier(context); /* rank 0's process serves the second */
    return driver_leave_device(context->rank);
}

static int check_round(struct pair *pair, uint64_t round)
{
    if (layer_fill(&pair->gpu, round) || layer_fill(&pair->cpu, round) ||
        layer_issue(&pair->gpu, pair->on_gpu) || layer_issue(&pair->cpu, pair->on_cpu))
        return 1;
    CHECK_OK(weft_stream_synchronize(pair->on_gpu));
    CHECK_OK(weft_stream_synchronize(pair->on_cpu));
    return layer_compare(&pair->gpu, &pair->cpu);
}

static void run(rank_function function, int32_t num_ranks, const struct layer_shape *shape)
{
    const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                          .num_ranks = num_ranks,
                                          RANKS_ARGUMENT(shape),
                                          .shared_bytes = sizeof(weft_unique_id)};
    assert_int_equal(ranks_run_with(&options, function), 0);
}

/* ---------------------------------------------------------------- pageable memory */

enum call { LAYOUT, DISPATCH, PLANE, COMBINE };

struct pointer {
    enum call call;
    const char *name; /* that the message must have */
    size_t offset;    /* in the call's arguments */
};

static const struct pointer pointers[] = {
    {LAYOUT, "topk_idx", offsetof(weft_ep_layout_args, topk_idx)},
    {LAYOUT, "num_tokens_per_rank", offsetof(weft_ep_layout_args, num_tokens_per_rank)},
    {LAYOUT, "num_tokens_per_node", offsetof(weft_ep_layout_args, num_tokens_per_node)},
    {LAYOUT, "num_tokens_per_expert", offsetof(weft_ep_layout_args, num_tokens_per_expert)},
    {LAYOUT, "is_token_in_rank", offsetof(weft_ep_layout_args, is_token_in_rank)},
    {PLANE, "planes[0].src", offsetof(weft_plane, src)},
    {PLANE, "planes[0].dst", offsetof(weft_plane, dst)},
    {DISPATCH, "topk_idx", offsetof(weft_ep_dispatch_args, topk_idx)},
    {DISPATCH, "topk_weights", offsetof(weft_ep_dispatch_args, topk_weights)},
    {DISPATCH, "recv_topk_idx", offsetof(weft_ep_dispatch_args, recv_topk_idx)},
    {DISPATCH, "recv_topk_weights", offsetof(weft_ep_dispatch_args, recv_topk_weights)},
    {DISPATCH, "recv_src_token", offsetof(weft_ep_dispatch_args, recv_src_token)},
    {COMBINE, "x", offsetof(weft_ep_combine_args, x)},
    {COMBINE, "bias[0]", offsetof(weft_ep_combine_args, bias[0])},
    {COMBINE, "bias[1]", offsetof(weft_ep_combine_args, bias[1])},
    {COMBINE, "out", offsetof(weft_ep_combine_args, out)},
    {COMBINE, "topk_weights", offsetof(weft_ep_combine_args, topk_weights)},
    {COMBINE, "out_topk_weights", offsetof(weft_ep_combine_args, out_topk_weights)},
};

static weft_result call_with(const struct pair *pair, const struct pointer *pointer,
                             const void *value)
{
    const struct layer *layer = &pair->gpu;
    weft_plane plane;
    weft_ep_layout_args layout = layer_layout_args(layer);
    weft_ep_dispatch_args dispatch = layer_dispatch_args(layer, &plane);
    weft_ep_combine_args combine = layer_combine_args(layer);
    void *const args[] = {
        [LAYOUT] = &layout, [DISPATCH] = &dispatch, [PLANE] = &plane, [COMBINE] = &combine};
    memcpy((char *)args[pointer->call] + pointer->offset, &value, sizeof value);
    switch (pointer->call) {
    case LAYOUT:
        return weft_ep_layout(layer->handle, &layout, pair->on_gpu);
    case COMBINE:
        return weft_ep_combine(layer->handle, &combine, pair->on_gpu);
    default:
        return weft_ep_dispatch(layer->handle, &dispatch, pair->on_gpu);
    }
}

/* One rank's wrong calls are not noticed by the other. */
static int give_pageable_memory(struct ranks_context *context)
{
    struct pair pair;
    char *pageable = tests_alloc(1 << 20);
    char of_stack[64] = {0};
    if (open_pair(&pair, context, context->argument) || check_round(&pair, 0))
        return 1;
    for (size_t i = 0; context->rank == 1 && i < sizeof pointers / sizeof pointers[0]; i++) {
        char start[64];
        snprintf(start, sizeof start, "%s is ", pointers[i].name);
        CHECK_ERROR(call_with(&pair, &pointers[i], pageable + 256), WEFT_ERROR_INVALID_ARGUMENT,
                    pointers[i].name);
        CHECK(strncmp(weft_last_error(), start, strlen(start)) == 0,
              "\"%s\" does not start with \"%s\"", weft_last_error(), start);
        CHECK_ERROR(call_with(&pair, &pointers[i], of_stack), WEFT_ERROR_INVALID_ARGUMENT,
                    pointers[i].name);
    }
    tests_free(pageable);
    for (uint64_t round = 1; round < NUM_ROUNDS; round++)
        if (check_round(&pair, round))
            return 1;
    return close_pair(&pair);
}

TEST_CALL(pageable_memory_is_refused_by_name, run(give_pageable_memory, NUM_RANKS, &usual))

/* ---------------------------------------------------------------- memory of the host that works */

static int use_memory(struct ranks_context *context)
{
    struct pair pair;
    if (open_pair(&pair, context, context->argument))
        return 1;
    for (uint64_t round = 0; round < NUM_ROUNDS; round++)
        if (check_round(&pair, round))
            return 1;
    return close_pair(&pair);
}

TEST(pinned_memory_works)
{
    struct layer_shape shape = usual;
    shape.memory = LAYER_PINNED;
    run(use_memory, NUM_RANKS, &shape);
}

TEST(managed_memory_works)
{
    struct layer_shape shape = usual;
    shape.memory = LAYER_MANAGED;
    run(use_memory, NUM_RANKS, &shape);
}

/* ---------------------------------------------------------------- streams */

static int use_stream_of_cpu(struct pair *pair)
{
    const weft_ep_layout_args args = layer_layout_args(&pair->gpu);
    const weft_result invalid = WEFT_ERROR_INVALID_ARGUMENT;
    const char *text = "stream is of machine cpu";
    weft_stream *stream = pair->on_cpu;
    weft_event *of_gpu, *of_cpu;
    CHECK_ERROR(weft_ep_layout(pair->gpu.handle, &args, stream), invalid, text);
    CHECK_ERROR(weft_ep_notify(pair->gpu.handle, stream), invalid, text);
    CHECK_ERROR(weft_comm_barrier(pair->gpu.comm, stream), invalid, text);
    CHECK_ERROR(weft_comm_barrier(pair->cpu.comm, pair->on_gpu), invalid,
                "stream is of machine cuda");
    CHECK_OK(weft_event_create(pair->gpu.comm, &of_gpu));
    CHECK_OK(weft_event_create(pair->cpu.comm, &of_cpu));
    CHECK_ERROR(weft_event_record(of_gpu, stream), invalid, text);
    CHECK_ERROR(weft_stream_wait_event(pair->on_gpu, of_cpu), invalid, "machine cpu");
    CHECK_OK(weft_event_destroy(of_gpu));
    CHECK_OK(weft_event_destroy(of_cpu));
    return 0;
}

/* Another GPU's, of weft and wrapped. */
static int use_stream_of_device(struct pair *pair, weft_comm *other, CUstream native)
{
    const weft_ep_layout_args args = layer_layout_args(&pair->gpu);
    weft_stream *stream, *wrapped;
    CHECK_OK(weft_stream_create(other, &stream));
    CHECK_ERROR(weft_ep_layout(pair->gpu.handle, &args, stream), WEFT_ERROR_INVALID_ARGUMENT,
                "stream is of CUDA device 1");
    CHECK_ERROR(weft_comm_barrier(pair->gpu.comm, stream), WEFT_ERROR_INVALID_ARGUMENT,
                "stream is of CUDA device 1");
    CHECK_OK(weft_stream_destroy(stream));
    if (weft_stream_wrap(pair->gpu.comm, native, &wrapped) == WEFT_OK) {
        CHECK(weft_ep_layout(pair->gpu.handle, &args, wrapped) != WEFT_OK,
              "a stream of device 1 was taken for one of device 0");
        CHECK_OK(weft_stream_destroy(wrapped));
    }
    return 0;
}

static int use_other_device(struct pair *pair)
{
    struct ranks_context *context = pair->gpu.context;
    weft_comm *other;
    CUstream native;
    if (driver_use_device(1))
        return 1;
    CHECK_OK(weft_comm_create(&context->id, 0, 1,
                              WEFT_ARGS(weft_comm_config, .machine = WEFT_MACHINE_CUDA), &other));
    DRIVER_CHECK(driver.stream_create(&native, CU_STREAM_NON_BLOCKING));
    if (use_stream_of_device(pair, other, native))
        return 1;
    DRIVER_CHECK(driver.stream_destroy(native));
    CHECK_OK(weft_comm_destroy(other));
    return driver_leave_device(1);
}

static int use_wrong_streams(struct ranks_context *context)
{
    struct pair pair;
    if (open_pair(&pair, context, context->argument) || check_round(&pair, 0) ||
        use_stream_of_cpu(&pair))
        return 1;
    if (driver_num_devices() > 1 && use_other_device(&pair))
        return 1;
    return check_round(&pair, 1) || close_pair(&pair);
}

TEST_CALL(streams_of_others_are_refused, run(use_wrong_streams, 1, &usual))
