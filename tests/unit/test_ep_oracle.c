/* SPDX-License-Identifier: MIT */
/* The oracle against results worked out by hand. */
#include <stdlib.h>
#include <string.h>

#include "harness/cmocka.h"
#include "oracle/ep_oracle.h"
#include "workload/elements.h"

/* Two ranks, three experts: 0 on rank 0, 1 on both (rank 1 first), 2 on rank 1. */
static const int32_t expert_offsets[] = {0, 1, 3, 4};
static const int32_t expert_ranks[] = {0, 1, 0, 1};
static const int64_t topk_idx_0[] = {0, 2, /**/ 1, 1, /**/ -1, 3};
static const int64_t topk_idx_1[] = {1, 0};
static const float topk_weights_0[] = {0.5F, 0.25F, /**/ 1, 2, /**/ 3, 4};
static const float topk_weights_1[] = {5, 6};
static const struct ep_oracle_tokens tokens[] = {{3, topk_idx_0, topk_weights_0},
                                                 {1, topk_idx_1, topk_weights_1}};
static const struct ep_oracle_problem problem = {.num_ranks = 2,
                                                 .num_nodes = 1,
                                                 .num_experts = 3,
                                                 .num_topk = 2,
                                                 .expert_alignment = 4,
                                                 .expert_offsets = expert_offsets,
                                                 .expert_ranks = expert_ranks,
                                                 .tokens = tokens};

TEST(placement)
{
    int32_t offsets[4], ranks[3];
    ep_oracle_default_placement(2, 3, offsets, ranks);
    const int32_t expected_offsets[] = {0, 1, 2, 3};
    const int32_t expected_ranks[] = {0, 1, 1};
    assert_memory_equal(offsets, expected_offsets, sizeof offsets);
    assert_memory_equal(ranks, expected_ranks, sizeof ranks);
    assert_int_equal(ep_oracle_num_local_experts(&problem, 0), 2);
    assert_int_equal(ep_oracle_num_local_experts(&problem, 1), 2);
    assert_int_equal(ep_oracle_global_expert(&problem, 1, 0), 1);
    assert_int_equal(ep_oracle_global_expert(&problem, 1, 1), 2);
    assert_int_equal(ep_oracle_global_expert(&problem, 1, 2), -1);
}

/* Token 1 of rank 0 uses replica (0 + 1) % 2 of expert 1: rank 0; so does (1 + 0) % 2. */
TEST(destinations)
{
    assert_int_equal(ep_oracle_destination(&problem, 0, 0, 0), 0);
    assert_int_equal(ep_oracle_destination(&problem, 0, 0, 1), 1);
    assert_int_equal(ep_oracle_destination(&problem, 0, 1, 0), 0);
    assert_int_equal(ep_oracle_destination(&problem, 0, 2, 0), -1);
    assert_int_equal(ep_oracle_destination(&problem, 0, 2, 1), -1);
    assert_int_equal(ep_oracle_destination(&problem, 1, 0, 0), 0);
}

TEST(layout)
{
    int32_t per_rank[2], per_node[1], per_expert[3];
    uint8_t in_rank[6];
    ep_oracle_layout(&problem, 0,
                     &(struct ep_oracle_layout){per_rank, per_node, per_expert, in_rank});
    const int32_t expected_per_rank[] = {2, 1};
    const int32_t expected_per_expert[] = {1, 2, 1};
    const uint8_t expected_in_rank[] = {1, 1, /**/ 1, 0, /**/ 0, 0};
    assert_memory_equal(per_rank, expected_per_rank, sizeof per_rank);
    assert_int_equal(per_node[0], 2);
    assert_memory_equal(per_expert, expected_per_expert, sizeof per_expert);
    assert_memory_equal(in_rank, expected_in_rank, sizeof in_rank);
}

TEST(received)
{
    struct ep_oracle_received got;
    ep_oracle_receive(&problem, 0, &got);
    const struct ep_oracle_row rows[] = {{0, 0}, {0, 1}, {1, 0}};
    const int32_t topk_idx[] = {0, -1, /**/ 1, 1, /**/ 1, 0};
    const float topk_weights[] = {0.5F, 0, /**/ 1, 2, /**/ 5, 6};
    const int32_t per_rank[] = {2, 1};
    const int32_t per_expert[] = {4, 4};
    assert_int_equal(got.num_rows, 3);
    assert_memory_equal(got.rows, rows, sizeof rows);
    assert_memory_equal(got.topk_idx, topk_idx, sizeof topk_idx);
    assert_memory_equal(got.topk_weights, topk_weights, sizeof topk_weights);
    assert_memory_equal(got.num_per_rank, per_rank, sizeof per_rank);
    assert_memory_equal(got.num_per_expert, per_expert, sizeof per_expert);
    assert_int_equal(got.row_of_source_token[0][2], -1);
    assert_int_equal(got.row_of_source_token[1][0], 2);
    ep_oracle_received_free(&problem, &got);
    ep_oracle_receive(&problem, 1, &got);
    assert_int_equal(got.num_rows, 1);
    assert_int_equal(got.topk_idx[1], 1);
    ep_oracle_received_free(&problem, &got);
}

