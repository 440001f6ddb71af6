/* SPDX-License-Identifier: MIT */
#define ROW_REDUCE weft__row_reduce_base
#include "machine/cpu/rows_variant.h"
