/* SPDX-License-Identifier: MIT */
#include "api/objects.h"
#include "api/overlap.h"
#include "api/structs.h"
#include "coll/comm_barrier.h"
#include "ep/move_experts.h"
#include "ep/planes.h"
#include "programs/ep/choose_replicas.h"

/* ---------------------------------------------------------------- choices */

static weft_result check_choices(const weft_ep_replicas_args *args)
{
    const uint64_t num_tokens = (uint64_t)args->num_tokens;
    const uint64_t index_bytes = wp_dtype_bytes(args->index_type),
                   row_bytes = (uint64_t)args->num_topk * index_bytes;
    WEFT__TRY(weft__check_array(args->topk_idx, args->num_tokens, "topk_idx"));
    WEFT__TRY(weft__check_array(args->replica_idx, args->num_tokens, "replica_idx"));
    WEFT__TRY(weft__check_not_null(args->granules, "granules"));
    WEFT__TRY(weft__check_address(args->topk_idx, index_bytes, "topk_idx"));
    WEFT__TRY(weft__check_address(args->replica_idx, index_bytes, "replica_idx"));
    WEFT__TRY(weft__check_address(args->granules, sizeof *args->granules, "granules"));
    const struct weft__extent extents[] = {
        weft__extent_of("granules", WEFT__EXTENT_READ, args->granules, (uint64_t)args->num_experts,
                        WEFT_BALANCE_GRANULES * sizeof *args->granules),
        weft__extent_of("replica_idx", WEFT__EXTENT_WRITTEN, args->replica_idx, num_tokens,
                        row_bytes),
        weft__extent_of("topk_idx", WEFT__EXTENT_READ, args->topk_idx, num_tokens, row_bytes)};
    return weft__check_overlaps(extents, args->replica_idx == args->topk_idx ? 2 : 3);
}

weft_result weft_ep_choose_replicas(weft_comm *comm, const weft_ep_replicas_args *given,
                                    weft_stream *stream)
{
    weft_ep_replicas_args args;
    weft__current_call = WEFT__CALL_EP_CHOOSE_REPLICAS;
    WEFT__TRY(weft__operands_check(comm, stream));
    WEFT__TRY(WEFT__READ(weft_ep_replicas_args, &args, given, "args"));
    WEFT__TRY(weft__check_range(args.num_tokens, 0, INT32_MAX, "num_tokens"));
    WEFT__TRY(weft__check_range(args.num_topk, 1, WEFT_MAX_TOPK, "num_topk"));
    WEFT__TRY(weft__check_range(args.num_experts, 1, WEFT_MAX_EXPERTS, "num_experts"));
    if (args.index_type != WEFT_INT32 && args.index_type != WEFT_INT64)
        return weft__invalid("index_type is %d, must be WEFT_INT32 or WEFT_INT64",
                             (int)args.index_type);
    WEFT__TRY(check_choices(&args));
    WEFT__TRY(weft__status_check(&comm->status));
    if (args.num_tokens == 0)
        return WEFT_OK;
    const struct wp_choose_replicas_args filled = {.topk_idx = args.topk_idx,
                                                   .replica_idx = args.replica_idx,
                                                   .granules = args.granules,
                                                   .index_type = args.index_type,
                                                   .rank = comm->rank,
                                                   .num_tokens = args.num_tokens,
                                                   .num_topk = args.num_topk,
                                                   .num_experts = args.num_experts};
    const struct weft__work work = {.kind = WEFT__WORK_TOKENS, .num_tokens = args.num_tokens};
    const struct weft__program_run run = {.program = WP_PROGRAM_choose_replicas,
                                          .grid = weft__machine_of(comm)->choose_grid(comm, &work),
                                          .args = &filled,
                                          .args_bytes = sizeof filled};
    return weft__program_launch(comm, stream, &run);
}

/* ---------------------------------------------------------------- copies */

