/* SPDX-License-Identifier: MIT */
/*
 * The elements of a collective's arrays. What is only moved are bytes, many of them those of
 * packets that cannot be stored as they are. What is reduced are those bytes, too, and in arrays of
 * floats numbers that cancel, zeros, subnormals, infinities and NaNs.
 */
#include "coll_call.h"
#include "machine/machine.h"
#include "shape.h"
#include "workload/hard_numbers.h"

enum { WORD_BYTES = 8, BITS_PER_BYTE = 8 };

/* ---------------------------------------------------------------- bits */

static uint64_t low_bytes(uint64_t bits, size_t num_bytes)
{
    return num_bytes == WORD_BYTES ? bits : bits & ((UINT64_C(1) << num_bytes * BITS_PER_BYTE) - 1);
}

/* ---------------------------------------------------------------- inputs */

static uint64_t hash_of(const struct coll_call *call, int32_t rank, int32_t row, uint64_t i)
{
    return rng_key(rng_key(call->key, (uint64_t)rank * SCENARIO_MAX_RANKS + (uint64_t)row), i);
}

/* A row's bytes, in words where packets may be: every other one is 0, so that results are odd,
 * too. */
static uint64_t raw_bits(const struct coll_call *call, int32_t rank, int32_t row, int32_t i)
{
    const size_t num_bytes = wp_dtype_bytes(call->dtype), offset = (size_t)i * num_bytes;
    const uint64_t hash = hash_of(call, rank, row, offset / WORD_BYTES);
    const uint64_t words[] = {0, 0, 0, 0, WP_PACKET_KEY(0), ~WP_PACKET_KEY(0), hash, hash};
    return low_bytes(words[hash % 8] >> offset % WORD_BYTES * BITS_PER_BYTE, num_bytes);
}

/* Special numbers are of the class of the place, on all ranks, so that not every result is a
 * NaN. */
static uint64_t operand(const struct coll_call *call, int32_t rank, int32_t row, int32_t i)
{
    const uint64_t hash = hash_of(call, rank, row, (uint64_t)i);
    const uint64_t place = hash_of(call, SCENARIO_MAX_RANKS, row, (uint64_t)i) >> 1;
    const enum number_class class = (enum number_class)(place / 4 % NUM_NUMBER_CLASSES);
    if (dtype_is_integer(call->dtype) || place % 4 == 0)
        return raw_bits(call, rank, row, i);
    if (place % 4 == 1 && (class != CLASS_NANS || place / 32 % 2 == (uint64_t)rank % 2))
        return number_of_class(call->dtype, class, hash);
    return cancelling_number(call->dtype, hash);
}

uint64_t coll_sent(const struct shape *shape, const struct coll_call *call, int32_t rank,
                   int32_t row, int32_t i)
{
    (void)shape;
    return collective_reduces(call->collective) ? operand(call, rank, row, i)
                                                : raw_bits(call, rank, row, i);
}

/* ---------------------------------------------------------------- results */

/* By the arithmetic that unit/test_workload_collective compares with the oracle of the other
 * machines. */
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
    ranks.first_node = collective_first_node(call->collective, coll_root(shape, call), row, &ranks);
    if (elements_order_of(coll_algorithm(shape, call)) == REDUCED_UP_A_TREE)
        elements_reduce_rows_up_nodes(call->dtype, call->op, &ranks, rows, 1, &result);
    else
        elements_reduce_rows_over_nodes(call->dtype, call->op, &ranks, rows, 1, &result);
    return result;
}

uint64_t coll_received(const struct shape *shape, const struct coll_call *call, int32_t rank,
                       int32_t row, int32_t i)
{
    const struct collective_source source =
        collective_source_of(call->collective, coll_root(shape, call), rank, row);
    return source.rank < 0 ? reduced_bits(shape, call, source.row, i)
                           : coll_sent(shape, call, source.rank, source.row, i);
}
