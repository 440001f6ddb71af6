/* SPDX-License-Identifier: MIT */
/* Rows of WEFT_LOG_10BIT as weft.h defines them, in integers and doubles. */
#pragma once

#include <stdint.h>

#include "weft.h"

enum { LOGARITHMIC_GROUP = 128, LOGARITHMIC_GROUP_BYTES = 164 };

/* num_elements is whole groups; rows may lie anywhere. */
void logarithmic_make_row(weft_dtype wide, const void *src, int64_t num_elements, uint8_t *row);
/* The number that element `i` stands for. */
float logarithmic_number(const uint8_t *row, int64_t num_elements, int64_t i);