/* A call, as far as both have it in common. */
struct call {
    weft_ep_copies_args args;
    struct weft__copies copies;
    struct weft__expert_weights arrays[WEFT_MAX_PLANES];
    int32_t most_beside; /* replicas of an expert beside its owner */
    struct weft__copies_staging staging;
};

static weft_result check_placement(const int32_t *experts, int32_t num_replicas, const char *name)
{
    WEFT__TRY(weft__check_array(experts, num_replicas, name));
    for (int32_t i = 0; i < num_replicas; i++)
        if (experts[i] < -1 || experts[i] >= WEFT_MAX_EXPERTS)
            return weft__invalid("%s[%d] is %d, allowed are -1..%d", name, i, experts[i],
                                 WEFT_MAX_EXPERTS - 1);
    return WEFT_OK;
}

static weft_result find_array(const weft_comm *comm, const weft_plane *plane, int32_t i,
                              int32_t num_rows, struct weft__expert_weights *array)
{
    const uint64_t most_rows = num_rows > 0 ? (uint64_t)num_rows : 1;
    if (plane->row_bytes < 1 || plane->row_bytes > UINT64_MAX / most_rows)
        return weft__invalid("planes[%d].row_bytes is %llu, allowed are 1..%llu", i,
                             (unsigned long long)plane->row_bytes,
                             (unsigned long long)(UINT64_MAX / most_rows));
    if (plane->src != NULL || plane->src_stride_bytes != 0 || !weft__plane_is_plain(plane))
        return weft__invalid("planes[%d]: src, src_stride_bytes and the fields behind must be 0",
                             i);
    array->row_bytes = plane->row_bytes;
    WEFT__TRY(weft__heap_offset(comm->heap, plane->dst, most_rows * plane->row_bytes,
                                weft__plane_names[i].dst, &array->to));
    array->from = array->to;
    return WEFT_OK;
}

static weft_result read_call(const weft_comm *comm, const weft_ep_copies_args *given,
                             const weft_stream *stream, struct call *call)
{
    weft_plane planes[WEFT_MAX_PLANES];
    struct weft__extent extents[WEFT_MAX_PLANES + 1];
    weft_ep_copies_args *args = &call->args;
    int32_t orphan;
    WEFT__TRY(weft__operands_check(comm, stream));
    WEFT__TRY(WEFT__READ(weft_ep_copies_args, args, given, "args"));
    WEFT__TRY(weft__check_range(args->num_replicas, 0, WEFT_MAX_EXPERTS, "num_replicas"));
    if (args->num_replicas % comm->num_ranks != 0)
        return weft__invalid("num_replicas is %d, must be a multiple of the %d ranks",
                             args->num_replicas, comm->num_ranks);
    WEFT__TRY(check_placement(args->base, args->num_replicas, "base"));
    WEFT__TRY(check_placement(args->experts, args->num_replicas, "experts"));
    WEFT__TRY(weft__check_unused((uint64_t)args->reserved, "reserved"));
    call->copies = (struct weft__copies){args->base, args->experts, args->num_replicas};
    WEFT__TRY(weft__copies_survey(&call->copies, &call->most_beside, &orphan));
    if (orphan >= 0)
        return weft__invalid("experts[%d] is %d, which no replica has in base and experts", orphan,
                             args->experts[orphan]);
    WEFT__TRY(weft__check_range(args->num_planes, 0, WEFT_MAX_PLANES, "num_planes"));
    WEFT__TRY(WEFT__READ_ARRAY(weft_plane, planes, args->planes, args->num_planes, "planes"));
    const int32_t num_rows = args->num_replicas / comm->num_ranks;
    for (int32_t i = 0; i < args->num_planes; i++) {
        WEFT__TRY(find_array(comm, &planes[i], i, num_rows, &call->arrays[i]));
        extents[i] = (struct weft__extent){"planes",
                                           i,
                                           ".dst",
                                           WEFT__EXTENT_WRITTEN,
                                           planes[i].dst,
                                           (uint64_t)num_rows,
                                           planes[i].row_bytes,
                                           0};
    }
    extents[args->num_planes] =
        weft__extent_of("staging", WEFT__EXTENT_WRITTEN, args->staging, 1, args->staging_bytes);
    return weft__check_overlaps(extents, args->num_planes + 1);
}

