/* SPDX-License-Identifier: MIT */
/* The rounds of combine: rows of several dtypes, and biases, all of them integers. Those of BF16
 * are rounded so coarsely that it shows whether each node's sum, or each row on one node, was
 * rounded on its way, as the wire's dtype says. */
#include "ep_rounds.h"
#include "shape_oracle.h"
#include "workload/elements.h"

enum { EXPERT_FACTOR = 3 }; /* what an answer tells of its rank, beside the token's own element */
enum { MAX_HIDDEN = SCENARIO_ROW_BYTES / 2 };

/* The values of a round, and a repetition in it. */
struct combined {
    int32_t round, repeat;
    struct shape_oracle oracle;
};

/* ---------------------------------------------------------------- elements */

static float rounded(const struct shape *shape, float value)
{
    elements_round(shape->combine_dtype, &value, 1);
    return value;
}

static int32_t hidden_of(const struct shape *shape)
{
    return SCENARIO_ROW_BYTES / (int32_t)dtype_bytes(shape->combine_dtype);
}

/* A rank's answer to a value of a token. */
static float answer(float value, int32_t rank)
{
    return value + (float)(EXPERT_FACTOR * rank);
}

static float answer_element(const struct combined *combined, struct ep_token token, int32_t i,
                            int32_t rank)
{
    return answer(shape_element(combined->round, combined->repeat, token.source, token.idx, i),
                  rank);
}

static float bias_element(const struct shape *shape, int32_t which, int32_t token, int32_t i)
{
    return rounded(shape, (float)(100 + 50 * which + 7 * token + i));
}

/* ---------------------------------------------------------------- inputs */

static void fill_biases(struct party *party, int32_t round)
{
    const struct shape *shape = party->shape;
    const int32_t hidden = hidden_of(shape);
    const int32_t num_tokens = shape->num_tokens[round][party->rank];
    for (int32_t which = 0; which < shape->num_biases; which++) {
        weft__sim_host_writes(party->bias[which], (size_t)num_tokens * SCENARIO_ROW_BYTES);
        for (int32_t i = 0; i < num_tokens * hidden; i++)
            element_store(shape->combine_dtype, party->bias[which], i,
                          bias_element(shape, which, i / hidden, i % hidden));
    }
}

static void fill_answer(struct party *party, const struct combined *combined, struct ep_token token,
                        int32_t row)
{
    const struct shape *shape = party->shape;
    const struct rows *rows = &party->recv[combined->repeat];
    const int32_t hidden = hidden_of(shape);
    for (int32_t i = 0; i < hidden; i++)
        element_store(shape->combine_dtype, rows->x, row * hidden + i,
                      answer_element(combined, token, i, party->rank));
    for (int32_t k = 0; k < shape->num_topk; k++)
        rows->weights[row * shape->num_topk + k] =
            answer(shape_weight(combined->round, token.source, token.idx, k), party->rank);
}

/* The rows that this rank answers with. */
static void fill_answers(struct party *party, int32_t round, int32_t repeat)
{
    struct combined combined = {round, repeat, {0}};
    struct ep_token token = {0, 0};
    int32_t row = 0;
    shape_oracle_open(&combined.oracle, party->shape, round);
    party_clear_rows(party, &party->recv[repeat]);
    for (token.source = 0; token.source < party->shape->num_ranks; token.source++)
        for (token.idx = 0; token.idx < party->shape->num_tokens[round][token.source]; token.idx++)
            if (ep_oracle_goes_to(&combined.oracle.problem, token, party->rank))
                fill_answer(party, &combined, token, row++);
}

