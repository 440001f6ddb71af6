/* SPDX-License-Identifier: MIT */
/* Turns the user's arguments into the programs' and launches them. */
#include "ep/planes.h"
#include "programs/ep/internode_combine.h"
#include "programs/ep/internode_dispatch.h"
#include "programs/ep/layout.h"
#include "programs/ep/notify.h"
#include "programs/ep/staged_combine.h"
#include "programs/ep/staged_dispatch.h"

weft_result weft__ep_layout(weft_ep_handle *handle, const weft_ep_layout_args *args,
                            weft_stream *stream)
{
    const weft_ep *ep = handle->ep;
    WEFT__TRY(weft__handle_make_room(handle, args->num_tokens));
    struct wp_routing routing = handle->routing;
    routing.num_tokens = args->num_tokens;
    routing.chunk_tokens = (args->num_tokens + routing.num_chunks - 1) / routing.num_chunks;
    if (routing.chunk_tokens == 0)
        routing.chunk_tokens = 1;
    const struct wp_layout_args program_args = {
        .routing = routing,
        .placement = handle->placement->device,
        .index_type = args->index_type,
        .topk_idx = args->topk_idx,
        .tokens_to_ranks = args->tokens_to_ranks,
        .selections_per_entry = args->selections_per_expert,
        .num_blocks_done = handle->num_blocks_done,
        .num_entries = handle->placement->num_entries,
        .order = args->selections_per_expert == NULL ? handle->order : WEFT_ORDER_BY_RANK,
        .selections = handle->selections,
        .node_of_rank = ep->node_of_rank,
        .num_nodes = ep->comm->topology.num_nodes,
        .num_tokens_per_rank = args->num_tokens_per_rank,
        .num_tokens_per_node = args->num_tokens_per_node,
        .num_tokens_per_expert = args->num_tokens_per_expert,
        .is_token_in_rank = args->is_token_in_rank,
    };
    const struct weft__grid grid =
        weft__ep_grid(ep, &(struct weft__work){.num_tokens = args->num_tokens});
    WEFT__TRY(weft__exchange_launch(ep->exchange, stream, WP_PROGRAM_layout, grid, &program_args,
                                    sizeof program_args));
    handle->routing = routing;
    handle->tag = args->tag;
    handle->state = WEFT__HANDLE_LAID_OUT;
    return WEFT_OK;
}

/* Before an operation between nodes is enqueued. */
static void note_graphs(weft_ep_handle *handle, weft_stream *stream)
{
    if (stream->machine->stream_is_capturing(stream))
        handle->is_in_graphs = 1;
}

static struct wp_call call_of(const weft_ep_handle *handle, enum wp_operation_kind operation,
                              uint32_t options)
{
    const uint64_t kind = (uint64_t)operation << WP_CALL_OPERATION_BIT |
                          (uint64_t)handle->routing.num_topk << WP_CALL_NUM_TOPK_BIT |
                          (uint64_t)options << WP_CALL_OPTIONS_BIT;
    return (struct wp_call){.head = {.kind = kind},
                            .num_experts = (uint32_t)handle->placement->host.num_experts};
}

/* Over one node and over several. */
static struct wp_notify_args notify_args(const weft_ep_handle *handle)
{
    const weft_ep *ep = handle->ep;
    return (struct wp_notify_args){
        .exchange = ep->exchange->device,
        .message = {.call = call_of(handle, WP_OPERATION_NOTIFY, 0), .num_blocks = 1},
        .routing = handle->routing,
        .placement = handle->placement->device,
        .expansion = handle->expansion,
        .counts_offset = weft__exchange_extra_offset(ep->exchange),
        .counts_stride = ep->counts_stride,
        .expert_alignment = handle->expert_alignment,
        .tag = handle->tag,
    };
}

static weft_result launch_notify(weft_ep_handle *handle, struct weft__grid one_block,
                                 weft_stream *stream)
{
    const struct wp_notify_args program_args = notify_args(handle);
    return weft__exchange_launch(handle->ep->exchange, stream, WP_PROGRAM_notify, one_block,
                                 &program_args, sizeof program_args);
}

static weft_result launch_internode_notify(weft_ep_handle *handle, struct weft__grid one_block,
                                           weft_stream *stream)
{
    const weft_ep *ep = handle->ep;
    const struct weft__internode *internode = ep->internode;
    const uint64_t words_bytes = wp_rings_words_bytes(&internode->rings);
    struct wp_internode_notify_args program_args = {
        .notify = notify_args(handle),
        .rings = internode->rings,
        .node_of_rank = ep->node_of_rank,
        .told = internode->rings.words + words_bytes,
        .told_place = internode->rings.words_place + words_bytes,
        .told_bytes = weft__internode_told_bytes(internode),
        .num_notifies = internode->num_notifies,
    };
    program_args.notify.message.call.max_tokens = (uint32_t)handle->max_tokens;
    note_graphs(handle, stream);
    return weft__exchange_launch(ep->exchange, stream, WP_PROGRAM_internode_notify, one_block,
                                 &program_args, sizeof program_args);
}