weft_result weft_ep_fetch_copies(weft_comm *comm, const weft_ep_copies_args *given,
                                 weft_stream *stream)
{
    struct call call;
    WEFT__TRY(read_call(comm, given, stream, &call));
    WEFT__TRY(weft__check_unused((uint64_t)call.args.dtype, "dtype"));
    WEFT__TRY(weft__check_unused((uintptr_t)call.args.staging, "staging"));
    WEFT__TRY(weft__check_unused(call.args.staging_bytes, "staging_bytes"));
    weft__current_call = WEFT__CALL_EP_FETCH_COPIES;
    WEFT__TRY(weft__barrier_launch(comm, stream)); /* all have written their rows */
    WEFT__TRY(weft__ep_fetch_copies(comm, &call.copies, call.arrays, call.args.num_planes, stream));
    return weft__barrier_launch(comm, stream); /* all have read them */
}

static weft_result check_sums(const weft_comm *comm, struct call *call)
{
    const weft_ep_copies_args *args = &call->args;
    const char *heap = weft__heap_bases(comm->heap)[comm->rank];
    const uint64_t least = (uint64_t)call->most_beside * WP_ALIGNED_BYTES;
    if (args->dtype != WEFT_BF16 && args->dtype != WEFT_FP16 && args->dtype != WEFT_FP32)
        return weft__invalid("dtype is %d, must be WEFT_BF16, WEFT_FP16 or WEFT_FP32",
                             (int)args->dtype);
    const uint64_t element_bytes = wp_dtype_bytes(args->dtype);
    for (int32_t i = 0; i < args->num_planes; i++) {
        WEFT__TRY(weft__check_address(heap + call->arrays[i].to, element_bytes,
                                      weft__plane_names[i].dst));
        if (call->arrays[i].row_bytes % element_bytes != 0)
            return weft__invalid("planes[%d].row_bytes is %llu, must be a multiple of %llu", i,
                                 (unsigned long long)call->arrays[i].row_bytes,
                                 (unsigned long long)element_bytes);
    }
    if (call->most_beside >= WP_WARP_POINTERS)
        return weft__invalid("an expert has %d replicas in experts, allowed are 1..%d",
                             call->most_beside + 1, (int)WP_WARP_POINTERS);
    if (args->staging_bytes < least)
        return weft__invalid("staging_bytes is %llu, must be at least %llu",
                             (unsigned long long)args->staging_bytes, (unsigned long long)least);
    if (args->staging_bytes == 0)
        return WEFT_OK;
    WEFT__TRY(weft__check_address(args->staging, WP_ALIGNED_BYTES, "staging"));
    call->staging.bytes = args->staging_bytes;
    return weft__heap_offset(comm->heap, args->staging, args->staging_bytes, "staging",
                             &call->staging.place);
}

weft_result weft_ep_reduce_copies(weft_comm *comm, const weft_ep_copies_args *given,
                                  weft_stream *stream)
{
    struct call call = {.staging = {0, 0}};
    WEFT__TRY(read_call(comm, given, stream, &call));
    WEFT__TRY(check_sums(comm, &call));
    weft__current_call = WEFT__CALL_EP_REDUCE_COPIES;
    WEFT__TRY(weft__barrier_launch(comm, stream)); /* all have written their rows */
    WEFT__TRY(weft__ep_reduce_copies(comm, &call.copies, call.arrays, call.args.num_planes,
                                     call.args.dtype, call.staging, stream));
    return weft__barrier_launch(comm, stream); /* all have read them */
}