/* Rank 0 gets all tokens of both ranks by expert 0; without that expert, those whose rank + token
 * is odd. */
TEST(worst_case)
{
    const int32_t replicas_only[] = {1, 0};
    const int32_t one_offset[] = {0, 2};
    struct ep_oracle_problem smaller = problem;
    smaller.num_experts = 1;
    smaller.expert_offsets = one_offset;
    smaller.expert_ranks = replicas_only;
    assert_int_equal(ep_oracle_max_recv_tokens(&problem, 0, 3), 6);
    assert_int_equal(ep_oracle_max_recv_tokens(&smaller, 0, 3), 3);
    assert_int_equal(ep_oracle_max_recv_tokens(&smaller, 1, 1), 1);
}

static void read_x(const void *reader, int32_t rank, int32_t row_idx, void *x)
{
    (void)reader;
    const float value = rank == 0 ? 0x1p24F : (float)(row_idx + 1);
    memcpy(x, &value, sizeof value);
}

/* 1 + 2^24 rounds to 2^24 in fp32, and so does adding the second rank's 1. */
TEST(combined)
{
    struct ep_oracle_received got[2];
    const int32_t all[] = {3, 1};
    const int32_t none_of_rank_0[] = {0, 1};
    const float bias[] = {1, 1, -0.0F};
    struct ep_oracle_combine combine = {
        .dtype = WEFT_FP32, .hidden = 1, .capacities = all, .bias = {bias, bias}, .read_x = read_x};
    float out;
    for (int32_t rank = 0; rank < 2; rank++)
        ep_oracle_receive(&problem, rank, &got[rank]);
    ep_oracle_combine_row(&problem, got, &combine, 0, 0, &out);
    assert_true(out == 0x1p24F + 4.0F); /* 2 + 2^24 is exact, + 1 is a tie that goes to even */
    combine.bias[1] = NULL;
    ep_oracle_combine_row(&problem, got, &combine, 0, 0, &out);
    assert_true(out == 0x1p24F);
    combine.capacities = none_of_rank_0;
    ep_oracle_combine_row(&problem, got, &combine, 0, 0, &out);
    assert_true(out == 2.0F);
    combine.bias[1] = bias;
    ep_oracle_combine_row(&problem, got, &combine, 0, 2, &out);
    const float zero = 0;
    assert_memory_equal(&out, &zero, sizeof out);
    for (int32_t rank = 0; rank < 2; rank++)
        ep_oracle_received_free(&problem, &got[rank]);
}

/* Four ranks as two nodes, one expert on each, and a token of rank 0 that goes to all of them. */
static const int32_t four_offsets[] = {0, 1, 2, 3, 4};
static const int32_t four_ranks[] = {0, 1, 2, 3};
static const int64_t all_four[] = {0, 1, 2, 3};
static const float four_weights[] = {1, 1, 1, 1};
static const struct ep_oracle_tokens one_token[] = {
    {1, all_four, four_weights}, {0, NULL, NULL}, {0, NULL, NULL}, {0, NULL, NULL}};
static const struct ep_oracle_problem two_nodes = {.num_ranks = 4,
                                                   .num_nodes = 2,
                                                   .num_experts = 4,
                                                   .num_topk = 4,
                                                   .expert_alignment = 1,
                                                   .expert_offsets = four_offsets,
                                                   .expert_ranks = four_ranks,
                                                   .tokens = one_token};

/* In BF16, with 8 significant bits: 256, 1, then 1, 1/256. */
static void read_bf16(const void *reader, int32_t rank, int32_t row_idx, void *x)
{
    static const float values[] = {256.0F, 1.0F, 1.0F, 0x1p-8F};
    (void)reader;
    (void)row_idx;
    element_store(WEFT_BF16, x, 0, values[rank]);
}

