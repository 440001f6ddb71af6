/* SPDX-License-Identifier: MIT */
/* The operations of a weft_ll: their arguments. */
#include "ep/low_latency.h"

#include "api/objects.h"
#include "api/overlap.h"
#include "api/structs.h"

enum { MAX_EXTENTS = 13 };
struct list {
    weft_ll *ll;
    int32_t capacity; /* by expert: rows of each expert that the arrays have room for */
    struct weft__extent extents[MAX_EXTENTS];
    int32_t num_extents;
    weft_result result; /* of the first pointer that is not right */
};

/* An array of `count` elements that the machine accesses; NULL if it is optional. */
static void add(struct list *list, const char *name, enum weft__extent_use use, const void *ptr,
                uint64_t count, uint64_t element_bytes)
{
    weft_comm *comm = list->ll->ep->comm;
    list->extents[list->num_extents++] = weft__extent_of(name, use, ptr, count, element_bytes);
    if (list->result == WEFT_OK && ptr != NULL)
        list->result = weft__machine_of(comm)->check_pointer(comm, ptr, name);
}

static weft_result check_list(const struct list *list)
{
    WEFT__TRY(list->result);
    return weft__check_overlaps(list->extents, list->num_extents);
}

static weft_result check_operation(const weft_ll *ll, weft_stream *stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_LL, ll, "ll"));
    return weft__object_check(WEFT__KIND_STREAM, stream, "stream");
}

static weft_result check_phases(weft_ll_phases phases)
{
    return weft__check_enum(WEFT__ENUM_LL_PHASES, (int32_t)phases, WEFT_LL_SEND_AND_RECEIVE,
                            WEFT_LL_RECEIVE, "phases");
}

static weft_result check_call(weft_ll_call call)
{
    return weft__check_enum(WEFT__ENUM_LL_CALL, (int32_t)call, WEFT_LL_RUN, WEFT_LL_CHECK, "call");
}

static weft_result check_capacity(struct list *list, int32_t wished, int is_used)
{
    const struct wp_ll_plan *plan = &list->ll->device.plan;
    WEFT__TRY(weft__check_range(wished, 0, plan->is_by_expert && is_used ? plan->capacity : 0,
                                "expert_capacity"));
    list->capacity = weft__ll_capacity(list->ll, wished);
    return WEFT_OK;
}

static weft_result check_null(const void *ptr, const char *name)
{
    return ptr == NULL
               ? WEFT_OK
               : weft__invalid("%s is not NULL: this weft_ll, or phase, does not use it", name);
}

static weft_result check_sent_tokens(struct list *list, const weft_ll_dispatch_args *args)
{
    const struct wp_ll_plan *plan = &list->ll->device.plan;
    const uint64_t num_tokens = (uint64_t)args->num_tokens, num_topk = (uint64_t)plan->num_topk;
    WEFT__TRY(weft__check_range(args->num_tokens, 0, plan->max_tokens, "num_tokens"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)args->index_type, WEFT_INT32, WEFT_INT64,
                               "index_type"));
    WEFT__TRY(weft__check_array(args->x, args->num_tokens, "x"));
    WEFT__TRY(weft__check_array(args->topk_idx, args->num_tokens, "topk_idx"));
    add(list, "x", WEFT__EXTENT_READ, args->x, num_tokens,
        (uint64_t)plan->hidden * wp_dtype_bytes(plan->dtype));
    add(list, "topk_idx", WEFT__EXTENT_READ, args->topk_idx, num_tokens,
        num_topk * wp_dtype_bytes(args->index_type));
    if (plan->weights_come_late)
        return check_null(args->topk_weights, "topk_weights");
    add(list, "topk_weights", WEFT__EXTENT_READ, args->topk_weights, num_tokens,
        num_topk * sizeof(float));
    return WEFT_OK;
}

