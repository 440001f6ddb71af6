/* SPDX-License-Identifier: MIT */
/* The oracle against results worked out by hand. */
#include <stdio.h>

#include "harness/cmocka.h"
#include "oracle/ep_experts.h"
#include "workload/elements.h"
#include "workload/ep_oracle_check.h"

/* Two ranks, three experts: 0 on rank 0, 1 on both (rank 1 first), 2 on rank 1. */
static const int32_t expert_offsets[] = {0, 1, 3, 4};
static const int32_t expert_ranks[] = {0, 1, 0, 1};
static const struct ep_experts experts = {2, 3, expert_offsets, expert_ranks};
static const int64_t topk_idx_0[] = {0, 2, /**/ 1, 1, /**/ -1, 3};
static const int64_t topk_idx_1[] = {1, 0};
static const float topk_weights_0[] = {0.5F, 0.25F, /**/ 1, 2, /**/ 3, 4};
static const float topk_weights_1[] = {5, 6};
static const struct ep_chosen chosen[] = {{3, topk_idx_0, topk_weights_0},
                                          {1, topk_idx_1, topk_weights_1}};
static struct ep_problem problem;

static int open_problem(void **state)
{
    (void)state;
    problem = ep_problem_create(&experts, chosen, 2);
    problem.expert_alignment = 3;
    return 0;
}

static int close_problem(void **state)
{
    (void)state;
    ep_problem_destroy(&problem);
    return 0;
}

TEST(placement)
{
    int32_t offsets[4], ranks[3];
    ep_experts_default(2, 3, offsets, ranks);
    const int32_t expected_offsets[] = {0, 1, 2, 3};
    const int32_t expected_ranks[] = {0, 1, 1};
    assert_memory_equal(offsets, expected_offsets, sizeof offsets);
    assert_memory_equal(ranks, expected_ranks, sizeof ranks);
    for (int32_t expert = 0; expert < 3; expert++)
        assert_int_equal(ep_rank_of_expert(3, 2, expert), expected_ranks[expert]);
    assert_int_equal(problem.num_local_experts[0], 2);
    assert_int_equal(problem.num_local_experts[1], 2);
    assert_int_equal(ep_experts_next(&experts, 1, -1), 1);
    assert_int_equal(ep_experts_next(&experts, 1, 1), 2);
    assert_int_equal(ep_experts_next(&experts, 1, 2), -1);
}

/* Token 1 of rank 0 uses replica (0 + 1) % 2 of expert 1: rank 0; so does (1 + 0) % 2. */
TEST(destinations)
{
    static const int32_t expected[3][2] = {{0, 1}, {0, 0}, {-1, -1}};
    for (int32_t token = 0; token < 3; token++)
        for (int32_t k = 0; k < 2; k++)
            assert_int_equal(ep_oracle_choice(&problem, (struct ep_token){0, token}, k).rank,
                             expected[token][k]);
    assert_int_equal(ep_oracle_choice(&problem, (struct ep_token){1, 0}, 0).rank, 0);
}

/* ---------------------------------------------------------------- what is told */

struct told {
    int32_t num_right, num_wrong;
    char text[160]; /* of the last that was wrong */
};

static void tell(void *of, int is_right, const char *text)
{
    struct told *told = of;
    told->num_right += is_right;
    told->num_wrong += !is_right;
    if (!is_right)
        snprintf(told->text, sizeof told->text, "%s", text);
}

static void expect_told(const struct told *told, int32_t num_right, const char *wrong)
{
    assert_int_equal(told->num_wrong, wrong != NULL);
    assert_int_equal(told->num_right + told->num_wrong, num_right);
    assert_string_equal(told->text, wrong == NULL ? "" : wrong);
}

/* With another value here alone. */
#define WRONG(place, value, expect, text)                                                          \
    do {                                                                                           \
        const __typeof__(place) right = place;                                                     \
        place = value;                                                                             \
        expect(&found, text);                                                                      \
        place = right;                                                                             \
    } while (0)

