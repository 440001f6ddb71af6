/* SPDX-License-Identifier: MIT */
/* A weft_ll: its memory, and how it comes and goes. */
#include "ep/low_latency.h"

#include "launch/names.h"
#include "programs/low_latency/ll_usual.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- memory of the rank */

/* Gives each table of the rank its place, from `memory` on. Returns the bytes of all. */
static uint64_t place_tables(struct wp_low_latency *device, int32_t num_ranks, int32_t num_warps,
                             void *memory)
{
    const struct wp_ll_plan *plan = &device->plan;
    const uint64_t blocks = (uint64_t)plan->num_blocks, ranks = (uint64_t)num_ranks;
    const uint64_t buffers = (uint64_t)plan->num_buffers, tokens = (uint64_t)plan->max_tokens;
    const uint64_t choices = tokens * (uint64_t)plan->num_topk;
    const int has_packets = wp_ll_has_packets(plan), has_nodes = plan->has_nodes;
    const int keeps_slots = has_nodes || plan->answers_stay;
    uint64_t offset = 0;
#define TABLE(field, num)                                                                          \
    device->field = (void *)((uintptr_t)memory + offset);                                          \
    offset += wp_ll_align((uint64_t)(num) * sizeof *device->field);
    TABLE(blocks, blocks)
    TABLE(choices, blocks * (uint64_t)plan->block_tokens * (uint64_t)plan->num_topk)
    TABLE(answering, buffers * choices)
    TABLE(counters, blocks * (uint64_t)wp_ll_num_counters(plan, num_ranks))
    TABLE(ranks_of_tokens, blocks * tokens * (uint64_t)wp_ll_rank_words(num_ranks))
    TABLE(expert_bases, plan->is_by_expert ? blocks * ranks * (uint64_t)plan->max_local_experts : 0)
    TABLE(packed_choices, plan->is_by_expert ? buffers * ranks * choices : 0)
    TABLE(sums,
          wp_ll_has_node_sums(plan) ? blocks * (uint64_t)num_warps * wp_ll_sum_bytes(plan) : 0)
    TABLE(received_buffer, 1)
    TABLE(masks.mask, ranks)
    TABLE(masks.missing, blocks * ranks)
    TABLE(masks.verdicts, ranks)
    TABLE(masks.num_blocks_done, 1)
    TABLE(network.taken, has_nodes ? WP_LL_NUM_PAYLOADS * buffers * ranks * blocks : 0)
    TABLE(answer_slots, keeps_slots ? buffers * choices : 0)
    TABLE(network.told_epochs, has_nodes ? WP_LL_NUM_PAYLOADS * ranks * blocks : 0)
    TABLE(network.relayed_rows, tokens * (uint64_t)plan->message.num_nodes)
    TABLE(num_rows, buffers * ranks)
    TABLE(row_targets, has_packets ? buffers * ranks * tokens : 0)
    TABLE(rows_taken, ranks)
    TABLE(parts_left, plan->is_by_expert ? plan->max_local_experts : 0)
    TABLE(num_blocks_told, 1)
#undef TABLE
    return offset;
}

static uint64_t tables_bytes(const struct wp_ll_plan *plan, int32_t num_ranks, int32_t num_warps)
{
    struct wp_low_latency device = {.plan = *plan};
    return place_tables(&device, num_ranks, num_warps, NULL);
}

