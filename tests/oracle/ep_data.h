/* SPDX-License-Identifier: MIT */
/* The content of rows, a pure function of a key and the global index of the token, so that every
 * rank can say what every other one sent. */
#pragma once

#include <stdint.h>

#include "weft.h"

/* Any bytes. */
void ep_data_bytes(uint64_t key, int64_t global_token, void *row, uint64_t row_bytes);

enum ep_values {
    EP_VALUES_CANCELLING, /* magnitudes so far apart that every other order of a sum shows */
    EP_VALUES_SPECIAL     /* any bits, and many infinities, NaNs, zeros, subnormals, huge values */
};
/* Elements of dtype. */
void ep_data_values(uint64_t key, enum ep_values values, int64_t global_token, weft_dtype dtype,
                    void *row, int64_t hidden);
