/* SPDX-License-Identifier: MIT */
/* What weft coll and the benchmarks of collectives compare with: inputs of ranks, reductions, outputs. */
#include <math.h>
#include <string.h>

#include "harness/cmocka.h"
#include "oracle/coll_data.h"
#include "oracle/coll_oracle.h"
#include "workload/collective.h"
#include "workload/convert.h"

enum { NUM_RANKS = 3, COUNT = 5000, MAX_ELEMENT_BYTES = 8, MAX_BYTES = COUNT * MAX_ELEMENT_BYTES };

static unsigned char inputs[NUM_RANKS][NUM_RANKS * MAX_BYTES];
static unsigned char output[NUM_RANKS * MAX_BYTES], expected[NUM_RANKS * MAX_BYTES];

static void any_part_is_that_of_the_whole(void **state)
{
    for (int dtype = 0; dtype < NUM_DTYPES; dtype++) {
        const struct element_source source = {3, (weft_dtype)dtype, ELEMENTS_NUMBERS};
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

/* ---------------------------------------------------------------- reductions, one element at a time */

static float float_at(const unsigned char *elements, weft_dtype dtype, size_t i)
{
    uint16_t half;
    float value;
    memcpy(&half, elements + 2 * i, dtype == WEFT_BF16 || dtype == WEFT_FP16 ? sizeof half : 0);
    if (dtype == WEFT_BF16)
        return fp32_from_bf16(half);
    if (dtype == WEFT_FP16)
        return fp32_from_fp16(half);
    if (dtype == WEFT_FP8_E4M3)
        return fp32_from_fp8(elements[i]);
    memcpy(&value, elements + 4 * i, sizeof value);
    return value;
}

static void put_float(unsigned char *elements, weft_dtype dtype, size_t i, float value)
{
    const uint16_t half = dtype == WEFT_BF16 ? bf16_from_fp32(value) : fp16_from_fp32(value);
    if (dtype == WEFT_BF16 || dtype == WEFT_FP16)
        memcpy(elements + 2 * i, &half, sizeof half);
    else if (dtype == WEFT_FP8_E4M3)
        elements[i] = fp8_from_fp32(value);
    else
        memcpy(elements + 4 * i, &value, sizeof value);
}

static float reduce_three_floats(weft_reduce_op op, float a, float b, float c)
{
    switch (op) {
    case WEFT_SUM:
        return (a + b) + c;
    case WEFT_PROD:
        return (a * b) * c;
    case WEFT_MAX:
        return fmaxf(fmaxf(a, b), c);
    case WEFT_MIN:
        return fminf(fminf(a, b), c);
    default:
        return ((a + b) + c) / 3;
    }
}

static void fill_inputs(const struct element_source *source, uint64_t count)
{
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        elements_fill(source, rank, 0, count, inputs[rank]);
}

static void floats_are_reduced_in_order_in_fp32(void **state)
{
    const weft_dtype dtypes[] = {WEFT_BF16, WEFT_FP16, WEFT_FP32, WEFT_FP8_E4M3};
    for (size_t d = 0; d < 4; d++) {
        const struct element_source source = {5, dtypes[d], ELEMENTS_NUMBERS};
        fill_inputs(&source, COUNT);
        for (int op = 0; op < NUM_REDUCE_OPS; op++) {
            for (size_t i = 0; i < COUNT; i++)
                put_float(expected, dtypes[d], i,
                          reduce_three_floats((weft_reduce_op)op, float_at(inputs[0], dtypes[d], i),
                                              float_at(inputs[1], dtypes[d], i),
                                              float_at(inputs[2], dtypes[d], i)));
            elements_reduce(&source, (weft_reduce_op)op, NUM_RANKS, 0, COUNT, output);
            assert_memory_equal(output, expected, COUNT * dtype_bytes(dtypes[d]));
        }
    }
}

static void doubles_are_reduced_in_fp64(void **state)
{
    const struct element_source source = {5, WEFT_FP64, ELEMENTS_NUMBERS};
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

static void integers_wrap_around_before_they_are_divided(void **state)
{
    const struct element_source source = {5, WEFT_INT32, ELEMENTS_NUMBERS};
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

static void bytes_are_unsigned(void **state)
{
    const struct element_source source = {5, WEFT_UINT8, ELEMENTS_NUMBERS};
    fill_inputs(&source, COUNT);
    elements_reduce(&source, WEFT_MAX, NUM_RANKS, 0, COUNT, output);
    for (size_t i = 0; i < COUNT; i++) {
        uint8_t largest = inputs[0][i] > inputs[1][i] ? inputs[0][i] : inputs[1][i];
        assert_int_equal(output[i], largest > inputs[2][i] ? largest : inputs[2][i]);
    }
}

static void whole_numbers_have_exact_sums(void **state)
{
    const struct element_source source = {5, WEFT_BF16, ELEMENTS_WHOLE};
    fill_inputs(&source, COUNT);
    elements_reduce(&source, WEFT_SUM, NUM_RANKS, 0, COUNT, output);
    for (size_t i = 0; i < COUNT; i++) {
        double sum = 0;
        for (int rank = 0; rank < NUM_RANKS; rank++)
            sum += float_at(inputs[rank], WEFT_BF16, i);
        assert_true(float_at(output, WEFT_BF16, i) == sum);
        assert_true(sum >= 0 && sum <= 21);
    }
}

/* ---------------------------------------------------------------- operations */

static struct collective make_collective(weft_collective kind)
{
    return (struct collective){.kind = kind,
                               .source = {9, WEFT_FP16, ELEMENTS_NUMBERS},
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
        if (collective->kind == WEFT_ALL_GATHER)
            memcpy(expected + r * row, inputs[r], row);
        else if (collective->kind == WEFT_ALL_TO_ALL)
            memcpy(expected + r * row, inputs[r] + rank * row, row);
    }
    if (collective->kind == WEFT_BROADCAST)
        memcpy(expected, inputs[2], row);
    if (collective->kind == WEFT_ALL_REDUCE || collective->kind == WEFT_REDUCE_SCATTER)
        elements_reduce(&collective->source, WEFT_SUM, NUM_RANKS,
                        collective->kind == WEFT_REDUCE_SCATTER ? rank * COUNT : 0, COUNT,
                        expected);
}

static void outputs_are_known_in_any_pieces(void **state)
{
    const uint64_t piece_bytes = 1234; /* crosses rows */
    for (int kind = 0; kind < WEFT_NUM_COLLECTIVES; kind++) {
        const struct collective collective = make_collective((weft_collective)kind);
        const uint64_t bytes = collective_recv_bytes(&collective);
        fill_inputs(&collective.source, (uint64_t)NUM_RANKS * COUNT);
        for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
            move_rows(&collective, (size_t)rank);
            for (uint64_t at = 0; at < bytes; at += piece_bytes)
                collective_expect(&collective, rank, at,
                                  bytes - at < piece_bytes ? bytes - at : piece_bytes, output + at);
            assert_memory_equal(output, expected, bytes);
        }
    }
}

static void sizes_are_those_of_nccl_tests(void **state)
{
    const struct {
        weft_collective kind;
        uint64_t count, send_bytes, recv_bytes;
        double bus_factor;
    } known[] = {{WEFT_ALL_REDUCE, 500, 1000, 1000, 4.0 / 3},
                 {WEFT_REDUCE_SCATTER, 166, 996, 332, 2.0 / 3},
                 {WEFT_ALL_GATHER, 166, 332, 996, 2.0 / 3},
                 {WEFT_ALL_TO_ALL, 166, 996, 996, 2.0 / 3},
                 {WEFT_BROADCAST, 500, 1000, 1000, 1}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct collective collective = make_collective(known[i].kind);
        collective.count = collective_count(&collective, 1001);
        assert_int_equal(collective.count, known[i].count);
        assert_int_equal(collective_send_bytes(&collective), known[i].send_bytes);
        assert_int_equal(collective_recv_bytes(&collective), known[i].recv_bytes);
        assert_true(fabs(collective_bus_factor(&collective) - known[i].bus_factor) < 1e-12);
    }
}

static void wrong_elements_are_counted(void **state)
{
    const struct element_source source = {1, WEFT_FP16, ELEMENTS_BITS};
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

/* weft coll and weft sim check with the one, the tests of all machines with the other. */
static void any_values_are_reduced_as_by_the_oracle(void **state)
{
    const void *rows[NUM_RANKS];
    for (int i = 0; i < NUM_DTYPES * NUM_REDUCE_OPS * COLL_NUM_VALUES; i++) {
        const weft_dtype dtype = (weft_dtype)(i % NUM_DTYPES);
        const weft_reduce_op op = (weft_reduce_op)(i / NUM_DTYPES % NUM_REDUCE_OPS);
        const enum coll_values values = (enum coll_values)(i / NUM_DTYPES / NUM_REDUCE_OPS);
        for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
            coll_data_fill(7, values, rank, 0, dtype, inputs[rank], COLL_DATA_PIECE);
            rows[rank] = inputs[rank];
        }
        elements_reduce_rows(dtype, op, NUM_RANKS, rows, COLL_DATA_PIECE, output);
        coll_oracle_reduce(dtype, op, NUM_RANKS, rows, COLL_DATA_PIECE, expected);
        assert_memory_equal(output, expected, COLL_DATA_PIECE * dtype_bytes(dtype));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_part_is_that_of_the_whole),
        cmocka_unit_test(floats_are_reduced_in_order_in_fp32),
        cmocka_unit_test(doubles_are_reduced_in_fp64),
        cmocka_unit_test(integers_wrap_around_before_they_are_divided),
        cmocka_unit_test(bytes_are_unsigned),
        cmocka_unit_test(whole_numbers_have_exact_sums),
        cmocka_unit_test(any_values_are_reduced_as_by_the_oracle),
        cmocka_unit_test(outputs_are_known_in_any_pieces),
        cmocka_unit_test(sizes_are_those_of_nccl_tests),
        cmocka_unit_test(wrong_elements_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
