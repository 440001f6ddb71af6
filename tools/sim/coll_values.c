/* SPDX-License-Identifier: MIT */
/*
 * The elements of a collective's arrays. What is only moved are bytes, many of them those of packets
 * that cannot be stored as they are. What is reduced are those bytes, too, and in arrays of floats numbers
 * that cancel, zeros, subnormals, infinities and NaNs.
 */
#include "coll_call.h"
#include "machine/machine.h"
#include "shape.h"
#include "workload/collective.h"

enum { WORD_BYTES = 8, BITS_PER_BYTE = 8 };

/* ---------------------------------------------------------------- bits */

static int is_integer(weft_dtype dtype)
{
    return dtype == WEFT_INT32 || dtype == WEFT_INT64 || dtype == WEFT_UINT8;
}

static int is_reduction(const struct coll_call *call)
{
    return collective_reduces(call->collective);
}

static uint64_t low_bytes(uint64_t bits, size_t num_bytes)
{
    return num_bytes == WORD_BYTES ? bits : bits & ((UINT64_C(1) << num_bytes * BITS_PER_BYTE) - 1);
}

/* ---------------------------------------------------------------- inputs */

static uint64_t hash_of(const struct coll_call *call, int32_t rank, int32_t row, uint64_t i)
{
    return rng_key(rng_key(call->key, (uint64_t)rank * SCENARIO_MAX_RANKS + (uint64_t)row), i);
}

/* A row's bytes, in words where packets may be: every other one is 0, so that results are odd, too. */
static uint64_t raw_bits(const struct coll_call *call, int32_t rank, int32_t row, int32_t i)
{
    const size_t num_bytes = wp_dtype_bytes(call->dtype), offset = (size_t)i * num_bytes;
    const uint64_t hash = hash_of(call, rank, row, offset / WORD_BYTES);
    const uint64_t words[] = {0, 0, 0, 0, WP_PACKET_KEY(0), ~WP_PACKET_KEY(0), hash, hash};
    return low_bytes(words[hash % 8] >> offset % WORD_BYTES * BITS_PER_BYTE, num_bytes);
}

struct format {
    int mantissa_bits, exponent_bits;
    int spread; /* of the exponents of numbers that cancel: further apart than the bits of a sum */
};

static struct format format_of(weft_dtype dtype)
{
    static const struct format formats[] = {
        [WEFT_FP8_E4M3] = {3, 4, 1}, [WEFT_FP16] = {10, 5, 2},  [WEFT_BF16] = {7, 8, 4},
        [WEFT_FP32] = {23, 8, 4},    [WEFT_FP64] = {52, 11, 8},
    };
    return formats[dtype];
}

static uint64_t float_of(struct format format, uint64_t sign, int exponent, uint64_t mantissa)
{
    const uint64_t bias = (UINT64_C(1) << format.exponent_bits) / 2 - 1;
    return (sign << format.exponent_bits | (bias + (uint64_t)exponent)) << format.mantissa_bits |
           mantissa;
}

/* Powers of two, and the next numbers: summed in another order, most give another result. */
static uint64_t cancelling_float(struct format format, uint64_t hash)
{
    static const int exponents[] = {0, 0, 1, -1, -6, 7, 7, 2};
    return float_of(format, hash % 2, exponents[hash / 4 % 8] * format.spread, hash / 2 % 2);
}

/* The kind is that of the place, on all ranks, so that not every result is a NaN. */
static uint64_t special_float(struct format format, uint64_t place, int is_chosen, uint64_t hash)
{
    const uint64_t mantissas = UINT64_C(1) << format.mantissa_bits;
    const uint64_t mantissa = (hash >> 8) % mantissas;
    const int top_exponent = (1 << format.exponent_bits) / 2;
    const int no_exponent = 1 - top_exponent;
    switch (place % 4) {
    case 0: /* zeros of both signs */
        return float_of(format, hash % 2, no_exponent, 0);
    case 1: /* subnormal */
        return float_of(format, hash % 2, no_exponent, mantissa);
    case 2: /* infinities; the largest of FP8 */
        return hash / 2 % 2 == 0 ? float_of(format, hash % 2, top_exponent, 0)
                                 : cancelling_float(format, hash);
    default: /* one NaN */
        return is_chosen ? float_of(format, hash % 2, top_exponent, mantissas - 1 - (hash / 2 % 2))
                         : cancelling_float(format, hash);
    }
}

