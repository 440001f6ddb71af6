/* SPDX-License-Identifier: MIT */
/* The rounds of each operation, and the checks of their results. */
#include <string.h>

#include "ep_rounds.h"
#include "shape_oracle.h"
#include "workload/ep_oracle_check.h"
#include "workload/quantised.h"

/* ---------------------------------------------------------------- routing */

/* Host code says what it touches, so that its order with the lanes is checked too. */
static void fill_routing(struct party *party, int32_t round)
{
    const struct shape *shape = party->shape;
    const int32_t num_topk = shape->num_topk;
    const int32_t num_choices = shape->num_tokens[round][party->rank] * num_topk;
    weft__sim_host_writes(party->topk_idx, (size_t)num_choices * sizeof *party->topk_idx);
    weft__sim_host_writes(party->weights, (size_t)num_choices * sizeof *party->weights);
    for (int32_t i = 0; i < num_choices; i++) {
        const int32_t token = i / num_topk, k = i % num_topk;
        party->topk_idx[i] = shape->experts[round][party->rank][token][k];
        party->weights[i] = shape_weight(round, party->rank, token, k);
    }
}

static void fill_table(struct party *party, int32_t round)
{
    const struct shape *shape = party->shape;
    const int32_t num_places = shape->num_tokens[round][party->rank] * shape->num_ranks;
    weft__sim_host_writes(party->tokens_to_ranks, (size_t)num_places);
    weft__sim_host_writes(party->selections, (size_t)shape->num_experts * sizeof(int32_t));
    struct shape_oracle oracle;
    shape_oracle_open(&oracle, shape, round);
    for (int32_t i = 0; i < num_places; i++)
        party->tokens_to_ranks[i] = (uint8_t)ep_oracle_goes_to(
            &oracle.problem, (struct ep_token){party->rank, i / shape->num_ranks},
            i % shape->num_ranks);
    for (int32_t expert = 0; expert < shape->num_experts; expert++)
        party->selections[expert] = ep_oracle_selections_from(&oracle.problem, party->rank, expert);
}

weft_ep_handle *party_handle(const struct party *party, int32_t round)
{
    return party->handles[round % party->shape->num_handles];
}

static weft_result enqueue_layout(struct party *party, int32_t round)
{
    fill_routing(party, round);
    weft_ep_layout_args args = WEFT_INIT(weft_ep_layout_args);
    args.num_tokens = party->shape->num_tokens[round][party->rank];
    if (party->shape->routes_by_table) {
        fill_table(party, round);
        args.tokens_to_ranks = party->tokens_to_ranks;
        args.selections_per_expert = party->selections;
    } else {
        args.index_type = WEFT_INT32;
        args.topk_idx = party->topk_idx;
    }
    args.num_tokens_per_rank = party->tokens_per_rank;
    if (party->shape->wants_node_counts)
        args.num_tokens_per_node = party->tokens_per_node;
    args.num_tokens_per_expert = party->tokens_per_expert;
    args.is_token_in_rank = party->is_token_in_rank;
    return weft_ep_layout(party_handle(party, round), &args, party->stream);
}

/* The oracle of a round, whose problem it then has. */
static struct ep_checker open_checker(struct party *party, int32_t round,
                                      struct shape_oracle *oracle)
{
    shape_oracle_open(oracle, party->shape, round);
    return (struct ep_checker){&oracle->problem, party->rank, party_tell, party};
}

static void host_reads_layout(const struct party *party, int32_t num_tokens)
{
    const struct shape *shape = party->shape;
    const size_t num_ranks = (size_t)shape->num_ranks;
    weft__sim_host_reads(party->tokens_per_rank, num_ranks * sizeof(int32_t));
    if (shape->wants_node_counts)
        weft__sim_host_reads(party->tokens_per_node, (size_t)shape->num_nodes * sizeof(int32_t));
    weft__sim_host_reads(party->tokens_per_expert, (size_t)shape->num_experts * sizeof(int32_t));
    weft__sim_host_reads(party->is_token_in_rank, (size_t)num_tokens * num_ranks);
}

