/* SPDX-License-Identifier: MIT */
#include "ep/low_latency.h"

#include <stdlib.h>

#include "api/destroy.h"
#include "api/overlap.h"
#include "api/structs.h"

static weft_result check_quantisation(const weft_ll_config *config)
{
    if (config->narrow_dtype == WEFT_DTYPE_NONE) {
        WEFT__TRY(weft__check_unused((uint64_t)config->scale, "scale"));
        return weft__check_unused((uint64_t)config->group_elements, "group_elements");
    }
    return weft__check_quantisation(config->narrow_dtype, config->scale, config->group_elements,
                                    config->hidden);
}

static weft_result check_masks(const weft_ep *ep, const weft_ll_config *config)
{
    const int32_t each = config->answer == WEFT_LL_ANSWER_ROWS ? config->num_topk : 1;
    WEFT__TRY(weft__check_enum(WEFT__ENUM_LL_ON_MISSING, (int32_t)config->on_missing, WEFT_LL_FAIL,
                               WEFT_LL_MASK, "on_missing"));
    if (config->on_missing == WEFT_LL_FAIL)
        return weft__check_unused(config->missing_ms, "missing_ms");
    if (config->route == WEFT_LL_RELAYED)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "route is WEFT_LL_RELAYED and on_missing is WEFT_LL_MASK: with masks "
                           "route must be WEFT_LL_STRAIGHT");
    return weft__check_range(config->max_tokens, 1, INT32_MAX / ep->comm->num_ranks / each,
                             "max_tokens");
}

static weft_result check_answer(const weft_ep *ep, const weft_ll_config *config)
{
    WEFT__TRY(weft__check_enum(WEFT__ENUM_LL_ANSWER, (int32_t)config->answer, WEFT_LL_ANSWER_SUMS,
                               WEFT_LL_ANSWER_SUMS_WEIGHED_LATE, "answer"));
    if (config->layout == WEFT_LL_BY_RANK && (config->answer == WEFT_LL_ANSWER_ROWS ||
                                              config->answer == WEFT_LL_ANSWER_SUMS_WEIGHED_LATE))
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "answer is %s, which layout WEFT_LL_BY_RANK has not: must "
                           "be WEFT_LL_ANSWER_SUMS or WEFT_LL_ANSWER_IN_SLOTS",
                           weft__constant_name(WEFT__ENUM_LL_ANSWER, (int32_t)config->answer));
    if (config->answer != WEFT_LL_ANSWER_SUMS_WEIGHED_LATE)
        return WEFT_OK;
    if (ep->comm->topology.num_nodes > 1)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "answer is WEFT_LL_ANSWER_SUMS_WEIGHED_LATE, for ranks of one node, and "
                           "these are of %d: take WEFT_LL_ANSWER_ROWS, or give weights to dispatch",
                           ep->comm->topology.num_nodes);
    return WEFT_OK;
}

static weft_result check_carrier(const weft_ep *ep, const weft_ll_config *config)
{
    WEFT__TRY(weft__check_enum(WEFT__ENUM_LL_CARRIER, (int32_t)config->carrier, WEFT_LL_AUTO,
                               WEFT_LL_TOLD_PACKETS, "carrier"));
    const char *why = weft__ll_choose_carrier(ep, config).lacks;
    if (why == NULL || config->carrier == WEFT_LL_AUTO)
        return WEFT_OK;
    return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                       "carrier is %s (%d), which needs %s; max_tokens is %d, num_topk %d, hidden "
                       "%lld, of %d ranks the one with most experts has %d",
                       weft__constant_name(WEFT__ENUM_LL_CARRIER, (int64_t)config->carrier),
                       (int)config->carrier, why, config->max_tokens, config->num_topk,
                       (long long)config->hidden, ep->comm->num_ranks,
                       weft__placement_max_local(&ep->placement));
}