static void expect_layout(const struct ep_laid_out *found, const char *wrong)
{
    struct told told = {0};
    const struct ep_checker checker = {&problem, 0, tell, &told};
    ep_oracle_check_layout(&checker, found);
    expect_told(&told, 3 + 2 + 1 + 3, wrong);
}

TEST(layout)
{
    int32_t per_rank[] = {2, 1}, per_node[] = {2}, per_expert[] = {1, 2, 1};
    uint8_t in_rank[] = {1, 1, /**/ 1, 0, /**/ 0, 0};
    const struct ep_laid_out found = {per_rank, per_node, per_expert, in_rank};
    expect_layout(&found, NULL);
    WRONG(per_rank[1], 2, expect_layout, "num_tokens_per_rank[1] is 2, not 1");
    WRONG(per_node[0], 3, expect_layout, "num_tokens_per_node[0] is 3, not 2");
    WRONG(per_expert[2], 0, expect_layout, "num_tokens_per_expert[2] is 0, not 1");
    in_rank[3] = 1;
    expect_layout(&found, "is_token_in_rank of token 1 and rank 1 is 1");
}

static void expect_counts(const weft_ep_counts *found, const char *wrong)
{
    struct told told = {0};
    const struct ep_checker checker = {&problem, 0, tell, &told};
    ep_oracle_check_counts(&checker, found);
    expect_told(&told, 3 + 2 + 1 + 3 * 2 + 1, wrong);
}

TEST(counts)
{
    int32_t per_rank[] = {2, 1}, per_expert[] = {3, 3}, ends[] = {2, 3};
    int32_t selections[] = {2, 3}, firsts[] = {0, 3};
    weft_ep_counts found = WEFT_INIT(weft_ep_counts);
    struct told told = {0};
    const struct ep_checker checker = {&problem, 0, tell, &told};
    found.num_recv_per_rank = per_rank;
    found.num_recv_per_expert = per_expert;
    found.num_selections_per_expert = selections;
    found.first_row_per_expert = firsts;
    found.num_expanded_rows = 6;
    found.num_recv_tokens = found.max_recv_tokens = 3;
    found.num_local_experts = 2;
    expect_counts(&found, NULL);
    WRONG(per_expert[1], 2, expect_counts, "num_recv_per_expert[1] is 2, not 3");
    WRONG(selections[0], 3, expect_counts, "num_selections_per_expert[0] is 3, not 2");
    WRONG(firsts[1], 2, expect_counts, "first_row_per_expert[1] is 2, not 3");
    WRONG(found.num_expanded_rows, 5, expect_counts, "num_expanded_rows[0] is 5, not 6");
    WRONG(found.max_recv_tokens, 4, expect_counts, "max_recv_tokens[0] is 4, not 3");
    found.num_relayed_tokens = 1;
    expect_counts(&found, "num_relayed_tokens[0] is 1, not 0");
    ep_oracle_check_ends(&checker, ends);
    expect_told(&told, 2, NULL);
    ends[1] = 2;
    ep_oracle_check_ends(&checker, ends);
    expect_told(&told, 4, "recv_rank_ends[1] is 2, not 3");
}

/* ---------------------------------------------------------------- rows */

TEST(received)
{
    char memory[256];
    struct ep_received got;
    assert_true(ep_received_bytes(&problem) <= sizeof memory);
    ep_oracle_receive(&problem, 0, memory, &got);
    const struct ep_token rows[] = {{0, 0}, {0, 1}, {1, 0}};
    const int32_t row_of_token[] = {0, 1, -1, 2};
    assert_int_equal(got.num_rows, 3);
    assert_memory_equal(got.rows, rows, sizeof rows);
    assert_memory_equal(got.row_of_token, row_of_token, sizeof row_of_token);
    ep_oracle_receive(&problem, 1, memory, &got);
    assert_int_equal(got.num_rows, 1);
}

