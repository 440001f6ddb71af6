/* SPDX-License-Identifier: MIT */
/* The oracle of the collectives against results worked out by hand. */
#include <string.h>

#include "harness/cmocka.h"
#include "oracle/coll_case.h"
#include "workload/elements.h"

enum { MAX_ROWS = 4 };

/* The reduction of one element of each rank, as the bits of the dtype. */
static uint64_t reduced(weft_dtype dtype, weft_reduce_op op, int32_t num_rows, const uint64_t *bits)
{
    const void *rows[MAX_ROWS];
    uint64_t out = 0;
    for (int32_t row = 0; row < num_rows; row++)
        rows[row] = &bits[row];
    elements_reduce_rows(dtype, op, num_rows, rows, 1, &out);
    return out;
}

#define REDUCED(dtype, op, ...)                                                                    \
    reduced(dtype, op, sizeof((uint64_t[]){__VA_ARGS__}) / 8, (uint64_t[]){__VA_ARGS__})

TEST(integers)
{
    const uint32_t minus_7 = (uint32_t)-7;
    assert_int_equal(REDUCED(WEFT_UINT8, WEFT_SUM, 200, 100), 44);
    assert_int_equal(REDUCED(WEFT_UINT8, WEFT_PROD, 16, 17), 16);
    assert_int_equal(REDUCED(WEFT_UINT8, WEFT_MAX, 3, 200, 7), 200);
    assert_int_equal(REDUCED(WEFT_UINT8, WEFT_MIN, 3, 200, 7), 3);
    assert_int_equal(REDUCED(WEFT_UINT8, WEFT_AVG, 200, 100), 22); /* of the sum as it wrapped */
    assert_int_equal(REDUCED(WEFT_INT32, WEFT_SUM, 0x7fffffff, 1), 0x80000000);
    assert_int_equal(REDUCED(WEFT_INT32, WEFT_AVG, minus_7, 0), (uint32_t)-3);
    assert_int_equal(REDUCED(WEFT_INT32, WEFT_AVG, 0x7fffffff, 1), 0xc0000000);
    assert_int_equal(REDUCED(WEFT_INT32, WEFT_MAX, minus_7, 2), 2);
    assert_int_equal(REDUCED(WEFT_INT32, WEFT_PROD, 0x10000, 0x10001), 0x10000);
    assert_int_equal(REDUCED(WEFT_INT64, WEFT_SUM, INT64_MAX, 1), INT64_MIN);
    assert_int_equal(REDUCED(WEFT_INT64, WEFT_MIN, 5, (uint64_t)-5), (uint64_t)-5);
}

TEST(order_and_rounding)
{
    /* 2^24 + 1 - 2^24 in fp32: the first sum is a tie that goes to even. */
    assert_int_equal(REDUCED(WEFT_FP32, WEFT_SUM, 0x4b800000, 0x3f800000, 0xcb800000), 0);
    assert_int_equal(REDUCED(WEFT_FP32, WEFT_SUM, 0x4b800000, 0xcb800000, 0x3f800000), 0x3f800000);
    /* 256 + 1 + 1 in bf16: rounded once, from 258; twice would give 256. */
    assert_int_equal(REDUCED(WEFT_BF16, WEFT_SUM, 0x4380, 0x3f80, 0x3f80), 0x4381);
    assert_int_equal(REDUCED(WEFT_FP16, WEFT_AVG, 0x3c00, 0x4000), 0x3e00); /* 1, 2: 1.5 */
    assert_int_equal(REDUCED(WEFT_FP16, WEFT_SUM, 0x7bff, 0x7bff), 0x7c00);
    assert_int_equal(REDUCED(WEFT_FP16, WEFT_AVG, 0x7bff, 0x7bff), 0x7bff);
    assert_int_equal(REDUCED(WEFT_FP64, WEFT_AVG, 0x3ff0000000000000, 0x4000000000000000),
                     0x3ff8000000000000);
    assert_int_equal(REDUCED(WEFT_FP64, WEFT_PROD, 0x4008000000000000, 0xc000000000000000),
                     0xc018000000000000); /* 3 * -2 */
    assert_int_equal(REDUCED(WEFT_FP8_E4M3, WEFT_SUM, 0x7e, 0x7e), 0x7e);
    assert_int_equal(REDUCED(WEFT_FP8_E4M3, WEFT_AVG, 0x7e, 0x7e), 0x7e);
    assert_int_equal(REDUCED(WEFT_FP8_E4M3, WEFT_PROD, 0x40, 0xc4), 0xcc); /* 2 * -3 */
}

