/* SPDX-License-Identifier: MIT */
/* Compiled with -mavx512f -mavx512bw -mavx512vl -mf16c. */
#define ROW_SUM weft__row_sum_avx512
#include "machine/cpu/rows_variant.h"
