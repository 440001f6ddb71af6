/* SPDX-License-Identifier: MIT */
/* Compiled with -mavx512f -mavx512bw -mavx512vl -mf16c. */
#define VARIANT(name) name##_avx512
#include "machine/cpu/rows_variant.h"