weft_result weft__ep_notify(weft_ep_handle *handle, weft_stream *stream)
{
    const weft_ep *ep = handle->ep;
    struct weft__grid one_block = weft__ep_grid(ep, &(struct weft__work){.kind = WEFT__WORK_COUNT});
    one_block.num_blocks = 1;
    WEFT__TRY(ep->internode == NULL ? launch_notify(handle, one_block, stream)
                                    : launch_internode_notify(handle, one_block, stream));
    handle->state = WEFT__HANDLE_NOTIFIED;
    handle->notify_stream_id = stream->id;
    handle->has_relayed = 0;
    handle->has_room = 0;
    handle->is_expanded = 0;
    handle->is_captured = stream->machine->stream_is_capturing(stream);
    return handle->is_captured ? WEFT_OK : stream->machine->event_record(handle->notified, stream);
}

/* Arguments that all ranks must give alike; seen by the pointers: either side's may be NULL at size
 * 0. */
static uint32_t dispatch_options(const weft_ep_handle *handle, const weft_ep_dispatch_args *args)
{
    uint32_t options = 0;
    if (args->topk_idx != NULL || args->recv_topk_idx != NULL)
        options |= WP_OPTION_TOPK_IDX;
    if (args->topk_weights != NULL || args->recv_topk_weights != NULL)
        options |= WP_OPTION_TOPK_WEIGHTS;
    if (options != 0 && args->index_type == WEFT_INT64)
        options |= WP_OPTION_INT64;
    if (handle->routing.num_tokens == 0 && args->capacity == 0)
        options |= WP_OPTION_NO_ROWS;
    return options;
}

static void announce_topk(const weft_ep_dispatch_args *args, const struct wp_message *message,
                          struct weft__arrays *arrays)
{
    const uint64_t num_topk = (uint64_t)arrays->handle->routing.num_topk;
    const uint32_t options = wp_call_options(&message->call);
    if (options & WP_OPTION_TOPK_IDX)
        weft__arrays_add(arrays, WP_ARRAY_TOPK_IDX, args->recv_topk_idx,
                         num_topk * wp_dtype_bytes(args->index_type), "recv_topk_idx");
    if (options & WP_OPTION_TOPK_WEIGHTS)
        weft__arrays_add(arrays, WP_ARRAY_TOPK_WEIGHTS, args->recv_topk_weights,
                         num_topk * sizeof(float), "recv_topk_weights");
    if (args->recv_src_token != NULL)
        weft__arrays_add(arrays, WP_ARRAY_SRC_TOKEN, args->recv_src_token, sizeof(int32_t),
                         "recv_src_token");
}

static uint64_t largest_row_bytes(const struct wp_call *call)
{
    uint64_t largest = 0;
    for (int32_t i = 0; i < wp_call_num_planes(call); i++)
        largest = call->row_bytes[i] > largest ? call->row_bytes[i] : largest;
    return largest;
}

static weft_result launch_internode_dispatch(weft_ep_handle *handle,
                                             const struct wp_dispatch_args *args,
                                             enum wp_relay_when when, struct weft__grid local,
                                             weft_stream *stream)
{
    const weft_ep *ep = handle->ep;
    const struct weft__internode *internode = ep->internode;
    const struct weft__grid grid =
        weft__internode_grid(internode, WEFT__RINGS_BOTH_WAYS, local, ep->grid.num_warps);
    struct wp_internode_dispatch_args program_args = {
        .dispatch = *args, .rings = internode->rings, .when = when};
    struct wp_message *message = &program_args.dispatch.message;
    message->num_blocks = grid.num_blocks;
    WEFT__TRY(weft__internode_check_row(
        internode, wp_wire_dispatch_bytes(&message->call, handle->routing.nodes.max_relayed_rows)));
    note_graphs(handle, stream);
    const enum wp_program program = wp_is_quantised(&args->quantised)
                                        ? WP_PROGRAM_internode_quantised_dispatch
                                        : WP_PROGRAM_internode_dispatch;
    WEFT__TRY(weft__exchange_launch(ep->exchange, stream, program, grid, &program_args,
                                    sizeof program_args));
    handle->has_relayed = 1;
    return WEFT_OK;
}

