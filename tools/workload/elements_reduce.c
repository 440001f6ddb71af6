/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "workload/elements.h"

enum { CHUNK_ELEMENTS = 512 }; /* several chunks lie on stacks, which may be small */

/* Elements as what they are reduced in. Integers of any width as 64 bits: what wraps around in
 * those is right in fewer, too. */
union values {
    float floats[CHUNK_ELEMENTS];
    double doubles[CHUNK_ELEMENTS];
    uint64_t integers[CHUNK_ELEMENTS];
};

union elements {
    uint8_t bytes[CHUNK_ELEMENTS];
    int32_t words[CHUNK_ELEMENTS];
    union values values; /* FP64, INT64: as they are; floats of any width: in its bytes */
};

#define FOR_EACH(assignment)                                                                       \
    for (size_t i = 0; i < count; i++)                                                             \
    assignment

static void widen(weft_dtype dtype, const union elements *elements, size_t count,
                  union values *values)
{
    switch (dtype) {
    case WEFT_BF16:
    case WEFT_FP16:
    case WEFT_FP8_E4M3:
    case WEFT_FP32:
        elements_to_fp32(dtype, elements, count, values->floats);
        break;
    case WEFT_UINT8:
        FOR_EACH(values->integers[i] = elements->bytes[i]);
        break;
    case WEFT_INT32:
        FOR_EACH(values->integers[i] = (uint64_t)(int64_t)elements->words[i]);
        break;
    default:
        memcpy(values, elements, count * dtype_bytes(dtype));
    }
}

static double fp64_canonical(double value)
{
    const uint64_t nan = 0x7fffffffffffffffu;
    if (isnan(value))
        memcpy(&value, &nan, sizeof value);
    return value;
}

static void narrow(weft_dtype dtype, const union values *values, size_t count,
                   union elements *elements)
{
    switch (dtype) {
    case WEFT_BF16:
    case WEFT_FP16:
    case WEFT_FP8_E4M3:
    case WEFT_FP32:
        elements_from_fp32(dtype, values->floats, count, elements);
        break;
    case WEFT_FP64:
        FOR_EACH(elements->values.doubles[i] = fp64_canonical(values->doubles[i]));
        break;
    case WEFT_UINT8:
        FOR_EACH(elements->bytes[i] = (uint8_t)values->integers[i]);
        break;
    case WEFT_INT32:
        FOR_EACH(elements->words[i] = (int32_t)values->integers[i]);
        break;
    default:
        memcpy(elements, values, count * dtype_bytes(dtype));
    }
}

/* The larger of a and b, NaN if one of them is, +0 of zeros of both signs. */
static double maximum(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return signbit(a) ? b : a;
    return a > b ? a : b;
}

static double minimum(double a, double b)
{
    return -maximum(-a, -b);
}

static double join(weft_reduce_op op, double a, double b)
{
    if (op == WEFT_PROD)
        return a * b;
    if (op == WEFT_MAX)
        return maximum(a, b);
    if (op == WEFT_MIN)
        return minimum(a, b);
    return a + b; /* WEFT_SUM, WEFT_AVG */
}

static uint64_t join_integers(weft_reduce_op op, uint64_t a, uint64_t b)
{
    if (op == WEFT_PROD)
        return a * b;
    if (op == WEFT_MAX)
        return (int64_t)a > (int64_t)b ? a : b;
    if (op == WEFT_MIN)
        return (int64_t)a < (int64_t)b ? a : b;
    return a + b;
}

/* Doubles have more than twice a float's bits and two: a float's sum or product rounded to a double
 * and then to a float is as if rounded once. */
static void reduce(weft_dtype dtype, weft_reduce_op op, const union values *values, size_t count,
                   union values *sums)
{
    if (dtype_is_integer(dtype))
        FOR_EACH(sums->integers[i] = join_integers(op, sums->integers[i], values->integers[i]));
    else if (dtype == WEFT_FP64)
        FOR_EACH(sums->doubles[i] = join(op, sums->doubles[i], values->doubles[i]));
    else
        FOR_EACH(sums->floats[i] = (float)join(op, sums->floats[i], values->floats[i]));
}

static void divide(weft_dtype dtype, int32_t num_ranks, size_t count, union values *sums)
{
    union elements wrapped;
    if (dtype_is_integer(dtype)) { /* sums are divided as they are in their own type */
        narrow(dtype, sums, count, &wrapped);
        widen(dtype, &wrapped, count, sums);
        FOR_EACH(sums->integers[i] = (uint64_t)((int64_t)sums->integers[i] / num_ranks));
    } else if (dtype == WEFT_FP64) {
        FOR_EACH(sums->doubles[i] /= num_ranks);
    } else {
        FOR_EACH(sums->floats[i] /= (float)num_ranks);
    }
}

/* The rows of a reduction: in memory, or made by a source. */
struct operands {
    weft_dtype dtype;
    weft_reduce_op op;
    struct element_ranks ranks;
    const void *const *rows; /* [num_ranks], or NULL */
    const struct element_source *source;
};

