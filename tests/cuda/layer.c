/* SPDX-License-Identifier: MIT */
#include "cuda/layer.h"

#include "cuda/driver.h"
#include "harness/memory.h"
#include "oracle/ep_data.h"
#include "workload/rng.h"

enum { UNTOUCHED = 0xa5 };

uint64_t layer_array_bytes(const struct layer *layer, enum layer_array array)
{
    const uint64_t max_tokens = (uint64_t)layer->shape.max_tokens;
    const uint64_t capacity = (uint64_t)layer->shape.capacity;
    const uint64_t num_topk = (uint64_t)layer->shape.num_topk;
    const uint64_t row_bytes = (uint64_t)layer->shape.hidden * 2;
    const uint64_t bytes[LAYER_NUM_ARRAYS] = {
        [LAYER_TOPK_IDX] = max_tokens * num_topk * 8,
        [LAYER_TOPK_WEIGHTS] = max_tokens * num_topk * 4,
        [LAYER_ROWS] = max_tokens * row_bytes,
        [LAYER_BIAS] = max_tokens * row_bytes,
        [LAYER_TOKENS_PER_RANK] = (uint64_t)layer->context->num_ranks * 4,
        [LAYER_OUT] = max_tokens * row_bytes,
        [LAYER_OUT_WEIGHTS] = max_tokens * num_topk * 4,
        [LAYER_RECV_ROWS] = capacity * row_bytes,
        [LAYER_RECV_TOPK_IDX] = capacity * num_topk * 8,
        [LAYER_RECV_WEIGHTS] = capacity * num_topk * 4,
        [LAYER_RECV_SRC_TOKEN] = capacity * 4,
    };
    return bytes[array];
}

/* ---------------------------------------------------------------- memory */

static enum layer_memory memory_of(const struct layer *layer)
{
    return weft_comm_machine(layer->comm) == WEFT_MACHINE_CUDA ? layer->shape.memory
                                                               : LAYER_OF_MACHINE;
}

static int alloc_array(struct layer *layer, enum layer_array array)
{
    const uint64_t bytes = layer_array_bytes(layer, array);
    void **memory = &layer->arrays[array];
    CUdeviceptr managed = 0;
    if (array >= LAYER_RECV_ROWS) {
        CHECK_OK(weft_heap_alloc(layer->comm, bytes, memory));
        return 0;
    }
    switch (memory_of(layer)) {
    case LAYER_PINNED:
        DRIVER_CHECK(driver.mem_host_alloc(memory, bytes, CU_MEMHOSTALLOC_PORTABLE));
        break;
    case LAYER_MANAGED:
        DRIVER_CHECK(driver.mem_alloc_managed(&managed, bytes, CU_MEM_ATTACH_GLOBAL));
        *memory = (void *)(uintptr_t)managed;
        break;
    default:
        CHECK_OK(weft_memory_alloc(layer->comm, bytes, memory));
    }
    return 0;
}

static int free_array(struct layer *layer, enum layer_array array)
{
    void *memory = layer->arrays[array];
    if (array >= LAYER_RECV_ROWS) {
        CHECK_OK(weft_heap_free(layer->comm, memory));
        return 0;
    }
    switch (memory_of(layer)) {
    case LAYER_PINNED:
        DRIVER_CHECK(driver.mem_free_host(memory));
        break;
    case LAYER_MANAGED:
        DRIVER_CHECK(driver.mem_free((CUdeviceptr)(uintptr_t)memory));
        break;
    default:
        CHECK_OK(weft_memory_free(layer->comm, memory));
    }
    return 0;
}

/* Both machines start with the same bytes where nothing is ever written. */
static int make_arrays(struct layer *layer)
{
    for (int array = 0; array < LAYER_NUM_ARRAYS; array++) {
        const uint64_t bytes = layer_array_bytes(layer, (enum layer_array)array);
        if (alloc_array(layer, (enum layer_array)array))
            return 1;
        void *content = tests_alloc(bytes);
        memset(content, UNTOUCHED, bytes);
        const weft_result result =
            weft_memory_copy(layer->comm, layer->arrays[array], content, bytes);
        tests_free(content);
        CHECK_OK(result);
    }
    return 0;
}

/* ---------------------------------------------------------------- life */

int layer_open(struct layer *layer, struct ranks_context *context, weft_comm *comm,
               const struct layer_shape *shape)
{
    *layer = (struct layer){.context = context,
                            .shape = *shape,
                            .comm = comm,
                            .num_tokens = shape->max_tokens - 3 * context->rank};
    CHECK_OK(
        weft_ep_create(comm,
                       WEFT_ARGS(weft_ep_config, .num_experts = shape->num_experts,
                                 .num_blocks = shape->num_blocks, .num_warps = shape->num_warps),
                       &layer->ep));
    CHECK_OK(weft_ep_handle_create(layer->ep,
                                   WEFT_ARGS(weft_ep_handle_config, .max_tokens = shape->max_tokens,
                                             .num_topk = shape->num_topk),
                                   &layer->handle));
    if (make_arrays(layer))
        return 1;
    /* From here on the others may write into the heap's arrays. */
    CHECK_OK(weft_comm_host_barrier(comm));
    return 0;
}

int layer_close(struct layer *layer)
{
    /* Heap memory goes back: nobody may still be using it. */
    if (weft_comm_status(layer->comm, NULL) == WEFT_OK)
        CHECK_OK(weft_comm_host_barrier(layer->comm));
    for (int array = LAYER_NUM_ARRAYS - 1; array >= 0; array--)
        if (free_array(layer, (enum layer_array)array))
            return 1;
    CHECK_OK(weft_ep_handle_destroy(layer->handle));
    CHECK_OK(weft_ep_destroy(layer->ep));
    return 0;
}

