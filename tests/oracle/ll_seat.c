/* SPDX-License-Identifier: MIT */
#include "oracle/ll_seat.h"

#include "oracle/ll_late.h"

#include "harness/memory.h"
#include "workload/elements.h"

int ll_seat_is_by_expert(const struct ll_seat *seat)
{
    return seat->problem->layout == WEFT_LL_BY_EXPERT;
}

/* By columns with what lies between. */
static uint64_t row_scale_bytes(const struct ll_seat *seat, const weft_ll_config *config)
{
    return seat->column_bytes > 0 ? 2 * (uint64_t)ll_num_groups(config) * sizeof(float)
                                  : ll_scale_bytes(config);
}

static int problem_has_masks(const struct ll_seat *seat)
{
    return seat->problem->on_missing == WEFT_LL_MASK;
}

static int open_step(struct ll_seat *seat, struct ll_step *step)
{
    const struct ll_case *problem = seat->problem;
    const uint64_t num_tokens = (uint64_t)problem->max_tokens;
    const uint64_t choices = num_tokens * (uint64_t)problem->num_topk;
    const uint64_t num_local = (uint64_t)ll_num_local(problem, seat->context->rank);
    const uint64_t num_rows = num_local * (uint64_t)ll_capacity(problem);
    const weft_ll_config config = ll_config(problem);
    const struct {
        void *pointer;
        uint64_t bytes;
    } blocks[] = {
        {&step->tokens, num_tokens * seat->row_bytes},
        {&step->out, num_tokens * seat->row_bytes},
        {&step->topk_idx, choices * sizeof(int64_t)},
        {&step->weights, choices * sizeof(float)},
        {&step->rows, seat->num_rows * ll_sent_bytes(&config)},
        {&step->scales, seat->num_rows * row_scale_bytes(seat, &config)},
        {&step->answers, seat->num_rows * seat->answer_stride},
        {&step->finished, problem->late_rows != 0 ? seat->num_rows * seat->answer_stride : 1},
        {&step->signals, (num_rows + num_local + 1) * sizeof(uint32_t)},
        {&step->rank_counts, (uint64_t)problem->num_ranks * sizeof(int32_t)},
        {&step->expert_counts, num_local * sizeof(int32_t)},
        {&step->totals, num_local * sizeof(int32_t)},
        {&step->expert_signals, num_local * sizeof(uint64_t)},
        {&step->src_tokens, num_rows * sizeof(int32_t)},
        {&step->ranges, num_local * (uint64_t)problem->num_ranks * sizeof(int64_t)},
        {&step->missing[0], (uint64_t)problem->num_ranks * sizeof(int32_t)},
        {&step->missing[1], (uint64_t)problem->num_ranks * sizeof(int32_t)},
        {&step->waited[0], (uint64_t)problem->num_ranks * sizeof(int64_t)},
        {&step->waited[1], (uint64_t)problem->num_ranks * sizeof(int64_t)},
    };
    char **const rows[] = {&step->tokens, &step->out, &step->rows, &step->answers};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        CHECK_OK(weft_memory_alloc(seat->comm, blocks[i].bytes + (uint64_t)problem->odd_bytes,
                                   blocks[i].pointer));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i] += problem->odd_bytes;
    return 0;
}

int ll_seat_open(struct ll_seat *seat, struct ranks_context *context, const struct ll_case *problem,
                 const weft_comm_config *comm_config)
{
    weft_comm *comm;
    CHECK_OK(ranks_comm_create(context, comm_config, &comm));
    return ll_seat_open_in(seat, context, problem, comm);
}

int ll_seat_open_in(struct ll_seat *seat, struct ranks_context *context,
                    const struct ll_case *problem, weft_comm *comm)
{
    *seat = (struct ll_seat){.context = context,
                             .problem = problem,
                             .comm = comm,
                             .half_there = LL_SEAT_NOBODY,
                             .in_doubt = LL_SEAT_NOBODY};
    weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
    const weft_ll_config config = ll_config(problem);
    ep_config.num_experts = problem->num_experts;
    ep_config.expert_offsets = ll_expert_offsets(problem);
    ep_config.expert_ranks = ll_expert_ranks(problem);
    CHECK_OK(weft_stream_create(seat->comm, &seat->stream));
    CHECK_OK(weft_ep_create(seat->comm, &ep_config, &seat->ep));
    CHECK_OK(weft_ll_create(seat->ep, &config, &seat->ll));
    tests_free(ep_config.expert_offsets);
    tests_free(ep_config.expert_ranks);
    seat->row_bytes = (uint64_t)problem->hidden * dtype_bytes(problem->dtype);
    seat->answer_stride =
        seat->row_bytes + (uint64_t)problem->answer_gap * dtype_bytes(problem->dtype);
    seat->num_rows = (uint64_t)problem->num_ranks * (uint64_t)problem->max_tokens;
    if (ll_seat_is_by_expert(seat))
        seat->num_rows =
            (uint64_t)ll_capacity(problem) * (uint64_t)ll_num_local(problem, context->rank);
    if (problem->scale_columns > 0)
        seat->column_bytes =
            (uint64_t)(ll_capacity(problem) + problem->scale_columns) * sizeof(float);
    return open_step(seat, &seat->steps[0]) || open_step(seat, &seat->steps[1]);
}

int ll_seat_close(struct ll_seat *seat)
{
    (void)weft_stream_synchronize(seat->stream);
    CHECK_OK(weft_comm_destroy(seat->comm));
    CHECK_OK(weft_stream_destroy(seat->stream));
    return 0;
}

/* ---------------------------------------------------------------- dispatch */

