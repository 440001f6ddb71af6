/* SPDX-License-Identifier: MIT */
/* The rounds of low latency: the moves of the script, and what must have come of them whenever the
 * host waits. */
#include <string.h>

#include "ep_rounds.h"
#include "ll_masks.h"
#include "ll_results.h"

/* ---------------------------------------------------------------- objects */

static weft_result alloc_result(struct party *party, struct ll_arrays *arrays)
{
    const struct shape *shape = party->shape;
    const size_t num_tokens = (size_t)shape->max_tokens, num_rows = ll_num_places(party);
    const size_t num_choices = num_tokens * (size_t)shape->num_topk;
    const size_t num_local = (size_t)ll_num_local(shape, party->rank);
    const weft_ll_config config = ll_config(shape, party->rank);
    const struct party_array list[] = {
        {&arrays->tokens, num_tokens * ll_row_bytes(shape)},
        {&arrays->topk_idx, num_choices * sizeof(int32_t)},
        {&arrays->weights, num_choices * sizeof(float)},
        {&arrays->weights_back, num_choices * sizeof(float)},
        {&arrays->rows, num_rows * ll_sent_bytes(&config)},
        {&arrays->scales, ll_scales_bytes(party)},
        {&arrays->src_tokens, num_rows * sizeof(int32_t)},
        {&arrays->rank_counts, (size_t)shape->num_ranks * sizeof(int32_t)},
        {&arrays->expert_counts, num_local * sizeof(int32_t)},
        {&arrays->ranges, num_local * (size_t)shape->num_ranks * sizeof(int64_t)},
        {&arrays->missing_rows, (size_t)shape->num_ranks * sizeof(int32_t)},
        {&arrays->missing_sums[0], (size_t)shape->num_ranks * sizeof(int32_t)},
        {&arrays->missing_sums[1], (size_t)shape->num_ranks * sizeof(int32_t)},
        {&arrays->waited, (size_t)shape->num_ranks * sizeof(int64_t)},
        {&arrays->expert_signals, num_local * sizeof(uint64_t)},
        {&arrays->answers[0], num_rows * ll_row_bytes(shape)},
        {&arrays->answers[1], num_rows * ll_row_bytes(shape)},
        {&arrays->signals[0], ll_num_words(party) * sizeof(uint32_t)},
        {&arrays->signals[1], ll_num_words(party) * sizeof(uint32_t)},
        {&arrays->out[0], num_tokens * ll_row_bytes(shape)},
        {&arrays->out[1], num_tokens * ll_row_bytes(shape)},
        {0}};
    return party_alloc(party, list);
}

weft_result party_open_ll(struct party *party)
{
    const struct shape *shape = party->shape;
    const weft_ll_config config = ll_config(shape, party->rank);
    weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
    ep_config.num_experts = shape->num_experts;
    ep_config.num_channels = shape->num_channels;
    ep_config.num_staging_slots = shape->num_slots;
    ep_config.staging_slot_bytes = shape->slot_bytes;
    for (int32_t i = 0; i < shape->num_repeats; i++)
        TRY(alloc_result(party, &party->ll_arrays[i]));
    TRY(party_alloc(
        party, (struct party_array[]){
                   {&party->ll_totals, (size_t)ll_num_local(shape, party->rank) * sizeof(int32_t)},
                   {&party->ll_mask, (size_t)shape->num_ranks * sizeof(int32_t)},
                   {0}}));
    party->ll_rng.state = rng_key(rng_key(shape->seed, shape->op), (uint64_t)party->rank);
    TRY(weft_stream_create(party->comm, &party->stream));
    TRY(weft_stream_create(party->comm, &party->second_stream));
    ep_config.staging_bytes = party->shape->staging_bytes;
    TRY(weft_ep_create(party->comm, &ep_config, &party->ep));
    TRY(weft_ll_create(party->ep, &config, &party->ll));
    party->scenario->num_ll_open += party->shape == &party->scenario->shape;
    return WEFT_OK;
}

/* ---------------------------------------------------------------- inputs */

enum { JUNK = 0x7f }; /* each byte of what nobody may read any more: large numbers */

static void spoil(void *array, size_t num_bytes)
{
    weft__sim_host_writes(array, num_bytes);
    memset(array, JUNK, num_bytes);
}

static void fill_tokens(struct party *party, int32_t round, int32_t result)
{
    const struct shape *shape = party->shape;
    const struct ll_arrays *arrays = &party->ll_arrays[result];
    const struct ll_about about = {shape, round, result, 0};
    const int32_t num_tokens = ll_num_tokens(shape, round, result, party->rank);
    const int32_t num_topk = shape->num_topk;
    const size_t num_choices = (size_t)num_tokens * (size_t)num_topk;
    weft__sim_host_writes(arrays->tokens, (size_t)num_tokens * ll_row_bytes(shape));
    weft__sim_host_writes(arrays->topk_idx, num_choices * sizeof(int32_t));
    weft__sim_host_writes(arrays->weights, num_choices * sizeof(float));
    weft__sim_host_writes(arrays->weights_back, num_choices * sizeof(float));
    for (int32_t i = 0; i < num_tokens; i++)
        ll_fill_token(&about, party->rank, i, arrays->tokens + (size_t)i * ll_row_bytes(shape));
    for (int32_t i = 0; i < num_tokens * num_topk; i++) {
        arrays->topk_idx[i] = shape->experts[round][party->rank][i / num_topk][i % num_topk];
        arrays->weights[i] = arrays->weights_back[i] =
            ll_weight(shape, round, party->rank, i / num_topk, i % num_topk);
    }
}

