/* SPDX-License-Identifier: MIT */
/* Compiled with -mavx2 -mf16c. */
#define VARIANT(name) name##_avx2
#include "machine/cpu/rows_variant.h"
