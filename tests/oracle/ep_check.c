/* SPDX-License-Identifier: MIT */
#include "oracle/ep_check.h"

#include "harness/memory.h"

/* The first that is wrong counts. */
static void tell(void *of, int is_right, const char *text)
{
    const struct ep_rank *self = of;
    if (!is_right && !ep_checker_failed())
        snprintf(ranks_self->failure, sizeof ranks_self->failure, "%s (case seed %llu, %d ranks)",
                 text, (unsigned long long)self->world->spec.seed, self->context->num_ranks);
}

struct ep_checker ep_checker_of(struct ep_rank *self)
{
    return (struct ep_checker){&self->world->problem, self->context->rank, tell, self};
}

int ep_checker_failed(void)
{
    return ranks_self->failure[0] != '\0';
}

/* The local experts of every rank, compared. */
static int check_placement(struct ep_rank *self)
{
    const int32_t num_ranks = self->world->spec.num_ranks;
    for (int32_t rank = 0; rank < num_ranks && self->world->spec.num_spare_experts == 0; rank++) {
        const int32_t num_local = self->world->problem.num_local_experts[rank];
        const int32_t got = weft_ep_num_local_experts(self->ep, rank);
        CHECK(got == num_local, "rank %d has %d experts, expected %d", rank, got, num_local);
        int32_t expected = -1;
        for (int32_t local = -1; local <= num_local; local++) {
            const int32_t expert = weft_ep_global_expert(self->ep, rank, local);
            if (local >= 0)
                expected = ep_experts_next(&self->world->experts, rank, expected);
            CHECK(expert == expected, "expert %d of rank %d is %d", local, rank, expert);
        }
    }
    CHECK(weft_ep_num_local_experts(self->ep, -1) == -1 &&
              weft_ep_num_local_experts(self->ep, num_ranks) == -1 &&
              weft_ep_global_expert(self->ep, num_ranks, 0) == -1,
          "experts on a rank that does not exist");
    return 0;
}

/* Differs for each rank and number of tokens. */
static int32_t tag_of(const struct ep_rank *self, int32_t rank)
{
    return 1000 * ep_oracle_num_tokens(&self->world->problem, rank) - 7 * rank - 1;
}

int ep_layout_args(struct ep_rank *self, weft_ep_layout_args *args)
{
    struct ep_inputs inputs;
    if (ep_rank_inputs(self, &inputs))
        return 1;
    *args = (weft_ep_layout_args)WEFT_INIT(weft_ep_layout_args);
    args->num_tokens = ep_oracle_num_tokens(&self->world->problem, self->context->rank);
    args->tag = tag_of(self, self->context->rank);
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
    CHECK_OK(weft_ep_layout(self->handle, &args, self->stream));
    CHECK_OK(weft_ep_notify(self->handle, self->stream));
    return 0;
}

/* The results of layout. */
struct layout {
    struct ep_array per_rank, per_node, per_expert, in_rank;
};

static int compare_layout(struct ep_rank *self, struct layout *got)
{
    struct ep_array *arrays[] = {&got->per_rank, &got->per_node, &got->per_expert, &got->in_rank};
    const struct ep_checker checker = ep_checker_of(self);
    for (int i = 0; i < 4; i++)
        if (ep_array_pull(self, arrays[i]))
            return 1;
    ep_oracle_check_layout(&checker,
                           &(struct ep_laid_out){got->per_rank.host, got->per_node.host,
                                                 got->per_expert.host, got->in_rank.host});
    for (int i = 0; i < 4 && !ep_checker_failed(); i++)
        if (ep_array_check_and_free(self, arrays[i], "a result of layout"))
            return 1;
    return ep_checker_failed();
}

int ep_check_layout(struct ep_rank *self)
{
    const struct ep_problem *problem = &self->world->problem;
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
    CHECK_OK(weft_ep_layout(self->handle, &args, self->stream));
    CHECK_OK(weft_stream_synchronize(self->stream));
    return compare_layout(self, &layout);
}

/* The same counts on the device, and the row after the last one of each source rank. */
static int compare_device_counts(struct ep_rank *self, const weft_ep_device_counts *device,
                                 weft_ep_counts counts)
{
    const size_t rank_bytes = sizeof(int32_t) * (size_t)self->context->num_ranks;
    const size_t expert_bytes = sizeof(int32_t) * (size_t)counts.num_local_experts;
    const struct ep_checker checker = ep_checker_of(self);
    int32_t *per_rank = tests_alloc(rank_bytes), *ends = tests_alloc(rank_bytes);
    int32_t *per_expert = tests_alloc(expert_bytes);
    int32_t *selections = tests_alloc(expert_bytes), *firsts = tests_alloc(expert_bytes);
    counts.num_recv_per_rank = per_rank;
    counts.num_recv_per_expert = per_expert;
    counts.num_selections_per_expert = selections;
    counts.first_row_per_expert = firsts;
    CHECK_OK(
        weft_memory_copy(self->comm, selections, device->num_selections_per_expert, expert_bytes));
    CHECK_OK(weft_memory_copy(self->comm, firsts, device->first_row_per_expert, expert_bytes));
    CHECK_OK(weft_memory_copy(self->comm, &counts.num_expanded_rows, device->num_expanded_rows,
                              sizeof(int32_t)));
    CHECK_OK(weft_memory_copy(self->comm, &counts.num_recv_tokens, device->num_recv_tokens,
                              sizeof(int32_t)));
    CHECK_OK(weft_memory_copy(self->comm, per_rank, device->num_recv_per_rank, rank_bytes));
    CHECK_OK(weft_memory_copy(self->comm, per_expert, device->num_recv_per_expert, expert_bytes));
    CHECK_OK(weft_memory_copy(self->comm, ends, device->recv_rank_ends, rank_bytes));
    ep_oracle_check_counts(&checker, &counts);
    ep_oracle_check_ends(&checker, ends);
    tests_free(per_rank);
    tests_free(per_expert);
    tests_free(selections);
    tests_free(firsts);
    tests_free(ends);
    return ep_checker_failed();
}

