/* SPDX-License-Identifier: MIT */
/* What weft coll and the benchmarks of collectives compare with: inputs of ranks, reductions,
 * outputs. */
#include <math.h>
#include <string.h>

#include "harness/cmocka.h"
#include "oracle/coll_data.h"
#include "workload/collective.h"
#include "workload/elements.h"
#include "workload/hard_numbers.h"
#include "workload/rng.h"

enum { NUM_RANKS = 3, COUNT = 5000, MAX_ELEMENT_BYTES = 8, MAX_BYTES = COUNT * MAX_ELEMENT_BYTES };

static unsigned char inputs[NUM_RANKS][NUM_RANKS * MAX_BYTES];
static unsigned char output[NUM_RANKS * MAX_BYTES], expected[NUM_RANKS * MAX_BYTES];

TEST(any_part_is_that_of_the_whole)
{
    for (int dtype = 1; dtype <= NUM_DTYPES; dtype++) {
        const struct element_source source = {3, (weft_dtype)dtype, ELEMENTS_NUMBERS, NULL};
        const size_t bytes = dtype_bytes(source.dtype);
        elements_fill(&source, 1, 0, COUNT, expected);
        for (uint64_t first = 0, count; first < COUNT; first += count) {
            count = 1 + first % 13 < COUNT - first ? 1 + first % 13 : COUNT - first;
            elements_fill(&source, 1, first, count, output + first * bytes);
        }
        assert_memory_equal(output, expected, COUNT * bytes);
        elements_fill(&source, 2, 0, COUNT, output);
        assert_memory_not_equal(output, expected, COUNT * bytes);
    }
}

/* ---------------------------------------------------------------- reductions, one element at a
 * time */

/* NaN if one is; -0 is less than +0. */
static float larger(float a, float b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return a > b || (a == b && !signbit(a)) ? a : b;
}

static float reduce_three_floats(weft_reduce_op op, const float v[NUM_RANKS])
{
    switch (op) {
    case WEFT_SUM:
        return (v[0] + v[1]) + v[2];
    case WEFT_PROD:
        return (v[0] * v[1]) * v[2];
    case WEFT_MAX:
        return larger(larger(v[0], v[1]), v[2]);
    case WEFT_MIN:
        return -larger(larger(-v[0], -v[1]), -v[2]);
    default:
        return ((v[0] + v[1]) + v[2]) / 3;
    }
}

/* The inputs' reduction, of which the output must be the bits. */
static void check_floats(weft_dtype dtype, weft_reduce_op op, size_t count)
{
    for (int64_t i = 0; i < (int64_t)count; i++) {
        float values[NUM_RANKS];
        for (int rank = 0; rank < NUM_RANKS; rank++)
            values[rank] = element_load(dtype, inputs[rank], i);
        element_store(dtype, expected, i, reduce_three_floats(op, values));
    }
    assert_memory_equal(output, expected, count * dtype_bytes(dtype));
}

static void fill_inputs(const struct element_source *source, uint64_t count)
{
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        elements_fill(source, rank, 0, count, inputs[rank]);
}

static const weft_dtype float_dtypes[] = {WEFT_BF16, WEFT_FP16, WEFT_FP32, WEFT_FP8_E4M3};
enum { NUM_FLOAT_DTYPES = sizeof float_dtypes / sizeof *float_dtypes };

TEST(floats_are_reduced_in_order_in_fp32)
{
    for (int d = 0; d < NUM_FLOAT_DTYPES; d++) {
        const struct element_source source = {5, float_dtypes[d], ELEMENTS_NUMBERS, NULL};
        fill_inputs(&source, COUNT);
        for (int op = 0; op < NUM_REDUCE_OPS; op++) {
            elements_reduce(&source, (weft_reduce_op)op, NUM_RANKS, 0, COUNT, output);
            check_floats(float_dtypes[d], (weft_reduce_op)op, COUNT);
        }
    }
}

