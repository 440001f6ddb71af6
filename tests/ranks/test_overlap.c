/* SPDX-License-Identifier: MIT */
/* Arguments that share memory: what a call writes may be nothing else that it is given. */

#include "harness/cmocka.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 2, NUM_TOKENS = 4, NUM_TOPK = 2, HIDDEN = 32, CAPACITY = 8 };
enum { ROW_BYTES = HIDDEN * sizeof(float), HEAP_BYTES = 64 << 10, OTHER_BYTES = 8 << 10 };

struct layer {
    weft_comm *comm;
    weft_stream *stream;
    weft_ep *ep;
    weft_ep_handle *handle;
    char *heap;  /* HEAP_BYTES of the heap */
    char *other; /* OTHER_BYTES that the machine accesses */
    int64_t *topk_idx;
};

static weft_ep_layout_args layout_args(const struct layer *layer)
{
    weft_ep_layout_args args = WEFT_INIT(weft_ep_layout_args);
    args.num_tokens = NUM_TOKENS;
    args.index_type = WEFT_INT64;
    args.topk_idx = layer->topk_idx;
    return args;
}

static int open_layer(struct ranks_context *context, struct layer *layer)
{
    weft_ep_handle_config handle = WEFT_INIT(weft_ep_handle_config);
    int64_t choices[NUM_TOKENS * NUM_TOPK];
    void *memory;
    handle.max_tokens = NUM_TOKENS;
    handle.num_topk = NUM_TOPK;
    for (int i = 0; i < NUM_TOKENS * NUM_TOPK; i++)
        choices[i] = i % NUM_RANKS;
    layer->comm = ranks_comm(context, NULL);
    layer->stream = ranks_stream(context);
    CHECK_OK(weft_ep_create(layer->comm, WEFT_ARGS(weft_ep_config, .num_experts = NUM_RANKS),
                            &layer->ep));
    CHECK_OK(weft_ep_handle_create(layer->ep, &handle, &layer->handle));
    CHECK_OK(weft_heap_alloc(layer->comm, HEAP_BYTES, &memory));
    layer->heap = memory;
    CHECK_OK(weft_memory_alloc(layer->comm, OTHER_BYTES, &memory));
    layer->other = memory;
    CHECK_OK(weft_memory_alloc(layer->comm, sizeof choices, &memory));
    layer->topk_idx = memory;
    CHECK_OK(weft_memory_copy(layer->comm, memory, choices, sizeof choices));
    const weft_ep_layout_args args = layout_args(layer);
    CHECK_OK(weft_ep_layout(layer->handle, &args, layer->stream));
    CHECK_OK(weft_ep_notify(layer->handle, layer->stream));
    CHECK_OK(weft_stream_synchronize(layer->stream));
    return 0;
}

/* The message must name both arguments. */
#define CHECK_OVERLAP(call, one, two)                                                              \
    do {                                                                                           \
        CHECK_ERROR(call, WEFT_ERROR_INVALID_ARGUMENT, one " is ");                                \
        CHECK(strstr(weft_last_error(), "overlap those of " two) != NULL, "%s",                    \
              weft_last_error());                                                                  \
    } while (0)

/* ---------------------------------------------------------------- layout */

static int refuse_layouts(const struct layer *layer)
{
    weft_ep_layout_args args = layout_args(layer);
    void *other = layer->other;
    args.num_tokens_per_rank = (void *)layer->topk_idx;
    CHECK_OVERLAP(weft_ep_layout(layer->handle, &args, layer->stream), "num_tokens_per_rank",
                  "topk_idx");
    args = layout_args(layer);
    args.num_tokens_per_rank = other;
    args.num_tokens_per_expert = args.num_tokens_per_rank + 1;
    CHECK_OVERLAP(weft_ep_layout(layer->handle, &args, layer->stream), "num_tokens_per_rank",
                  "num_tokens_per_expert");
    args = layout_args(layer);
    args.num_tokens_per_node = other;
    args.is_token_in_rank = (uint8_t *)other + 3;
    CHECK_OVERLAP(weft_ep_layout(layer->handle, &args, layer->stream), "num_tokens_per_node",
                  "is_token_in_rank");
    return 0;
}

