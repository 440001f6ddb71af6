/* SPDX-License-Identifier: MIT */
#include "oracle/ep_data.h"

#include <string.h>

#include "workload/elements.h"
#include "workload/rng.h"

void ep_data_bytes(uint64_t key, int64_t global_token, void *row, uint64_t row_bytes)
{
    struct rng rng = {rng_key(key, (uint64_t)global_token)};
    for (uint64_t offset = 0; offset < row_bytes; offset += 8) {
        const uint64_t value = rng_next(&rng);
        const uint64_t rest_bytes = row_bytes - offset;
        memcpy((char *)row + offset, &value, rest_bytes < 8 ? rest_bytes : 8);
    }
}

static float cancelling_value(struct rng *rng)
{
    static const float magnitudes[] = {1, 1, 3, 0x1p-12F, 0x1p12F, 0x1p12F, 0x1.8p-3F, 0x1.04p2F};
    const float magnitude = magnitudes[rng_below(rng, 8)];
    return rng_below(rng, 2) == 0 ? magnitude : -magnitude;
}

/* Bits of the upper half of an fp32 or bf16, or of an fp16, that are special there. */
static uint16_t special_bits(weft_dtype dtype, struct rng *rng)
{
    static const uint16_t of_fp16[] = {0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01, 0x0000, 0x8000,
                                       0x0001, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x3c00};
    static const uint16_t of_bf16[] = {0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81, 0x0000, 0x8000,
                                       0x0001, 0x8001, 0x007f, 0x0080, 0x7f7f, 0xff7f, 0x3f80};
    const uint32_t which = rng_below(rng, 14);
    return dtype == WEFT_FP16 ? of_fp16[which] : of_bf16[which];
}

/* Each row is of one of four kinds, so that not every sum has a NaN in it. */
static void special_element(struct rng *rng, uint64_t kind, weft_dtype dtype, void *row, int64_t i)
{
    const uint32_t tiny_and_sign = 0x800fffff;
    uint32_t bits = (uint32_t)rng_next(rng);
    if (kind % 4 == 0)
        bits = (uint32_t)special_bits(dtype, rng) << 16 | (rng_below(rng, 2) == 0 ? 0 : bits >> 16);
    else if (kind % 4 == 1)
        bits &= tiny_and_sign;
    else if (kind % 4 == 2)
        bits = bits & 1 ? 0x80000000 : 0;
    const uint16_t upper = (uint16_t)(bits >> 16);
    if (dtype == WEFT_FP32)
        memcpy((char *)row + 4 * i, &bits, 4);
    else
        memcpy((char *)row + 2 * i, &upper, 2);
}

void ep_data_values(uint64_t key, enum ep_values values, int64_t global_token, weft_dtype dtype,
                    void *row, int64_t hidden)
{
    struct rng rng = {rng_key(key, (uint64_t)global_token)};
    const uint64_t kind = rng_next(&rng);
    for (int64_t i = 0; i < hidden; i++) {
        if (values == EP_VALUES_SPECIAL)
            special_element(&rng, kind, dtype, row, i);
        else
            element_store(dtype, row, i, cancelling_value(&rng));
    }
}