/* Values that cancel, NaNs, infinities, zeros of both signs, subnormals, and any bits. */
TEST(any_floats_are_reduced_in_order_in_fp32)
{
    const void *const rows[NUM_RANKS] = {inputs[0], inputs[1], inputs[2]};
    for (int i = 0; i < NUM_FLOAT_DTYPES * NUM_REDUCE_OPS * COLL_NUM_VALUES; i++) {
        const weft_dtype dtype = float_dtypes[i % NUM_FLOAT_DTYPES];
        const weft_reduce_op op = (weft_reduce_op)(i / NUM_FLOAT_DTYPES % NUM_REDUCE_OPS);
        const enum coll_values values = (enum coll_values)(i / NUM_FLOAT_DTYPES / NUM_REDUCE_OPS);
        for (int32_t rank = 0; rank < NUM_RANKS; rank++)
            coll_data_fill(7, values, rank, 0, dtype, inputs[rank], COLL_DATA_PIECE);
        elements_reduce_rows(dtype, op, NUM_RANKS, rows, COLL_DATA_PIECE, output);
        check_floats(dtype, op, COLL_DATA_PIECE);
    }
}

/* By class, and one by one. */
TEST(hard_numbers_are_what_they_say)
{
    for (uint64_t i = 0; i < 1000 * NUM_FLOAT_DTYPES; i++) {
        const weft_dtype dtype = float_dtypes[i % NUM_FLOAT_DTYPES];
        float of_class[NUM_NUMBER_CLASSES], special[NUM_SPECIAL_NUMBERS];
        for (int c = 0; c < NUM_NUMBER_CLASSES; c++) {
            const uint64_t bits = number_of_class(dtype, (enum number_class)c, rng_key(1, i));
            of_class[c] = element_load(dtype, &bits, 0);
        }
        for (int s = 0; s < NUM_SPECIAL_NUMBERS; s++) {
            const uint64_t bits = special_number(dtype, s);
            special[s] = element_load(dtype, &bits, 0);
        }
        const float tiny = fabsf(of_class[CLASS_TINY]), huge = fabsf(of_class[CLASS_HUGE]);
        const float infinite = fabsf(of_class[CLASS_INFINITIES]);
        assert_true(of_class[CLASS_ZEROS] == 0 && special[0] == 0 && special[1] == 0);
        assert_true(tiny < 0.02f && fabsf(special[2]) < 0.02f && special[3] < 0);
        assert_true(huge >= 384 && huge < special[4] && special[10] > 0 && special[11] < -384);
        assert_true(infinite == special[4] || infinite < 8);
        assert_true(isnan(of_class[CLASS_NANS]));
        for (int s = 6; s < 10; s++)
            assert_true(isnan(special[s]) || (dtype == WEFT_FP8_E4M3 && s == 8));
    }
}

/* `check` compares parts with sums in their own order, and leaves one in `output`; a sum in rank
 * order is another. */
static void check_own_order(void (*check)(const struct element_source *source))
{
    for (int d = 0; d < NUM_FLOAT_DTYPES; d++) {
        const struct element_source source = {5, float_dtypes[d], ELEMENTS_NUMBERS, NULL};
        fill_inputs(&source, COUNT);
        check(&source);
        elements_reduce(&source, WEFT_SUM, NUM_RANKS, 0, COUNT, expected);
        assert_memory_not_equal(output, expected, COUNT * dtype_bytes(source.dtype));
    }
}

/* Each rank is a node. Rank 0 is above the others, 2 above 1: 0 + (1 + 2). */
static void check_tree(const struct element_source *source)
{
    static const int32_t nodes[NUM_RANKS] = {0, 1, 2};
    const struct element_ranks ranks = {NUM_RANKS, NUM_RANKS, nodes, 0, 0};
    elements_reduce_up_nodes(source, WEFT_SUM, &ranks, 0, COUNT, output);
    for (int64_t i = 0; i < COUNT; i++) {
        float sum = element_load(source->dtype, inputs[1], i);
        sum += element_load(source->dtype, inputs[2], i);
        element_store(source->dtype, expected, i, sum);
        sum = element_load(source->dtype, inputs[0], i);
        sum += element_load(source->dtype, expected, i);
        element_store(source->dtype, expected, i, sum);
    }
    assert_memory_equal(output, expected, COUNT * dtype_bytes(source->dtype));
}