static weft_result check_no_tokens(const weft_ll_dispatch_args *args)
{
    WEFT__TRY(weft__check_unused((uint64_t)args->num_tokens, "num_tokens"));
    WEFT__TRY(weft__check_unused((uint64_t)args->index_type, "index_type"));
    WEFT__TRY(check_null(args->x, "x"));
    WEFT__TRY(check_null(args->topk_idx, "topk_idx"));
    return check_null(args->topk_weights, "topk_weights");
}

/* Checks the scales of the rows of this rank's num_local experts. */
static weft_result check_scales(struct list *list, const weft_ll_dispatch_args *args,
                                uint64_t num_local)
{
    const struct wp_ll_plan *plan = &list->ll->device.plan;
    const uint64_t capacity = (uint64_t)list->capacity;
    const uint64_t num_groups = (uint64_t)(plan->hidden / plan->quantisation.group_elements);
    const uint64_t num_columns =
        plan->quantisation.scale == WP_SCALE_UE8M0 ? (num_groups + 3) / 4 : num_groups;
    if (!wp_ll_is_quantised(plan)) {
        WEFT__TRY(weft__check_unused(args->scale_column_bytes, "scale_column_bytes"));
        return check_null(args->scales, "scales");
    }
    WEFT__TRY(weft__check_array(args->scales, (int64_t)(num_local * capacity), "scales"));
    if (args->scale_column_bytes == 0) {
        add(list, "scales", WEFT__EXTENT_WRITTEN, args->scales, num_local * capacity,
            plan->scales_bytes);
        return WEFT_OK;
    }
    const uint64_t least_bytes = capacity * sizeof(float);
    if (args->scale_column_bytes < least_bytes || args->scale_column_bytes % sizeof(float) != 0 ||
        args->scale_column_bytes > INT64_MAX / (num_local * num_columns + 1))
        return weft__invalid("scale_column_bytes is %llu, allowed are 0 and multiples of 4 from "
                             "%llu on, 4 for each row of an expert",
                             (unsigned long long)args->scale_column_bytes,
                             (unsigned long long)least_bytes);
    add(list, "scales", WEFT__EXTENT_WRITTEN, args->scales, num_local * num_columns,
        args->scale_column_bytes);
    return WEFT_OK;
}

static weft_result check_outputs_by_expert(struct list *list, const weft_ll_dispatch_args *args)
{
    const weft_ep *ep = list->ll->ep;
    const struct wp_ll_plan *plan = &list->ll->device.plan;
    const uint64_t num_local = (uint64_t)weft__placement_num_local(&ep->placement, ep->comm->rank);
    const uint64_t num_rows = num_local * (uint64_t)list->capacity;
    WEFT__TRY(weft__check_array(args->rows, (int64_t)num_rows, "rows"));
    add(list, "rows", WEFT__EXTENT_WRITTEN, args->rows, num_rows, plan->row_bytes);
    WEFT__TRY(check_scales(list, args, num_local));
    add(list, "num_rows_per_expert", WEFT__EXTENT_WRITTEN, args->num_rows_per_expert, num_local,
        sizeof *args->num_rows_per_expert);
    add(list, "src_tokens", WEFT__EXTENT_WRITTEN, args->src_tokens, num_rows,
        sizeof *args->src_tokens);
    add(list, "row_ranges", WEFT__EXTENT_WRITTEN, args->row_ranges,
        num_local * (uint64_t)ep->comm->num_ranks, sizeof *args->row_ranges);
    add(list, "total_rows_per_expert", WEFT__EXTENT_WRITTEN, args->total_rows_per_expert, num_local,
        sizeof *args->total_rows_per_expert);
    WEFT__TRY(
        weft__check_address(args->expert_signals, sizeof *args->expert_signals, "expert_signals"));
    add(list, "expert_signals", WEFT__EXTENT_WRITTEN, args->expert_signals, num_local,
        sizeof *args->expert_signals);
    return WEFT_OK;
}

