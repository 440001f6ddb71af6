/* SPDX-License-Identifier: MIT */
#include "ep/ep_staging.h"
#include "programs/ep/notify.h"

/* An arena's overhead for an allocation. */
static uint64_t arena_share(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Rows and selections are counted in int32, also when all ranks' come to one rank, or to one expert
 * and are rounded up there; so are tokens and the chunks of a launch together. */
int32_t weft__ep_most_tokens(const weft_ep *ep, int32_t num_topk)
{
    const int64_t most_choices =
        INT32_MAX - WEFT__EP_MAX_ALIGNMENT - WEFT__EP_MAX_BLOCKS * WEFT_MAX_WARPS;
    return (int32_t)(most_choices / ((int64_t)ep->comm->num_ranks * num_topk));
}

weft_result weft__ep_query_sizes(const weft_ep *ep, const weft_ep_size_args *args,
                                 weft_ep_sizes *sizes)
{
    const weft_comm *comm = ep->comm;
    const int64_t max_rows =
        weft__placement_max_rows(&ep->placement, comm->rank, args->max_tokens_per_rank);
    if (max_rows > INT32_MAX)
        return weft__invalid("max_tokens_per_rank is %d: %lld rows on %d ranks, allowed are 2^31-1",
                             args->max_tokens_per_rank, (long long)max_rows, comm->num_ranks);
    const uint64_t rows = (uint64_t)max_rows;
    const uint64_t num_topk = (uint64_t)args->num_topk;
    uint64_t arena_bytes = 0;
    for (int32_t i = 0; i < args->num_planes && arena_bytes <= INT64_MAX; i++)
        arena_bytes += arena_share(rows * args->plane_row_bytes[i]);
    if (args->with_topk) {
        arena_bytes += arena_share(rows * num_topk * wp_dtype_bytes(args->index_type));
        arena_bytes += arena_share(rows * num_topk * sizeof(float));
    }
    if (args->with_src_token)
        arena_bytes += arena_share(rows * sizeof(int32_t));
    if (arena_bytes > INT64_MAX)
        return weft__invalid("plane_row_bytes: the planes of %lld rows have more than 2^63-1 bytes",
                             (long long)max_rows);
    const int32_t num_local = weft__placement_num_local(&ep->placement, comm->rank);
    const int32_t most_choices = num_local < args->num_topk ? num_local : args->num_topk;
    const int64_t most_gap = args->expert_alignment > 1 ? args->expert_alignment - 1 : 0;
    *sizes = (weft_ep_sizes){
        .max_recv_tokens = max_rows,
        .max_expanded_rows = max_rows * most_choices + most_gap * num_local,
        .arena_bytes = arena_bytes,
        .handle_bytes = weft__handle_bytes(ep, args->max_tokens_per_rank, args->num_topk),
        .heap_bytes = wp_mailbox_bytes(ep->exchange->device.most_members, ep->max_blocks) +
                      wp_notify_counts_bytes(comm->num_ranks, ep->counts_stride) +
                      weft__staging_words_bytes(ep->staging_bytes) + ep->staging_bytes,
        .network_bytes = ep->internode == NULL ? 0 : weft__internode_bytes(ep->internode),
        .sum_bytes = ep->internode == NULL ? 0 : ep->internode->own_sums_bytes,
    };
    return WEFT_OK;
}