/* So that the order of a sum shows: 2^24, 1, then 1, -2^24. */
static void read_four_weights(const void *reader, int32_t rank, int32_t row_idx, float *weights)
{
    static const float values[] = {0x1p24F, 1.0F, 1.0F, -0x1p24F};
    (void)reader;
    (void)row_idx;
    for (int32_t k = 0; k < 4; k++)
        weights[k] = values[rank];
}

static float combined_over(int32_t num_nodes, weft_dtype wire, const int32_t *capacities,
                           float *weights)
{
    struct ep_oracle_problem problem_of_four = two_nodes;
    struct ep_oracle_received got[4];
    uint16_t bias[1], out;
    const struct ep_oracle_combine combine = {.dtype = WEFT_BF16,
                                              .wire = wire,
                                              .hidden = 1,
                                              .capacities = capacities,
                                              .bias = {bias, NULL},
                                              .read_x = read_bf16,
                                              .read_weights = read_four_weights};
    element_store(WEFT_BF16, bias, 0, 1.0F);
    problem_of_four.num_nodes = num_nodes;
    for (int32_t rank = 0; rank < 4; rank++)
        ep_oracle_receive(&problem_of_four, rank, &got[rank]);
    ep_oracle_combine_row(&problem_of_four, got, &combine, 0, 0, &out);
    ep_oracle_combine_weights(&problem_of_four, got, &combine, 0, 0, weights);
    for (int32_t rank = 0; rank < 4; rank++)
        ep_oracle_received_free(&problem_of_four, &got[rank]);
    return element_load(WEFT_BF16, &out, 0);
}

TEST(combined_by_node)
{
    const int32_t all[] = {1, 1, 1, 1}, none_of_node_0[] = {0, 0, 1, 1};
    float weights[4];
    /* 257 is a tie between 256 and 258, to even: 256; 1 + 2^-8 one between 1 and 1 + 2^-7: 1. 1 + 256 + 1 = 258. */
    assert_true(combined_over(2, WEFT_DTYPE_NONE, all, weights) == 258.0F);
    /* (2^24 + 1) + (1 - 2^24) = 2^24 - (2^24 - 1) */
    assert_true(weights[0] == 1.0F);
    /* 1 + 257 + (1 + 2^-8) is a little more than 259, the tie between 258 and 260. */
    assert_true(combined_over(2, WEFT_FP32, all, weights) == 260.0F);
    assert_true(weights[3] == 1.0F);
    /* The same row by row; of weights, ((2^24 + 1) + 1) - 2^24. */
    assert_true(combined_over(1, WEFT_DTYPE_NONE, all, weights) == 260.0F);
    assert_true(weights[0] == 0.0F);
    assert_true(combined_over(2, WEFT_DTYPE_NONE, none_of_node_0, weights) == 2.0F);
    assert_true(combined_over(4, WEFT_DTYPE_NONE, all, weights) == 260.0F);
}

static uint16_t stored(weft_dtype dtype, float value)
{
    uint16_t bits;
    element_store(dtype, &bits, 0, value);
    return bits;
}

TEST(float_formats)
{
    const float nan = strtof("nan", NULL);
    assert_int_equal(stored(WEFT_BF16, 1.0F), 0x3f80);
    assert_int_equal(stored(WEFT_BF16, 0x1.01p0F), 0x3f80);  /* tie, to even */
    assert_int_equal(stored(WEFT_BF16, 0x1.03p0F), 0x3f82);  /* tie, to even */
    assert_int_equal(stored(WEFT_BF16, -0x1p-149F), 0x8000); /* less than half the least */
    assert_int_equal(stored(WEFT_BF16, 0x1.ffp127F), 0x7f80);
    assert_int_equal(stored(WEFT_FP16, 65519.0F), 0x7bff);
    assert_int_equal(stored(WEFT_FP16, 65520.0F), 0x7c00);
    assert_int_equal(stored(WEFT_FP16, -0x1p-24F), 0x8001);
    assert_int_equal(stored(WEFT_FP16, 0x1p-25F), 0);
    assert_int_equal(stored(WEFT_FP16, 0x1.8p-25F), 1);
    assert_int_equal(stored(WEFT_FP16, -nan), 0x7fff);
    assert_int_equal(stored(WEFT_BF16, -nan), 0x7fff);
    for (weft_dtype dtype = WEFT_BF16; dtype <= WEFT_FP16; dtype++)
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            const uint16_t half = (uint16_t)bits;
            const float value = element_load(dtype, &half, 0);
            assert_int_equal(stored(dtype, value), value != value ? 0x7fff : half);
        }
}