TEST(special_values)
{
    /* A sum begins with rank 0's element, so that -0 stays. */
    assert_int_equal(REDUCED(WEFT_FP32, WEFT_SUM, 0x80000000), 0x80000000);
    assert_int_equal(REDUCED(WEFT_FP32, WEFT_SUM, 0x80000000, 0x80000000), 0x80000000);
    assert_int_equal(REDUCED(WEFT_FP32, WEFT_SUM, 0x80000000, 0), 0);
    assert_int_equal(REDUCED(WEFT_FP32, WEFT_MAX, 0x80000000, 0), 0);
    assert_int_equal(REDUCED(WEFT_FP32, WEFT_MAX, 0, 0x80000000), 0);
    assert_int_equal(REDUCED(WEFT_FP32, WEFT_MIN, 0x80000000, 0), 0x80000000);
    assert_int_equal(REDUCED(WEFT_FP32, WEFT_MIN, 0, 0x80000000), 0x80000000);
    assert_int_equal(REDUCED(WEFT_FP64, WEFT_MAX, 1ull << 63, 0), 0);
    assert_int_equal(REDUCED(WEFT_FP64, WEFT_MIN, 0, 1ull << 63), 1ull << 63);
    /* Every NaN becomes the one, also of a single rank; and infinity less infinity. */
    assert_int_equal(REDUCED(WEFT_FP32, WEFT_SUM, 0xff800001), 0x7fffffff);
    assert_int_equal(REDUCED(WEFT_FP32, WEFT_MAX, 0xffc00000, 0x7f800000), 0x7fffffff);
    assert_int_equal(REDUCED(WEFT_FP32, WEFT_MIN, 0xff800000, 0x7f800001), 0x7fffffff);
    assert_int_equal(REDUCED(WEFT_BF16, WEFT_SUM, 0x7f80, 0xff80), 0x7fff);
    assert_int_equal(REDUCED(WEFT_FP16, WEFT_PROD, 0x7c00, 0x8000), 0x7fff);
    assert_int_equal(REDUCED(WEFT_FP64, WEFT_SUM, 0x7ff0000000000001), 0x7fffffffffffffff);
    assert_int_equal(REDUCED(WEFT_FP64, WEFT_MIN, 0, 0xfff8000000000000), 0x7fffffffffffffff);
    assert_int_equal(REDUCED(WEFT_FP8_E4M3, WEFT_MAX, 0xff, 0x7e), 0x7f);
    /* Subnormals are numbers. */
    assert_int_equal(REDUCED(WEFT_FP32, WEFT_SUM, 1, 1), 2);
    assert_int_equal(REDUCED(WEFT_BF16, WEFT_SUM, 0x8001, 0x8003), 0x8004);
    assert_int_equal(REDUCED(WEFT_FP16, WEFT_AVG, 3, 0), 2); /* 1.5 units, a tie, to even */
}

/* ---------------------------------------------------------------- who gets whose rows */

enum { NUM_RANKS = 3, COUNT = 5 };

static struct coll_case case_of(enum coll_operation operation)
{
    struct coll_case spec = coll_case_random(1, NUM_RANKS, operation, WEFT_INT32, WEFT_SUM, COUNT);
    spec.values = COLL_VALUES_FINITE;
    spec.root = 2;
    return spec;
}

static void expect_row(const struct coll_case *spec, int32_t rank, int32_t row, int32_t from_rank,
                       int32_t from_row)
{
    int32_t got[COUNT], expected[COUNT];
    coll_expected_row(spec, rank, row, COUNT, got);
    coll_input_row(spec, from_rank, from_row, COUNT, expected);
    assert_memory_equal(got, expected, sizeof got);
}

static void expect_sum(const struct coll_case *spec, int32_t rank, int32_t from_row)
{
    uint32_t got[COUNT], sum[COUNT] = {0}, input[COUNT];
    coll_expected_row(spec, rank, 0, COUNT, got);
    for (int32_t from = 0; from < NUM_RANKS; from++) {
        coll_input_row(spec, from, from_row, COUNT, input);
        for (int i = 0; i < COUNT; i++)
            sum[i] += input[i];
    }
    assert_memory_equal(got, sum, sizeof got);
}