/* ---------------------------------------------------------------- dispatch */

struct dispatch {
    weft_plane planes[2];
    weft_ep_dispatch_args args;
};

/* Two planes and everything else, one behind the other. */
static void fill_dispatch(struct dispatch *dispatch, const struct layer *layer)
{
    char *dst = layer->heap, *src = layer->other;
    for (int i = 0; i < 2; i++, src += NUM_TOKENS * ROW_BYTES, dst += CAPACITY * ROW_BYTES)
        dispatch->planes[i] = (weft_plane){
            .size = sizeof(weft_plane), .src = src, .dst = dst, .row_bytes = ROW_BYTES};
    dispatch->args = (weft_ep_dispatch_args)WEFT_INIT(weft_ep_dispatch_args);
    dispatch->args.num_planes = 2;
    dispatch->args.planes = dispatch->planes;
    dispatch->args.capacity = CAPACITY;
    dispatch->args.index_type = WEFT_INT64;
    dispatch->args.topk_idx = layer->topk_idx;
    dispatch->args.topk_weights = (void *)src;
    dispatch->args.recv_topk_idx = dst;
    dst += CAPACITY * NUM_TOPK * sizeof(int64_t);
    dispatch->args.recv_topk_weights = (void *)dst;
    dst += CAPACITY * NUM_TOPK * sizeof(float);
    dispatch->args.recv_src_token = (void *)dst;
}

#define DISPATCH_OVERLAPS(place, wrong, one, two)                                                  \
    do {                                                                                           \
        fill_dispatch(&dispatch, layer);                                                           \
        place = wrong;                                                                             \
        CHECK_OVERLAP(weft_ep_dispatch(layer->handle, &dispatch.args, layer->stream), one, two);   \
    } while (0)

static int refuse_dispatches(const struct layer *layer)
{
    struct dispatch dispatch;
    char *heap = layer->heap;
    DISPATCH_OVERLAPS(dispatch.planes[1].dst, heap, "planes[0].dst", "planes[1].dst");
    DISPATCH_OVERLAPS(dispatch.planes[1].dst, heap + CAPACITY * ROW_BYTES - 1, "planes[0].dst",
                      "planes[1].dst");
    DISPATCH_OVERLAPS(dispatch.planes[0].src, heap + 3 * CAPACITY / 2 * ROW_BYTES, "planes[1].dst",
                      "planes[0].src");
    DISPATCH_OVERLAPS(dispatch.args.recv_topk_idx, heap + 8, "planes[0].dst", "recv_topk_idx");
    DISPATCH_OVERLAPS(dispatch.args.recv_topk_weights, (void *)(heap + 8), "planes[0].dst",
                      "recv_topk_weights");
    DISPATCH_OVERLAPS(dispatch.args.recv_src_token, dispatch.args.recv_topk_idx, "recv_topk_idx",
                      "recv_src_token");
    DISPATCH_OVERLAPS(dispatch.args.topk_idx, heap, "planes[0].dst", "topk_idx");
    DISPATCH_OVERLAPS(dispatch.args.topk_weights, (void *)heap, "planes[0].dst", "topk_weights");
    /* Rows that are far apart: the last one begins in the other plane's output. */
    fill_dispatch(&dispatch, layer);
    dispatch.planes[0].src = heap + 16384;
    dispatch.planes[0].src_stride_bytes = 2048;
    dispatch.planes[1].dst = heap + 16384 + 3 * 2048 + ROW_BYTES - 1;
    CHECK_OVERLAP(weft_ep_dispatch(layer->handle, &dispatch.args, layer->stream), "planes[1].dst",
                  "planes[0].src");
    dispatch.planes[0].src_stride_bytes = UINT64_MAX / 2;
    CHECK_ERROR(weft_ep_dispatch(layer->handle, &dispatch.args, layer->stream),
                WEFT_ERROR_INVALID_ARGUMENT, "planes[0].src is ");
    return 0;
}