/* Checks bytes_within and network_bytes_within, or the weft_ll that is given as within. */
static weft_result check_within(const weft_ep *ep, const weft_ll_config *config)
{
    static const uint64_t max_bytes = UINT64_C(1) << 46;
    const weft_ll *within = config->within;
    WEFT__TRY(weft__check_at_most(config->bytes_within, max_bytes, "bytes_within"));
    WEFT__TRY(weft__check_at_most(config->network_bytes_within, max_bytes, "network_bytes_within"));
    if (within == NULL && config->bytes_within == 0)
        return weft__check_unused(config->network_bytes_within, "network_bytes_within");
    if (config->on_missing != WEFT_LL_MASK || config->route != WEFT_LL_STRAIGHT)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "within, or bytes_within, is given: on_missing must be WEFT_LL_MASK, "
                           "and route WEFT_LL_STRAIGHT");
    if (within == NULL)
        return WEFT_OK;
    WEFT__TRY(weft__check_unused(config->bytes_within, "bytes_within"));
    WEFT__TRY(weft__check_unused(config->network_bytes_within, "network_bytes_within"));
    WEFT__TRY(weft__object_check(WEFT__KIND_LL, within, "within"));
    if (within->ep->comm != ep->comm || within->heap_pieces.bytes == 0)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "within: it must be of the same communicator and have bytes_within");
    const uint32_t missing_ms = config->missing_ms > 0 ? config->missing_ms : ep->comm->timeout_ms;
    if (missing_ms != within->device.masks.absent_after_ms)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "missing_ms is %u, must be that of within, %u", missing_ms,
                           within->device.masks.absent_after_ms);
    return WEFT_OK;
}

static weft_result check_config(const weft_ep *ep, const weft_ll_config *config)
{
    const int64_t num_ranks = ep->comm->num_ranks;
    WEFT__TRY(
        weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)config->dtype, WEFT_BF16, WEFT_FP32, "dtype"));
    WEFT__TRY(weft__check_range(config->hidden, 1, INT32_MAX / (int64_t)wp_dtype_bytes(WEFT_FP32),
                                "hidden"));
    WEFT__TRY(weft__check_range(config->max_tokens, 1, WEFT__LL_MAX_TOKENS, "max_tokens"));
    WEFT__TRY(weft__check_range(config->num_topk, 1, ep->max_topk, "num_topk"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_LL_LAYOUT, (int32_t)config->layout, WEFT_LL_BY_RANK,
                               WEFT_LL_BY_EXPERT, "layout"));
    WEFT__TRY(weft__check_range(config->expert_capacity, 0,
                                INT32_MAX / weft__placement_max_local(&ep->placement),
                                "expert_capacity"));
    if (config->layout == WEFT_LL_BY_RANK)
        WEFT__TRY(weft__check_unused((uint64_t)config->expert_capacity, "expert_capacity"));
    else
        WEFT__TRY(weft__check_range(
            config->max_tokens, 1,
            INT32_MAX / weft__placement_max_local(&ep->placement) / num_ranks, "max_tokens"));
    WEFT__TRY(weft__check_range(config->num_results, 0, WP_NUM_HALVES, "num_results"));
    WEFT__TRY(check_answer(ep, config));
    WEFT__TRY(weft__check_wire(config->answer_dtype, "answer_dtype"));
    WEFT__TRY(weft__check_wire_of_row(config->answer_dtype, "answer_dtype", config->hidden));
    WEFT__TRY(check_quantisation(config));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_LL_ROUTE, (int32_t)config->route, WEFT_LL_STRAIGHT,
                               WEFT_LL_RELAYED, "route"));
    if (config->route == WEFT_LL_RELAYED) /* each answer to a row that is relayed has a slot */
        WEFT__TRY(weft__check_range(config->max_tokens, 1, INT32_MAX / num_ranks / config->num_topk,
                                    "max_tokens"));
    WEFT__TRY(check_masks(ep, config));
    WEFT__TRY(check_within(ep, config));
    WEFT__TRY(check_carrier(ep, config));
    WEFT__TRY(weft__check_range(config->num_blocks, 0, WEFT__EP_MAX_BLOCKS, "num_blocks"));
    return weft__check_range(config->num_warps, 0, WEFT__MAX_WARPS, "num_warps");
}

