/* SPDX-License-Identifier: MIT */
/* Compiled with -mavx512f -mavx512bw -mavx512vl -mf16c. */
#define ROW_REDUCE weft__row_reduce_avx512
#include "machine/cpu/rows_variant.h"
