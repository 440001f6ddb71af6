/* SPDX-License-Identifier: MIT */
#define VARIANT(name) name##_base
#include "machine/cpu/rows_variant.h"