static weft_result launch_dispatch(const weft_ep *ep, const struct wp_staged_dispatch_args *args,
                                   struct weft__grid grid, weft_stream *stream)
{
    const int is_quantised = wp_is_quantised(&args->dispatch.quantised);
    if (is_quantised || ep->staging_bytes > 0)
        return weft__exchange_launch(ep->exchange, stream,
                                     is_quantised ? WP_PROGRAM_quantised_dispatch
                                                  : WP_PROGRAM_staged_dispatch,
                                     grid, args, sizeof *args);
    return weft__exchange_launch(ep->exchange, stream, WP_PROGRAM_dispatch, grid, &args->dispatch,
                                 sizeof args->dispatch);
}

/* For the record of what follows. */
static void tell_rows(const struct wp_call *call, int32_t num_tokens)
{
    uint64_t token_bytes = 0;
    for (int32_t plane = 0; plane < wp_call_num_planes(call); plane++)
        token_bytes += call->row_bytes[plane];
    weft__tell_bytes((uint64_t)num_tokens * token_bytes);
}

weft_result weft__ep_dispatch(weft_ep_handle *handle, const weft_ep_dispatch_args *args,
                              weft_stream *stream)
{
    const weft_ep *ep = handle->ep;
    WEFT__TRY(weft__handle_make_room_for_relayed(handle, "weft_ep_dispatch"));
    struct wp_staged_dispatch_args program_args = {
        .dispatch = {
            .exchange = ep->exchange->device,
            .message = {.call =
                            call_of(handle, WP_OPERATION_DISPATCH, dispatch_options(handle, args)),
                        .capacity = args->capacity,
                        .num_tokens = handle->routing.num_tokens},
            .routing = handle->routing,
            .placement = handle->placement->device,
            .topk_idx = args->topk_idx,
            .topk_weights = args->topk_weights,
            .recv_topk_idx = args->recv_topk_idx,
        }};
    struct wp_dispatch_args *dispatch = &program_args.dispatch;
    struct weft__arrays arrays = {
        .handle = handle, .message = &dispatch->message, .rounds = &program_args.rounds};
    weft__planes_announce(args, dispatch, &arrays);
    announce_topk(args, &dispatch->message, &arrays);
    WEFT__TRY(weft__arrays_place(&arrays));
    const struct weft__work work = {.kind = WEFT__WORK_PUSH_ROWS,
                                    .num_tokens = handle->routing.num_tokens,
                                    .row_bytes = largest_row_bytes(&dispatch->message.call)};
    const struct weft__grid grid = weft__ep_grid_of_call(ep, &work, args->num_blocks);
    dispatch->message.num_blocks = grid.num_blocks; /* between nodes there are more */
    tell_rows(&dispatch->message.call, handle->routing.num_tokens);
    WEFT__TRY(ep->internode == NULL
                  ? launch_dispatch(ep, &program_args, grid, stream)
                  : launch_internode_dispatch(handle, dispatch, WP_RELAY_ALWAYS, grid, stream));
    return weft__arrays_copy(&arrays, WEFT__FROM_STAGING, stream);
}

static uint32_t combine_options(const weft_ep_handle *handle, const weft_ep_combine_args *args)
{
    uint32_t options = 0;
    if (args->topk_weights != NULL || args->out_topk_weights != NULL)
        options |= WP_OPTION_TOPK_WEIGHTS;
    if (handle->routing.num_tokens == 0 && args->capacity == 0)
        options |= WP_OPTION_NO_ROWS;
    return options;
}

/* Combine goes back the way that the tokens came, so dispatch goes first, without rows: all ranks
 * do. To ranks that call something else it is combine. */
static weft_result relay_routes(weft_ep_handle *handle, weft_stream *stream)
{
    const struct wp_dispatch_args args = {
        .exchange = handle->ep->exchange->device,
        .message = {.call = call_of(handle, WP_OPERATION_COMBINE, 0),
                    .capacity = INT32_MAX}, /* of no rows, so that none is dropped */
        .routing = handle->routing,
        .placement = handle->placement->device,
    };
    const struct weft__work work = {.kind = WEFT__WORK_PUSH_ROWS,
                                    .num_tokens = handle->routing.num_tokens};
    return launch_internode_dispatch(handle, &args, WP_RELAY_IF_NEEDED,
                                     weft__ep_grid(handle->ep, &work), stream);
}

