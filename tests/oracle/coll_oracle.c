/* SPDX-License-Identifier: MIT */
#include "oracle/coll_oracle.h"

#include <math.h>
#include <string.h>

#include "oracle/oracle_float.h"

/* ---------------------------------------------------------------- fp32, and what is reduced in it */

/* NaN if one is; -0 is less than +0. */
static float larger_float(float a, float b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == 0 && b == 0)
        return signbit(a) ? b : a;
    return a > b ? a : b;
}

static float join_floats(weft_reduce_op op, float a, float b)
{
    switch (op) {
    case WEFT_PROD:
        return a * b;
    case WEFT_MAX:
        return larger_float(a, b);
    case WEFT_MIN:
        return -larger_float(-a, -b);
    default:
        return a + b;
    }
}

static void reduce_floats(weft_dtype dtype, weft_reduce_op op, int32_t num_rows,
                          const void *const *rows, int64_t i, void *out)
{
    float result = oracle_load(dtype, rows[0], i);
    for (int32_t row = 1; row < num_rows; row++)
        result = join_floats(op, result, oracle_load(dtype, rows[row], i));
    oracle_store(dtype, out, i, op == WEFT_AVG ? result / (float)num_rows : result);
}

/* ---------------------------------------------------------------- fp64 */

static double larger_double(double a, double b)
{
    if (isnan(a) || isnan(b))
        return (double)NAN;
    if (a == 0 && b == 0)
        return signbit(a) ? b : a;
    return a > b ? a : b;
}

static double join_doubles(weft_reduce_op op, double a, double b)
{
    switch (op) {
    case WEFT_PROD:
        return a * b;
    case WEFT_MAX:
        return larger_double(a, b);
    case WEFT_MIN:
        return -larger_double(-a, -b);
    default:
        return a + b;
    }
}

static double load_double(const void *row, int64_t i)
{
    double value;
    memcpy(&value, (const char *)row + 8 * i, 8);
    return value;
}

static void reduce_doubles(weft_reduce_op op, int32_t num_rows, const void *const *rows, int64_t i,
                           void *out)
{
    const uint64_t canonical_nan = 0x7fffffffffffffff;
    double result = load_double(rows[0], i);
    for (int32_t row = 1; row < num_rows; row++)
        result = join_doubles(op, result, load_double(rows[row], i));
    result = op == WEFT_AVG ? result / num_rows : result;
    memcpy((char *)out + 8 * i,
           isnan(result) ? (const void *)&canonical_nan : (const void *)&result, 8);
}

/* ---------------------------------------------------------------- integers */

static int64_t load_integer(weft_dtype dtype, const void *row, int64_t i)
{
    const char *element = (const char *)row + (uint64_t)i * oracle_element_bytes(dtype);
    int32_t narrow;
    int64_t wide;
    if (dtype == WEFT_UINT8)
        return (unsigned char)*element;
    if (dtype == WEFT_INT32) {
        memcpy(&narrow, element, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, element, sizeof wide);
    return wide;
}

/* Wraps around; the low bytes of a two's complement number come first on all our machines. */
static void store_integer(weft_dtype dtype, void *row, int64_t i, int64_t value)
{
    const uint64_t bytes = oracle_element_bytes(dtype);
    memcpy((char *)row + (uint64_t)i * bytes, &value, bytes);
}

static int64_t join_integers(weft_reduce_op op, int64_t a, int64_t b)
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

/* In the wider type, which wraps to the same as the element's own. */
static void reduce_integers(weft_dtype dtype, weft_reduce_op op, int32_t num_rows,
                            const void *const *rows, int64_t i, void *out)
{
    int64_t result = load_integer(dtype, rows[0], i);
    for (int32_t row = 1; row < num_rows; row++)
        result = join_integers(op, result, load_integer(dtype, rows[row], i));
    store_integer(dtype, out, i, result);
    if (op == WEFT_AVG)
        store_integer(dtype, out, i, load_integer(dtype, out, i) / num_rows);
}

void coll_oracle_reduce(weft_dtype dtype, weft_reduce_op op, int32_t num_rows,
                        const void *const *rows, uint64_t count, void *out)
{
    for (int64_t i = 0; i < (int64_t)count; i++) {
        if (dtype == WEFT_FP64)
            reduce_doubles(op, num_rows, rows, i, out);
        else if (dtype == WEFT_INT32 || dtype == WEFT_INT64 || dtype == WEFT_UINT8)
            reduce_integers(dtype, op, num_rows, rows, i, out);
        else
            reduce_floats(dtype, op, num_rows, rows, i, out);
    }
}