static weft_result check_no_outputs_by_expert(const weft_ll_dispatch_args *args)
{
    WEFT__TRY(check_null(args->rows, "rows"));
    WEFT__TRY(check_null(args->scales, "scales"));
    WEFT__TRY(weft__check_unused(args->scale_column_bytes, "scale_column_bytes"));
    WEFT__TRY(check_null(args->num_rows_per_expert, "num_rows_per_expert"));
    WEFT__TRY(check_null(args->src_tokens, "src_tokens"));
    WEFT__TRY(check_null(args->row_ranges, "row_ranges"));
    WEFT__TRY(check_null(args->total_rows_per_expert, "total_rows_per_expert"));
    return check_null(args->expert_signals, "expert_signals");
}

/* NULL in a phase that does not receive, and without masks. */
static weft_result check_missing(struct list *list, weft_ll_phases phases, int32_t *missing_ranks)
{
    const weft_ll *ll = list->ll;
    if (phases == WEFT_LL_SEND || !wp_ll_has_masks(&ll->device.masks))
        return check_null(missing_ranks, "missing_ranks");
    add(list, "missing_ranks", WEFT__EXTENT_WRITTEN, missing_ranks,
        (uint64_t)ll->ep->comm->num_ranks, sizeof *missing_ranks);
    return WEFT_OK;
}

/* Checks waited_ns, which each phase that receives may write. */
static weft_result check_waited(struct list *list, weft_ll_phases phases, int64_t *waited_ns)
{
    if (phases == WEFT_LL_SEND)
        return check_null(waited_ns, "waited_ns");
    add(list, "waited_ns", WEFT__EXTENT_WRITTEN, waited_ns, (uint64_t)list->ll->ep->comm->num_ranks,
        sizeof *waited_ns);
    return WEFT_OK;
}

/* An operation counts once, even if it is two calls. */
static weft_result note(weft_ll *ll, weft_ll_phases phases, weft_stream *stream, weft_result result)
{
    const enum weft__call_part part = phases == WEFT_LL_SEND      ? WEFT__CALL_BEGINS
                                      : phases == WEFT_LL_RECEIVE ? WEFT__CALL_GOES_ON
                                                                  : WEFT__CALL_IS_WHOLE;
    return weft__exchange_note(ll->exchange, stream, part, result);
}

weft_result weft_ll_dispatch(weft_ll *ll, const weft_ll_dispatch_args *user_args,
                             weft_stream *stream)
{
    weft_ll_dispatch_args args;
    struct list list = {.ll = ll, .result = WEFT_OK};
    WEFT__TRY(check_operation(ll, stream));
    WEFT__TRY(WEFT__READ(weft_ll_dispatch_args, &args, user_args, "args"));
    WEFT__TRY(check_phases(args.phases));
    WEFT__TRY(check_call(args.call));
    WEFT__TRY(check_capacity(&list, args.expert_capacity, args.phases != WEFT_LL_SEND));
    WEFT__TRY(args.phases == WEFT_LL_RECEIVE ? check_no_tokens(&args)
                                             : check_sent_tokens(&list, &args));
    WEFT__TRY(ll->device.plan.is_by_expert && args.phases != WEFT_LL_SEND
                  ? check_outputs_by_expert(&list, &args)
                  : check_no_outputs_by_expert(&args));
    if (args.phases == WEFT_LL_SEND)
        WEFT__TRY(check_null(args.num_rows_per_rank, "num_rows_per_rank"));
    add(&list, "num_rows_per_rank", WEFT__EXTENT_WRITTEN, args.num_rows_per_rank,
        (uint64_t)ll->ep->comm->num_ranks, sizeof *args.num_rows_per_rank);
    WEFT__TRY(check_missing(&list, args.phases, args.missing_ranks));
    WEFT__TRY(check_waited(&list, args.phases, args.waited_ns));
    WEFT__TRY(check_list(&list));
    if (args.call == WEFT_LL_CHECK)
        return WEFT_OK;
    WEFT__TRY(weft__ll_check_dispatch(ll, args.phases, stream));
    weft__current_call = WEFT__CALL_LL_DISPATCH;
    return note(ll, args.phases, stream, weft__ll_dispatch(ll, &args, stream));
}

