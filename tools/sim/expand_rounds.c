/* SPDX-License-Identifier: MIT */
/* Behind each dispatch: its rows packed by local expert, and sums of other rows in that layout.
 * Sums of small integers are exact. */
#include <string.h>

#include "ep_rounds.h"
#include "shape_oracle.h"

/* Elements of the expanded rows that are summed. */
enum { HIDDEN = SCENARIO_ROW_ELEMENTS };

static float row_element(int32_t round, int32_t repeat, int32_t rank, int32_t row, int32_t i)
{
    return shape_element(round, repeat, rank, row % SCENARIO_MAX_TOKENS, i);
}

/* All rows that a rank may get, each with all choices, and gaps. */
static size_t expanded_capacity(const struct shape *shape)
{
    return (size_t)shape->capacity * (size_t)shape->num_topk +
           (size_t)shape->num_experts * (size_t)shape->expert_alignment;
}

weft_result party_alloc_expanded(struct party *party)
{
    const size_t capacity = (size_t)party->shape->capacity;
    const size_t num_choices = capacity * (size_t)party->shape->num_topk;
    const size_t num_rows = expanded_capacity(party->shape);
    const size_t num_tokens =
        (size_t)party->shape->num_ranks * (size_t)party->shape->max_tokens + 1;
    for (int32_t i = 0; i < party->shape->num_repeats; i++) {
        struct expanded *expanded = &party->expanded[i];
        TRY(party_alloc(
            party, (struct party_array[]){{&expanded->x, num_rows * SCENARIO_ROW_BYTES},
                                          {&expanded->choice_rows, num_choices * sizeof(int32_t)},
                                          {&expanded->row_weights, num_rows * sizeof(float)},
                                          {&expanded->src_rows, num_rows * sizeof(int32_t)},
                                          {&expanded->made, num_rows * SCENARIO_ROW_BYTES},
                                          {&expanded->sums, capacity * SCENARIO_ROW_BYTES},
                                          {&expanded->weights_back, num_choices * sizeof(float)},
                                          {0}}));
    }
    return party_alloc(
        party, (struct party_array[]){
                   {&party->expected, num_rows * sizeof(struct ep_expanded_row) +
                                          num_tokens * (sizeof(struct ep_token) + sizeof(int32_t))},
                   {0}});
}

/* ---------------------------------------------------------------- operations */

/* All bytes of the dispatch's rows, planes and all, are one plane here. */
static weft_result enqueue_expand(struct party *party, int32_t round, int32_t repeat)
{
    const struct shape *shape = party->shape;
    const struct rows *rows = &party->recv[repeat];
    const struct expanded *expanded = &party->expanded[repeat];
    const int32_t num_rows = (int32_t)expanded_capacity(shape);
    const weft_plane plane = {
        .size = sizeof plane, .src = rows->x, .dst = expanded->x, .row_bytes = SCENARIO_ROW_BYTES};
    weft_ep_expand_args args = WEFT_INIT(weft_ep_expand_args);
    party_clear(expanded->x, (size_t)num_rows * SCENARIO_ROW_BYTES);
    args.planes = &plane;
    args.num_planes = 1;
    args.capacity = shape->capacity;
    args.expanded_capacity = num_rows;
    args.index_type = WEFT_INT32;
    args.recv_topk_idx = rows->topk_idx;
    args.choice_rows = expanded->choice_rows;
    args.recv_topk_weights = rows->weights;
    args.row_weights = expanded->row_weights;
    args.src_rows = expanded->src_rows;
    args.gaps = (weft_ep_gaps)(round % 2);
    args.num_blocks = shape->num_call_blocks[repeat][party->rank];
    if (repeat > 0) { /* the rows are those of the dispatch before */
        TRY(weft_ep_expand(party_handle(party, round), &args, party->stream));
        args.recv_topk_idx = NULL;
    }
    return weft_ep_expand(party_handle(party, round), &args, party->stream);
}

static weft_result enqueue_reduce(struct party *party, int32_t round, int32_t repeat)
{
    const struct shape *shape = party->shape;
    const struct expanded *expanded = &party->expanded[repeat];
    const int32_t num_rows = (int32_t)expanded_capacity(shape);
    weft_ep_reduce_args args = WEFT_INIT(weft_ep_reduce_args);
    weft__sim_host_writes(expanded->made, (size_t)num_rows * SCENARIO_ROW_BYTES);
    for (int32_t i = 0; i < num_rows * HIDDEN; i++)
        expanded->made[i] = row_element(round, repeat, party->rank, i / HIDDEN, i % HIDDEN);
    args.rows = expanded->made;
    args.choice_rows = expanded->choice_rows;
    args.out = expanded->sums;
    args.row_weights = expanded->row_weights;
    args.topk_weights = expanded->weights_back;
    args.hidden = HIDDEN;
    args.dtype = WEFT_FP32;
    args.capacity = shape->capacity;
    args.expanded_capacity = num_rows;
    args.num_blocks = shape->num_call_blocks[repeat][party->rank];
    return weft_ep_reduce(party_handle(party, round), &args, party->stream);
}