static void check_layout(struct party *party, int32_t round)
{
    const struct shape *shape = party->shape;
    struct shape_oracle oracle;
    const struct ep_checker checker = open_checker(party, round, &oracle);
    host_reads_layout(party, shape->num_tokens[round][party->rank]);
    ep_oracle_check_layout(
        &checker, &(struct ep_laid_out){party->tokens_per_rank,
                                        shape->wants_node_counts ? party->tokens_per_node : NULL,
                                        party->tokens_per_expert, party->is_token_in_rank});
}

static weft_result run_layout(struct party *party, int32_t round)
{
    TRY(enqueue_layout(party, round));
    TRY(weft_stream_synchronize(party->stream));
    check_layout(party, round);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- notify */

static void check_counts(struct party *party, int32_t round, const weft_ep_counts *counts)
{
    struct shape_oracle oracle;
    const struct ep_checker checker = open_checker(party, round, &oracle);
    weft__sim_host_reads(counts->num_recv_per_rank,
                         (size_t)party->shape->num_ranks * sizeof(int32_t));
    weft__sim_host_reads(counts->num_recv_per_expert,
                         (size_t)counts->num_local_experts * sizeof(int32_t));
    weft__sim_host_reads(counts->num_selections_per_expert,
                         (size_t)counts->num_local_experts * sizeof(int32_t));
    weft__sim_host_reads(counts->first_row_per_expert,
                         (size_t)counts->num_local_experts * sizeof(int32_t));
    ep_oracle_check_counts(&checker, counts);
}

static void check_ends(struct party *party, int32_t round, const weft_ep_device_counts *counts)
{
    struct shape_oracle oracle;
    const struct ep_checker checker = open_checker(party, round, &oracle);
    weft__sim_host_reads(counts->recv_rank_ends, (size_t)party->shape->num_ranks * sizeof(int32_t));
    ep_oracle_check_ends(&checker, counts->recv_rank_ends);
}

static weft_result run_notify(struct party *party, int32_t round)
{
    weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
    weft_ep_device_counts device_counts = WEFT_INIT(weft_ep_device_counts);
    TRY(enqueue_layout(party, round));
    TRY(weft_ep_notify(party_handle(party, round), party->stream));
    TRY(weft_ep_wait_counts(party_handle(party, round), &counts));
    check_counts(party, round, &counts);
    TRY(weft_ep_query_device_counts(party_handle(party, round), &device_counts));
    check_ends(party, round, &device_counts);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- dispatch */

static void fill_x(struct party *party, int32_t round, int32_t repeat)
{
    const int32_t num_elements =
        party->shape->num_tokens[round][party->rank] * SCENARIO_ROW_ELEMENTS;
    float *x = party->x[repeat];
    weft__sim_host_writes(x, (size_t)num_elements * sizeof *x);
    for (int32_t i = 0; i < num_elements; i++)
        x[i] = shape_element(round, repeat, party->rank, i / SCENARIO_ROW_ELEMENTS,
                             i % SCENARIO_ROW_ELEMENTS);
}

void party_clear(void *address, size_t num_bytes)
{
    weft__sim_host_writes(address, num_bytes);
    memset(address, 0, num_bytes);
}

void party_clear_rows(const struct party *party, const struct rows *rows)
{
    const size_t capacity = (size_t)party->shape->capacity;
    const size_t choices_bytes = capacity * (size_t)party->shape->num_topk * sizeof(int32_t);
    party_clear(rows->x, capacity * SCENARIO_ROW_BYTES);
    party_clear(rows->topk_idx, choices_bytes);
    party_clear(rows->weights, choices_bytes);
    party_clear(rows->src_token, capacity * sizeof(int32_t));
}

static int64_t plane_elements(const struct shape *shape)
{
    return SCENARIO_ROW_ELEMENTS / shape->num_planes;
}

/* The first element of a row of a plane: the planes follow each other. */
static float *received_element(const struct shape *shape, const struct rows *rows, int64_t plane,
                               int32_t row)
{
    return rows->x + (plane * shape->capacity + row) * plane_elements(shape);
}

/* ---------------------------------------------------------------- a plane that is quantised */

enum { NARROW_GROUP = 2 };

static int has_narrow(const struct shape *shape)
{
    return shape->quantisation.dtype != WEFT_DTYPE_NONE && shape->narrow_plane < shape->num_planes;
}

static int is_narrow(const struct shape *shape, int64_t plane)
{
    return has_narrow(shape) && plane == shape->narrow_plane;
}

static size_t scale_bytes(const struct shape *shape)
{
    return shape->quantisation.scale == WEFT_SCALE_UE8M0 ? 1 : sizeof(float);
}

/* Its elements come first, its scales behind them. */
static char *narrow_elements(const struct shape *shape, const struct rows *rows)
{
    return (char *)received_element(shape, rows, shape->narrow_plane, 0);
}

static char *narrow_scales(const struct shape *shape, const struct rows *rows)
{
    return narrow_elements(shape, rows) + shape->capacity * plane_elements(shape);
}

static void quantise_plane(const struct shape *shape, const struct rows *rows, weft_plane *plane)
{
    plane->dtype = WEFT_FP32;
    plane->quantisation = shape->quantisation;
    plane->quantisation.group_elements = NARROW_GROUP;
    plane->scales = narrow_scales(shape, rows);
}

static void check_narrow_row(struct party *party, const struct rows *rows, int32_t row,
                             const float *sent)
{
    const struct shape *shape = party->shape;
    const struct quantised_form form = {WEFT_FP32, shape->quantisation.dtype,
                                        shape->quantisation.scale, NARROW_GROUP, sizeof(float)};
    const size_t num_elements = (size_t)plane_elements(shape);
    const size_t row_scale_bytes = num_elements / NARROW_GROUP * scale_bytes(shape);
    char codes[SCENARIO_ROW_ELEMENTS], scales[SCENARIO_ROW_ELEMENTS * sizeof(float)];
    quantised_make_row(&form, sent, (int64_t)num_elements, codes, scales);
    if (memcmp(codes, narrow_elements(shape, rows) + (size_t)row * num_elements, num_elements) != 0)
        party_complain(party, "row %d of the narrow plane has other elements", row);
    if (memcmp(scales, narrow_scales(shape, rows) + (size_t)row * row_scale_bytes,
               row_scale_bytes) != 0)
        party_complain(party, "row %d of the narrow plane has other scales", row);
}

static weft_result enqueue_dispatch(struct party *party, int32_t round, int32_t repeat)
{
    const struct rows *rows = &party->recv[repeat];
    fill_x(party, round, repeat);
    party_clear_rows(party, rows);
    const int32_t num_planes = party->shape->num_planes;
    weft_plane planes[2] = {{.src = NULL}};
    for (int32_t i = 0; i < num_planes; i++)
        planes[i] = (weft_plane){.size = sizeof(weft_plane),
                                 .src = party->x[repeat] + i * plane_elements(party->shape),
                                 .dst = received_element(party->shape, rows, i, 0),
                                 .row_bytes = SCENARIO_ROW_BYTES / (uint64_t)num_planes,
                                 .src_stride_bytes = SCENARIO_ROW_BYTES};
    if (has_narrow(party->shape))
        quantise_plane(party->shape, rows, &planes[party->shape->narrow_plane]);
    weft_ep_dispatch_args args = WEFT_INIT(weft_ep_dispatch_args);
    args.num_planes = num_planes;
    args.planes = planes;
    args.capacity = party->shape->capacity;
    args.index_type = WEFT_INT32;
    args.topk_idx = party->topk_idx;
    args.topk_weights = party->weights;
    args.recv_topk_idx = rows->topk_idx;
    args.recv_topk_weights = rows->weights;
    args.recv_src_token = rows->src_token;
    args.num_blocks = party->shape->num_call_blocks[repeat][party->rank];
    return weft_ep_dispatch(party_handle(party, round), &args, party->stream);
}

static void check_row(struct party *party, const struct rows *rows, int32_t row, int32_t round,
                      int32_t repeat, struct ep_token token)
{
    const struct shape *shape = party->shape;
    float sent[SCENARIO_ROW_ELEMENTS];
    for (int32_t i = 0; i < SCENARIO_ROW_ELEMENTS && shape->num_planes > 0; i++) {
        const int64_t plane = i / plane_elements(shape), at = i % plane_elements(shape);
        sent[i] = shape_element(round, repeat, token.source, token.idx, i);
        if (!is_narrow(shape, plane))
            party_expect(party, "row element", row * SCENARIO_ROW_ELEMENTS + i,
                         received_element(shape, rows, plane, row)[at], sent[i]);
    }
    if (has_narrow(shape))
        check_narrow_row(party, rows, row, sent + shape->narrow_plane * plane_elements(shape));
}

static void host_reads_rows(const struct party *party, const struct rows *rows, int32_t num_rows)
{
    const struct shape *shape = party->shape;
    const size_t choice_bytes = (size_t)shape->num_topk * sizeof(int32_t);
    for (int32_t i = 0; i < shape->num_planes; i++)
        weft__sim_host_reads(received_element(shape, rows, i, 0),
                             (size_t)(num_rows * plane_elements(shape)) *
                                 (is_narrow(shape, i) ? 1 : sizeof(float)));
    if (has_narrow(shape))
        weft__sim_host_reads(narrow_scales(shape, rows),
                             (size_t)(num_rows * plane_elements(shape) / NARROW_GROUP) *
                                 scale_bytes(shape));
    weft__sim_host_reads(rows->topk_idx, (size_t)party->shape->capacity * choice_bytes);
    weft__sim_host_reads(rows->weights, (size_t)num_rows * choice_bytes);
    weft__sim_host_reads(rows->src_token, (size_t)num_rows * sizeof(int32_t));
}

static void check_rows(struct party *party, int32_t round, int32_t repeat)
{
    const struct shape *shape = party->shape;
    const struct rows *rows = &party->recv[repeat];
    const struct ep_row_notes notes = {WEFT_INT32, rows->topk_idx, rows->weights, rows->src_token};
    struct shape_oracle oracle;
    const struct ep_checker checker = open_checker(party, round, &oracle);
    struct ep_token token = {0, 0};
    int32_t row = 0;
    host_reads_rows(party, rows, ep_oracle_num_rows(&oracle.problem, party->rank));
    for (token.source = 0; token.source < shape->num_ranks; token.source++)
        for (token.idx = 0; token.idx < shape->num_tokens[round][token.source]; token.idx++) {
            if (!ep_oracle_goes_to(&oracle.problem, token, party->rank))
                continue;
            check_row(party, rows, row, round, repeat, token);
            ep_oracle_check_notes(&checker, &notes, row++, token);
        }
    ep_oracle_check_no_more(&checker, &notes, row, shape->capacity);
}

weft_result party_route(struct party *party, int32_t round)
{
    TRY(enqueue_layout(party, round));
    return weft_ep_notify(party_handle(party, round), party->stream);
}

weft_result party_repeat(struct party *party, int32_t round,
                         weft_result (*enqueue)(struct party *, int32_t, int32_t),
                         void (*check)(struct party *, int32_t, int32_t))
{
    for (int32_t i = 0; i < party->shape->num_repeats; i++)
        TRY(enqueue(party, round, i));
    TRY(weft_stream_synchronize(party->stream));
    for (int32_t i = 0; i < party->shape->num_repeats; i++)
        check(party, round, i);
    return WEFT_OK;
}

static weft_result enqueue_dispatch_and_expand(struct party *party, int32_t round, int32_t repeat)
{
    TRY(enqueue_dispatch(party, round, repeat));
    return party_expand(party, round, repeat);
}

static void check_dispatched(struct party *party, int32_t round, int32_t repeat)
{
    check_rows(party, round, repeat);
    party_check_expanded(party, round, repeat);
}

static weft_result run_dispatch(struct party *party, int32_t round)
{
    TRY(party_route(party, round));
    return party_repeat(party, round, enqueue_dispatch_and_expand, check_dispatched);
}

/* ---------------------------------------------------------------- barrier */

/* Beside the heaps, since those of other nodes cannot be read: what each rank has started, in turn
 * as the words below. It stands for all that a barrier orders by way of its past. */
static uint64_t *started_by(struct party *party, uint64_t number, int32_t rank)
{
    const int is_of_survivors = party->shape == &party->scenario->survivors_shape;
    return &party->scenario->barriers[is_of_survivors][number % PARTY_NUM_WORDS][rank];
}

static void write_word(uint64_t *word, uint64_t number)
{
    weft__sim_host_writes(word, sizeof *word);
    *word = number;
}

static void check_word(struct party *party, const uint64_t *word, int32_t rank, uint64_t number)
{
    weft__sim_host_reads(word, sizeof *word);
    party_expect(party, "word of rank", rank, (double)*word, (double)number);
}

/* Two words, used in turn: what was read after one barrier is overwritten before the next but one,
 * which nobody passes before all have read. */
static weft_result pass_barrier(struct party *party, uint64_t number)
{
    uint64_t *own = &party->words[number % PARTY_NUM_WORDS];
    write_word(own, number);
    write_word(started_by(party, number, party->rank), number);
    TRY(weft_comm_barrier(party->comm, party->stream));
    TRY(weft_stream_synchronize(party->stream));
    for (int32_t rank = 0; rank < party->shape->num_ranks; rank++) {
        const uint64_t *word = weft_heap_ptr(party->comm, own, rank);
        if (word != NULL)
            check_word(party, word, rank, number);
        check_word(party, started_by(party, number, rank), rank, number);
    }
    return WEFT_OK;
}

static weft_result run_barrier(struct party *party, int32_t round)
{
    for (int32_t i = 0; i < PARTY_NUM_WORDS; i++)
        TRY(pass_barrier(party, (uint64_t)(1 + round * PARTY_NUM_WORDS + i)));
    /* All have read before anybody frees the words. */
    TRY(weft_comm_barrier(party->comm, party->stream));
    return weft_stream_synchronize(party->stream);
}

weft_result party_run(struct party *party)
{
    static weft_result (*const run_round[NUM_SCENARIO_OPS])(struct party *, int32_t) = {
        [SCENARIO_LAYOUT] = run_layout,
        [SCENARIO_NOTIFY] = run_notify,
        [SCENARIO_DISPATCH] = run_dispatch,
        [SCENARIO_COMBINE] = party_run_combine,
        [SCENARIO_BARRIER] = run_barrier,
        [SCENARIO_ALL_REDUCE] = party_run_calls,
        [SCENARIO_REDUCE_SCATTER] = party_run_calls,
        [SCENARIO_ALL_GATHER] = party_run_calls,
        [SCENARIO_ALL_TO_ALL] = party_run_calls,
        [SCENARIO_BROADCAST] = party_run_calls,
        [SCENARIO_REDUCE] = party_run_calls,
        [SCENARIO_GATHER] = party_run_calls,
        [SCENARIO_SCATTER] = party_run_calls,
        [SCENARIO_GROUP] = party_run_calls,
        [SCENARIO_LL] = party_run_ll,
        [SCENARIO_LL_PACKETS] = party_run_ll,
        [SCENARIO_GATE] = party_run_gate,
        [SCENARIO_MOVE_EXPERTS] = party_run_move,
        [SCENARIO_COPIES] = party_run_copies,
    };
    for (int32_t round = 0; round < party->shape->num_rounds; round++)
        TRY(run_round[party->shape->op](party, round));
    return WEFT_OK;
}
