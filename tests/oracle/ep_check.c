/* SPDX-License-Identifier: MIT */
#include "oracle/ep_check.h"

#include <string.h>

#include "harness/memory.h"

static const struct ep_oracle_tokens *own_tokens(const struct ep_rank *self)
{
    return &self->world->problem.tokens[self->context->rank];
}

/* The local experts of every rank, compared. */
static int check_placement(struct ep_rank *self)
{
    const struct ep_oracle_problem *problem = &self->world->problem;
    const int32_t num_ranks = problem->num_ranks;
    for (int32_t rank = 0; rank < num_ranks && self->world->spec.num_spare_experts == 0; rank++) {
        const int32_t num_local = ep_oracle_num_local_experts(problem, rank);
        const int32_t got = weft_ep_num_local_experts(self->ep, rank);
        RANK_CHECK(self->context, got == num_local, "rank %d has %d experts, expected %d", rank,
                   got, num_local);
        for (int32_t local = -1; local <= num_local; local++) {
            const int32_t expert = weft_ep_global_expert(self->ep, rank, local);
            RANK_CHECK(self->context, expert == ep_oracle_global_expert(problem, rank, local),
                       "expert %d of rank %d is %d", local, rank, expert);
        }
    }
    RANK_CHECK(self->context,
               weft_ep_num_local_experts(self->ep, -1) == -1 &&
                   weft_ep_num_local_experts(self->ep, num_ranks) == -1 &&
                   weft_ep_global_expert(self->ep, num_ranks, 0) == -1,
               "experts on a rank that does not exist");
    return 0;
}

int ep_layout_args(struct ep_rank *self, weft_ep_layout_args *args)
{
    struct ep_inputs inputs;
    if (ep_rank_inputs(self, &inputs))
        return 1;
    *args = (weft_ep_layout_args)WEFT_INIT(weft_ep_layout_args);
    args->num_tokens = own_tokens(self)->num_tokens;
    if (self->world->spec.routed_by == EP_ROUTED_BY_TABLE) {
        args->tokens_to_ranks = inputs.tokens_to_ranks;
        args->selections_per_expert = inputs.selections;
        return 0;
    }
    args->index_type = self->world->spec.index_type;
    args->topk_idx = inputs.topk_idx;
    return 0;
}

int ep_route(struct ep_rank *self)
{
    weft_ep_layout_args args;
    if (ep_layout_args(self, &args))
        return 1;
    RANK_CHECK_OK(self->context, weft_ep_layout(self->handle, &args, self->stream));
    RANK_CHECK_OK(self->context, weft_ep_notify(self->handle, self->stream));
    return 0;
}

/* The results of layout. */
struct layout {
    struct ep_array per_rank, per_node, per_expert, in_rank;
};

static int compare_and_free(struct ep_rank *self, struct ep_array *got, const void *expected,
                            const char *name)
{
    return ep_array_pull(self, got) || ep_compare(self, got->host, expected, got->bytes, name, 0) ||
           ep_array_check_and_free(self, got, name);
}

static int compare_layout(struct ep_rank *self, struct layout *got)
{
    const struct ep_oracle_layout expected = {
        tests_alloc(got->per_rank.bytes), tests_alloc(got->per_node.bytes),
        tests_alloc(got->per_expert.bytes), tests_alloc(got->in_rank.bytes)};
    ep_oracle_layout(&self->world->problem, self->context->rank, &expected);
    const int failed =
        compare_and_free(self, &got->per_rank, expected.num_tokens_per_rank,
                         "num_tokens_per_rank") ||
        compare_and_free(self, &got->per_node, expected.num_tokens_per_node,
                         "num_tokens_per_node") ||
        compare_and_free(self, &got->per_expert, expected.num_tokens_per_expert,
                         "num_tokens_per_expert") ||
        compare_and_free(self, &got->in_rank, expected.is_token_in_rank, "is_token_in_rank");
    tests_free(expected.num_tokens_per_rank);
    tests_free(expected.num_tokens_per_node);
    tests_free(expected.num_tokens_per_expert);
    tests_free(expected.is_token_in_rank);
    return failed;
}

