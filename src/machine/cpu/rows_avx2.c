/* SPDX-License-Identifier: MIT */
/* Compiled with -mavx2 -mf16c. */
#define ROW_SUM weft__row_sum_avx2
#include "machine/cpu/rows_variant.h"