TEST_CALL(trees_round_on_the_way_up, check_own_order(check_tree))

TEST(doubles_are_reduced_in_fp64)
{
    const struct element_source source = {5, WEFT_FP64, ELEMENTS_NUMBERS, NULL};
    double values[NUM_RANKS], result;
    fill_inputs(&source, COUNT);
    elements_reduce(&source, WEFT_AVG, NUM_RANKS, 0, COUNT, output);
    for (size_t i = 0; i < COUNT; i++) {
        for (int rank = 0; rank < NUM_RANKS; rank++)
            memcpy(&values[rank], inputs[rank] + 8 * i, 8);
        memcpy(&result, output + 8 * i, 8);
        assert_true(result == ((values[0] + values[1]) + values[2]) / 3);
        assert_true(fabs(values[0]) <= 2);
    }
}

TEST(integers_wrap_around_before_they_are_divided)
{
    const struct element_source source = {5, WEFT_INT32, ELEMENTS_NUMBERS, NULL};
    int num_wrapped = 0;
    fill_inputs(&source, COUNT);
    elements_reduce(&source, WEFT_AVG, NUM_RANKS, 0, COUNT, output);
    for (size_t i = 0; i < COUNT; i++) {
        int64_t sum = 0;
        int32_t value, average;
        for (int rank = 0; rank < NUM_RANKS; rank++) {
            memcpy(&value, inputs[rank] + 4 * i, 4);
            sum += value;
        }
        num_wrapped += sum != (int32_t)(uint32_t)sum;
        memcpy(&average, output + 4 * i, 4);
        assert_int_equal(average, (int32_t)(uint32_t)sum / NUM_RANKS);
    }
    assert_true(num_wrapped > 0);
}

TEST(bytes_are_unsigned)
{
    const struct element_source source = {5, WEFT_UINT8, ELEMENTS_NUMBERS, NULL};
    fill_inputs(&source, COUNT);
    elements_reduce(&source, WEFT_MAX, NUM_RANKS, 0, COUNT, output);
    for (size_t i = 0; i < COUNT; i++) {
        uint8_t largest = inputs[0][i] > inputs[1][i] ? inputs[0][i] : inputs[1][i];
        assert_int_equal(output[i], largest > inputs[2][i] ? largest : inputs[2][i]);
    }
}

TEST(whole_numbers_have_exact_sums)
{
    const struct element_source source = {5, WEFT_BF16, ELEMENTS_WHOLE, NULL};
    fill_inputs(&source, COUNT);
    elements_reduce(&source, WEFT_SUM, NUM_RANKS, 0, COUNT, output);
    for (size_t i = 0; i < COUNT; i++) {
        double sum = 0;
        for (int rank = 0; rank < NUM_RANKS; rank++)
            sum += element_load(WEFT_BF16, inputs[rank], (int64_t)i);
        assert_true(element_load(WEFT_BF16, output, (int64_t)i) == sum);
        assert_true(sum >= 0 && sum <= 21);
    }
}

/* ---------------------------------------------------------------- operations */

static struct collective make_collective(weft_collective kind)
{
    return (struct collective){
        .kind = kind,
        .source = {.seed = 9, .dtype = WEFT_FP16, .content = ELEMENTS_NUMBERS},
        .redop = WEFT_SUM,
        .root = 2,
        .num_ranks = NUM_RANKS,
        .count = COUNT};
}