int ep_check_layout(struct ep_rank *self)
{
    const struct ep_oracle_problem *problem = &self->world->problem;
    const uint64_t num_ranks = (uint64_t)problem->num_ranks;
    weft_ep_layout_args args;
    struct layout layout;
    if (ep_layout_args(self, &args) ||
        ep_array_alloc(self, &layout.per_rank, EP_OWN, 4 * num_ranks, 0) ||
        ep_array_alloc(self, &layout.per_node, EP_OWN, 4 * (uint64_t)problem->num_nodes, 0) ||
        ep_array_alloc(self, &layout.per_expert, EP_OWN, 4 * (uint64_t)problem->num_experts, 0) ||
        ep_array_alloc(self, &layout.in_rank, EP_OWN, (uint64_t)args.num_tokens * num_ranks, 1))
        return 1;
    args.num_tokens_per_rank = layout.per_rank.data;
    args.num_tokens_per_node = layout.per_node.data;
    args.num_tokens_per_expert = layout.per_expert.data;
    args.is_token_in_rank = layout.in_rank.data;
    RANK_CHECK_OK(self->context, weft_ep_layout(self->handle, &args, self->stream));
    RANK_CHECK_OK(self->context, weft_stream_synchronize(self->stream));
    return compare_layout(self, &layout);
}

static int32_t max_recv_tokens(const struct ep_world *world)
{
    int32_t most = 0;
    for (int32_t rank = 0; rank < world->spec.num_ranks; rank++)
        most = world->received[rank].num_rows > most ? world->received[rank].num_rows : most;
    return most;
}

/* The row after the last one of each source rank. */
static int compare_ends(struct ep_rank *self, const int32_t *device_ends)
{
    const size_t num_ranks = (size_t)self->context->num_ranks;
    const int32_t *num_per_rank = self->world->received[self->context->rank].num_per_rank;
    int32_t *ends = tests_alloc(num_ranks * 4), *expected = tests_alloc(num_ranks * 4);
    int32_t end = 0;
    for (size_t rank = 0; rank < num_ranks; rank++)
        expected[rank] = end += num_per_rank[rank];
    RANK_CHECK_OK(self->context, weft_memory_copy(self->comm, ends, device_ends, num_ranks * 4));
    const int failed = ep_compare(self, ends, expected, num_ranks * 4, "recv_rank_ends", 0);
    tests_free(ends);
    tests_free(expected);
    return failed;
}

static int compare_counts(struct ep_rank *self, const weft_ep_counts *counts)
{
    const struct ep_oracle_received *expected = &self->world->received[self->context->rank];
    const uint64_t per_expert_bytes = 4 * (uint64_t)expected->num_local_experts;
    return ep_compare(self, &counts->num_recv_tokens, &expected->num_rows, 4, "num_recv_tokens",
                      0) ||
           ep_compare(self, counts->num_recv_per_rank, expected->num_per_rank,
                      4 * (uint64_t)self->context->num_ranks, "num_recv_per_rank", 0) ||
           ep_compare(self, counts->num_recv_per_expert, expected->num_per_expert, per_expert_bytes,
                      "num_recv_per_expert", 0);
}

static int compare_device_counts(struct ep_rank *self, const weft_ep_device_counts *device)
{
    const size_t num_experts = (size_t)self->world->received[self->context->rank].num_local_experts;
    const size_t num_ranks = (size_t)self->context->num_ranks;
    int32_t *per_rank = tests_alloc(num_ranks * 4);
    int32_t *per_expert = tests_alloc(num_experts * 4);
    weft_ep_counts counts = {.num_recv_per_rank = per_rank, .num_recv_per_expert = per_expert};
    RANK_CHECK_OK(self->context, weft_memory_copy(self->comm, &counts.num_recv_tokens,
                                                  device->num_recv_tokens, 4));
    RANK_CHECK_OK(self->context,
                  weft_memory_copy(self->comm, per_rank, device->num_recv_per_rank, num_ranks * 4));
    RANK_CHECK_OK(self->context, weft_memory_copy(self->comm, per_expert,
                                                  device->num_recv_per_expert, num_experts * 4));
    const int failed = compare_counts(self, &counts);
    tests_free(per_rank);
    tests_free(per_expert);
    return failed;
}

static int comes_to_node(const struct ep_world *world, int32_t source, int32_t token,
                         int32_t first_rank, int32_t num_ranks)
{
    for (int32_t rank = first_rank; rank < first_rank + num_ranks; rank++)
        if (world->received[rank].row_of_source_token[source][token] >= 0)
            return 1;
    return 0;
}

