/* SPDX-License-Identifier: MIT */
/* What low latency must give, against results worked out by hand; and that whatever is wrong is
 * told. */
#include <string.h>

#include "harness/cmocka.h"
#include "workload/low_latency_check.h"

enum { NUM_RANKS = 2, NUM_TOKENS = 3, TOPK = 2, MOST_LOCAL = 2, MAX_TOKENS = 2 };

/* Expert 0 is on rank 0, 1 and 2 are on rank 1; tokens 0 and 1 are rank 0's. */
static const struct ll_choice choices[NUM_TOKENS][TOPK] = {
    {{1, 0, 0.5F}, {1, 1, 0.25F}}, {{0, 0, 2}, {-1, -1, 7}}, {{1, 0, 1}, {0, 0, 3}}};
static const int32_t num_tokens[NUM_RANKS] = {2, 1};

static void fill_token(const void *of, int64_t token, void *elements)
{
    const float value = (float)(1 + token);
    (void)of;
    memcpy(elements, &value, sizeof value);
}

static void run_expert(const void *of, int32_t rank, int32_t local_expert, float *values,
                       int64_t num_values)
{
    (void)of;
    assert_int_equal(num_values, 1);
    values[0] += (float)(100 * rank + 10 * local_expert);
}

static weft_ll_config config_of(weft_ll_layout layout)
{
    weft_ll_config config = WEFT_INIT(weft_ll_config);
    config.hidden = 1;
    config.max_tokens = MAX_TOKENS;
    config.num_topk = TOPK;
    config.dtype = WEFT_FP32;
    config.layout = layout;
    return config;
}

static void open_oracle(struct ll_oracle *oracle, weft_ll_config config, int32_t rank)
{
    const struct ll_world world = {rank, NUM_RANKS, MOST_LOCAL, num_tokens};
    const struct ll_content content = {fill_token, run_expert, NULL};
    assert_int_equal(ll_oracle_open(oracle, &config, &world, &content), 0);
    memcpy(oracle->choices, choices, sizeof choices);
    ll_oracle_settle(oracle);
}

static void expect_row(const struct ll_oracle *oracle, int64_t i, struct ll_row row, int64_t place)
{
    assert_true(i < oracle->num_rows);
    assert_memory_equal(&oracle->rows[i], &row, sizeof row);
    assert_int_equal(ll_oracle_place(oracle, &row), place);
}

TEST(rows)
{
    struct ll_oracle oracle;
    open_oracle(&oracle, config_of(WEFT_LL_BY_RANK), 0);
    assert_int_equal(oracle.num_rows, 2);
    expect_row(&oracle, 0, (struct ll_row){1, 0, 1, -1, 0}, 0);
    expect_row(&oracle, 1, (struct ll_row){2, 1, 0, -1, 0}, MAX_TOKENS);
    ll_oracle_close(&oracle);
    weft_ll_config by_expert = config_of(WEFT_LL_BY_EXPERT);
    by_expert.expert_capacity = 1;
    open_oracle(&oracle, by_expert, 1);
    assert_int_equal(oracle.num_rows, 3);
    expect_row(&oracle, 0, (struct ll_row){0, 0, 0, 0, 0}, 0);
    expect_row(&oracle, 1, (struct ll_row){0, 0, 0, 1, 0}, 1);
    expect_row(&oracle, 2, (struct ll_row){2, 1, 0, 0, 1}, -1);
    assert_int_equal(ll_oracle_selections(&oracle, 0), 2);
    assert_int_equal(ll_oracle_selections_from(&oracle, 1, 0), 1);
    assert_int_equal(ll_oracle_tokens_from(&oracle, 0), 1);
    ll_oracle_close(&oracle);
}

static void expect_sums(weft_ll_config config, const float expected[NUM_TOKENS])
{
    struct ll_oracle oracle;
    float sum;
    open_oracle(&oracle, config, 0);
    for (int64_t token = 0; token < NUM_TOKENS; token++) {
        ll_oracle_fill_combined(&oracle, token, &sum);
        assert_float_equal(sum, expected[token], 0);
    }
    ll_oracle_close(&oracle);
}