/* The rows that combine reads: of all local experts, or of all slots. */
static uint64_t num_answered_rows(const struct list *list)
{
    const weft_ll *ll = list->ll;
    const struct wp_ll_plan *plan = &ll->device.plan;
    const weft_ep *ep = ll->ep;
    if (!plan->is_by_expert)
        return (uint64_t)ep->comm->num_ranks * (uint64_t)plan->max_tokens;
    return (uint64_t)weft__placement_num_local(&ep->placement, ep->comm->rank) *
           (uint64_t)list->capacity;
}

/* Answers that the caller has written where rows came to. */
static int may_lie_in_slots(const struct wp_ll_plan *plan)
{
    return plan->answers_stay && !plan->is_by_expert && plan->answer_dtype == plan->dtype;
}

static weft_result check_answers(struct list *list, const weft_ll_combine_args *args)
{
    const struct wp_ll_plan *plan = &list->ll->device.plan;
    const uint64_t row_bytes = (uint64_t)plan->hidden * wp_dtype_bytes(plan->dtype);
    const uint64_t num_rows = num_answered_rows(list);
    if (args->x_stride_bytes != 0 && (args->x_stride_bytes < row_bytes ||
                                      args->x_stride_bytes % wp_dtype_bytes(plan->dtype) != 0 ||
                                      args->x_stride_bytes > INT64_MAX / (num_rows + 1)))
        return weft__invalid("x_stride_bytes is %llu, allowed are 0 and multiples of the dtype's "
                             "bytes from a row's %llu on",
                             (unsigned long long)args->x_stride_bytes,
                             (unsigned long long)row_bytes);
    if (args->x == NULL && may_lie_in_slots(plan))
        return weft__check_unused(args->x_stride_bytes, "x_stride_bytes");
    WEFT__TRY(weft__check_array(args->x, (int64_t)num_rows, "x"));
    add(list, "x", WEFT__EXTENT_READ, args->x, num_rows, row_bytes);
    list->extents[list->num_extents - 1].stride_bytes = args->x_stride_bytes;
    return WEFT_OK;
}

static weft_result check_no_signals(const weft_ll_combine_args *args)
{
    WEFT__TRY(check_null(args->row_signals, "row_signals"));
    WEFT__TRY(weft__check_unused(args->signal_value, "signal_value"));
    return weft__check_unused((uint64_t)args->rows_per_signal, "rows_per_signal");
}

/* By rank nobody but the caller knows of which experts a row is. */
static weft_result check_signals(struct list *list, const weft_ll_combine_args *args)
{
    const weft_ll *ll = list->ll;
    const weft_ep *ep = ll->ep;
    if (args->row_signals == NULL || args->phases == WEFT_LL_RECEIVE ||
        !ll->device.plan.is_by_expert)
        return check_no_signals(args);
    WEFT__TRY(weft__check_range(args->rows_per_signal, 0, INT32_MAX, "rows_per_signal"));
    if (args->signal_value == 0)
        return weft__invalid("signal_value is 0, must be 1 or more with row_signals");
    WEFT__TRY(weft__check_address(args->row_signals, sizeof *args->row_signals, "row_signals"));
    add(list, "row_signals", WEFT__EXTENT_READ, args->row_signals,
        (uint64_t)weft__placement_num_local(&ep->placement, ep->comm->rank) *
            (uint64_t)weft__ll_words_per_expert(ll, args),
        sizeof *args->row_signals);
    return WEFT_OK;
}

/* Tokens of the combine. In graphs the combine may have fewer tokens than the host counts, so the
 * host cannot tell the length of its arrays: 0. A combine that is only checked has the tokens of
 * the next one to be sent. */
static int32_t num_tokens_of(const weft_ll *ll, const weft_ll_combine_args *args)
{
    if (ll->issued.is_in_graphs)
        return 0;
    return weft__ll_num_tokens(ll, args->call == WEFT_LL_CHECK ? WEFT_LL_SEND : args->phases);
}

