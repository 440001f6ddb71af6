/* SPDX-License-Identifier: MIT */
#include "api/ep_extents.h"
#include "api/objects.h"
#include "api/structs.h"
#include "coll/comm_barrier.h"
#include "ep/move_experts.h"
#include "ep/planes.h"

static weft_result check_objects(const weft_ep *from, const weft_ep *to, const weft_stream *stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_EP, from, "from"));
    WEFT__TRY(weft__object_check(WEFT__KIND_EP, to, "to"));
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    if (from->comm != to->comm)
        return weft__invalid("to is of another communicator than from, must be of the same");
    const int32_t num_experts = from->placement.host.num_experts;
    if (to->placement.host.num_experts != num_experts)
        return weft__invalid("to has %d experts, must have as many as from, %d",
                             to->placement.host.num_experts, num_experts);
    return WEFT_OK;
}

/* Also of a rank without experts: its pointers say where the arrays of the others are. */
static weft_result find_weights(const weft_comm *comm, const weft_plane *plane, int32_t i,
                                struct weft__move_rows rows, struct weft__expert_weights *weights)
{
    const uint64_t most_rows = rows.src > rows.dst ? rows.src : rows.dst;
    if (plane->row_bytes < 1 || plane->row_bytes > UINT64_MAX / most_rows)
        return weft__invalid("planes[%d].row_bytes is %llu, allowed are 1..%llu", i,
                             (unsigned long long)plane->row_bytes,
                             (unsigned long long)(UINT64_MAX / most_rows));
    if (plane->src_stride_bytes != 0 || !weft__plane_is_plain(plane))
        return weft__invalid("planes[%d]: src_stride_bytes and the fields behind must be 0", i);
    weights->row_bytes = plane->row_bytes;
    WEFT__TRY(weft__heap_offset(comm->heap, plane->src, rows.src * plane->row_bytes,
                                weft__plane_names[i].src, &weights->from));
    return weft__heap_offset(comm->heap, plane->dst, rows.dst * plane->row_bytes,
                             weft__plane_names[i].dst, &weights->to);
}

weft_result weft_ep_move_experts(const weft_ep *from, const weft_ep *to,
                                 const weft_plane *user_planes, int32_t num_planes,
                                 weft_stream *stream)
{
    weft_plane planes[WEFT_MAX_PLANES];
    struct weft__expert_weights weights[WEFT_MAX_PLANES];
    WEFT__TRY(check_objects(from, to, stream));
    WEFT__TRY(weft__check_range(num_planes, 0, WEFT_MAX_PLANES, "num_planes"));
    WEFT__TRY(WEFT__READ_ARRAY(weft_plane, planes, user_planes, num_planes, "planes"));
    weft_comm *comm = to->comm;
    const struct weft__move_rows rows = {(uint64_t)weft__placement_max_local(&from->placement),
                                         (uint64_t)weft__placement_max_local(&to->placement)};
    for (int32_t i = 0; i < num_planes; i++)
        WEFT__TRY(find_weights(comm, &planes[i], i, rows, &weights[i]));
    WEFT__TRY(weft__check_move_memory(planes, num_planes, rows));
    weft__current_call = WEFT__CALL_EP_MOVE_EXPERTS;
    WEFT__TRY(weft__barrier_launch(comm, stream)); /* all have written src */
    WEFT__TRY(weft__ep_fetch_experts(from, to, weights, num_planes, stream));
    return weft__barrier_launch(comm, stream); /* all have read it */
}