/* ---------------------------------------------------------------- moves */

static int coin(struct party *party)
{
    return (int)rng_below(&party->ll_rng, 2);
}

/* Any: the operations of a weft_ll keep their order. */
static weft_stream *some_stream(struct party *party)
{
    return coin(party) ? party->stream : party->second_stream;
}

static weft_result dispatch(struct party *party, int32_t round, int32_t result,
                            weft_ll_phases phases)
{
    struct ll_arrays *arrays = &party->ll_arrays[result];
    const struct ll_terms *terms = &party->shape->ll_terms;
    const int tells = terms->has_expert_signals && phases != WEFT_LL_SEND;
    weft_ll_dispatch_args args = WEFT_INIT(weft_ll_dispatch_args);
    args.phases = phases;
    if (phases != WEFT_LL_RECEIVE) {
        fill_tokens(party, round, result);
        args.num_tokens = ll_num_tokens(party->shape, round, result, party->rank);
        args.x = arrays->tokens;
        args.topk_idx = arrays->topk_idx;
        args.index_type = WEFT_INT32;
        if (terms->has_weights && ll_dispatch_uses_weights(terms->answer))
            args.topk_weights = arrays->weights;
    }
    if (phases != WEFT_LL_SEND) {
        args.num_rows_per_rank = arrays->rank_counts;
        args.missing_ranks = ll_has_masks(party) ? arrays->missing_rows : NULL;
        args.waited_ns = arrays->waited;
    }
    if (phases != WEFT_LL_SEND && ll_is_by_expert(party)) {
        const weft_ll_config config = ll_config(party->shape, party->rank);
        spoil(arrays->rows, ll_num_places(party) * ll_sent_bytes(&config));
        args.rows = arrays->rows;
        if (ll_num_groups(&config) > 0) {
            args.scales = arrays->scales;
            args.scale_column_bytes = ll_column_bytes(party);
        }
        args.num_rows_per_expert = arrays->expert_counts;
        args.src_tokens = arrays->src_tokens;
        args.row_ranges = arrays->ranges;
        args.total_rows_per_expert = party->ll_totals;
        args.expert_signals = tells ? arrays->expert_signals : NULL;
    }
    TRY(weft_ll_dispatch(party->ll, &args, some_stream(party)));
    arrays->num_signalled += (uint64_t)tells;
    if (tells && coin(party))
        ll_take_experts(party, round, result);
    return WEFT_OK;
}

/* The number of results that came after one that has not been answered. */
static int32_t num_later_results(const struct party *party, int32_t round,
                                 const struct ll_move *answered)
{
    const struct ll_move *moves = party->shape->ll_scripts[round].moves;
    int32_t num_later = 0;
    for (const struct ll_move *move = moves; move < answered; move++)
        num_later += move->step == LL_RECEIVE_ROWS && move->result > answered->result;
    return num_later;
}

static weft_result combine(struct party *party, int32_t round, const struct ll_move *move,
                           weft_ll_phases phases)
{
    const struct shape *shape = party->shape;
    const struct ll_arrays *arrays = &party->ll_arrays[move->result];
    const int are_late = shape->ll_terms.has_signals && phases != WEFT_LL_RECEIVE;
    weft_ll_combine_args args = WEFT_INIT(weft_ll_combine_args);
    args.phases = phases;
    if (phases != WEFT_LL_RECEIVE) {
        char *answers = shape->ll_terms.fills_slots ? NULL : arrays->answers[move->combine];
        spoil(arrays->answers[move->combine], ll_num_places(party) * ll_row_bytes(shape));
        if (are_late)
            ll_withhold_answers(party, move);
        else
            ll_fill_answers(party, round, move->result, num_later_results(party, round, move),
                            answers);
        args.x = answers;
        args.keep = move->keeps;
    }
    if (are_late) {
        args.row_signals = arrays->signals[move->combine];
        args.signal_value = LL_SIGNAL_VALUE;
        args.rows_per_signal = shape->ll_terms.rows_per_signal;
    }
    if (phases != WEFT_LL_SEND) {
        spoil(arrays->out[move->combine], (size_t)shape->max_tokens * ll_row_bytes(shape));
        args.out = arrays->out[move->combine];
        args.missing_ranks = ll_has_masks(party) ? arrays->missing_sums[move->combine] : NULL;
    }
    if (shape->ll_terms.has_weights && ll_combine_uses_weights(shape->ll_terms.answer, phases))
        args.topk_weights = arrays->weights_back;
    TRY(weft_ll_combine(party->ll, &args, some_stream(party)));
    if (are_late)
        ll_finish_answers(party, round, move);
    return WEFT_OK;
}