/* Tokens for any rank of this one's node, of the ranks that have its index in the other nodes. */
static int32_t num_relayed_tokens(const struct ep_world *world, int32_t rank)
{
    const struct ep_oracle_problem *problem = &world->problem;
    const int32_t num_local = problem->num_ranks / problem->num_nodes;
    const int32_t first_rank = rank / num_local * num_local;
    int32_t num_tokens = 0;
    for (int32_t source = rank % num_local; source < problem->num_ranks; source += num_local) {
        for (int32_t token = 0; source != rank && token < problem->tokens[source].num_tokens;
             token++)
            num_tokens += comes_to_node(world, source, token, first_rank, num_local);
    }
    return num_tokens;
}

int ep_check_notify(struct ep_rank *self)
{
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    weft_ep_device_counts device = WEFT_INIT(weft_ep_device_counts);
    RANK_CHECK_OK(self->context, weft_ep_notify(self->handle, self->stream));
    RANK_CHECK_OK(self->context, weft_ep_wait_counts(self->handle, &counts));
    RANK_CHECK_OK(self->context, weft_ep_query_device_counts(self->handle, &device));
    RANK_CHECK(self->context,
               counts.num_local_experts ==
                   self->world->received[self->context->rank].num_local_experts,
               "num_local_experts is %d", counts.num_local_experts);
    RANK_CHECK(self->context,
               counts.num_relayed_tokens == num_relayed_tokens(self->world, self->context->rank),
               "num_relayed_tokens is %d", counts.num_relayed_tokens);
    RANK_CHECK(self->context, counts.max_recv_tokens == max_recv_tokens(self->world),
               "max_recv_tokens is %d, expected %d", counts.max_recv_tokens,
               max_recv_tokens(self->world));
    return compare_counts(self, &counts) || compare_device_counts(self, &device) ||
           compare_ends(self, device.recv_rank_ends);
}

int32_t ep_capacity_of(const struct ep_world *world, enum ep_capacity capacity, int32_t rank)
{
    const int32_t num_rows = world->received[rank].num_rows;
    switch (capacity == EP_CAPACITY_BY_RANK ? (enum ep_capacity)(rank % 4) : capacity) {
    case EP_CAPACITY_MORE:
        return num_rows + 3;
    case EP_CAPACITY_LESS:
        return num_rows / 2;
    case EP_CAPACITY_ZERO:
        return 0;
    default:
        return num_rows;
    }
}

int ep_check_dropped(struct ep_rank *self, const enum ep_capacity *capacities, int num)
{
    const int32_t rank = self->context->rank;
    const int32_t num_rows = self->world->received[rank].num_rows;
    int64_t expected = 0;
    int32_t num_dropped = -1;
    for (int i = 0; i < num; i++) {
        const int64_t dropped = num_rows - ep_capacity_of(self->world, capacities[i], rank);
        expected = dropped > expected ? dropped : expected;
    }
    if (expected == 0)
        RANK_CHECK_OK(self->context, weft_ep_check(self->handle, &num_dropped));
    else
        RANK_CHECK_ERROR(self->context, weft_ep_check(self->handle, &num_dropped),
                         WEFT_ERROR_CAPACITY, "capacity");
    RANK_CHECK(self->context, num_dropped == expected, "%d rows dropped, expected %lld",
               num_dropped, (long long)expected);
    RANK_CHECK(self->context,
               weft_ep_check(self->handle, NULL) == (expected == 0 ? WEFT_OK : WEFT_ERROR_CAPACITY),
               "weft_ep_check without num_dropped");
    return 0;
}

int ep_check_dispatch(struct ep_rank *self, const struct ep_dispatch_shape *shape)
{
    struct ep_dispatch dispatch;
    if (ep_dispatch_issue(self, shape, &dispatch))
        return 1;
    RANK_CHECK_OK(self->context, weft_stream_synchronize(self->stream));
    return ep_dispatch_verify(self, &dispatch);
}

int ep_check_combine(struct ep_rank *self, const struct ep_combine_shape *shape)
{
    struct ep_combine combine;
    if (ep_combine_issue(self, shape, &combine))
        return 1;
    RANK_CHECK_OK(self->context, weft_stream_synchronize(self->stream));
    return ep_combine_verify(self, &combine);
}

int ep_check_world(struct ep_rank *self, const struct ep_world *world,
                   const struct ep_dispatch_shape *dispatch, const struct ep_combine_shape *combine)
{
    return ep_rank_enter(self, world) || check_placement(self) || ep_check_layout(self) ||
           ep_check_notify(self) || ep_check_dispatch(self, dispatch) ||
           ep_check_dropped(self, &dispatch->capacity, 1) || ep_check_combine(self, combine) ||
           ep_rank_leave(self);
}