/* Arrays side by side, an output between two rows of an input, two planes of one input. */
static int accept_neighbours(const struct layer *layer)
{
    struct dispatch dispatch;
    fill_dispatch(&dispatch, layer);
    CHECK_OK(weft_ep_dispatch(layer->handle, &dispatch.args, layer->stream));
    dispatch.planes[0].src = layer->heap + 32768;
    dispatch.planes[0].src_stride_bytes = (CAPACITY + 1) * ROW_BYTES;
    dispatch.planes[0].dst = layer->heap + 32768 + ROW_BYTES;
    CHECK_OK(weft_ep_dispatch(layer->handle, &dispatch.args, layer->stream));
    fill_dispatch(&dispatch, layer);
    dispatch.planes[1].src = dispatch.planes[0].src;
    CHECK_OK(weft_ep_dispatch(layer->handle, &dispatch.args, layer->stream));
    CHECK_OK(weft_stream_synchronize(layer->stream));
    return 0;
}

/* ---------------------------------------------------------------- combine */

static void fill_combine(weft_ep_combine_args *args, const struct layer *layer)
{
    *args = (weft_ep_combine_args)WEFT_INIT(weft_ep_combine_args);
    args->dtype = WEFT_FP32;
    args->hidden = HIDDEN;
    args->capacity = CAPACITY;
    args->x = layer->heap;
    args->bias[0] = args->bias[1] = layer->other + 4096;
    args->out = layer->other;
    args->topk_weights = (void *)(layer->heap + 32768);
    args->out_topk_weights = (void *)(layer->other + NUM_TOKENS * ROW_BYTES);
}

#define COMBINE_OVERLAPS(place, wrong, one, two)                                                   \
    do {                                                                                           \
        fill_combine(&args, layer);                                                                \
        place = wrong;                                                                             \
        CHECK_OVERLAP(weft_ep_combine(layer->handle, &args, layer->stream), one, two);             \
    } while (0)

static int refuse_combines(const struct layer *layer)
{
    weft_ep_combine_args args;
    COMBINE_OVERLAPS(args.out, layer->heap, "out", "x");
    COMBINE_OVERLAPS(args.out, layer->heap + CAPACITY * ROW_BYTES - 4, "out", "x");
    COMBINE_OVERLAPS(args.out, (void *)(uintptr_t)args.topk_weights, "out", "topk_weights");
    COMBINE_OVERLAPS(args.bias[0], layer->other, "out", "bias[0]");
    COMBINE_OVERLAPS(args.bias[1], layer->other + ROW_BYTES, "out", "bias[1]");
    COMBINE_OVERLAPS(args.out_topk_weights, (void *)layer->other, "out", "out_topk_weights");
    COMBINE_OVERLAPS(args.out_topk_weights, (void *)layer->heap, "out_topk_weights", "x");
    fill_combine(&args, layer);
    CHECK_OK(weft_ep_combine(layer->handle, &args, layer->stream));
    CHECK_OK(weft_stream_synchronize(layer->stream));
    return 0;
}

/* ---------------------------------------------------------------- low latency */

/* By expert; each array is at a place of its own. */
struct decode {
    weft_ll *ll;
    weft_ll_dispatch_args dispatch;
    weft_ll_combine_args combine;
};

static void fill_decode(struct decode *decode, const struct layer *layer)
{
    char *heap = layer->heap;
    decode->dispatch = (weft_ll_dispatch_args)WEFT_INIT(weft_ll_dispatch_args);
    decode->dispatch.num_tokens = NUM_TOKENS;
    decode->dispatch.x = layer->other;
    decode->dispatch.topk_idx = layer->topk_idx;
    decode->dispatch.topk_weights = (void *)(layer->other + 1024);
    decode->dispatch.index_type = WEFT_INT64;
    decode->dispatch.rows = heap;
    decode->dispatch.num_rows_per_rank = (void *)(heap + 4096);
    decode->dispatch.num_rows_per_expert = (void *)(heap + 5120);
    decode->dispatch.src_tokens = (void *)(heap + 6144);
    decode->dispatch.row_ranges = (void *)(heap + 7168);
    decode->dispatch.total_rows_per_expert = (void *)(heap + 8192);
    decode->combine = (weft_ll_combine_args)WEFT_INIT(weft_ll_combine_args);
    decode->combine.x = heap;
    decode->combine.out = layer->other;
    decode->combine.topk_weights = (void *)(layer->other + 1024);
}

