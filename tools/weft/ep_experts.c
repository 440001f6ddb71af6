/* SPDX-License-Identifier: MIT */
#include "ep_experts.h"

void ep_scale_row(enum payload_kind kind, size_t hidden, float scale, const float *x, float *y,
                  void *row)
{
    for (size_t h = 0; h < hidden; h++)
        y[h] = x[h] * scale;
    payload_from_fp32(kind, y, hidden, row);
    payload_to_fp32(kind, row, hidden, y);
}
