/* SPDX-License-Identifier: MIT */
#include "ep/low_latency.h"

#include <stdlib.h>

#include "api/destroy.h"
#include "api/log_job.h"
#include "api/structs.h"

static weft_result check_quantisation(const weft_ll_config *config)
{
    if (config->quantisation.dtype == WEFT_DTYPE_NONE) {
        WEFT__TRY(weft__check_unused((uint64_t)config->quantisation.scale, "quantisation.scale"));
        return weft__check_unused((uint64_t)config->quantisation.group_elements,
                                  "quantisation.group_elements");
    }
    return weft__check_quantisation(&config->quantisation, config->hidden);
}

static weft_result check_masks(const weft_ep *ep, const weft_ll_config *config)
{
    const int32_t each = config->answer == WEFT_LL_ANSWER_ROWS ? config->num_topk : 1;
    WEFT__TRY(weft__check_enum(WEFT__ENUM_LL_ON_MISSING, (int32_t)config->on_missing, WEFT_LL_FAIL,
                               WEFT_LL_MASK, "on_missing"));
    if (config->on_missing == WEFT_LL_FAIL)
        return weft__check_unused(config->missing_ms, "missing_ms");
    if (config->route == WEFT_LL_RELAYED)
        return weft__invalid("route is WEFT_LL_RELAYED and on_missing is WEFT_LL_MASK: with masks "
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
        return weft__invalid("answer is %s, which layout WEFT_LL_BY_RANK has not: must be "
                             "WEFT_LL_ANSWER_SUMS or WEFT_LL_ANSWER_IN_SLOTS",
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
    return weft__invalid("carrier is %s (%d), which needs %s; max_tokens is %d, num_topk %d, "
                         "hidden %lld, of %d ranks the one with most experts has %d",
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
        return weft__invalid("within, or bytes_within, is given: on_missing must be WEFT_LL_MASK, "
                             "and route WEFT_LL_STRAIGHT");
    if (within == NULL)
        return WEFT_OK;
    WEFT__TRY(weft__check_unused(config->bytes_within, "bytes_within"));
    WEFT__TRY(weft__check_unused(config->network_bytes_within, "network_bytes_within"));
    WEFT__TRY(weft__object_check(WEFT__KIND_LL, within, "within"));
    if (within->ep->comm != ep->comm || within->heap_pieces.bytes == 0)
        return weft__invalid("within: it must be of the same communicator and have bytes_within");
    const uint32_t missing_ms = config->missing_ms > 0 ? config->missing_ms : ep->comm->timeout_ms;
    if (missing_ms != within->device.masks.absent_after_ms)
        return weft__invalid("missing_ms is %u, must be that of within, %u", missing_ms,
                             within->device.masks.absent_after_ms);
    return WEFT_OK;
}

static weft_result check_config(const weft_ep *ep, const weft_ll_config *config)
{
    const int64_t num_ranks = ep->comm->num_ranks;
    WEFT__TRY(
        weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)config->dtype, WEFT_BF16, WEFT_FP32, "dtype"));
    WEFT__TRY(weft__check_range(config->hidden, 1,
                                WEFT_MAX_ROW_BYTES / (int64_t)wp_dtype_bytes(WEFT_FP32), "hidden"));
    WEFT__TRY(weft__check_range(config->max_tokens, 1, WEFT_LL_MAX_TOKENS, "max_tokens"));
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
    WEFT__TRY(weft__check_range(config->num_results, 0, WP_NUM_BUFFERS, "num_results"));
    WEFT__TRY(check_answer(ep, config));
    WEFT__TRY(weft__check_wire(config->answer_dtype, "answer_dtype"));
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
    return weft__check_range(config->num_warps, 0, WEFT_MAX_WARPS, "num_warps");
}

/* Keeps the experts only if the configuration is right. */
static weft_result find_experts(weft_ep *ep, const weft_ll_config *config, weft_ep **experts)
{
    WEFT__TRY(weft__check_range(config->num_experts, 0, WEFT_MAX_EXPERTS, "num_experts"));
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
    WEFT__CHECK_MEMORY(nodes, "no memory for %d ranks", job->num_ranks);
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
    WEFT__TRY(weft__check_range(config.num_experts, 1, WEFT_MAX_EXPERTS, "num_experts"));
    if (config.within != NULL)
        return weft__invalid("within: it must be NULL, since a planned job has no memory");
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
    weft__log_low_latency(ep->comm, experts, &config);
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
    return weft__destroy(WEFT__KIND_LL, ll);
}

weft_result weft_ll_query_slots(const weft_ll *ll, weft_ll_slots *slots)
{
    weft_ll_slots found;
    WEFT__TRY(weft__object_check(WEFT__KIND_LL, ll, "ll"));
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_ll_slots, slots, "slots"));
    if (ll->device.plan.is_by_expert)
        return weft__invalid("ll: its layout is WEFT_LL_BY_EXPERT, whose rows are the caller's");
    weft__ll_query_slots(ll, &found);
    WEFT__WRITE(weft_ll_slots, slots, &found);
    return WEFT_OK;
}
