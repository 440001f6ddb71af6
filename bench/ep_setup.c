/* SPDX-License-Identifier: MIT */
#include "ep_setup.h"

#include <stdlib.h>

#include "workload/of_ranks.h"

static weft_result create_handle(struct bench *bench)
{
    const struct bench_options *options = &bench->options;
    weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
    ep_config.num_experts = options->num_experts;
    ep_config.max_topk = options->num_topk;
    TRY(weft_ep_create(bench->comm, &ep_config, &bench->ep));
    weft_ep_handle_config handle_config = WEFT_INIT(weft_ep_handle_config);
    handle_config.max_tokens = options->num_tokens;
    handle_config.num_topk = options->num_topk;
    TRY(weft_ep_handle_create(bench->ep, &handle_config, &bench->handle));
    return weft_stream_create(bench->comm, &bench->stream);
}

static weft_result alloc_buffers(struct bench *bench)
{
    const struct plan *plan = &bench->plan;
    const size_t own_bytes = (size_t)plan->num_tokens * plan->row_bytes;
    const size_t topk = (size_t)plan->num_topk;
    for (int32_t rank = 0; rank < plan->num_ranks; rank++) {
        if (plan->num_recv[rank] > bench->capacity)
            bench->capacity = plan->num_recv[rank];
    }
    const size_t capacity = (size_t)bench->capacity;
    TRY(weft_heap_alloc(bench->comm, capacity * plan->row_bytes, (void **)&bench->recv));
    TRY(weft_heap_alloc(bench->comm, capacity * topk * sizeof(int32_t),
                        (void **)&bench->recv_topk_idx));
    TRY(weft_heap_alloc(bench->comm, capacity * topk * sizeof(float),
                        (void **)&bench->recv_topk_weights));
    /* Aligned as a tensor library's memory is. */
    if (posix_memalign((void **)&bench->x, 64, own_bytes) != 0 ||
        posix_memalign((void **)&bench->out, 64, own_bytes) != 0)
        return WEFT_ERROR_OUT_OF_MEMORY;
    plan_fill(plan, bench->rank, bench->x);
    bench->peer_recv = malloc((size_t)plan->num_ranks * sizeof(*bench->peer_recv));
    if (bench->peer_recv == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    for (int32_t rank = 0; rank < plan->num_ranks; rank++)
        bench->peer_recv[rank] = weft_heap_ptr(bench->comm, bench->recv, rank);
    return WEFT_OK;
}

static weft_result make_plan(struct bench *bench)
{
    const struct bench_options *options = &bench->options;
    weft_team_info node = WEFT_INIT(weft_team_info);
    TRY(weft_team_query(bench->comm, WEFT_TEAM_LOCAL, &node));
    bench->num_nodes = node.num_teams;
    const int result =
        options->measure == MEASURE_RAIL
            ? plan_init_for_partners(&bench->plan, options, bench->num_ranks, node.num_ranks)
            : plan_init(&bench->plan, options, bench->num_ranks);
    return result == 0 ? WEFT_OK : WEFT_ERROR_OUT_OF_MEMORY;
}

weft_result bench_init(struct bench *bench)
{
    bench->rank = weft_comm_rank(bench->comm);
    bench->num_ranks = weft_comm_num_ranks(bench->comm);
    TRY(make_plan(bench));
    const size_t first_choice =
        (size_t)bench->rank * (size_t)bench->plan.num_tokens * (size_t)bench->plan.num_topk;
    bench->topk_idx = bench->plan.topk_idx + first_choice;
    bench->topk_weights = bench->plan.topk_weights + first_choice;
    TRY(create_handle(bench));
    TRY(alloc_buffers(bench));
    TRY(bench_route(bench));
    return weft_stream_synchronize(bench->stream);
}

void bench_destroy(struct bench *bench)
{
    if (bench->stream != NULL)
        weft_stream_destroy(bench->stream);
    if (bench->handle != NULL)
        weft_ep_handle_destroy(bench->handle);
    if (bench->ep != NULL)
        weft_ep_destroy(bench->ep);
    weft_heap_free(bench->comm, bench->recv);
    weft_heap_free(bench->comm, bench->recv_topk_idx);
    weft_heap_free(bench->comm, bench->recv_topk_weights);
    weft_comm_destroy(bench->comm);
    free(bench->peer_recv);
    free(bench->x);
    free(bench->out);
    plan_destroy(&bench->plan);
}

weft_result bench_route(struct bench *bench)
{
    weft_ep_layout_args args = WEFT_INIT(weft_ep_layout_args);
    args.num_tokens = bench->plan.num_tokens;
    args.index_type = WEFT_INT32;
    args.topk_idx = bench->topk_idx;
    TRY(weft_ep_layout(bench->handle, &args, bench->stream));
    return weft_ep_notify(bench->handle, bench->stream);
}

static weft_result dispatch(struct bench *bench, weft_ep_dispatch_args args)
{
    const weft_plane plane = {.size = sizeof(weft_plane),
                              .src = bench->x,
                              .dst = bench->recv,
                              .row_bytes = bench->plan.row_bytes};
    args.num_planes = 1;
    args.planes = &plane;
    args.capacity = bench->capacity;
    return weft_ep_dispatch(bench->handle, &args, bench->stream);
}

weft_result bench_dispatch_rows(struct bench *bench)
{
    const weft_ep_dispatch_args args = WEFT_INIT(weft_ep_dispatch_args);
    return dispatch(bench, args);
}

weft_result bench_dispatch_all(struct bench *bench)
{
    weft_ep_dispatch_args args = WEFT_INIT(weft_ep_dispatch_args);
    args.index_type = WEFT_INT32;
    args.topk_idx = bench->topk_idx;
    args.topk_weights = bench->topk_weights;
    args.recv_topk_idx = bench->recv_topk_idx;
    args.recv_topk_weights = bench->recv_topk_weights;
    return dispatch(bench, args);
}

weft_result bench_combine(struct bench *bench)
{
    weft_ep_combine_args args = WEFT_INIT(weft_ep_combine_args);
    args.dtype = WEFT_BF16;
    args.hidden = bench->options.hidden;
    args.capacity = bench->capacity;
    args.x = bench->recv;
    args.out = bench->out;
    return weft_ep_combine(bench->handle, &args, bench->stream);
}

weft_result bench_check(struct bench *bench, int64_t *num_errors)
{
    *num_errors = plan_check_received(&bench->plan, bench->rank, bench->recv) +
                  plan_check_combined(&bench->plan, bench->rank, bench->num_nodes, bench->out);
    return sum_of_ranks(bench->comm, num_errors, 1);
}