/* Keeps the experts only if the configuration is right. */
static weft_result find_experts(weft_ep *ep, const weft_ll_config *config, weft_ep **experts)
{
    WEFT__TRY(weft__check_range(config->num_experts, 0, WEFT__EP_MAX_EXPERTS, "num_experts"));
    WEFT__TRY(weft__ll_experts_of(ep, config, experts));
    const weft_result result = check_config(*experts, config);
    if (result != WEFT_OK)
        weft__ll_drop_experts(ep, *experts);
    return result;
}

weft_result weft_ll_query_sizes(const weft_ep *ep, const weft_ll_config *user_config,
                                weft_ll_sizes *sizes)
{
    weft_ll_config config;
    weft_ll_sizes found;
    WEFT__TRY(weft__object_check(WEFT__KIND_EP, ep, "ep"));
    WEFT__TRY(WEFT__READ(weft_ll_config, &config, user_config, "config"));
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_ll_sizes, sizes, "sizes"));
    weft_ep *experts;
    WEFT__TRY(find_experts((weft_ep *)(uintptr_t)ep, &config, &experts));
    const weft_result result = weft__ll_query_sizes(experts, &config, &found);
    weft__ll_drop_experts((weft_ep *)(uintptr_t)ep, experts);
    WEFT__TRY(result);
    WEFT__WRITE(weft_ll_sizes, sizes, &found);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- jobs that are planned */

static weft_result place_ranks(const weft_ll_job *job, struct weft__topology *topology)
{
    const int32_t num_nodes = job->num_nodes > 0 ? job->num_nodes : 1;
    uint64_t *nodes = malloc((size_t)job->num_ranks * sizeof *nodes);
    if (nodes == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", job->num_ranks);
    for (int32_t rank = 0; rank < job->num_ranks; rank++)
        nodes[rank] = (uint64_t)rank * (uint64_t)num_nodes / (uint64_t)job->num_ranks;
    const weft_result result = weft__topology_init(topology, nodes, job->num_ranks);
    free(nodes);
    return result;
}

/* Finds the sizes of the rank with most experts. It makes `comm` that rank. */
static weft_result find_most(weft_comm *comm, const weft_ll_config *config, weft_ll_sizes *sizes)
{
    const weft_ep_config of_ep = {.num_experts = (int32_t)config->num_experts,
                                  .max_topk = WEFT_MAX_TOPK};
    weft_ep *experts;
    WEFT__TRY(weft__ep_create_experts(comm, &of_ep, &experts));
    const struct weft__placement *placement = &experts->placement;
    while (weft__placement_num_local(placement, comm->rank) < weft__placement_max_local(placement))
        comm->rank++;
    weft_result result = check_config(experts, config);
    if (result == WEFT_OK)
        result = weft__ll_query_sizes(experts, config, sizes);
    weft__ep_destroy(experts);
    return result;
}

weft_result weft_ll_plan_sizes(const weft_comm *comm, const weft_ll_job *user_job,
                               const weft_ll_config *user_config, weft_ll_sizes *sizes)
{
    weft_ll_job job;
    weft_ll_config config;
    weft_ll_sizes found;
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(WEFT__READ(weft_ll_job, &job, user_job, "job"));
    WEFT__TRY(WEFT__READ(weft_ll_config, &config, user_config, "config"));
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_ll_sizes, sizes, "sizes"));
    WEFT__TRY(weft__check_range(job.num_ranks, 1, WEFT__MAX_RANKS, "num_ranks"));
    WEFT__TRY(weft__check_range(job.num_nodes, 0, job.num_ranks, "num_nodes"));
    WEFT__TRY(weft__check_range(config.num_experts, 1, WEFT__EP_MAX_EXPERTS, "num_experts"));
    if (config.within != NULL)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "within: it must be NULL, since a planned job has no memory");
    weft_comm planned = {.num_ranks = job.num_ranks,
                         .timeout_ms = comm->timeout_ms,
                         .hooks = comm->hooks,
                         .machine_state = comm->machine_state};
    WEFT__TRY(place_ranks(&job, &planned.topology));
    const weft_result result = find_most(&planned, &config, &found);
    weft__topology_destroy(&planned.topology);
    WEFT__TRY(result);
    WEFT__WRITE(weft_ll_sizes, sizes, &found);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- objects */

