/* SPDX-License-Identifier: MIT */
#include "ep/ep.h"

#include "api/destroy.h"
#include "api/structs.h"
#include "memory/ring_memory.h"

static const uint64_t max_staging_bytes = UINT64_C(1) << 46; /* as a place has bits for an offset */

weft_result weft_ep_create(weft_comm *comm, const weft_ep_config *user_config, weft_ep **ep)
{
    weft_ep_config config;
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_not_null(ep, "ep"));
    WEFT__TRY(WEFT__READ(weft_ep_config, &config, user_config, "config"));
    WEFT__TRY(weft__check_range(config.num_experts, 1, WEFT_MAX_EXPERTS, "num_experts"));
    WEFT__TRY(weft__check_range(config.max_topk, 0, WEFT_MAX_TOPK, "max_topk"));
    WEFT__TRY(weft__check_range(config.num_blocks, 0, WEFT__EP_MAX_BLOCKS, "num_blocks"));
    WEFT__TRY(weft__check_range(config.num_warps, 0, WEFT_MAX_WARPS, "num_warps"));
    WEFT__TRY(weft__check_range(config.num_channels, 0, WEFT__MAX_CHANNELS, "num_channels"));
    WEFT__TRY(weft__check_range(config.num_staging_slots, 0, WEFT__MAX_SLOTS, "num_staging_slots"));
    WEFT__TRY(
        weft__check_at_most(config.staging_slot_bytes, WEFT__MAX_SLOT_BYTES, "staging_slot_bytes"));
    WEFT__TRY(weft__check_at_most(config.staging_bytes, max_staging_bytes, "staging_bytes"));
    WEFT__TRY(weft__check_wire(config.combine_wire, "combine_wire"));
    WEFT__TRY(weft__check_unused((uint64_t)config.reserved, "reserved"));
    WEFT__TRY(weft__machine_check(comm));
    weft_ep *created;
    weft__comm_enter(comm, WEFT__CALL_EP_CREATE);
    WEFT__TRY(weft__ep_create(comm, &config, &created));
    return weft__give_on_all(comm, WEFT__KIND_EP, created, comm, ep);
}

weft_result weft_ep_destroy(weft_ep *ep)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_EP, ep, "ep"));
    return weft__destroy(WEFT__KIND_EP, ep);
}

static int has_rank(const weft_ep *ep, int32_t rank)
{
    return weft__object_exists(WEFT__KIND_EP, ep) && rank >= 0 && rank < ep->comm->num_ranks;
}

int32_t weft_ep_num_local_experts(const weft_ep *ep, int32_t rank)
{
    return has_rank(ep, rank) ? weft__placement_num_local(&ep->placement, rank) : -1;
}

int32_t weft_ep_global_expert(const weft_ep *ep, int32_t rank, int32_t local_expert)
{
    if (!has_rank(ep, rank) || local_expert < 0 ||
        local_expert >= weft__placement_num_local(&ep->placement, rank))
        return -1;
    const struct weft__placement *placement = &ep->placement;
    return placement
        ->entry_experts[placement->rank_entries[placement->rank_offsets[rank] + local_expert]];
}

static weft_result check_topk(const weft_ep *ep, int32_t num_topk)
{
    return weft__check_range(num_topk, 1, ep->max_topk, "num_topk");
}

weft_result weft_ep_handle_create(weft_ep *ep, const weft_ep_handle_config *user_config,
                                  weft_ep_handle **handle)
{
    weft_ep_handle_config config;
    WEFT__TRY(weft__object_check(WEFT__KIND_EP, ep, "ep"));
    WEFT__TRY(weft__check_not_null(handle, "handle"));
    WEFT__TRY(WEFT__READ(weft_ep_handle_config, &config, user_config, "config"));
    WEFT__TRY(
        weft__check_range(config.num_experts, 0, ep->placement.host.num_experts, "num_experts"));
    WEFT__TRY(check_topk(ep, config.num_topk));
    WEFT__TRY(
        weft__check_range(config.expert_alignment, 0, WEFT__EP_MAX_ALIGNMENT, "expert_alignment"));
    WEFT__TRY(weft__check_range(config.max_tokens, 0, weft__ep_most_tokens(ep, config.num_topk),
                                "max_tokens"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_EP_ORDER, (int32_t)config.order, WEFT_ORDER_BY_RANK,
                               WEFT_ORDER_BY_CHOICE, "order"));
    weft_ep_handle *created;
    WEFT__TRY(weft__handle_create(ep, &config, &created));
    return weft__give(WEFT__KIND_HANDLE, created, ep, handle);
}

weft_result weft_ep_handle_destroy(weft_ep_handle *handle)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_HANDLE, handle, "handle"));
    return weft__destroy(WEFT__KIND_HANDLE, handle);
}

weft_result weft_ep_query_sizes(const weft_ep *ep, const weft_ep_size_args *user_args,
                                weft_ep_sizes *sizes)
{
    weft_ep_size_args args;
    weft_ep_sizes found;
    WEFT__TRY(weft__object_check(WEFT__KIND_EP, ep, "ep"));
    WEFT__TRY(WEFT__READ(weft_ep_size_args, &args, user_args, "args"));
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_ep_sizes, sizes, "sizes"));
    WEFT__TRY(weft__check_range(args.max_tokens_per_rank, 0, INT32_MAX, "max_tokens_per_rank"));
    WEFT__TRY(check_topk(ep, args.num_topk));
    WEFT__TRY(weft__check_range(args.num_planes, 0, WEFT_MAX_PLANES, "num_planes"));
    WEFT__TRY(weft__check_array(args.plane_row_bytes, args.num_planes, "plane_row_bytes"));
    for (int32_t i = 0; i < args.num_planes; i++)
        WEFT__TRY(weft__check_range((int64_t)args.plane_row_bytes[i], 1, WEFT_MAX_ROW_BYTES,
                                    "plane_row_bytes[i]"));
    WEFT__TRY(weft__check_range(args.with_topk, 0, 1, "with_topk"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)args.index_type,
                               args.with_topk ? WEFT_INT32 : WEFT_DTYPE_NONE, WEFT_INT64,
                               "index_type"));
    WEFT__TRY(weft__check_range(args.with_src_token, 0, 1, "with_src_token"));
    WEFT__TRY(
        weft__check_range(args.expert_alignment, 0, WEFT__EP_MAX_ALIGNMENT, "expert_alignment"));
    WEFT__TRY(weft__ep_query_sizes(ep, &args, &found));
    WEFT__WRITE(weft_ep_sizes, sizes, &found);
    return WEFT_OK;
}