static void expect_notes(const struct ep_row_notes *found, const char *wrong)
{
    static const struct ep_token rows[] = {{0, 0}, {0, 1}, {1, 0}};
    struct told told = {0};
    const struct ep_checker checker = {&problem, 0, tell, &told};
    for (int32_t row = 0; row < 3; row++)
        ep_oracle_check_notes(&checker, found, row, rows[row]);
    expect_told(&told, 3, wrong);
}

TEST(notes)
{
    int64_t topk_idx[] = {0, -1, /**/ 1, 1, /**/ 1, 0, /**/ -1, -1};
    float topk_weights[] = {0.5F, 0, /**/ 1, 2, /**/ 5, 6};
    int32_t src_token[] = {0, 1, 0};
    const struct ep_row_notes found = {WEFT_INT64, topk_idx, topk_weights, src_token};
    struct told told = {0};
    const struct ep_checker checker = {&problem, 0, tell, &told};
    expect_notes(&found, NULL);
    expect_notes(&(struct ep_row_notes){.src_token = src_token}, NULL);
    WRONG(topk_idx[1], 1, expect_notes, "recv_topk_idx[1] of row 0 is 1, not -1");
    WRONG(topk_weights[1], -0.0F, expect_notes, "recv_topk_weights[1] of row 0 is -0, not 0");
    src_token[2] = 1;
    expect_notes(&found, "recv_src_token of row 2 is 1, not 0");
    ep_oracle_check_no_more(&checker, &found, 3, 4);
    expect_told(&told, 0, NULL);
    topk_idx[7] = 0;
    ep_oracle_check_no_more(&checker, &found, 3, 4);
    expect_told(&told, 1, "recv_topk_idx[7] behind the last row is 0");
}

/* Rank 0 gets all tokens of both ranks by expert 0; without that expert, those whose rank + token
 * is odd. */
TEST(worst_case)
{
    const int32_t replicas_only[] = {1, 0};
    const int32_t one_offset[] = {0, 2};
    const struct ep_experts smaller = {2, 1, one_offset, replicas_only};
    assert_int_equal(ep_experts_max_recv_tokens(&experts, 0, 3), 6);
    assert_int_equal(ep_experts_max_recv_tokens(&smaller, 0, 3), 3);
    assert_int_equal(ep_experts_max_recv_tokens(&smaller, 1, 1), 1);
}

/* ---------------------------------------------------------------- sums */

/* What each rank answers, NULL: nothing. */
static int read_value(void *of, struct ep_token token, int32_t rank, float *values)
{
    const float *const *answers = of;
    (void)token;
    if (answers[rank] != NULL)
        values[0] = *answers[rank];
    return answers[rank] != NULL;
}

static float sum_of(const struct ep_problem *of, struct ep_token token, weft_dtype dtype,
                    weft_dtype wire, float bias, const float *const *answers)
{
    float scratch[2];
    ep_oracle_combine(of,
                      &(struct ep_answers){1, dtype, wire, read_value, (void *)(uintptr_t)answers},
                      token, &bias, scratch);
    return bias;
}

/* 1 + 2^24 rounds to 2^24 in fp32, and so does adding the second rank's 1. */
TEST(combined)
{
    static const float large = 0x1p24F, one = 1;
    const float *const all[] = {&large, &one}, *const none_of_rank_0[] = {NULL, &one};
    const struct ep_token first = {0, 0};
    /* 2 + 2^24 is exact, + 1 is a tie that goes to even */
    assert_true(sum_of(&problem, first, WEFT_FP32, 0, 2, all) == 0x1p24F + 4.0F);
    assert_true(sum_of(&problem, first, WEFT_FP32, 0, 1, all) == 0x1p24F);
    assert_true(sum_of(&problem, first, WEFT_FP32, 0, 1, none_of_rank_0) == 2.0F);
    assert_true(sum_of(&problem, (struct ep_token){0, 2}, WEFT_FP32, 0, 3, all) == 3.0F);
}

