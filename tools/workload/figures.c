/* SPDX-License-Identifier: MIT */
#include "workload/figures.h"

#include <stdlib.h>

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void figures_sort(double *samples, size_t num_samples)
{
    if (num_samples > 0)
        qsort(samples, num_samples, sizeof *samples, compare_doubles);
}

struct figures figures_of(double *samples, size_t num_samples)
{
    figures_sort(samples, num_samples);
    return (struct figures){
        .min = samples[0],
        .median = (samples[(num_samples - 1) / 2] + samples[num_samples / 2]) / 2,
        .max = samples[num_samples - 1],
    };
}