weft_result party_expand(struct party *party, int32_t round, int32_t repeat)
{
    TRY(enqueue_expand(party, round, repeat));
    return enqueue_reduce(party, round, repeat);
}

/* ---------------------------------------------------------------- results */

static void host_reads(const struct party *party, int32_t repeat, int32_t num_rows)
{
    const struct expanded *expanded = &party->expanded[repeat];
    const size_t capacity = (size_t)party->shape->capacity;
    const size_t num_expanded = expanded_capacity(party->shape);
    const size_t num_choices = (size_t)num_rows * (size_t)party->shape->num_topk;
    weft__sim_host_reads(expanded->x, num_expanded * SCENARIO_ROW_BYTES);
    weft__sim_host_reads(expanded->src_rows, num_expanded * sizeof(int32_t));
    weft__sim_host_reads(expanded->row_weights, num_expanded * sizeof(float));
    weft__sim_host_reads(expanded->choice_rows, num_choices * sizeof(int32_t));
    weft__sim_host_reads(expanded->weights_back, num_choices * sizeof(float));
    weft__sim_host_reads(expanded->sums, (size_t)num_rows * SCENARIO_ROW_BYTES);
    weft__sim_host_reads(party->recv[repeat].x, capacity * SCENARIO_ROW_BYTES);
}

static void check_expanded_row(struct party *party, const struct rows *rows,
                               const struct expanded *expanded, int32_t i,
                               struct ep_expanded_row expected)
{
    static const char zeros[SCENARIO_ROW_BYTES];
    const int32_t choice = expected.row * party->shape->num_topk + expected.k;
    const char *row = expected.row < 0
                          ? zeros
                          : (const char *)rows->x + (size_t)expected.row * SCENARIO_ROW_BYTES;
    party_expect(party, "src_rows", i, expanded->src_rows[i], expected.row);
    if (memcmp((const char *)expanded->x + (size_t)i * SCENARIO_ROW_BYTES, row,
               SCENARIO_ROW_BYTES) != 0)
        party_complain(party, "expanded row %d differs from row %d", i, expected.row);
    party_expect(party, "row_weights", i, expanded->row_weights[i],
                 expected.row < 0 ? 0 : rows->weights[choice]);
    if (expected.row >= 0)
        party_expect(party, "choice_rows", choice, expanded->choice_rows[choice], i);
}

static void check_sum(struct party *party, const struct expanded *expanded, int32_t round,
                      int32_t repeat, int32_t row)
{
    const int32_t num_topk = party->shape->num_topk;
    float sum[HIDDEN] = {0};
    for (int32_t k = row * num_topk; k < (row + 1) * num_topk; k++) {
        const int32_t expanded_row = expanded->choice_rows[k];
        for (int32_t i = 0; i < HIDDEN && expanded_row >= 0; i++)
            sum[i] += row_element(round, repeat, party->rank, expanded_row, i);
        party_expect(party, "topk_weights of reduce", k, expanded->weights_back[k],
                     expanded_row < 0 ? 0 : expanded->row_weights[expanded_row]);
    }
    for (int32_t i = 0; i < HIDDEN; i++)
        party_expect(party, "sum", row * HIDDEN + i, expanded->sums[row * HIDDEN + i], sum[i]);
}

void party_check_expanded(struct party *party, int32_t round, int32_t repeat)
{
    const struct expanded *expanded = &party->expanded[repeat];
    struct shape_oracle oracle;
    struct ep_received received;
    struct ep_expanded_row *rows = party->expected;
    shape_oracle_open(&oracle, party->shape, round);
    char *memory = (char *)(rows + expanded_capacity(party->shape));
    ep_oracle_receive(&oracle.problem, party->rank, memory, &received);
    const int32_t num_rows = ep_oracle_num_expanded_rows(&oracle.problem, party->rank);
    ep_oracle_expand(&oracle.problem, party->rank, &received, received.num_rows, rows);
    host_reads(party, repeat, received.num_rows);
    for (int32_t i = 0; i < num_rows; i++)
        check_expanded_row(party, &party->recv[repeat], expanded, i, rows[i]);
    for (int32_t i = num_rows; i < (int32_t)expanded_capacity(party->shape); i++)
        party_expect(party, "src_rows", i, expanded->src_rows[i], -1);
    for (int32_t row = 0; row < received.num_rows; row++)
        check_sum(party, expanded, round, repeat, row);
}
