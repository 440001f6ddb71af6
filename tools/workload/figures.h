/* SPDX-License-Identifier: MIT */
/* Minimum, median and maximum of samples. */
#pragma once

#include <stddef.h>

struct figures {
    double min;
    double median; /* of an even number: the mean of the middle two */
    double max;
};

void figures_sort(double *samples, size_t num_samples);
/* Sorts samples in place; num_samples 1 or more. */
struct figures figures_of(double *samples, size_t num_samples);
