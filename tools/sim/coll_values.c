/* SPDX-License-Identifier: MIT */
/*
 * The elements of a collective's arrays. What is only moved are bytes, many of them those of packets
 * that cannot be stored as they are. What is reduced are small integers, exact in every type and as
 * every result; in arrays of integers also those bytes.
 */
#include "coll_call.h"
#include "machine/machine.h"
#include "shape.h"

enum { WORD_BYTES = 8, BITS_PER_BYTE = 8 };

/* ---------------------------------------------------------------- bits */

static int is_integer(weft_dtype dtype)
{
    return dtype == WEFT_INT32 || dtype == WEFT_INT64 || dtype == WEFT_UINT8;
}

static int is_reduction(const struct coll_call *call)
{
    return call->collective == WEFT_ALL_REDUCE || call->collective == WEFT_REDUCE_SCATTER;
}

static uint64_t low_bytes(uint64_t bits, size_t num_bytes)
{
    return num_bytes == WORD_BYTES ? bits : bits & ((UINT64_C(1) << num_bytes * BITS_PER_BYTE) - 1);
}

/* A small integer as a float: exact. */
static uint64_t float_bits(int64_t value, int mantissa_bits, int bias, size_t num_bytes)
{
    const uint64_t sign = value < 0, magnitude = (uint64_t)(value < 0 ? -value : value);
    int exponent = 0;
    if (magnitude == 0)
        return 0;
    while (magnitude >> (exponent + 1) != 0)
        exponent++;
    const uint64_t mantissa = (magnitude << mantissa_bits >> exponent) -
                              (UINT64_C(1) << mantissa_bits); /* without its leading one */
    return sign << (num_bytes * BITS_PER_BYTE - 1) | (uint64_t)(exponent + bias) << mantissa_bits |
           mantissa;
}

static uint64_t bits_of(int64_t value, weft_dtype dtype)
{
    switch (dtype) {
    case WEFT_BF16:
        return float_bits(value, 7, 127, 2);
    case WEFT_FP16:
        return float_bits(value, 10, 15, 2);
    case WEFT_FP32:
        return float_bits(value, 23, 127, 4);
    case WEFT_FP64:
        return float_bits(value, 52, 1023, 8);
    case WEFT_FP8_E4M3:
        return float_bits(value, 3, 7, 1);
    default:
        return low_bytes((uint64_t)value, weft_dtype_bytes(dtype));
    }
}

static int64_t integer_of(uint64_t bits, weft_dtype dtype)
{
    if (dtype == WEFT_INT32)
        return (int32_t)(uint32_t)bits;
    return (int64_t)bits;
}

/* ---------------------------------------------------------------- inputs */

static uint64_t hash_of(const struct coll_call *call, int32_t rank, int32_t row, uint64_t i)
{
    return rng_key(rng_key(call->key, (uint64_t)rank * SCENARIO_MAX_RANKS + (uint64_t)row), i);
}

/* A row's bytes, in words where packets may be: every other one is 0, so that results are odd, too. */
static uint64_t raw_bits(const struct coll_call *call, int32_t rank, int32_t row, int32_t i)
{
    const size_t num_bytes = weft_dtype_bytes(call->dtype), offset = (size_t)i * num_bytes;
    const uint64_t hash = hash_of(call, rank, row, offset / WORD_BYTES);
    const uint64_t words[] = {0, 0, 0, 0, WEFT_PACKET_KEY(0), ~WEFT_PACKET_KEY(0), hash, hash};
    return low_bytes(words[hash % 8] >> offset % WORD_BYTES * BITS_PER_BYTE, num_bytes);
}

/* Of magnitudes whose results are exact also in FP8, which has four significant bits. */
static int64_t small_value(const struct shape *shape, const struct coll_call *call, uint64_t hash)
{
    const int64_t num_ranks = shape->num_ranks;
    const int64_t most = call->op == WEFT_SUM    ? 15 / num_ranks
                         : call->op == WEFT_PROD ? (num_ranks <= 8 ? 2 : 1)
                                                 : 7;
    if (call->op == WEFT_AVG)
        return (int64_t)(hash % 2) * num_ranks;
    if (call->op == WEFT_PROD)
        return (hash >> 32) % 2 == 0 ? 1 + (int64_t)hash % most : -1;
    return (int64_t)(hash % (uint64_t)(2 * most + 1)) - most;
}

static int64_t value_of(const struct shape *shape, const struct coll_call *call, int32_t rank,
                        int32_t row, int32_t i)
{
    if (is_integer(call->dtype) && call->op != WEFT_AVG)
        return integer_of(raw_bits(call, rank, row, i), call->dtype);
    return small_value(shape, call, hash_of(call, rank, row, (uint64_t)i) >> 1);
}

uint64_t coll_sent(const struct shape *shape, const struct coll_call *call, int32_t rank,
                   int32_t row, int32_t i)
{
    return is_reduction(call) ? bits_of(value_of(shape, call, rank, row, i), call->dtype)
                              : raw_bits(call, rank, row, i);
}

/* ---------------------------------------------------------------- results */

static int64_t reduced(weft_reduce_op op, int64_t a, int64_t b)
{
    switch (op) {
    case WEFT_PROD:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case WEFT_MAX:
        return a > b ? a : b;
    case WEFT_MIN:
        return a < b ? a : b;
    default:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

static uint64_t reduced_bits(const struct shape *shape, const struct coll_call *call, int32_t row,
                             int32_t i)
{
    int64_t result = value_of(shape, call, 0, row, i);
    for (int32_t rank = 1; rank < shape->num_ranks; rank++)
        result = reduced(call->op, result, value_of(shape, call, rank, row, i));
    return bits_of(call->op == WEFT_AVG ? result / shape->num_ranks : result, call->dtype);
}

uint64_t coll_received(const struct shape *shape, const struct coll_call *call, int32_t rank,
                       int32_t row, int32_t i)
{
    switch (call->collective) {
    case WEFT_ALL_REDUCE:
        return reduced_bits(shape, call, 0, i);
    case WEFT_REDUCE_SCATTER:
        return reduced_bits(shape, call, rank, i);
    case WEFT_ALL_GATHER:
        return coll_sent(shape, call, row, 0, i);
    case WEFT_ALL_TO_ALL:
        return coll_sent(shape, call, row, rank, i);
    default:
        return coll_sent(shape, call, coll_root(shape, call), 0, i);
    }
}
