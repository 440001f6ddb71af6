/* SPDX-License-Identifier: MIT */
/* Compiled with -mavx2 -mf16c. */
#define ROW_REDUCE weft__row_reduce_avx2
#include "machine/cpu/rows_variant.h"
