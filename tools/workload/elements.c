/* SPDX-License-Identifier: MIT */
#include "workload/elements.h"

#include <endian.h>
#include <string.h>

#include "workload/convert.h"
#include "workload/rng.h"

const char *const dtype_names[NUM_DTYPES + 2] = {
    [WEFT_DTYPE_NONE] = "none", [WEFT_INT32] = "int32", [WEFT_INT64] = "int64",
    [WEFT_BF16] = "bf16",       [WEFT_FP16] = "fp16",   [WEFT_FP32] = "fp32",
    [WEFT_FP64] = "fp64",       [WEFT_UINT8] = "uint8", [WEFT_FP8_E4M3] = "fp8_e4m3",
};

const char *const reduce_op_names[NUM_REDUCE_OPS + 2] = {
    [WEFT_SUM] = "sum", [WEFT_PROD] = "prod", [WEFT_MAX] = "max",
    [WEFT_MIN] = "min", [WEFT_AVG] = "avg",   [WEFT_PREMUL_SUM] = "premul_sum",
};

size_t dtype_bytes(weft_dtype dtype)
{
    static const size_t bytes[NUM_DTYPES + 1] = {
        [WEFT_INT32] = 4, [WEFT_INT64] = 8, [WEFT_BF16] = 2,  [WEFT_FP16] = 2,
        [WEFT_FP32] = 4,  [WEFT_FP64] = 8,  [WEFT_UINT8] = 1, [WEFT_FP8_E4M3] = 1,
    };
    return bytes[dtype];
}

int dtype_is_integer(weft_dtype dtype)
{
    return dtype == WEFT_INT32 || dtype == WEFT_INT64 || dtype == WEFT_UINT8;
}

int reduce_op_takes(weft_reduce_op op, weft_dtype dtype)
{
    return op != WEFT_AVG || !dtype_is_integer(dtype);
}

static uint64_t fp64_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The element in the low bits of `random`, from as many random bits. */
static uint64_t number(weft_dtype dtype, uint64_t random)
{
    switch (dtype) {
    case WEFT_BF16:
        return bf16_from_fp32((float)(int16_t)random * 0x1p-14f);
    case WEFT_FP16:
        return fp16_from_fp32((float)(int16_t)random * 0x1p-14f);
    case WEFT_FP32:
        return fp32_bits((float)(int32_t)random * 0x1p-30f);
    case WEFT_FP64:
        return fp64_bits((double)(int64_t)random * 0x1p-62);
    case WEFT_FP8_E4M3:
        return fp8_from_fp32((float)(int8_t)random * 0x1p-6f);
    default:
        return random;
    }
}

static uint64_t whole(weft_dtype dtype, uint64_t random)
{
    const uint64_t value = random & 7;
    switch (dtype) {
    case WEFT_BF16:
        return bf16_from_fp32((float)value);
    case WEFT_FP16:
        return fp16_from_fp32((float)value);
    case WEFT_FP32:
        return fp32_bits((float)value);
    case WEFT_FP64:
        return fp64_bits((double)value);
    case WEFT_FP8_E4M3:
        return fp8_from_fp32((float)value);
    default:
        return value;
    }
}

/* Eight bytes of elements out of eight random bytes. */
static uint64_t shape(const struct element_source *source, uint64_t random)
{
    const unsigned num_bits = 8 * (unsigned)dtype_bytes(source->dtype);
    const uint64_t mask = ~(uint64_t)0 >> (64 - num_bits);
    uint64_t word = 0;
    if (source->content == ELEMENTS_BITS)
        return random;
    for (unsigned shift = 0; shift < 64; shift += num_bits) {
        const uint64_t element = source->content == ELEMENTS_WHOLE
                                     ? whole(source->dtype, random >> shift)
                                     : number(source->dtype, random >> shift);
        word |= (element & mask) << shift;
    }
    return word;
}

void elements_fill(const struct element_source *source, int64_t rank, uint64_t first,
                   uint64_t count, void *elements)
{
    const uint64_t key = rng_key(source->seed, (uint64_t)rank);
    const uint64_t begin = first * dtype_bytes(source->dtype);
    const uint64_t end = (first + count) * dtype_bytes(source->dtype);
    unsigned char *bytes = elements;
    for (uint64_t offset = begin & ~(uint64_t)7; offset < end; offset += 8) {
        const uint64_t word = htole64(shape(source, rng_hash(key + offset)));
        const uint64_t from = offset > begin ? offset : begin;
        const uint64_t to = offset + 8 < end ? offset + 8 : end;
        memcpy(bytes + (from - begin), (const char *)&word + (from - offset), to - from);
    }
    if (source->factors != NULL)
        elements_premultiply(source->dtype, source->factors[rank], elements, count, elements);
}

void elements_to_fp32(weft_dtype dtype, const void *elements, size_t count, float *values)
{
    const uint8_t *bytes = elements;
    uint16_t half;
    if (dtype == WEFT_FP32)
        memcpy(values, elements, count * sizeof *values);
    for (size_t i = 0; dtype == WEFT_BF16 && i < count; i++) {
        memcpy(&half, bytes + 2 * i, sizeof half);
        values[i] = fp32_from_bf16(half);
    }
    for (size_t i = 0; dtype == WEFT_FP16 && i < count; i++) {
        memcpy(&half, bytes + 2 * i, sizeof half);
        values[i] = fp32_from_fp16(half);
    }
    for (size_t i = 0; dtype == WEFT_FP8_E4M3 && i < count; i++)
        values[i] = fp32_from_fp8(bytes[i]);
}

void elements_from_fp32(weft_dtype dtype, const float *values, size_t count, void *elements)
{
    uint8_t *bytes = elements;
    for (size_t i = 0; dtype == WEFT_FP32 && i < count; i++) {
        const float value = fp32_canonical(values[i]);
        memcpy(bytes + 4 * i, &value, sizeof value);
    }
    for (size_t i = 0; dtype == WEFT_BF16 && i < count; i++) {
        const uint16_t half = bf16_from_fp32(values[i]);
        memcpy(bytes + 2 * i, &half, sizeof half);
    }
    for (size_t i = 0; dtype == WEFT_FP16 && i < count; i++) {
        const uint16_t half = fp16_from_fp32(values[i]);
        memcpy(bytes + 2 * i, &half, sizeof half);
    }
    for (size_t i = 0; dtype == WEFT_FP8_E4M3 && i < count; i++)
        bytes[i] = fp8_from_fp32(values[i]);
}

float element_load(weft_dtype dtype, const void *elements, int64_t i)
{
    float value = 0;
    elements_to_fp32(dtype, (const char *)elements + (size_t)i * dtype_bytes(dtype), 1, &value);
    return value;
}

void element_store(weft_dtype dtype, void *elements, int64_t i, float value)
{
    elements_from_fp32(dtype, &value, 1, (char *)elements + (size_t)i * dtype_bytes(dtype));
}

void elements_round(weft_dtype dtype, float *values, size_t count)
{
    enum { MOST = 512 };
    uint8_t row[MOST * sizeof(float)];
    for (size_t first = 0; first < count; first += MOST) {
        const size_t num = count - first < MOST ? count - first : MOST;
        elements_from_fp32(dtype, values + first, num, row);
        elements_to_fp32(dtype, row, num, values + first);
    }
}

void elements_premultiply(weft_dtype dtype, float factor, const void *elements, uint64_t count,
                          void *products)
{
    for (uint64_t i = 0; i < count; i++) {
        const float product = factor * element_load(dtype, elements, (int64_t)i);
        element_store(dtype, products, (int64_t)i, 0.0f + product);
    }
}