TEST(rows_of_operations)
{
    struct coll_case spec = case_of(COLL_ALL_REDUCE);
    expect_sum(&spec, 1, 0);
    spec = case_of(COLL_REDUCE_SCATTER);
    expect_sum(&spec, 1, 1);
    spec = case_of(COLL_ALL_GATHER);
    expect_row(&spec, 1, 2, 2, 0);
    spec = case_of(COLL_ALL_TO_ALL);
    expect_row(&spec, 1, 2, 2, 1);
    spec = case_of(COLL_BROADCAST);
    expect_row(&spec, 1, 0, 2, 0);
    assert_int_equal(coll_rows_of(&spec, COLLECTIVE_SEND, 1).num_rows, 0);
    assert_int_equal(coll_rows_of(&spec, COLLECTIVE_SEND, 2).num_rows, 1);
    spec = case_of(COLL_REDUCE);
    expect_sum(&spec, 2, 0);
    assert_int_equal(coll_rows_of(&spec, COLLECTIVE_RECV, 1).num_rows, 0);
    spec = case_of(COLL_GATHER);
    expect_row(&spec, 2, 1, 1, 0);
    assert_int_equal(coll_rows_of(&spec, COLLECTIVE_RECV, 1).num_rows, 0);
    assert_int_equal(coll_rows_of(&spec, COLLECTIVE_RECV, 2).num_rows, NUM_RANKS);
    spec = case_of(COLL_SCATTER);
    expect_row(&spec, 1, 0, 2, 1);
    assert_int_equal(coll_rows_of(&spec, COLLECTIVE_SEND, 1).num_rows, 0);
    assert_int_equal(coll_rows_of(&spec, COLLECTIVE_SEND, 2).num_rows, NUM_RANKS);
}

TEST(rows_of_all_to_all_v)
{
    int num_gaps = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct coll_case spec = case_of(COLL_ALL_TO_ALL_V);
        spec.seed = seed;
        for (int32_t from = 0; from < NUM_RANKS; from++) {
            const struct coll_rows sent = coll_rows_of(&spec, COLLECTIVE_SEND, from);
            uint64_t sum = 0;
            for (int32_t to = 0; to < NUM_RANKS; to++) {
                assert_int_equal(sent.counts[to],
                                 coll_rows_of(&spec, COLLECTIVE_RECV, to).counts[from]);
                assert_true(sent.offsets[to] + sent.counts[to] <= sent.total);
                sum += sent.counts[to];
            }
            num_gaps += sent.total > sum;
        }
    }
    assert_true(num_gaps > 20);
}

/* Other ranks and rows have other values, and a shorter row is the beginning of a longer one. */
TEST(inputs)
{
    unsigned char a[3000], b[3000];
    for (int values = 0; values < COLL_NUM_VALUES; values++) {
        struct coll_case spec = case_of(COLL_REDUCE_SCATTER);
        spec.dtype = WEFT_UINT8;
        spec.values = (enum coll_values)values;
        coll_input_row(&spec, 0, 0, sizeof a, a);
        coll_input_row(&spec, 0, 1, sizeof b, b);
        assert_memory_not_equal(a, b, sizeof a);
        coll_input_row(&spec, 1, 0, sizeof b, b);
        assert_int_equal(memcmp(a, b, sizeof a) == 0, values == COLL_VALUES_HOSTILE_EVERYWHERE);
        coll_input_row(&spec, 0, 0, 1030, b);
        assert_memory_equal(a, b, 1030);
    }
}

/* Sums of values that cancel tell the order of the ranks, where fp32 or fp64 can round them at
 * all. */
TEST(order_shows)
{
    enum { NUM_ELEMENTS = 200 };
    const weft_dtype dtypes[] = {WEFT_BF16, WEFT_FP16, WEFT_FP32, WEFT_FP64};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        struct coll_case spec = case_of(COLL_ALL_REDUCE);
        double inputs_of[NUM_RANKS][NUM_ELEMENTS], sums[2][NUM_ELEMENTS];
        const void *const ascending[] = {inputs_of[0], inputs_of[1], inputs_of[2]};
        const void *const others[][NUM_RANKS] = {{inputs_of[2], inputs_of[1], inputs_of[0]},
                                                 {inputs_of[1], inputs_of[2], inputs_of[0]}};
        spec.values = COLL_VALUES_CANCELLING;
        spec.dtype = dtypes[i];
        for (int32_t rank = 0; rank < NUM_RANKS; rank++)
            coll_input_row(&spec, rank, 0, NUM_ELEMENTS, inputs_of[rank]);
        const uint64_t bytes = NUM_ELEMENTS * dtype_bytes(spec.dtype);
        elements_reduce_rows(spec.dtype, WEFT_SUM, NUM_RANKS, ascending, NUM_ELEMENTS, sums[0]);
        for (int order = 0; order < 2; order++) {
            elements_reduce_rows(spec.dtype, WEFT_SUM, NUM_RANKS, others[order], NUM_ELEMENTS,
                                 sums[1]);
            assert_memory_not_equal(sums[0], sums[1], bytes);
        }
    }
}