int ep_check_notify(struct ep_rank *self)
{
    const struct ep_checker checker = ep_checker_of(self);
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    weft_ep_device_counts device = WEFT_INIT(weft_ep_device_counts);
    CHECK_OK(weft_ep_notify(self->handle, self->stream));
    CHECK_OK(weft_ep_wait_counts(self->handle, &counts));
    CHECK_OK(weft_ep_query_device_counts(self->handle, &device));
    for (int32_t rank = 0; rank < self->context->num_ranks; rank++)
        CHECK(counts.tags[rank] == tag_of(self, rank), "the tag of rank %d is %d, not %d", rank,
              counts.tags[rank], tag_of(self, rank));
    ep_oracle_check_counts(&checker, &counts);
    return ep_checker_failed() || compare_device_counts(self, &device, counts);
}

int32_t ep_capacity_for(enum ep_capacity capacity, int32_t num_rows)
{
    switch (capacity) {
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

int32_t ep_capacity_of(const struct ep_world *world, enum ep_capacity capacity, int32_t rank)
{
    return ep_capacity_for(capacity == EP_CAPACITY_BY_RANK ? (enum ep_capacity)(rank % 4)
                                                           : capacity,
                           world->received[rank].num_rows);
}

int32_t ep_num_delivered(const struct ep_rank *self, const struct ep_dispatch *dispatch)
{
    const int32_t num_rows = self->world->received[self->context->rank].num_rows;
    return num_rows < dispatch->capacity ? num_rows : dispatch->capacity;
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
        CHECK_OK(weft_ep_check(self->handle, &num_dropped));
    else
        CHECK_ERROR(weft_ep_check(self->handle, &num_dropped), WEFT_ERROR_CAPACITY, "capacity");
    CHECK(num_dropped == expected, "%d rows dropped, expected %lld", num_dropped,
          (long long)expected);
    CHECK(weft_ep_check(self->handle, NULL) == (expected == 0 ? WEFT_OK : WEFT_ERROR_CAPACITY),
          "weft_ep_check without num_dropped");
    return 0;
}

int ep_check_dispatch(struct ep_rank *self, const struct ep_dispatch_shape *shape)
{
    struct ep_dispatch dispatch;
    struct ep_expand expand;
    if (ep_dispatch_issue(self, shape, &dispatch) || ep_expand_issue(self, &dispatch, &expand))
        return 1;
    CHECK_OK(weft_stream_synchronize(self->stream));
    return ep_expand_verify(self, &dispatch, &expand) || ep_dispatch_verify(self, &dispatch);
}

int ep_check_combine(struct ep_rank *self, const struct ep_combine_shape *shape)
{
    struct ep_combine combine;
    if (ep_combine_issue(self, shape, &combine))
        return 1;
    CHECK_OK(weft_stream_synchronize(self->stream));
    return ep_combine_verify(self, &combine);
}

int ep_pass_issue(struct ep_rank *self, struct ep_dispatch_shape dispatch,
                  struct ep_combine_shape combine, uint64_t round, struct ep_pass *pass)
{
    dispatch.round = combine.round = round;
    return ep_dispatch_issue(self, &dispatch, &pass->dispatch) ||
           ep_combine_issue(self, &combine, &pass->combine);
}

int ep_pass_verify(struct ep_rank *self, struct ep_pass *pass)
{
    return ep_dispatch_verify(self, &pass->dispatch) || ep_combine_verify(self, &pass->combine);
}

int ep_passes_verify(struct ep_rank *self, struct ep_pass *passes, int num_passes)
{
    CHECK_OK(weft_stream_synchronize(self->stream));
    for (int i = 0; i < num_passes; i++)
        if (ep_pass_verify(self, &passes[i]))
            return 1;
    return 0;
}

int ep_check_world(struct ep_rank *self, const struct ep_world *world,
                   const struct ep_dispatch_shape *dispatch, const struct ep_combine_shape *combine)
{
    return ep_rank_enter(self, world) || check_placement(self) || ep_check_layout(self) ||
           ep_check_notify(self) || ep_check_dispatch(self, dispatch) ||
           ep_check_dropped(self, &dispatch->capacity, 1) || ep_check_combine(self, combine) ||
           ep_rank_leave(self);
}

int ep_case_run(const struct ep_case *spec, enum ranks_mode mode, rank_function function)
{
    struct ep_world *world = ep_world_create(spec);
    const int num_failed = ranks_run(mode, spec->num_ranks, function, world);
    ep_world_destroy(world);
    return num_failed;
}