static void load(const struct operands *operands, int32_t rank, uint64_t first, size_t count,
                 union elements *chunk)
{
    const size_t bytes = dtype_bytes(operands->dtype);
    if (operands->rows)
        memcpy(chunk, (const char *)operands->rows[rank] + first * bytes, count * bytes);
    else
        elements_fill(operands->source, rank, first, count, chunk);
}

/* At most CHUNK_ELEMENTS. */
static void add(const struct operands *operands, weft_reduce_op op, union elements *chunk,
                size_t count, int is_first, union values *sums)
{
    union values values;
    if (is_first) {
        widen(operands->dtype, chunk, count, sums);
        return;
    }
    widen(operands->dtype, chunk, count, &values);
    reduce(operands->dtype, op, &values, count, sums);
}

static void round_sums(weft_dtype dtype, size_t count, union values *sums)
{
    union elements rounded;
    narrow(dtype, sums, count, &rounded);
    widen(dtype, &rounded, count, sums);
}

/* The ranks of one node, of which an average has the sum; rounded after each ROUNDED_RANKS of
 * them. */
static void reduce_node(const struct operands *operands, int32_t node, uint64_t first, size_t count,
                        union values *sums)
{
    enum { ROUNDED_RANKS = 32 };
    const struct element_ranks *ranks = &operands->ranks;
    int32_t num_ranks = 0;
    for (int32_t rank = 0; rank < ranks->num_ranks; rank++) {
        union elements chunk;
        if (ranks->num_nodes > 1 && ranks->node_of_rank[rank] != node)
            continue;
        if (num_ranks > 0 && num_ranks % ROUNDED_RANKS == 0)
            round_sums(operands->dtype, count, sums);
        load(operands, rank, first, count, &chunk);
        add(operands, operands->op, &chunk, count, num_ranks == 0, sums);
        num_ranks++;
    }
    if (ranks->num_nodes > 1 || num_ranks > ROUNDED_RANKS)
        round_sums(operands->dtype, count, sums);
}

/* Over several nodes, sums are rounded at each of them. */
static void reduce_chunk(const struct operands *operands, uint64_t first, size_t count,
                         union elements *chunk)
{
    const struct element_ranks *ranks = &operands->ranks;
    union values sums, node_sums;
    reduce_node(operands, ranks->first_node, first, count, &sums);
    for (int32_t i = 1; i < ranks->num_nodes; i++) {
        reduce_node(operands, (ranks->first_node + i) % ranks->num_nodes, first, count, &node_sums);
        if (i > 1)
            round_sums(operands->dtype, count, &sums);
        reduce(operands->dtype, operands->op, &node_sums, count, &sums);
    }
    if (operands->op == WEFT_AVG)
        divide(operands->dtype, ranks->num_averaged > 0 ? ranks->num_averaged : ranks->num_ranks,
               count, &sums);
    narrow(operands->dtype, &sums, count, chunk);
}

static void reduce_all(const struct operands *operands, uint64_t first, uint64_t count,
                       void *elements)
{
    const size_t element_bytes = dtype_bytes(operands->dtype);
    union elements chunk;
    for (uint64_t done = 0; done < count; done += CHUNK_ELEMENTS) {
        const size_t size = count - done < CHUNK_ELEMENTS ? count - done : CHUNK_ELEMENTS;
        reduce_chunk(operands, first + done, size, &chunk);
        memcpy((char *)elements + done * element_bytes, &chunk, size * element_bytes);
    }
}

void elements_reduce_over_nodes(const struct element_source *source, weft_reduce_op op,
                                const struct element_ranks *ranks, uint64_t first, uint64_t count,
                                void *elements)
{
    const struct operands operands = {source->dtype, op, *ranks, NULL, source};
    reduce_all(&operands, first, count, elements);
}

void elements_reduce(const struct element_source *source, weft_reduce_op op, int32_t num_ranks,
                     uint64_t first, uint64_t count, void *elements)
{
    const struct element_ranks ranks = {num_ranks, 1, NULL, 0, 0};
    elements_reduce_over_nodes(source, op, &ranks, first, count, elements);
}

void elements_reduce_rows_over_nodes(weft_dtype dtype, weft_reduce_op op,
                                     const struct element_ranks *ranks, const void *const *rows,
                                     uint64_t count, void *elements)
{
    const struct operands operands = {dtype, op, *ranks, rows, NULL};
    reduce_all(&operands, 0, count, elements);
}

void elements_reduce_rows(weft_dtype dtype, weft_reduce_op op, int32_t num_ranks,
                          const void *const *rows, uint64_t count, void *elements)
{
    const struct element_ranks ranks = {num_ranks, 1, NULL, 0, 0};
    elements_reduce_rows_over_nodes(dtype, op, &ranks, rows, count, elements);
}
