/* SPDX-License-Identifier: MIT */
/* Numbers of any type that are hard for arithmetic, as bits, from random ones: what tests and the
 * sim fill rows with. */
#pragma once

#include "weft.h"

/* A random sign and fraction, and one of the 2 * spread + 1 exponents around 0; any integer. */
uint64_t number_near_one(weft_dtype dtype, int spread, uint64_t random);

/* Powers of two, and the next numbers, so far apart that in sums they round, and cancel, in every
 * order differently. */
uint64_t cancelling_number(weft_dtype dtype, uint64_t random);

/* Zeros of both signs (0, 1), subnormals (2, 3), infinities (4, 5), NaNs (6 to 9), the largest
 * numbers (10, 11). FP8 has its largest numbers in place of infinities and of NaN 8; of integers
 * the least and greatest are among them. */
enum { NUM_SPECIAL_NUMBERS = 12 };
uint64_t special_number(weft_dtype dtype, int i);

/* The same at random, by class: else a reduction of several would nearly always have a NaN in
 * it. */
enum number_class {
    CLASS_ZEROS,
    CLASS_TINY,       /* subnormal, and the least normal ones */
    CLASS_HUGE,       /* next to infinity */
    CLASS_INFINITIES, /* and as many numbers near one */
    CLASS_NANS,
    CLASS_ANY_BITS,
    NUM_NUMBER_CLASSES
};
uint64_t number_of_class(weft_dtype dtype, enum number_class class, uint64_t random);