static weft_result allocate_tables(weft_ll *ll)
{
    weft_comm *comm = ll->ep->comm;
    const int32_t num_ranks = comm->num_ranks, num_warps = ll->grid.num_warps;
    const uint64_t bytes = tables_bytes(&ll->device.plan, num_ranks, num_warps);
    WEFT__TRY(weft__machine_of(comm)->alloc(comm, bytes, &ll->tables));
    (void)place_tables(&ll->device, num_ranks, num_warps, ll->tables);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- grid */

static enum weft__work_kind work_kind_of(const struct wp_ll_plan *plan)
{
    if (wp_ll_has_packets(plan))
        return plan->is_by_expert && !plan->is_told ? WEFT__WORK_FEW_PACKED_ROWS_IN_PACKETS
                                                    : WEFT__WORK_FEW_ROWS_IN_PACKETS;
    return plan->is_by_expert ? WEFT__WORK_FEW_PACKED_ROWS : WEFT__WORK_FEW_ROWS;
}

/* By the tokens that there may be, since all launches have as many blocks. */
static struct weft__grid choose_grid(const weft_ep *ep, const weft_ll_config *config,
                                     const struct wp_ll_plan *plan, enum weft__work_kind kind)
{
    const int32_t num_ranks = ep->comm->num_ranks;
    const int32_t num_sent = wp_ll_num_taken_units(plan, num_ranks);
    const int32_t num_answered = wp_ll_num_answer_units(plan, num_ranks);
    const struct weft__work work = {kind, plan->max_tokens,
                                    (uint64_t)plan->hidden * wp_dtype_bytes(plan->dtype), num_sent,
                                    num_sent > num_answered ? num_sent : num_answered};
    struct weft__grid grid = weft__machine_of(ep->comm)->choose_grid(ep->comm, &work);
    if (config->num_blocks > 0)
        grid.num_blocks = config->num_blocks;
    else if (config->within != NULL && !config->within->ranks_are_alike)
        grid.num_blocks = config->within->grid.num_blocks;
    if (config->num_warps > 0) {
        grid.num_warps = config->num_warps;
        grid.num_receiver_warps = grid.num_warps > num_ranks ? num_ranks : 0;
    }
    return grid;
}

/* Whose warps need not hear of choices. */
static int32_t choose_combine_warps(const weft_ep *ep, const weft_ll_config *config,
                                    const struct wp_ll_plan *plan)
{
    const enum weft__work_kind kind =
        wp_ll_has_packets(plan) ? WEFT__WORK_FEW_ROWS_IN_PACKETS : work_kind_of(plan);
    return choose_grid(ep, config, plan, kind).num_warps;
}

weft_result weft__ll_query_sizes(const weft_ep *ep, const weft_ll_config *config,
                                 weft_ll_sizes *sizes)
{
    const weft_comm *comm = ep->comm;
    struct wp_ll_plan plan = weft__ll_plan(ep, config);
    const struct weft__grid grid = choose_grid(ep, config, &plan, work_kind_of(&plan));
    weft__ll_plan_blocks(comm, config, grid.num_blocks, &plan);
    uint64_t network_bytes;
    (void)weft__ll_plan_network(comm, &plan, &network_bytes);
    const int32_t num_local = weft__placement_num_local(&ep->placement, comm->rank);
    const struct weft__ll_carrier choice = weft__ll_choose_carrier(ep, config);
    *sizes = (weft_ll_sizes){
        .heap_bytes = wp_mailbox_bytes(comm->num_ranks, plan.num_blocks) +
                      wp_ll_offsets_of(&plan, comm->num_ranks).end + config->bytes_within,
        .memory_bytes = tables_bytes(&plan, comm->num_ranks, grid.num_warps),
        .rows_bytes = (uint64_t)num_local * (uint64_t)plan.capacity * plan.row_bytes,
        .scales_bytes = (uint64_t)num_local * (uint64_t)plan.capacity * plan.scales_bytes,
        .num_local_experts = num_local,
        .expert_capacity = plan.capacity,
        .network_bytes = network_bytes + (plan.has_nodes ? config->network_bytes_within : 0),
        .carrier = choice.carrier,
    };
    if (choice.lacks != NULL)
        snprintf(sizes->carrier_reason, sizeof sizes->carrier_reason,
                 "%s would be faster, but needs %s",
                 weft__constant_name(WEFT__ENUM_LL_CARRIER, (int64_t)choice.wanted), choice.lacks);
    return config->within == NULL ? WEFT_OK
                                  : weft__ll_check_room_within(config->within, sizes->heap_bytes,
                                                               sizes->network_bytes);
}

/* If ranks are told: of dispatch. */
static int64_t num_units_of(const weft_ll *ll)
{
    const struct wp_ll_plan *plan = &ll->device.plan;
    const int32_t num_ranks = ll->ep->comm->num_ranks;
    return (int64_t)wp_ll_num_told_units(plan, num_ranks) +
           (int64_t)plan->max_tokens * plan->row_parts.num + wp_ll_num_taken_units(plan, num_ranks);
}

static int64_t num_warps_of(const weft_ll *ll)
{
    return (int64_t)ll->grid.num_blocks * ll->grid.num_warps;
}

/* Percent of the blocks that only receive. Measured on 4x H200, 128 tokens:
 * dispatch of BF16 takes 21.5 us by rank and 23.0 by expert with 75, 21.0 and 22.0 with 84, 21.0
 * and 21.6 with 88, 22.4 and 23.1 with 92; of FP8, which takes long to make, 14.7 and 15.8 with 75,
 * 14.4 and 17.2 with 71, 15.1 and 16.1 with 79. Combine by rank takes 19.5 with 75, 19.2 with 70,
 * 20.0 with 80; by expert, where who sends makes sums of rows, 22.4 with 50, 21.1 with 58, 24.1
 * with 64. Between two ranks, where each part goes to one other rank, so that more blocks are
 * needed for the links, dispatch of BF16 by rank takes 11.0 with 75 and 14.0 with 88; combine by
 * expert 15.3 with 50, 16.0 with 58. */
enum {
    RECEIVERS_OF_BF16_ROWS = 88, /* in the usual form (programs/low_latency/ll_usual.h) */
    RECEIVERS_OF_ROWS = 75,
    RECEIVERS_OF_SUMS_BY_RANK = 75,
    RECEIVERS_OF_SUMS_BY_EXPERT = 58,
    RECEIVERS_OF_SUMS_OF_A_PAIR = 50 /* by expert */
};
static int32_t choose_receivers(const weft_ll *ll, int32_t percent)
{
    const int32_t num_receivers = ll->grid.num_blocks * percent / 100;
    if (!ll->device.plan.is_told || ll->grid.num_blocks == 1 ||
        num_units_of(ll) <= num_warps_of(ll))
        return 0;
    return num_receivers > 0 ? num_receivers : 1;
}

static int is_pair(const weft_ll *ll)
{
    return ll->ep->comm->num_ranks == 2;
}

static int32_t choose_dispatch_receivers(const weft_ll *ll)
{
    const int go_as_they_are = wp_ll_form_of(&ll->device) == WP_LL_BF16;
    return choose_receivers(ll, go_as_they_are && !is_pair(ll) ? RECEIVERS_OF_BF16_ROWS
                                                               : RECEIVERS_OF_ROWS);
}

static int32_t choose_combine_receivers(const weft_ll *ll)
{
    if (!ll->device.plan.is_by_expert)
        return choose_receivers(ll, RECEIVERS_OF_SUMS_BY_RANK);
    return choose_receivers(ll, is_pair(ll) ? RECEIVERS_OF_SUMS_OF_A_PAIR
                                            : RECEIVERS_OF_SUMS_BY_EXPERT);
}

/* ---------------------------------------------------------------- creation */

struct contribution {
    int64_t hidden, max_tokens, num_topk, dtype, layout, num_experts, expert_capacity, num_results;
    int64_t answer, answer_dtype, narrow_dtype, scale, group_elements, on_missing, missing_ms;
    int64_t route, carrier, bytes_within, network_bytes_within;
    int64_t num_blocks;  /* may differ: the least counts */
    int64_t most_blocks; /* may differ: decides ranks_are_alike */
};
static const struct weft__term terms[] = {
    {WEFT__TERM(struct contribution, hidden)},
    {WEFT__TERM(struct contribution, max_tokens)},
    {WEFT__TERM(struct contribution, num_topk)},
    {WEFT__TERM(struct contribution, dtype)},
    {WEFT__TERM(struct contribution, layout)},
    {WEFT__TERM(struct contribution, num_experts)},
    {WEFT__TERM(struct contribution, expert_capacity)},
    {WEFT__TERM(struct contribution, num_results)},
    {WEFT__TERM(struct contribution, answer)},
    {WEFT__TERM(struct contribution, answer_dtype)},
    {"quantisation.dtype", offsetof(struct contribution, narrow_dtype), NULL},
    {"quantisation.scale", offsetof(struct contribution, scale), NULL},
    {"quantisation.group_elements", offsetof(struct contribution, group_elements), NULL},
    {WEFT__TERM(struct contribution, on_missing)},
    {WEFT__TERM(struct contribution, missing_ms)},
    {WEFT__TERM(struct contribution, route)},
    {WEFT__TERM(struct contribution, carrier)},
    {WEFT__TERM(struct contribution, bytes_within)},
    {WEFT__TERM(struct contribution, network_bytes_within)},
};

/* The number of blocks for the most work that a weft_ll can have. */
static int32_t most_blocks(weft_comm *comm)
{
    const struct weft__work work = {WEFT__WORK_FEW_PACKED_ROWS, WEFT_LL_MAX_TOKENS, 1 << 15,
                                    INT32_MAX, INT32_MAX};
    return weft__machine_of(comm)->choose_grid(comm, &work).num_blocks;
}

static weft_result agree(weft_ll *ll, const weft_ll_config *config)
{
    weft_comm *comm = ll->ep->comm;
    const struct wp_ll_plan *plan = &ll->device.plan;
    const struct contribution own = {
        .hidden = plan->hidden,
        .max_tokens = plan->max_tokens,
        .num_topk = plan->num_topk,
        .dtype = plan->dtype,
        .layout = config->layout,
        .num_experts = ll->ep->placement.host.num_experts,
        .expert_capacity = plan->capacity,
        .num_results = plan->num_buffers,
        .answer = config->answer,
        .answer_dtype = plan->answer_dtype,
        .narrow_dtype = config->quantisation.dtype,
        .scale = config->quantisation.scale,
        .group_elements = plan->quantisation.group_elements,
        .on_missing = config->on_missing,
        .missing_ms = ll->device.masks.absent_after_ms,
        .route = config->route,
        .carrier = config->carrier,
        .bytes_within = (int64_t)config->bytes_within,
        .network_bytes_within = (int64_t)config->network_bytes_within,
        .num_blocks = ll->grid.num_blocks,
        .most_blocks = most_blocks(comm),
    };
    weft_result result;
    struct contribution *all = weft__comm_gather_new(comm, WEFT_OK, &own, sizeof own, &result);
    if (all == NULL)
        return result;
    result = weft__comm_compare(comm, all, sizeof *all, terms, sizeof terms / sizeof *terms);
    ll->ranks_are_alike = 1;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (all[rank].num_blocks < ll->grid.num_blocks)
            ll->grid.num_blocks = (int32_t)all[rank].num_blocks;
        ll->ranks_are_alike &= all[rank].most_blocks == own.most_blocks;
    }
    free(all);
    return result;
}

