/* SPDX-License-Identifier: MIT */
#include "oracle/ep_data.h"

#include <string.h>

#include "workload/elements.h"
#include "workload/hard_numbers.h"
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

/* Each row is of one class, so that not every sum has a NaN in it. */
void ep_data_values(uint64_t key, enum ep_values values, int64_t global_token, weft_dtype dtype,
                    void *row, int64_t hidden)
{
    const size_t bytes = dtype_bytes(dtype);
    struct rng rng = {rng_key(key, (uint64_t)global_token)};
    const enum number_class class = (enum number_class)rng_below(&rng, NUM_NUMBER_CLASSES);
    for (int64_t i = 0; i < hidden; i++) {
        const uint64_t random = rng_next(&rng);
        const uint64_t bits = values == EP_VALUES_SPECIAL ? number_of_class(dtype, class, random)
                                                          : cancelling_number(dtype, random);
        memcpy((char *)row + (size_t)i * bytes, &bits, bytes);
    }
}