/* Of a call that uses them, or does not. */
static const float *weights_if(const struct ll_seat *seat, const struct ll_step *step, int uses)
{
    return uses && !seat->problem->without_weights ? step->weights : NULL;
}

int ll_fill_step(struct ll_seat *seat, int32_t step)
{
    const struct ll_case *problem = seat->problem;
    const struct ll_step *at = &seat->steps[step % 2];
    const int32_t rank = seat->context->rank, num_topk = problem->num_topk;
    const int32_t num_tokens = ll_num_tokens(problem, step, rank);
    const size_t choices = (size_t)num_tokens * (size_t)num_topk;
    char *tokens = tests_alloc((size_t)num_tokens * seat->row_bytes + 1);
    int64_t *ids = tests_alloc(choices * sizeof *ids + 1);
    float *weights = tests_alloc(choices * sizeof *weights + 1);
    for (int32_t token = 0; token < num_tokens; token++)
        ll_fill_token(problem, step, rank, token, tokens + (size_t)token * seat->row_bytes);
    for (int32_t i = 0; i < num_tokens * num_topk; i++) {
        const int64_t id = ll_expert(problem, step, rank, i / num_topk, i % num_topk);
        if (problem->index_type == WEFT_INT64)
            ids[i] = id;
        else
            ((int32_t *)ids)[i] = (int32_t)id;
        weights[i] = ll_weight(problem, step, rank, i / num_topk, i % num_topk);
    }
    CHECK_OK(
        weft_memory_copy(seat->comm, at->tokens, tokens, (size_t)num_tokens * seat->row_bytes));
    CHECK_OK(weft_memory_copy(seat->comm, at->topk_idx, ids,
                              choices * dtype_bytes(problem->index_type)));
    CHECK_OK(weft_memory_copy(seat->comm, at->weights, weights, choices * sizeof *weights));
    tests_free(tokens);
    tests_free(ids);
    tests_free(weights);
    return 0;
}

weft_result ll_issue_dispatch(struct ll_seat *seat, int32_t step, weft_ll_phases phases)
{
    struct ll_step *at = &seat->steps[step % 2];
    weft_ll_dispatch_args args = WEFT_INIT(weft_ll_dispatch_args);
    args.phases = phases;
    if (phases != WEFT_LL_RECEIVE) {
        args.num_tokens = ll_num_tokens(seat->problem, step, seat->context->rank);
        args.x = at->tokens;
        args.topk_idx = at->topk_idx;
        args.index_type = seat->problem->index_type;
        args.topk_weights = weights_if(seat, at, ll_dispatch_uses_weights(seat->problem->answer));
    }
    if (phases != WEFT_LL_SEND) {
        args.num_rows_per_rank = at->rank_counts;
        args.missing_ranks = problem_has_masks(seat) ? at->missing[0] : NULL;
        args.waited_ns = at->waited[0];
        args.rows = ll_seat_is_by_expert(seat) ? at->rows : NULL;
        args.scales =
            ll_seat_is_by_expert(seat) && seat->problem->quantisation.dtype != WEFT_DTYPE_NONE
                ? at->scales
                : NULL;
        args.scale_column_bytes = seat->column_bytes;
        args.num_rows_per_expert = ll_seat_is_by_expert(seat) ? at->expert_counts : NULL;
        args.src_tokens = ll_seat_is_by_expert(seat) ? at->src_tokens : NULL;
        args.row_ranges = ll_seat_is_by_expert(seat) ? at->ranges : NULL;
        args.total_rows_per_expert = ll_seat_is_by_expert(seat) ? at->totals : NULL;
        args.expert_signals = seat->problem->has_expert_signals ? at->expert_signals : NULL;
        at->num_signalled++;
    }
    return weft_ll_dispatch(seat->ll, &args, seat->stream);
}

int ll_dispatch(struct ll_seat *seat, int32_t step, weft_ll_phases phases)
{
    CHECK_OK(ll_issue_dispatch(seat, step, phases));
    return 0;
}

/* ---------------------------------------------------------------- combine */

weft_result ll_issue_combine(struct ll_seat *seat, int32_t step, weft_ll_phases phases,
                             int32_t keep)
{
    const struct ll_step *at = &seat->steps[step % 2];
    weft_ll_combine_args args = WEFT_INIT(weft_ll_combine_args);
    args.phases = phases;
    args.keep = keep;
    if (phases != WEFT_LL_RECEIVE) {
        args.x = seat->problem->answers_in_slots ? NULL : at->answers;
        args.x_stride_bytes = seat->problem->answer_gap > 0 ? seat->answer_stride : 0;
        if (seat->problem->late_rows != 0) {
            args.row_signals = at->signals;
            args.signal_value = LL_SIGNAL_VALUE;
            args.rows_per_signal = seat->problem->late_rows > 0 ? seat->problem->late_rows : 0;
        }
    }
    if (phases != WEFT_LL_SEND) {
        args.out = at->out;
        args.missing_ranks = problem_has_masks(seat) ? at->missing[1] : NULL;
        args.waited_ns = at->waited[1];
    }
    args.topk_weights =
        weights_if(seat, at, ll_combine_uses_weights(seat->problem->answer, phases));
    return weft_ll_combine(seat->ll, &args, seat->stream);
}

int ll_combine(struct ll_seat *seat, int32_t step, weft_ll_phases phases, int32_t keep)
{
    const int are_late = seat->problem->late_rows != 0 && phases != WEFT_LL_RECEIVE;
    if (are_late && ll_take_rows_away(seat, step))
        return 1;
    CHECK_OK(ll_issue_combine(seat, step, phases, keep));
    return are_late ? ll_finish_rows(seat, step) : 0;
}