static weft_result enqueue(struct party *party, int32_t round, const struct ll_move *move,
                           int is_joined)
{
    switch (move->step) {
    case LL_SEND_ROWS:
        return dispatch(party, round, move->result,
                        is_joined ? WEFT_LL_SEND_AND_RECEIVE : WEFT_LL_SEND);
    case LL_RECEIVE_ROWS:
        return dispatch(party, round, move->result, WEFT_LL_RECEIVE);
    case LL_SEND_ANSWERS:
        return combine(party, round, move, is_joined ? WEFT_LL_SEND_AND_RECEIVE : WEFT_LL_SEND);
    case LL_RECEIVE_ANSWERS:
        return combine(party, round, move, WEFT_LL_RECEIVE);
    case LL_RELEASE:
        break;
    }
    return weft_ll_release(party->ll, some_stream(party));
}

static void spoil_tokens(struct party *party, int32_t result)
{
    const struct ll_arrays *arrays = &party->ll_arrays[result];
    const size_t num_tokens = (size_t)party->shape->max_tokens;
    const size_t num_choices = num_tokens * (size_t)party->shape->num_topk;
    spoil(arrays->tokens, num_tokens * ll_row_bytes(party->shape));
    spoil(arrays->topk_idx, num_choices * sizeof(int32_t));
    spoil(arrays->weights, num_choices * sizeof(float));
}

/* ---------------------------------------------------------------- rounds */

/* The moves that have been enqueued since the host has waited last: [begin, end). */
struct ll_span {
    const struct ll_move *moves;
    int32_t begin, end;
};

/* By rank: rows of result `result` may be overwritten by others when it has been answered or
 * released. */
static int ends_in(const struct ll_span *span, int32_t result)
{
    int ends = 0;
    for (int32_t i = span->begin; i < span->end; i++) {
        const struct ll_move *move = &span->moves[i];
        const int is_last =
            (move->step == LL_SEND_ANSWERS && !move->keeps) || move->step == LL_RELEASE;
        ends |= is_last && move->result == result;
    }
    return ends;
}

static int32_t num_received_after(const struct ll_span *span, int32_t i)
{
    int32_t num_received = 0;
    for (i++; i < span->end; i++)
        num_received += span->moves[i].step == LL_RECEIVE_ROWS;
    return num_received;
}

static void check_received(struct party *party, int32_t round, const struct ll_span *span,
                           int32_t i)
{
    const int32_t result = span->moves[i].result;
    ll_note_missing_rows(party, round, result);
    if (!ll_can_check(party))
        return;
    ll_check_received(party, round, result,
                      ends_in(span, result) ? LL_ENDED : num_received_after(span, i));
}

static void check_combined(struct party *party, int32_t round, const struct ll_move *move)
{
    ll_note_missing_sums(party, round, move);
    if (ll_can_check(party))
        ll_check_combined(party, round, move);
}

/* The promises of phases that have finished. */
static weft_result await(struct party *party, int32_t round, const struct ll_span *span)
{
    TRY(party_synchronize(party));
    for (int32_t i = span->begin; i < span->end; i++) {
        const struct ll_move *move = &span->moves[i];
        if (move->step == LL_SEND_ROWS)
            spoil_tokens(party, move->result);
        else if (move->step == LL_RECEIVE_ROWS)
            check_received(party, round, span, i);
        else if (move->step == LL_SEND_ANSWERS)
            spoil(party->ll_arrays[move->result].answers[move->combine],
                  ll_num_places(party) * ll_row_bytes(party->shape));
        else if (move->step == LL_RECEIVE_ANSWERS)
            check_combined(party, round, move);
    }
    return WEFT_OK;
}

/* By expert, where rows are that are answered depends on who is missing; and slots are filled by
 * the host. */
static int must_know_rows(const struct party *party, const struct ll_move *move)
{
    if (party->shape->ll_terms.fills_slots)
        return move->step == LL_SEND_ANSWERS;
    return party->scenario->fault != WEFT__SIM_NO_FAULT && ll_has_masks(party) &&
           ll_is_by_expert(party) && move->step == LL_SEND_ANSWERS;
}

weft_result party_run_ll(struct party *party, int32_t round)
{
    const struct ll_script *script = &party->shape->ll_scripts[round];
    struct ll_span span = {script->moves, 0, 0};
    TRY(ll_begin_round(party, round));
    TRY(ll_let_leave(party, round));
    while (party->ll != NULL && span.end < script->num_moves) {
        const struct ll_move *move = &script->moves[span.end];
        const int is_joined = move->may_join && coin(party);
        if (span.begin < span.end && must_know_rows(party, move)) {
            TRY(await(party, round, &span));
            span.begin = span.end;
        }
        TRY(enqueue(party, round, move, is_joined));
        span.end += is_joined ? 2 : 1;
        if (!coin(party) && span.end < script->num_moves)
            continue;
        TRY(await(party, round, &span));
        span.begin = span.end;
    }
    if (party->ll != NULL && ll_can_check(party))
        ll_check_totals(party, round);
    return WEFT_OK;
}