static void place_areas(weft_ll *ll)
{
    struct wp_low_latency *device = &ll->device;
    const weft_comm *comm = ll->ep->comm;
    char *const *bases = weft__heap_bases(comm->heap); /* NULL: of another node */
    device->area = bases[comm->rank] + device->area_offset;
    for (int32_t rank = 0; rank < comm->num_ranks && rank < WP_LL_NEAR_RANKS; rank++)
        device->near_areas[rank] = bases[rank] == NULL ? NULL : bases[rank] + device->area_offset;
}

/* The memory for each weft_ll within this one follows its area. */
static weft_result create_exchange(weft_ll *ll, const weft_ll_config *config)
{
    weft_comm *comm = ll->ep->comm;
    const uint64_t area_bytes = wp_ll_offsets_of(&ll->device.plan, comm->num_ranks).end;
    WEFT__TRY(weft__exchange_create(comm, NULL, ll->grid.num_blocks,
                                    area_bytes + config->bytes_within, &ll->exchange));
    ll->heap_pieces =
        (struct weft__ll_pieces){.memory = weft__heap_bases(comm->heap)[comm->rank] +
                                           weft__exchange_extra_offset(ll->exchange) + area_bytes,
                                 .bytes = config->bytes_within};
    return WEFT_OK;
}

