/* SPDX-License-Identifier: MIT */
#define ROW_SUM weft__row_sum_base
#include "machine/cpu/rows_variant.h"