TEST(sums)
{
    weft_ll_config config = config_of(WEFT_LL_BY_EXPERT);
    expect_sums(config, (const float[]){78.25F, 4, 112});
    config.answer_dtype = WEFT_BF16; /* has seven bits behind the first */
    expect_sums(config, (const float[]){78, 4, 112});
    config.answer = WEFT_LL_ANSWER_ROWS;
    expect_sums(config, (const float[]){78.25F, 4, 112});
    config.expert_capacity = 1; /* for tokens 0 and 1 */
    expect_sums(config, (const float[]){78.25F, 4, 0});
    config = config_of(WEFT_LL_BY_RANK);
    expect_sums(config, (const float[]){78.25F, 4, 112});
}

/* ---------------------------------------------------------------- what is told */

/* Of rank 1, by expert: what must have come. */
struct arrived {
    int32_t rank_counts[NUM_RANKS], expert_counts[MOST_LOCAL];
    int64_t ranges[MOST_LOCAL][NUM_RANKS];
    int32_t src_tokens[MOST_LOCAL][2];
    float rows[MOST_LOCAL][2];
    int32_t num_wrong;
};
static const struct arrived as_it_must_be = {{1, 1},
                                             {2, 1},
                                             {{1, INT64_C(1) << 32 | 1}, {1, INT64_C(1) << 32}},
                                             {{0, 0}, {0, -1}},
                                             {{1, 3}, {1, -1}},
                                             0};

static weft_result read(void *of, void *dst, const void *src, size_t num_bytes)
{
    (void)of;
    memcpy(dst, src, num_bytes);
    return WEFT_OK;
}

static void tell(void *of, int is_right, const char *text)
{
    struct arrived *arrived = of;
    assert_non_null(text);
    arrived->num_wrong += !is_right;
}

/* Where some ranks are missing since their rows have been counted. */
static int32_t count_wrong(struct arrived arrived, uint64_t half_there)
{
    weft_ll_config config = config_of(WEFT_LL_BY_EXPERT);
    struct ll_oracle oracle;
    config.expert_capacity = 2;
    open_oracle(&oracle, config, 1);
    const struct ll_checker checker = {.oracle = &oracle,
                                       .received = {.rank_counts = arrived.rank_counts,
                                                    .expert_counts = arrived.expert_counts,
                                                    .src_tokens = arrived.src_tokens[0],
                                                    .ranges = arrived.ranges[0],
                                                    .rows = arrived.rows},
                                       .num_local = MOST_LOCAL,
                                       .half_there = half_there,
                                       .read = read,
                                       .tell = tell,
                                       .of = &arrived};
    assert_ok(ll_check_counts(&checker));
    for (int64_t i = 0; i < oracle.num_rows; i++)
        assert_ok(ll_check_row(&checker, &oracle.rows[i]));
    ll_oracle_close(&oracle);
    return arrived.num_wrong;
}

#define EXPECT_WRONG(field, value)                                                                 \
    do {                                                                                           \
        struct arrived arrived = as_it_must_be;                                                    \
        arrived.field = value;                                                                     \
        assert_int_equal(count_wrong(arrived, 0), 1);                                              \
    } while (0)

TEST(what_is_wrong_is_told)
{
    assert_int_equal(count_wrong(as_it_must_be, 0), 0);
    EXPECT_WRONG(rank_counts[0], 0);
    EXPECT_WRONG(expert_counts[1], 2);
    EXPECT_WRONG(ranges[0][1], 1);
    EXPECT_WRONG(src_tokens[0][1], 1);
    EXPECT_WRONG(rows[1][0], 2);
}

/* Its rows are anything, and count as nothing. */
TEST(a_rank_that_is_half_there)
{
    struct arrived arrived = as_it_must_be;
    arrived.rank_counts[1] = 0;
    arrived.rows[0][1] = 77;
    assert_int_equal(count_wrong(arrived, 1 << 1), 0);
    assert_int_equal(count_wrong(arrived, 0), 2);
}