/* ---------------------------------------------------------------- inputs */

/* In turn: all experts alike; the first ones, whose ranks then get more than their capacity; half
 * of the ids out of range; everybody the same. */
static int64_t bound_of_experts(const struct layer *layer, uint64_t round)
{
    const int64_t num_experts = layer->shape.num_experts;
    const int64_t bounds[] = {num_experts, (num_experts + 3) / 4, 2 * num_experts, 1};
    return bounds[round % 4];
}

static void make_choices(const struct layer *layer, uint64_t round, int64_t *topk_idx,
                         float *topk_weights)
{
    const int32_t num_choices = layer->num_tokens * layer->shape.num_topk;
    struct rng rng = {rng_key(round, (uint64_t)layer->context->rank)};
    for (int32_t i = 0; i < num_choices; i++) {
        topk_idx[i] = rng_below(&rng, (uint32_t)bound_of_experts(layer, round));
        topk_weights[i] = rng_uniform(&rng);
    }
}

static void make_rows(const struct layer *layer, uint64_t key, void *rows)
{
    const int64_t first_token = (int64_t)layer->context->rank * layer->shape.max_tokens;
    const int64_t row_bytes = layer->shape.hidden * 2;
    for (int32_t token = 0; token < layer->num_tokens; token++)
        ep_data_values(key, EP_VALUES_CANCELLING, first_token + token, WEFT_BF16,
                       (char *)rows + token * row_bytes, layer->shape.hidden);
}

int layer_fill(struct layer *layer, uint64_t round)
{
    void *content[LAYER_BIAS + 1];
    weft_result result = WEFT_OK;
    for (int array = 0; array <= LAYER_BIAS; array++)
        content[array] = tests_alloc(layer_array_bytes(layer, (enum layer_array)array));
    make_choices(layer, round, content[LAYER_TOPK_IDX], content[LAYER_TOPK_WEIGHTS]);
    make_rows(layer, rng_key(round, 1), content[LAYER_ROWS]);
    make_rows(layer, rng_key(round, 2), content[LAYER_BIAS]);
    for (int array = 0; array <= LAYER_BIAS; array++) {
        if (result == WEFT_OK)
            result = weft_memory_copy(layer->comm, layer->arrays[array], content[array],
                                      layer_array_bytes(layer, (enum layer_array)array));
        tests_free(content[array]);
    }
    CHECK_OK(result);
    return 0;
}

/* ---------------------------------------------------------------- operations */

weft_ep_layout_args layer_layout_args(const struct layer *layer)
{
    weft_ep_layout_args args = WEFT_INIT(weft_ep_layout_args);
    args.num_tokens = layer->num_tokens;
    args.index_type = WEFT_INT64;
    args.topk_idx = layer->arrays[LAYER_TOPK_IDX];
    args.num_tokens_per_rank = layer->arrays[LAYER_TOKENS_PER_RANK];
    return args;
}

weft_ep_dispatch_args layer_dispatch_args(const struct layer *layer, weft_plane *plane)
{
    weft_ep_dispatch_args args = WEFT_INIT(weft_ep_dispatch_args);
    *plane = (weft_plane){.size = sizeof(weft_plane),
                          .src = layer->arrays[LAYER_ROWS],
                          .dst = layer->arrays[LAYER_RECV_ROWS],
                          .row_bytes = (uint64_t)layer->shape.hidden * 2};
    args.num_planes = 1;
    args.planes = plane;
    args.capacity = layer->shape.capacity;
    args.index_type = WEFT_INT64;
    args.topk_idx = layer->arrays[LAYER_TOPK_IDX];
    args.topk_weights = layer->arrays[LAYER_TOPK_WEIGHTS];
    args.recv_topk_idx = layer->arrays[LAYER_RECV_TOPK_IDX];
    args.recv_topk_weights = layer->arrays[LAYER_RECV_WEIGHTS];
    args.recv_src_token = layer->arrays[LAYER_RECV_SRC_TOKEN];
    return args;
}

weft_ep_combine_args layer_combine_args(const struct layer *layer)
{
    weft_ep_combine_args args = WEFT_INIT(weft_ep_combine_args);
    args.dtype = WEFT_BF16;
    args.hidden = layer->shape.hidden;
    args.capacity = layer->shape.capacity;
    args.x = layer->arrays[LAYER_RECV_ROWS];
    args.bias[0] = layer->arrays[LAYER_BIAS];
    args.out = layer->arrays[LAYER_OUT];
    args.topk_weights = layer->arrays[LAYER_RECV_WEIGHTS];
    args.out_topk_weights = layer->arrays[LAYER_OUT_WEIGHTS];
    return args;
}

int layer_route(struct layer *layer, weft_stream *stream)
{
    const weft_ep_layout_args args = layer_layout_args(layer);
    CHECK_OK(weft_ep_layout(layer->handle, &args, stream));
    CHECK_OK(weft_ep_notify(layer->handle, stream));
    return 0;
}

int layer_move(struct layer *layer, weft_stream *stream)
{
    weft_plane plane;
    const weft_ep_dispatch_args dispatch = layer_dispatch_args(layer, &plane);
    const weft_ep_combine_args combine = layer_combine_args(layer);
    CHECK_OK(weft_ep_dispatch(layer->handle, &dispatch, stream));
    CHECK_OK(weft_ep_combine(layer->handle, &combine, stream));
    return 0;
}

int layer_issue(struct layer *layer, weft_stream *stream)
{
    return layer_route(layer, stream) || layer_move(layer, stream);
}
