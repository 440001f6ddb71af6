/* SPDX-License-Identifier: MIT */
/* The number formats, from their definition (sign, exponent, fraction) and in doubles: slow, and
 * sharing no trick with the library's conversions. */
#ifndef TESTS_ORACLE_FLOAT_H
#define TESTS_ORACLE_FLOAT_H

#include <stdint.h>

#include "weft.h"

uint64_t oracle_element_bytes(weft_dtype dtype);
/* Element `i` of a row at any address; of BF16, FP16, FP32 and FP8. */
float oracle_load(weft_dtype dtype, const void *row, int64_t i);
/* Rounds to nearest even; every NaN is stored as the positive one with all mantissa bits set. What is
 * too large becomes infinity, or, in FP8, the largest number. */
void oracle_store(weft_dtype dtype, void *row, int64_t i, float value);

#endif
