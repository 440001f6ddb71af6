/* SPDX-License-Identifier: MIT */
/* The rounds of combine: rows of several dtypes, and biases, all of them integers. Those of BF16 are rounded so coarsely
 * that it shows whether each node's sum, or each row on one node, was rounded on its way, as the wire's dtype says.
 * Logarithms are exact of one magnitude, if it has no more than 8 bits, so that is what answers have then. */
#include "ep_rounds.h"
#include "workload/elements.h"

enum { EXPERT_FACTOR = 3 }; /* what an answer tells of its rank, beside the token's own element */
enum { MAGNITUDES = 31 };   /* of logarithms: the sums of a node's ranks, of 8, are below 256 */

/* A token of which an element is answered. */
struct answered {
    int32_t round, repeat, source, idx;
};

/* ---------------------------------------------------------------- elements */

static float rounded_to(weft_dtype dtype, float value)
{
    elements_round(dtype, &value, 1);
    return value;
}

static float rounded(const struct shape *shape, float value)
{
    return rounded_to(shape->combine_dtype, value);
}

/* Of one node they do not travel. */
static weft_dtype dtype_of_sums(const struct shape *shape)
{
    if (shape->num_nodes == 1 || shape->combine_wire == WEFT_LOG_10BIT)
        return WEFT_FP32;
    return shape->combine_wire == WEFT_DTYPE_NONE ? shape->combine_dtype : shape->combine_wire;
}

/* What the owner of a token reads: on one node rows that may have been narrowed. */
static weft_dtype dtype_of_rows(const struct shape *shape)
{
    const int is_narrowed = shape->num_nodes == 1 && shape->combine_wire == WEFT_BF16;
    return is_narrowed ? WEFT_BF16 : shape->combine_dtype;
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

/* The ranks of a node that answer a token of this rank, in order. */
static int32_t list_answering(const struct party *party, int32_t round, int32_t token, int32_t node,
                              int32_t *ranks)
{
    const int32_t ranks_per_node = party->shape->num_ranks / party->shape->num_nodes;
    int32_t num_answering = 0;
    for (int32_t rank = node * ranks_per_node; rank < (node + 1) * ranks_per_node; rank++) {
        if (shape_goes_to(party->shape, round, party->rank, token, rank))
            ranks[num_answering++] = rank;
    }
    return num_answering;
}

/* The sum of the biases and of what each node sends; sums of integers are exact in fp32. */
static float expected_element(const struct party *party, int32_t round, int32_t repeat,
                              int32_t token, int32_t i)
{
    const struct shape *shape = party->shape;
    const struct answered answered = {round, repeat, party->rank, token};
    float sum = 0;
    for (int32_t which = 0; which < shape->num_biases; which++)
        sum += bias_element(shape, which, token, i);
    for (int32_t node = 0; node < shape->num_nodes; node++) {
        int32_t ranks[SCENARIO_MAX_RANKS];
        const int32_t num_ranks = list_answering(party, round, token, node, ranks);
        float partial = 0;
        for (int32_t j = 0; j < num_ranks; j++)
            partial +=
                rounded_to(dtype_of_rows(shape), answer_element(shape, &answered, i, ranks[j]));
        sum += rounded_to(dtype_of_sums(shape), partial);
    }
    return rounded(shape, sum);
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
    for (int32_t i = 0; i < num_tokens * hidden; i++)
        party_expect(party, "out", i, element_load(shape->combine_dtype, party->out[repeat], i),
                     expected_element(party, round, repeat, i / hidden, i % hidden));
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
