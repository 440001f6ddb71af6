/* SPDX-License-Identifier: MIT */
/* The table that weft tune writes: weft(1) tells its format. */
#pragma once

#include <stdio.h>

#include "tune_measure.h"

struct tune_table {
    FILE *file;
    weft_machine machine;
    int32_t num_ranks;
};

/* What was measured, where and when. */
void tune_table_begin(const struct tune_table *table, const struct tune_options *options);
/* Rows; neighbouring points with the same best variant are one. */
void tune_table_add(const struct tune_table *table, const struct tune_curve *curve);
