/* SPDX-License-Identifier: MIT */
#include "narrow.h"

#include <math.h>

#include "workload/elements.h"

static float power_of_two_from(float value)
{
    int exponent;
    const float mantissa = frexpf(value, &exponent);
    return ldexpf(1, mantissa > 0.5f ? exponent : exponent - 1);
}

float narrow_scale(weft_dtype narrow, weft_scale_kind kind, float amax)
{
    const float inverse = 1 / 448.0f;
    const float scale = narrow == WEFT_INT8 ? amax / 127 : amax * inverse;
    return kind == WEFT_SCALE_FP32 ? scale : power_of_two_from(scale);
}

float narrow_element(weft_dtype narrow, weft_scale_kind kind, float amax, float value)
{
    const float most = narrow == WEFT_INT8 ? 127 : 448;
    const float factor =
        kind == WEFT_SCALE_FP32 ? most / amax : 1 / narrow_scale(narrow, kind, amax);
    float stored = 0;
    if (narrow == WEFT_INT8)
        return rintf(value * factor);
    element_store(narrow, &stored, 0, value * factor);
    return element_load(narrow, &stored, 0);
}
