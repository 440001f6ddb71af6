/* SPDX-License-Identifier: MIT */
#include "workload/payload.h"

#include <endian.h>
#include <string.h>

#include "workload/convert.h"
#include "workload/rng.h"

size_t payload_element_bytes(enum payload_kind kind)
{
    static const size_t element_bytes[] = {
        [PAYLOAD_BF16] = 2, [PAYLOAD_FP16] = 2, [PAYLOAD_FP32] = 4, [PAYLOAD_BYTES] = 1};
    return element_bytes[kind];
}

static float value_of_16(uint64_t bits)
{
    return (float)(int16_t)(bits & 0xffff) * 0x1p-14f;
}

/* Eight bytes of row content out of eight random bytes. */
static uint64_t shape(enum payload_kind kind, uint64_t bits)
{
    uint64_t word = 0;
    switch (kind) {
    case PAYLOAD_BYTES:
        return bits;
    case PAYLOAD_BF16:
        for (unsigned i = 0; i < 64; i += 16)
            word |= (uint64_t)bf16_from_fp32(value_of_16(bits >> i)) << i;
        return word;
    case PAYLOAD_FP16:
        for (unsigned i = 0; i < 64; i += 16)
            word |= (uint64_t)fp16_from_fp32(value_of_16(bits >> i)) << i;
        return word;
    case PAYLOAD_FP32:
        for (unsigned i = 0; i < 64; i += 32) {
            float value = (float)(int32_t)(bits >> i & 0xffffffffu) * 0x1p-30f;
            uint32_t value_bits;
            memcpy(&value_bits, &value, sizeof value_bits);
            word |= (uint64_t)value_bits << i;
        }
        return word;
    }
    return 0;
}

void payload_fill_row(const struct payload *payload, int64_t token, int32_t plane, void *row,
                      size_t row_bytes)
{
    uint64_t key = rng_key(rng_key(payload->seed, (uint64_t)plane), (uint64_t)token);
    unsigned char *bytes = row;
    for (size_t offset = 0; offset < row_bytes; offset += 8) {
        uint64_t word = htole64(shape(payload->kind, rng_hash(key + offset)));
        size_t remaining = row_bytes - offset;
        memcpy(bytes + offset, &word, remaining < 8 ? remaining : 8);
    }
}

void payload_to_fp32(enum payload_kind kind, const void *row, size_t num_elements, float *values)
{
    const uint16_t *halves = row;
    if (kind == PAYLOAD_FP32)
        memcpy(values, row, num_elements * sizeof *values);
    for (size_t i = 0; kind == PAYLOAD_BF16 && i < num_elements; i++)
        values[i] = fp32_from_bf16(halves[i]);
    for (size_t i = 0; kind == PAYLOAD_FP16 && i < num_elements; i++)
        values[i] = fp32_from_fp16(halves[i]);
}

void payload_from_fp32(enum payload_kind kind, const float *values, size_t num_elements, void *row)
{
    uint16_t *halves = row;
    float *floats = row;
    for (size_t i = 0; kind == PAYLOAD_FP32 && i < num_elements; i++)
        floats[i] = fp32_canonical(values[i]);
    for (size_t i = 0; kind == PAYLOAD_BF16 && i < num_elements; i++)
        halves[i] = bf16_from_fp32(values[i]);
    for (size_t i = 0; kind == PAYLOAD_FP16 && i < num_elements; i++)
        halves[i] = fp16_from_fp32(values[i]);
}