/* Four ranks as two nodes, one expert on each, and a token of rank 0 that goes to all of them. */
static const int32_t four_offsets[] = {0, 1, 2, 3, 4};
static const int32_t four_ranks[] = {0, 1, 2, 3};
static const struct ep_experts four_experts = {4, 4, four_offsets, four_ranks};
static const int64_t all_four[] = {0, 1, 2, 3};
static const float four_weights[] = {1, 1, 1, 1};
static const struct ep_chosen one_token[] = {
    {1, all_four, four_weights}, {0, NULL, NULL}, {0, NULL, NULL}, {0, NULL, NULL}};

/* In BF16, with 8 significant bits: 256, 1, then 1, 1/256. */
static const float rows[] = {256.0F, 1.0F, 1.0F, 0x1p-8F};
/* So that the order of a sum shows: 2^24, 1, then 1, -2^24. */
static const float weights[] = {0x1p24F, 1.0F, 1.0F, -0x1p24F};

enum whose { ALL, ALL_BUT_NODE_0 };
static float combined_over(int32_t num_nodes, weft_dtype wire, weft_dtype dtype, enum whose whose)
{
    struct ep_problem of_four = ep_problem_create(&four_experts, one_token, 4);
    const float *values = dtype == WEFT_BF16 ? rows : weights;
    const float *answers[4];
    for (int rank = 0; rank < 4; rank++)
        answers[rank] = whose == ALL_BUT_NODE_0 && rank < 2 ? NULL : &values[rank];
    of_four.num_nodes = num_nodes;
    const float sum = sum_of(&of_four, (struct ep_token){0, 0}, dtype, wire,
                             dtype == WEFT_BF16 ? 1.0F : 0.0F, answers);
    ep_problem_destroy(&of_four);
    return sum;
}

TEST(combined_by_node)
{
    /* 257 is a tie between 256 and 258, to even: 256; 1 + 2^-8 one between 1 and 1 + 2^-7: 1. 1 +
     * 256 + 1 = 258. */
    assert_true(combined_over(2, WEFT_DTYPE_NONE, WEFT_BF16, ALL) == 258.0F);
    /* (2^24 + 1) + (1 - 2^24) = 2^24 - (2^24 - 1) */
    assert_true(combined_over(2, WEFT_FP32, WEFT_FP32, ALL) == 1.0F);
    /* 1 + 257 + (1 + 2^-8) is a little more than 259, the tie between 258 and 260. */
    assert_true(combined_over(2, WEFT_FP32, WEFT_BF16, ALL) == 260.0F);
    /* The same row by row; of weights, ((2^24 + 1) + 1) - 2^24. */
    assert_true(combined_over(1, WEFT_DTYPE_NONE, WEFT_BF16, ALL) == 260.0F);
    assert_true(combined_over(1, WEFT_FP32, WEFT_FP32, ALL) == 0.0F);
    assert_true(combined_over(2, WEFT_DTYPE_NONE, WEFT_BF16, ALL_BUT_NODE_0) == 2.0F);
    assert_true(combined_over(4, WEFT_DTYPE_NONE, WEFT_BF16, ALL) == 260.0F);
}

/* Ranks 1 and 3 have the second place of their nodes; 0 and 2 the first, so that 2 relays for 0. */
TEST(relayed)
{
    static const int32_t nodes_in_turn[] = {0, 1, 0, 1};
    struct ep_problem of_four = ep_problem_create(&four_experts, one_token, 4);
    of_four.num_nodes = 2;
    for (int32_t rank = 0; rank < 4; rank++)
        assert_int_equal(ep_oracle_num_relayed(&of_four, rank), rank == 2);
    of_four.nodes = nodes_in_turn;
    for (int32_t rank = 0; rank < 4; rank++)
        assert_int_equal(ep_oracle_num_relayed(&of_four, rank), rank == 1);
    ep_problem_destroy(&of_four);
}

int main(void)
{
    return tests_run(open_problem, close_problem);
}