static weft_result launch_internode_combine(weft_ep_handle *handle,
                                            const struct wp_combine_args *args,
                                            struct weft__grid local, weft_stream *stream)
{
    const weft_ep *ep = handle->ep;
    const struct weft__internode *internode = ep->internode;
    const weft_dtype wire_dtype =
        internode->combine_wire == 0 ? args->dtype : internode->combine_wire;
    const uint64_t wire_row_bytes = wp_wire_combine_bytes(&args->message.call, wire_dtype);
    WEFT__TRY(weft__internode_check_row(internode, wire_row_bytes));
    const struct weft__grid takers = weft__internode_takers(internode, wire_row_bytes, local);
    const struct weft__grid grid =
        weft__internode_grid(internode, WEFT__RINGS_ONE_WAY, takers, ep->grid.num_warps);
    struct wp_internode_combine_args program_args = {
        .combine = *args,
        .rings = internode->rings,
        .wire_dtype = wire_dtype,
        .own_sums = wire_dtype == args->dtype ? NULL : internode->own_sums,
    };
    struct wp_message *message = &program_args.combine.message;
    message->num_blocks = grid.num_blocks;
    note_graphs(handle, stream);
    if (!handle->has_relayed || handle->is_in_graphs)
        WEFT__TRY(relay_routes(handle, stream));
    return weft__exchange_launch(ep->exchange, stream, WP_PROGRAM_internode_combine, grid,
                                 &program_args, sizeof program_args);
}

static weft_result launch_combine(const weft_ep *ep, const struct wp_staged_combine_args *args,
                                  struct weft__grid grid, weft_stream *stream)
{
    if (ep->staging_bytes > 0)
        return weft__exchange_launch(ep->exchange, stream, WP_PROGRAM_staged_combine, grid, args,
                                     sizeof *args);
    return weft__exchange_launch(ep->exchange, stream, WP_PROGRAM_combine, grid, &args->combine,
                                 sizeof args->combine);
}

static void announce_x(const weft_ep_combine_args *args, struct wp_combine_args *combine,
                       struct weft__arrays *arrays)
{
    struct wp_message *message = &combine->message;
    const uint64_t row_bytes = (uint64_t)args->hidden * wp_dtype_bytes(args->dtype);
    message->call.head.kind |=
        (uint64_t)args->dtype << WP_CALL_DTYPE_BIT | UINT64_C(1) << WP_CALL_NUM_PLANES_BIT;
    message->call.row_bytes[0] = (uint32_t)row_bytes;
    weft__arrays_add(arrays, WP_ARRAY_PLANE, args->x, row_bytes, "x");
    if (wp_call_options(&message->call) & WP_OPTION_TOPK_WEIGHTS)
        weft__arrays_add(arrays, WP_ARRAY_TOPK_WEIGHTS, args->topk_weights,
                         (uint64_t)arrays->handle->routing.num_topk * sizeof(float),
                         "topk_weights");
}

weft_result weft__ep_combine(weft_ep_handle *handle, const weft_ep_combine_args *args,
                             weft_stream *stream)
{
    const weft_ep *ep = handle->ep;
    WEFT__TRY(weft__handle_make_room_for_relayed(handle, "weft_ep_combine"));
    struct wp_staged_combine_args program_args = {
        .combine = {
            .exchange = ep->exchange->device,
            .message = {.call =
                            call_of(handle, WP_OPERATION_COMBINE, combine_options(handle, args)),
                        .capacity = args->capacity,
                        .num_tokens = handle->routing.num_tokens},
            .routing = handle->routing,
            .dtype = args->dtype,
            .out = args->out,
            .out_topk_weights = args->out_topk_weights,
        }};
    struct wp_combine_args *combine = &program_args.combine;
    for (int i = 0; i < 2; i++) {
        if (args->bias[i] != NULL)
            combine->biases[combine->num_biases++] = args->bias[i];
    }
    struct weft__arrays arrays = {
        .handle = handle, .message = &combine->message, .rounds = &program_args.rounds};
    announce_x(args, combine, &arrays);
    tell_rows(&combine->message.call, handle->routing.num_tokens);
    WEFT__TRY(weft__arrays_place(&arrays));
    WEFT__TRY(weft__arrays_copy(&arrays, WEFT__TO_STAGING, stream));
    const struct weft__work work = {.kind = WEFT__WORK_PULL_ROWS,
                                    .num_tokens = handle->routing.num_tokens,
                                    .row_bytes = combine->message.call.row_bytes[0]};
    const struct weft__grid grid = weft__ep_grid_of_call(ep, &work, args->num_blocks);
    combine->message.num_blocks = grid.num_blocks; /* between nodes there are more */
    return ep->internode == NULL ? launch_combine(ep, &program_args, grid, stream)
                                 : launch_internode_combine(handle, combine, grid, stream);
}