static uint64_t operand(const struct coll_call *call, int32_t rank, int32_t row, int32_t i)
{
    const uint64_t hash = hash_of(call, rank, row, (uint64_t)i) >> 1;
    const uint64_t place = hash_of(call, SCENARIO_MAX_RANKS, row, (uint64_t)i) >> 1;
    if (is_integer(call->dtype) || place % 4 == 0)
        return raw_bits(call, rank, row, i);
    return place % 4 == 1 ? special_float(format_of(call->dtype), place / 4,
                                          place / 16 % 2 == (uint64_t)rank % 2, hash)
                          : cancelling_float(format_of(call->dtype), hash);
}

uint64_t coll_sent(const struct shape *shape, const struct coll_call *call, int32_t rank,
                   int32_t row, int32_t i)
{
    (void)shape;
    return is_reduction(call) ? operand(call, rank, row, i) : raw_bits(call, rank, row, i);
}

/* ---------------------------------------------------------------- results */

/* The part that an element of a row belongs to, which says in which order it is reduced. */
static struct element_part part_of(const struct shape *shape, const struct coll_call *call,
                                   int32_t row, int32_t i)
{
    const enum element_order order = elements_order_of(coll_algorithm(shape, call));
    const struct element_part around = {
        order, shape->num_ranks, call->collective == WEFT_REDUCE ? coll_root(shape, call) : row, 0};
    uint64_t end;
    if (order == REDUCED_AROUND_A_RING && call->collective != WEFT_ALL_REDUCE)
        return around;
    return elements_part_at(order, call->dtype, (uint64_t)call->count, shape->num_ranks,
                            (uint64_t)i, &end);
}

/* By the arithmetic that unit/test_workload_collective compares with the oracle of the other machines. */
static uint64_t reduced_bits(const struct shape *shape, const struct coll_call *call, int32_t row,
                             int32_t i)
{
    uint64_t operands[SCENARIO_MAX_RANKS], result = 0;
    const void *rows[SCENARIO_MAX_RANKS];
    int32_t nodes[SCENARIO_MAX_RANKS];
    struct element_ranks ranks = {shape->num_ranks, shape->num_nodes, nodes, 0, 0};
    for (int32_t rank = 0; rank < shape->num_ranks; rank++) {
        nodes[rank] = shape_node_of(shape, rank);
        operands[rank] = operand(call, rank, row, i);
        if (coll_is_premultiplied(call))
            elements_premultiply(call->dtype, coll_factor(call, rank), &operands[rank], 1,
                                 &operands[rank]);
        rows[rank] = &operands[rank];
    }
    if (call->collective == WEFT_REDUCE_SCATTER) /* which ends where it is wanted */
        ranks.first_node = (nodes[row] + 1) % shape->num_nodes;
    if (call->collective == WEFT_REDUCE)
        ranks.first_node = (nodes[coll_root(shape, call)] + 1) % shape->num_nodes;
    const struct element_part part = part_of(shape, call, row, i);
    if (part.order == REDUCED_UP_TREES && shape->num_nodes > 1)
        elements_reduce_rows_up_nodes(call->dtype, call->op, &ranks, rows, 1, &result);
    else if (part.order != REDUCED_IN_RANK_ORDER)
        elements_reduce_part_rows(call->dtype, call->op, &part, rows, 1, &result);
    else
        elements_reduce_rows_over_nodes(call->dtype, call->op, &ranks, rows, 1, &result);
    return result;
}

uint64_t coll_received(const struct shape *shape, const struct coll_call *call, int32_t rank,
                       int32_t row, int32_t i)
{
    switch (call->collective) {
    case WEFT_ALL_REDUCE:
    case WEFT_REDUCE:
        return reduced_bits(shape, call, 0, i);
    case WEFT_REDUCE_SCATTER:
        return reduced_bits(shape, call, rank, i);
    case WEFT_ALL_GATHER:
    case WEFT_GATHER:
        return coll_sent(shape, call, row, 0, i);
    case WEFT_ALL_TO_ALL:
        return coll_sent(shape, call, row, rank, i);
    case WEFT_SCATTER:
        return coll_sent(shape, call, coll_root(shape, call), rank, i);
    default:
        return coll_sent(shape, call, coll_root(shape, call), 0, i);
    }
}