#define DECODE_OVERLAPS(operation, field, wrong, one, two)                                         \
    do {                                                                                           \
        fill_decode(&decode, layer);                                                               \
        decode.operation.field = (void *)(uintptr_t)(wrong);                                       \
        CHECK_OVERLAP(weft_ll_##operation(decode.ll, &decode.operation, layer->stream), one, two); \
    } while (0)

static int refuse_decodes(const struct layer *layer)
{
    const weft_ll_dispatch_args *args;
    struct decode decode;
    char *other = layer->other;
    CHECK_OK(weft_ll_create(layer->ep,
                            WEFT_ARGS(weft_ll_config, .hidden = HIDDEN, .max_tokens = NUM_TOKENS,
                                      .num_topk = NUM_TOPK, .dtype = WEFT_FP32,
                                      .layout = WEFT_LL_BY_EXPERT, .expert_capacity = CAPACITY,
                                      .answer = WEFT_LL_ANSWER_ROWS),
                            &decode.ll));
    args = &decode.dispatch;
    DECODE_OVERLAPS(dispatch, rows, other, "rows", "x");
    DECODE_OVERLAPS(dispatch, rows, other + NUM_TOKENS * ROW_BYTES - 4, "rows", "x");
    DECODE_OVERLAPS(dispatch, num_rows_per_expert, layer->topk_idx, "num_rows_per_expert",
                    "topk_idx");
    DECODE_OVERLAPS(dispatch, src_tokens, other + 1024, "src_tokens", "topk_weights");
    DECODE_OVERLAPS(dispatch, row_ranges, args->rows, "rows", "row_ranges");
    DECODE_OVERLAPS(dispatch, total_rows_per_expert, args->num_rows_per_expert,
                    "num_rows_per_expert", "total_rows_per_expert");
    DECODE_OVERLAPS(dispatch, num_rows_per_rank, args->src_tokens, "src_tokens",
                    "num_rows_per_rank");
    DECODE_OVERLAPS(dispatch, waited_ns, args->row_ranges, "row_ranges", "waited_ns");
    fill_decode(&decode, layer);
    CHECK_OK(weft_ll_dispatch(decode.ll, &decode.dispatch, layer->stream));
    DECODE_OVERLAPS(combine, out, layer->heap, "out", "x");
    DECODE_OVERLAPS(combine, out, layer->heap + CAPACITY * ROW_BYTES - 4, "out", "x");
    DECODE_OVERLAPS(combine, out, other + 1024 - 4, "out", "topk_weights");
    /* Rows that are far apart: the last one begins in the output. */
    fill_decode(&decode, layer);
    decode.combine.x_stride_bytes = (uint64_t)2 * ROW_BYTES;
    decode.combine.out = layer->heap + (CAPACITY - 1) * 2 * ROW_BYTES;
    CHECK_OVERLAP(weft_ll_combine(decode.ll, &decode.combine, layer->stream), "out", "x");
    decode.combine.out = layer->heap + 2 * CAPACITY * ROW_BYTES;
    CHECK_OK(weft_ll_combine(decode.ll, &decode.combine, layer->stream));
    CHECK_OK(weft_stream_synchronize(layer->stream));
    CHECK_OK(weft_ll_destroy(decode.ll));
    return 0;
}

/* ---------------------------------------------------------------- others */

static int refuse_regions(const struct layer *layer)
{
    int64_t counts[NUM_RANKS] = {8, 8}, send_offsets[NUM_RANKS] = {0, 4};
    int64_t recv_offsets[NUM_RANKS] = {100, 107};
    weft_coll_all_to_all_v_args args = WEFT_INIT(weft_coll_all_to_all_v_args);
    weft_coll *coll;
    args.send = layer->heap;
    args.recv = layer->heap + 4096;
    args.dtype = WEFT_FP32;
    args.send_counts = args.recv_counts = counts;
    args.send_offsets = send_offsets; /* the same may be sent to several */
    args.recv_offsets = recv_offsets;
    CHECK_OK(weft_coll_create(layer->comm, NULL, &coll));
    CHECK_OVERLAP(weft_coll_all_to_all_v(coll, &args, layer->stream), "recv_offsets[0]",
                  "the row at recv_offsets[1]");
    recv_offsets[1] = 108;
    CHECK_OK(weft_coll_all_to_all_v(coll, &args, layer->stream));
    CHECK_OK(weft_stream_synchronize(layer->stream));
    CHECK_OK(weft_coll_destroy(coll));
    return 0;
}

static int refuse_one_sided(struct ranks_context *context, const struct layer *layer)
{
    char *heap = layer->heap;
    uint64_t *words = (void *)(heap + 4096);
    const int32_t own = context->rank, other = NUM_RANKS - 1 - own;
    weft_comm *comm = layer->comm;
    CHECK_OVERLAP(weft_rma_put(comm,
                               WEFT_ARGS(weft_rma_args, .dst = heap, .src = heap + 15, .bytes = 16,
                                         .rank = own),
                               layer->stream),
                  "dst", "src");
    CHECK_OVERLAP(weft_rma_get(comm,
                               WEFT_ARGS(weft_rma_args, .dst = heap + 15, .src = heap, .bytes = 16,
                                         .rank = own),
                               layer->stream),
                  "dst", "src");
    CHECK_OVERLAP(
        weft_rma_put_signal(comm,
                            WEFT_ARGS(weft_rma_args, .dst = words, .src = heap, .bytes = 16,
                                      .word = words + 1, .value = 1, .rank = other),
                            layer->stream),
        "dst", "word");
    CHECK_OVERLAP(
        weft_rma_put_signal(comm,
                            WEFT_ARGS(weft_rma_args, .dst = heap, .src = words, .bytes = 16,
                                      .word = words + 1, .value = 1, .rank = own),
                            layer->stream),
        "word", "src");
    CHECK_OVERLAP(weft_rma_fetch_add(comm,
                                     WEFT_ARGS(weft_rma_args, .before = words, .word = words,
                                               .value = 1, .rank = own),
                                     layer->stream),
                  "word", "before");
    CHECK_OVERLAP(weft_memory_copy(comm, heap + 8, heap, 9), "dst", "src");
    /* The same offsets at another rank are other memory. */
    CHECK_OK(weft_rma_put(
        comm, WEFT_ARGS(weft_rma_args, .dst = heap, .src = heap, .bytes = 16, .rank = other),
        layer->stream));
    CHECK_OK(weft_stream_synchronize(layer->stream));
    CHECK_OK(weft_comm_host_barrier(comm));
    return 0;
}

static int refuse_gathers(struct ranks_context *context, const struct layer *layer)
{
    int64_t all[NUM_RANKS + 1] = {0};
    CHECK_OVERLAP(weft_comm_host_all_gather(layer->comm, (char *)all + 4, sizeof *all, all), "recv",
                  "send");
    all[context->rank] = context->rank + 1;
    CHECK_OK(weft_comm_host_all_gather(layer->comm, &all[context->rank], sizeof *all, all));
    CHECK(all[0] == 1 && all[1] == 2, "in place: %lld, %lld", (long long)all[0], (long long)all[1]);
    return 0;
}

/* ---------------------------------------------------------------- tests */

TEST_ON_RANKS(overlaps_are_refused_with_both_names, RANKS_THREADS, NUM_RANKS)
{
    struct layer layer;
    return open_layer(context, &layer) || refuse_layouts(&layer) || refuse_dispatches(&layer) ||
           accept_neighbours(&layer) || refuse_combines(&layer) || refuse_decodes(&layer) ||
           refuse_regions(&layer) || refuse_one_sided(context, &layer) ||
           refuse_gathers(context, &layer);
}