static void describe(weft_ll *ll, const weft_ll_config *config)
{
    const weft_comm *comm = ll->ep->comm;
    struct wp_low_latency *device = &ll->device;
    device->plan = weft__ll_plan(ll->ep, config);
    device->placement = ll->ep->placement.device;
    device->num_local_experts = weft__placement_num_local(&ll->ep->placement, comm->rank);
    ll->grid = choose_grid(ll->ep, config, &device->plan, work_kind_of(&device->plan));
    ll->combine_warps = choose_combine_warps(ll->ep, config, &device->plan);
    if (work_kind_of(&device->plan) == WEFT__WORK_FEW_PACKED_ROWS_IN_PACKETS)
        device->num_receiver_warps = ll->grid.num_receiver_warps;
    if (config->on_missing == WEFT_LL_MASK)
        device->masks.absent_after_ms =
            config->missing_ms > 0 ? config->missing_ms : comm->timeout_ms;
}

static weft_result set_up(weft_ll *ll, const weft_ll_config *config)
{
    weft_comm *comm = ll->ep->comm;
    struct wp_low_latency *device = &ll->device;
    uint64_t network_bytes;
    if (ll->own_ep != NULL)
        WEFT__TRY(weft__ll_agree(ll, weft__ep_upload(ll->own_ep), "have the experts of a weft_ll"));
    describe(ll, config);
    if (ll->within == NULL)
        WEFT__TRY(agree(ll, config));
    device->num_receivers = choose_dispatch_receivers(ll);
    ll->combine_receivers = choose_combine_receivers(ll);
    weft__ll_plan_blocks(comm, config, ll->grid.num_blocks, &device->plan);
    device->network = weft__ll_plan_network(comm, &device->plan, &network_bytes);
    WEFT__TRY(weft__ll_agree(ll, allocate_tables(ll), "have the tables of a weft_ll"));
    WEFT__TRY(ll->within == NULL ? create_exchange(ll, config) : weft__ll_exchange_within(ll));
    device->exchange = ll->exchange->device;
    device->area_offset = weft__exchange_extra_offset(ll->exchange);
    device->offsets = wp_ll_offsets_of(&device->plan, comm->num_ranks);
    device->near = wp_ll_near_of(&device->plan, &device->masks, comm->num_ranks);
    place_areas(ll);
    device->share_of_sources =
        weft__ll_share_of_sources(&device->plan, comm->num_ranks, ll->grid.num_warps);
    WEFT__TRY(weft__ll_network_create(ll, network_bytes, config->network_bytes_within));
    if (ll->within != NULL)
        weft__ll_take_pieces(ll, network_bytes);
    return WEFT_OK;
}

