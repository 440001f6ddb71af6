/* SPDX-License-Identifier: MIT */
/* The rounds of combine: rows of several dtypes, and biases, all of them integers. Those of BF16 are rounded so coarsely
 * that it shows whether each node's sum, or each row on one node, was rounded on its way, as the wire's dtype says.
 * Logarithms are exact of one magnitude, if it has no more than 8 bits, so that is what answers have then. */
#include "ep_rounds.h"
#include "workload/elements.h"
#include "workload/node_sums.h"

enum { EXPERT_FACTOR = 3 }; /* what an answer tells of its rank, beside the token's own element */
enum { MAGNITUDES = 31 };   /* of logarithms: the sums of a node's ranks, of 8, are below 256 */

/* A token of which an element is answered. */
struct answered {
    int32_t round, repeat, source, idx;
};

/* ---------------------------------------------------------------- elements */

static float rounded(const struct shape *shape, float value)
{
    elements_round(shape->combine_dtype, &value, 1);
    return value;
}

static int32_t hidden_of(const struct shape *shape)
{
    return shape->combine_row_bytes / (int32_t)dtype_bytes(shape->combine_dtype);
}

/* What a rank answers to a value of a token. */
static float answer(float value, int32_t rank)
{
    return value + (float)(EXPERT_FACTOR * rank);
}

static float answer_element(const struct shape *shape, const struct answered *token, int32_t i,
                            int32_t rank)
{
    if (shape->combine_wire != WEFT_LOG_10BIT)
        return answer(shape_element(token->round, token->repeat, token->source, token->idx, i),
                      rank);
    const float element = shape_element(token->round, token->repeat, token->source, token->idx, 0);
    const float magnitude = answer((float)((int32_t)element % MAGNITUDES), rank);
    return i % 2 == 0 ? magnitude : -magnitude;
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
        weft__sim_host_writes(party->bias[which],
                              (size_t)num_tokens * (size_t)shape->combine_row_bytes);
        for (int32_t i = 0; i < num_tokens * hidden; i++)
            element_store(shape->combine_dtype, party->bias[which], i,
                          bias_element(shape, which, i / hidden, i % hidden));
    }
}

/* The rows that this rank answers with. */
static void fill_answers(struct party *party, int32_t round, int32_t repeat)
{
    const struct shape *shape = party->shape;
    const int32_t hidden = hidden_of(shape);
    struct rows *rows = &party->recv[repeat];
    party_clear_rows(party, rows);
    int32_t row = 0;
    for (int32_t source = 0; source < shape->num_ranks; source++) {
        for (int32_t token = 0; token < shape->num_tokens[round][source]; token++) {
            if (!shape_goes_to(shape, round, source, token, party->rank))
                continue;
            const struct answered answered = {round, repeat, source, token};
            for (int32_t i = 0; i < hidden; i++)
                element_store(shape->combine_dtype, rows->x, row * hidden + i,
                              answer_element(shape, &answered, i, party->rank));
            for (int32_t k = 0; k < shape->num_topk; k++)
                rows->weights[row * shape->num_topk + k] =
                    answer(shape_weight(round, source, token, k), party->rank);
            row++;
        }
    }
}

static weft_result enqueue_combine(struct party *party, int32_t round, int32_t repeat)
{
    const size_t num_tokens = (size_t)party->shape->num_tokens[round][party->rank];
    fill_answers(party, round, repeat);
    party_clear(party->out[repeat], num_tokens * (size_t)party->shape->combine_row_bytes);
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

struct answering {
    const struct shape *shape;
    struct answered token;
};

static int read_answer(void *of, int32_t rank, float *values)
{
    const struct answering *answering = of;
    const struct shape *shape = answering->shape;
    const struct answered *token = &answering->token;
    for (int32_t i = 0; i < hidden_of(shape); i++)
        values[i] = rounded(shape, answer_element(shape, token, i, rank));
    return shape_goes_to(shape, token->round, token->source, token->idx, rank);
}

/* The sum of the biases and of what each node sends; sums of integers are exact in fp32. */
static void fill_expected(const struct party *party, struct answered token, float *sum)
{
    const struct shape *shape = party->shape;
    struct answering answering = {shape, token};
    float scratch[2 * SHAPE_MAX_HIDDEN];
    int32_t nodes[SCENARIO_MAX_RANKS];
    const struct node_sums sums = {.num_ranks = shape->num_ranks,
                                   .num_nodes = shape->num_nodes,
                                   .node_of_rank = nodes,
                                   .num_values = hidden_of(shape),
                                   .dtype = shape->combine_dtype,
                                   .wire = shape->combine_wire,
                                   .read = read_answer,
                                   .of = &answering};
    for (int32_t rank = 0; rank < shape->num_ranks; rank++)
        nodes[rank] = shape_node_of(shape, rank);
    for (int32_t i = 0; i < hidden_of(shape); i++) {
        sum[i] = 0;
        for (int32_t which = 0; which < shape->num_biases; which++)
            sum[i] += bias_element(shape, which, token.idx, i);
    }
    node_sums_add(&sums, sum, scratch);
    elements_round(shape->combine_dtype, sum, (size_t)hidden_of(shape));
}

static float expected_weight(const struct party *party, int32_t round, int32_t token, int32_t k)
{
    const float value = shape_weight(round, party->rank, token, k);
    float sum = 0;
    for (int32_t rank = 0; rank < party->shape->num_ranks; rank++) {
        if (shape_goes_to(party->shape, round, party->rank, token, rank))
            sum += answer(value, rank);
    }
    return sum;
}

static void check_out(struct party *party, int32_t round, int32_t repeat)
{
    const struct shape *shape = party->shape;
    const int32_t num_tokens = shape->num_tokens[round][party->rank], hidden = hidden_of(shape);
    const int32_t num_choices = num_tokens * shape->num_topk;
    const float *weights = party->out_weights[repeat];
    weft__sim_host_reads(party->out[repeat], (size_t)num_tokens * (size_t)shape->combine_row_bytes);
    weft__sim_host_reads(weights, (size_t)num_choices * sizeof *weights);
    for (int32_t token = 0; token < num_tokens; token++) {
        float sum[SHAPE_MAX_HIDDEN];
        fill_expected(party, (struct answered){round, repeat, party->rank, token}, sum);
        for (int32_t i = 0; i < hidden; i++)
            party_expect(party, "out", token * hidden + i,
                         element_load(shape->combine_dtype, party->out[repeat], token * hidden + i),
                         sum[i]);
    }
    for (int32_t i = 0; i < num_choices; i++)
        party_expect(party, "out_topk_weights", i, weights[i],
                     expected_weight(party, round, i / shape->num_topk, i % shape->num_topk));
}

weft_result party_run_combine(struct party *party, int32_t round)
{
    fill_biases(party, round);
    PARTY_TRY(party_route(party, round));
    return party_repeat(party, round, enqueue_combine, check_out);
}