static weft_result enqueue_combine(struct party *party, int32_t round, int32_t repeat)
{
    const size_t num_tokens = (size_t)party->shape->num_tokens[round][party->rank];
    fill_answers(party, round, repeat);
    party_clear(party->out[repeat], num_tokens * SCENARIO_ROW_BYTES);
    weft_ep_combine_args args = WEFT_INIT(weft_ep_combine_args);
    args.dtype = party->shape->combine_dtype;
    args.hidden = hidden_of(party->shape);
    args.capacity = party->shape->capacity;
    args.x = party->recv[repeat].x;
    for (int32_t which = 0; which < party->shape->num_biases; which++)
        args.bias[which] = party->bias[which];
    args.out = party->out[repeat];
    args.topk_weights = party->recv[repeat].weights;
    args.out_topk_weights = party->out_weights[repeat];
    args.num_blocks = party->shape->num_call_blocks[repeat][party->rank];
    return weft_ep_combine(party_handle(party, round), &args, party->stream);
}

/* ---------------------------------------------------------------- results */

static int read_answer(void *of, struct ep_token token, int32_t rank, float *values)
{
    const struct combined *combined = of;
    const struct shape *shape = combined->oracle.shape;
    for (int32_t i = 0; i < hidden_of(shape); i++)
        values[i] = rounded(shape, answer_element(combined, token, i, rank));
    return 1;
}

static int read_weights(void *of, struct ep_token token, int32_t rank, float *values)
{
    const struct combined *combined = of;
    for (int32_t k = 0; k < combined->oracle.shape->num_topk; k++)
        values[k] = answer(shape_weight(combined->round, token.source, token.idx, k), rank);
    return 1;
}

/* The sum of the biases and of what each node sends; sums of integers are exact in fp32. */
static void check_sum(struct party *party, struct combined *combined, struct ep_token token)
{
    const struct shape *shape = party->shape;
    const int32_t hidden = hidden_of(shape);
    const struct ep_answers answers = {hidden, shape->combine_dtype, shape->combine_wire,
                                       read_answer, combined};
    float sum[MAX_HIDDEN] = {0}, scratch[2 * MAX_HIDDEN];
    for (int32_t i = 0; i < hidden; i++)
        for (int32_t which = 0; which < shape->num_biases; which++)
            sum[i] += bias_element(shape, which, token.idx, i);
    ep_oracle_combine(&combined->oracle.problem, &answers, token, sum, scratch);
    for (int32_t i = token.idx * hidden; i < (token.idx + 1) * hidden; i++)
        party_expect(party, "out", i,
                     element_load(shape->combine_dtype, party->out[combined->repeat], i),
                     sum[i % hidden]);
}

static void check_weights(struct party *party, struct combined *combined, struct ep_token token)
{
    const int32_t num_topk = party->shape->num_topk;
    const struct ep_answers answers = {num_topk, WEFT_FP32, WEFT_FP32, read_weights, combined};
    float sum[SHAPE_MAX_TOPK] = {0}, scratch[2 * SHAPE_MAX_TOPK];
    ep_oracle_combine(&combined->oracle.problem, &answers, token, sum, scratch);
    for (int32_t i = token.idx * num_topk; i < (token.idx + 1) * num_topk; i++)
        party_expect(party, "out_topk_weights", i, party->out_weights[combined->repeat][i],
                     sum[i % num_topk]);
}

static void check_out(struct party *party, int32_t round, int32_t repeat)
{
    const struct shape *shape = party->shape;
    const int32_t num_tokens = shape->num_tokens[round][party->rank];
    const size_t num_choices = (size_t)num_tokens * (size_t)shape->num_topk;
    struct combined combined = {round, repeat, {0}};
    shape_oracle_open(&combined.oracle, shape, round);
    weft__sim_host_reads(party->out[repeat], (size_t)num_tokens * SCENARIO_ROW_BYTES);
    weft__sim_host_reads(party->out_weights[repeat], num_choices * sizeof(float));
    for (int32_t i = 0; i < num_tokens; i++) {
        check_sum(party, &combined, (struct ep_token){party->rank, i});
        check_weights(party, &combined, (struct ep_token){party->rank, i});
    }
}

weft_result party_run_combine(struct party *party, int32_t round)
{
    fill_biases(party, round);
    TRY(party_route(party, round));
    return party_repeat(party, round, enqueue_combine, check_out);
}