/* With masks the death of a rank is no longer the communicator's failure when all ranks have agreed
 * here. Each begins to see it so before, and looks behind whether it had failed by then: so nobody
 * goes on while another one still takes a death for a failure. */
static weft_result go_on_without_the_dead(weft_ll *ll)
{
    weft_comm *comm = ll->ep->comm;
    atomic_fetch_add(&comm->status.num_tolerant, 1);
    ll->goes_on_without_the_dead = 1;
    /* Ranks may go on without a late one, and may make different objects: counts prove nothing. */
    weft__standing_forget(&comm->standing);
    WEFT__TRY(weft__comm_agree(comm, WEFT_OK, "go on without a rank that dies"));
    return weft__status_check(&comm->status);
}

/* To ranks for which a death is no failure any more, who leaves for it would seem to be the
 * culprit. */
static void tell_why_it_leaves(weft_comm *comm)
{
    if (atomic_load(&comm->status.result) != WEFT_OK)
        weft__comm_tell_failure(comm);
}

weft_result weft__ll_experts_of(weft_ep *ep, const weft_ll_config *config, weft_ep **experts)
{
    const weft_ep_config of_ep = {.num_experts = (int32_t)config->num_experts,
                                  .max_topk = ep->max_topk};
    *experts = ep;
    return config->num_experts == 0 ? WEFT_OK : weft__ep_create_experts(ep->comm, &of_ep, experts);
}

void weft__ll_drop_experts(weft_ep *ep, weft_ep *experts)
{
    if (experts != ep)
        weft__ep_destroy(experts);
}