/* Checks first that there is room: a creation that fails must have taken no memory. */
static weft_result create_within(weft_ep *ep, weft_ep *experts, const weft_ll_config *config,
                                 weft_ll **ll)
{
    weft_ll_sizes sizes;
    weft_ll *created;
    const weft_result result = weft__ll_query_sizes(experts, config, &sizes);
    if (result != WEFT_OK) {
        weft__ll_drop_experts(ep, experts);
        return result;
    }
    WEFT__TRY(weft__ll_create(ep, experts, config, &created));
    return weft__give(WEFT__KIND_LL, created, config->within, ll);
}

weft_result weft_ll_create(weft_ep *ep, const weft_ll_config *user_config, weft_ll **ll)
{
    weft_ll_config config;
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_EP, ep, "ep"));
    WEFT__TRY(weft__check_not_null(ll, "ll"));
    WEFT__TRY(WEFT__READ(weft_ll_config, &config, user_config, "config"));
    WEFT__TRY(weft__machine_check(ep->comm));
    weft_ll *created;
    weft_ep *experts;
    WEFT__TRY(find_experts(ep, &config, &experts));
    if (config.within != NULL)
        return create_within(ep, experts, &config, ll);
    weft__comm_enter(ep->comm, WEFT__CALL_LL_CREATE);
    WEFT__TRY(weft__ll_create(ep, experts, &config, &created));
    return weft__give_on_all(ep->comm, WEFT__KIND_LL, created, ep, ll);
}

weft_result weft_ll_destroy(weft_ll *ll)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_LL, ll, "ll"));
    weft__destroy(WEFT__KIND_LL, ll);
    return WEFT_OK;
}

weft_result weft_ll_query_slots(const weft_ll *ll, weft_ll_slots *slots)
{
    weft_ll_slots found;
    WEFT__TRY(weft__object_check(WEFT__KIND_LL, ll, "ll"));
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_ll_slots, slots, "slots"));
    if (ll->device.plan.is_by_expert)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "ll: its layout is WEFT_LL_BY_EXPERT, whose rows are the caller's");
    weft__ll_query_slots(ll, &found);
    WEFT__WRITE(weft_ll_slots, slots, &found);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- operations */

enum { MAX_EXTENTS = 12 };
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
               : weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                             "%s is not NULL: this weft_ll, or phase, does not use it", name);
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

/* Of num_rows rows of num_local experts. */
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
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "scale_column_bytes is %llu, allowed are 0 and multiples of 4 from %llu "
                           "on, 4 for each row of an expert",
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
    return check_null(args->total_rows_per_expert, "total_rows_per_expert");
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

/* What any phase that receives may tell of each rank. */
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
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "x_stride_bytes is %llu, allowed are 0 and multiples of the dtype's "
                           "bytes from a row's %llu on",
                           (unsigned long long)args->x_stride_bytes, (unsigned long long)row_bytes);
    if (args->x == NULL && may_lie_in_slots(plan))
        return weft__check_unused(args->x_stride_bytes, "x_stride_bytes");
    WEFT__TRY(weft__check_array(args->x, (int64_t)num_rows, "x"));
    add(list, "x", WEFT__EXTENT_READ, args->x, num_rows, row_bytes);
    list->extents[list->num_extents - 1].stride_bytes = args->x_stride_bytes;
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