/* The output of `rank` out of everybody's inputs. */
static void move_rows(const struct collective *collective, size_t rank)
{
    const size_t row = COUNT * dtype_bytes(collective->source.dtype);
    for (size_t r = 0; r < NUM_RANKS; r++) {
        if (collective->kind == WEFT_ALL_GATHER || collective->kind == WEFT_GATHER)
            memcpy(expected + r * row, inputs[r], row);
        else if (collective->kind == WEFT_ALL_TO_ALL)
            memcpy(expected + r * row, inputs[r] + rank * row, row);
    }
    if (collective->kind == WEFT_BROADCAST)
        memcpy(expected, inputs[2], row);
    if (collective->kind == WEFT_SCATTER)
        memcpy(expected, inputs[2] + rank * row, row);
    if (collective_reduces(collective->kind))
        elements_reduce(&collective->source, WEFT_SUM, NUM_RANKS,
                        collective->kind == WEFT_REDUCE_SCATTER ? rank * COUNT : 0, COUNT,
                        expected);
}

TEST(outputs_are_known_in_any_pieces)
{
    const uint64_t piece_bytes = 1234; /* crosses rows */
    for (int kind = 0; kind < NUM_COLLECTIVES; kind++) {
        const struct collective collective = make_collective((weft_collective)kind);
        fill_inputs(&collective.source, (uint64_t)NUM_RANKS * COUNT);
        for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
            const uint64_t bytes = collective_recv_bytes(&collective, rank);
            move_rows(&collective, (size_t)rank);
            for (uint64_t at = 0; at < bytes; at += piece_bytes)
                collective_expect(&collective, rank, at,
                                  bytes - at < piece_bytes ? bytes - at : piece_bytes, output + at);
            assert_memory_equal(output, expected, bytes);
        }
    }
}

TEST(sizes_are_those_of_nccl_tests)
{
    const struct {
        weft_collective kind;
        uint64_t count, send_bytes, recv_bytes; /* of the root, which is rank 2 */
        uint64_t other_send_bytes, other_recv_bytes;
        double bus_factor;
    } known[] = {{WEFT_ALL_REDUCE, 500, 1000, 1000, 1000, 1000, 4.0 / 3},
                 {WEFT_REDUCE_SCATTER, 166, 996, 332, 996, 332, 2.0 / 3},
                 {WEFT_ALL_GATHER, 166, 332, 996, 332, 996, 2.0 / 3},
                 {WEFT_ALL_TO_ALL, 166, 996, 996, 996, 996, 2.0 / 3},
                 {WEFT_BROADCAST, 500, 1000, 1000, 0, 1000, 1},
                 {WEFT_REDUCE, 500, 1000, 1000, 1000, 0, 1},
                 {WEFT_GATHER, 166, 332, 996, 332, 0, 2.0 / 3},
                 {WEFT_SCATTER, 166, 996, 332, 0, 332, 2.0 / 3}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct collective collective = make_collective(known[i].kind);
        collective.count = collective_count(&collective, 1001);
        assert_int_equal(collective.count, known[i].count);
        assert_int_equal(collective_send_bytes(&collective, 2), known[i].send_bytes);
        assert_int_equal(collective_recv_bytes(&collective, 2), known[i].recv_bytes);
        assert_int_equal(collective_send_bytes(&collective, 0), known[i].other_send_bytes);
        assert_int_equal(collective_recv_bytes(&collective, 0), known[i].other_recv_bytes);
        assert_true(fabs(collective_bus_factor(&collective) - known[i].bus_factor) < 1e-12);
    }
}

TEST(wrong_elements_are_counted)
{
    const struct element_source source = {1, WEFT_FP16, ELEMENTS_BITS, NULL};
    uint64_t first_wrong = 0;
    elements_fill(&source, 0, 0, COUNT, output);
    elements_fill(&source, 0, 0, COUNT, expected);
    assert_int_equal(elements_count_wrong(WEFT_FP16, output, expected, COUNT, &first_wrong), 0);
    output[2 * 4711 + 1] ^= 0x80;
    output[2 * 815] ^= 1;
    output[2 * 815 + 1] ^= 1; /* of the same element */
    assert_int_equal(elements_count_wrong(WEFT_FP16, output, expected, COUNT, &first_wrong), 2);
    assert_int_equal(first_wrong, 815);
}