static weft_ll *new_ll(weft_comm *comm, const weft_ll_config *config, weft_result *result)
{
    weft_ll *ll;
    if (config->within == NULL)
        return weft__comm_calloc(comm, sizeof *ll, "have a weft_ll", result);
    ll = calloc(1, sizeof *ll);
    if (ll == NULL)
        *result = weft__no_memory("no memory for a weft_ll");
    return ll;
}

static weft_result read_mask(const struct weft__masked *masked, int32_t *mask)
{
    const weft_ll *ll =
        (const weft_ll *)(const void *)((const char *)masked - offsetof(weft_ll, masked));
    weft_comm *comm = ll->ep->comm;
    return weft__machine_of(comm)->copy(comm, mask, ll->device.masks.mask,
                                        (uint64_t)comm->num_ranks * sizeof *mask);
}

weft_result weft__ll_create(weft_ep *ep, weft_ep *experts, const weft_ll_config *config,
                            weft_ll **out)
{
    weft_result result;
    weft_ll *ll = new_ll(ep->comm, config, &result);
    if (ll == NULL) {
        weft__ll_drop_experts(ep, experts);
        return result;
    }
    ll->ep = experts;
    ll->own_ep = experts != ep ? experts : NULL;
    ll->within = config->within;
    result = set_up(ll, config);
    if (result == WEFT_OK && ll->within == NULL && wp_ll_has_masks(&ll->device.masks))
        result = go_on_without_the_dead(ll);
    if (result != WEFT_OK) {
        if (ll->within == NULL)
            tell_why_it_leaves(ep->comm);
        weft__ll_destroy(ll);
        return result;
    }
    if (ll->goes_on_without_the_dead) {
        ll->masked.read = read_mask;
        weft__comm_add_masked(ep->comm, &ll->masked);
    }
    *out = ll;
    return WEFT_OK;
}

void weft__ll_destroy(weft_ll *ll)
{
    weft_comm *comm = ll->ep->comm;
    weft__comm_remove_masked(comm, &ll->masked);
    if (ll->exchange != NULL && ll->device.plan.answers_stay && ll->issued.answers_sent > 0)
        (void)weft__ll_leave(
            ll); /* it fails where the communicator has, and nobody reads any more */
    if (ll->exchange != NULL)
        weft__exchange_wait(ll->exchange);
    /* It waits until the others have what they were sent, whoever has died or left meanwhile. */
    weft__ll_network_destroy(ll);
    if (ll->goes_on_without_the_dead)
        atomic_fetch_sub(&comm->status.num_tolerant, 1);
    weft__exchange_destroy(ll->exchange);
    weft__machine_of(comm)->free(comm, ll->tables);
    if (ll->is_within_taken)
        ll->within->num_within--;
    if (ll->own_ep != NULL)
        weft__ep_destroy(ll->own_ep);
    free(ll);
}

void weft__ll_query_slots(const weft_ll *ll, weft_ll_slots *slots)
{
    const struct wp_ll_plan *plan = &ll->device.plan;
    const int32_t num_ranks = ll->ep->comm->num_ranks;
    const char *rows = weft__heap_bases(ll->ep->comm->heap)[ll->ep->comm->rank] +
                       ll->device.area_offset + ll->device.offsets.rows;
    *slots = (weft_ll_slots){
        .row_stride_bytes = plan->slot.bytes,
        .source_stride_bytes = plan->slot.bytes * (uint64_t)plan->max_tokens,
        .half = ll->device.received_buffer,
    };
    for (int32_t buffer = 0; buffer < plan->num_buffers; buffer++) {
        const char *first =
            rows + (uint64_t)buffer * (uint64_t)num_ranks * slots->source_stride_bytes;
        slots->x[buffer] = first;
        if (plan->scales_bytes > 0)
            slots->scales[buffer] = first + plan->slot.scales_offset;
        slots->experts[buffer] = (const void *)(first + plan->slot.experts_offset);
        slots->topk_weights[buffer] = (const void *)(first + plan->slot.weights_offset);
        slots->src_token[buffer] = (const void *)(first + plan->slot.token_offset);
    }
}