static void add_of_tokens(struct list *list, const char *name, enum weft__extent_use use,
                          const void *ptr, const weft_ll_combine_args *args, uint64_t token_bytes)
{
    const int32_t num_tokens = num_tokens_of(list->ll, args);
    add(list, name, use, ptr, (uint64_t)num_tokens, token_bytes);
}

static weft_result check_sums(struct list *list, const weft_ll_combine_args *args)
{
    const struct wp_ll_plan *plan = &list->ll->device.plan;
    WEFT__TRY(weft__check_array(args->out, num_tokens_of(list->ll, args), "out"));
    add_of_tokens(list, "out", WEFT__EXTENT_WRITTEN, args->out, args,
                  (uint64_t)plan->hidden * wp_dtype_bytes(plan->dtype));
    return WEFT_OK;
}

/* Who sums weighs; weights that come late are sent to him. */
static weft_result check_weights(struct list *list, const weft_ll_combine_args *args)
{
    const struct wp_ll_plan *plan = &list->ll->device.plan;
    const int are_received = plan->answers_are_rows && args->phases != WEFT_LL_SEND;
    const int are_sent = plan->weights_come_late && args->phases != WEFT_LL_RECEIVE;
    if (!are_received && !are_sent)
        return check_null(args->topk_weights, "topk_weights");
    add_of_tokens(list, "topk_weights", WEFT__EXTENT_READ, args->topk_weights, args,
                  (uint64_t)plan->num_topk * sizeof(float));
    return WEFT_OK;
}

/* Answers that lie where the rows were end their result. */
static int may_keep(const weft_ll *ll, weft_ll_phases phases)
{
    return phases != WEFT_LL_RECEIVE && !ll->device.plan.answers_stay;
}

weft_result weft_ll_combine(weft_ll *ll, const weft_ll_combine_args *user_args, weft_stream *stream)
{
    weft_ll_combine_args args;
    struct list list = {.ll = ll, .result = WEFT_OK};
    WEFT__TRY(check_operation(ll, stream));
    WEFT__TRY(WEFT__READ(weft_ll_combine_args, &args, user_args, "args"));
    WEFT__TRY(check_phases(args.phases));
    WEFT__TRY(check_call(args.call));
    WEFT__TRY(weft__check_range(args.keep, 0, may_keep(ll, args.phases), "keep"));
    WEFT__TRY(check_capacity(&list, args.expert_capacity, args.phases != WEFT_LL_RECEIVE));
    if (args.call == WEFT_LL_RUN)
        WEFT__TRY(weft__ll_check_combine(ll, args.phases, args.expert_capacity, stream));
    if (args.phases == WEFT_LL_RECEIVE) {
        WEFT__TRY(check_null(args.x, "x"));
        WEFT__TRY(weft__check_unused(args.x_stride_bytes, "x_stride_bytes"));
    } else {
        WEFT__TRY(check_answers(&list, &args));
    }
    if (args.phases == WEFT_LL_SEND)
        WEFT__TRY(check_null(args.out, "out"));
    else
        WEFT__TRY(check_sums(&list, &args));
    WEFT__TRY(check_weights(&list, &args));
    WEFT__TRY(check_signals(&list, &args));
    WEFT__TRY(check_missing(&list, args.phases, args.missing_ranks));
    WEFT__TRY(check_waited(&list, args.phases, args.waited_ns));
    WEFT__TRY(check_list(&list));
    if (args.call == WEFT_LL_CHECK)
        return WEFT_OK;
    weft__current_call = WEFT__CALL_LL_COMBINE;
    return note(ll, args.phases, stream, weft__ll_combine(ll, &args, stream));
}

weft_result weft_ll_release(weft_ll *ll, weft_stream *stream)
{
    WEFT__TRY(check_operation(ll, stream));
    WEFT__TRY(weft__ll_check_release(ll, stream));
    weft__current_call = WEFT__CALL_LL_RELEASE;
    return weft__ll_release(ll, stream);
}
