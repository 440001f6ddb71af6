/* SPDX-License-Identifier: MIT */
#include "ep_experts.h"

void ep_scale_row(weft_dtype kind, size_t hidden, float scale, const float *x, float *y, void *row)
{
    for (size_t h = 0; h < hidden; h++)
        y[h] = x[h] * scale;
    elements_from_fp32(kind, y, hidden, row);
    elements_to_fp32(kind, row, hidden, y);
}
