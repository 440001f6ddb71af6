/* SPDX-License-Identifier: MIT */
#include "workload/quantised.h"

#include <math.h>
#include <string.h>

#include "workload/elements.h"

struct group_scale {
    float scale;
    float multiplier;
};

static struct group_scale scale_of(const struct quantised_form *form, const void *src,
                                   int64_t first)
{
    double amax = (double)1e-4f;
    for (int64_t i = first; i < first + form->group_elements; i++) {
        const double magnitude = fabs((double)element_load(form->wide, src, i));
        if (isfinite(magnitude) && magnitude > amax)
            amax = magnitude;
    }
    struct group_scale group;
    if (form->narrow == WEFT_INT8)
        group = (struct group_scale){(float)(amax / 127), (float)(127 / amax)};
    else
        group = (struct group_scale){(float)(amax * (double)(1.0f / 448.0f)), (float)(448 / amax)};
    if (form->scale != WEFT_SCALE_FP32) {
        int exponent;
        if (frexp((double)group.scale, &exponent) == 0.5) /* is a power of two already */
            exponent--;
        group = (struct group_scale){(float)ldexp(1, exponent), (float)ldexp(1, -exponent)};
    }
    return group;
}

static void store_code(weft_dtype narrow, char *codes, int64_t i, float value)
{
    if (narrow == WEFT_FP8_E4M3) {
        element_store(WEFT_FP8_E4M3, codes, i, value);
        return;
    }
    const double whole = isnan(value) ? 0 : nearbyint((double)value);
    codes[i] = (char)(int)(fabs(whole) > 127 ? copysign(127, whole) : whole);
}

int64_t quantised_scale_offset(const struct quantised_form *form, int64_t group)
{
    return form->scale == WEFT_SCALE_UE8M0 ? group / 4 * form->word_stride + group % 4
                                           : group * form->word_stride;
}

void quantised_make_row(const struct quantised_form *form, const void *src, int64_t num_elements,
                        char *codes, char *scales)
{
    for (int64_t first = 0; first < num_elements; first += form->group_elements) {
        const struct group_scale group = scale_of(form, src, first);
        const uint8_t exponent = (uint8_t)(ilogb((double)group.scale) + 127);
        char *at = scales + quantised_scale_offset(form, first / form->group_elements);
        if (form->scale == WEFT_SCALE_UE8M0)
            memcpy(at, &exponent, sizeof exponent);
        else
            memcpy(at, &group.scale, sizeof group.scale);
        for (int64_t i = first; i < first + form->group_elements; i++) {
            const double value = (double)element_load(form->wide, src, i);
            store_code(form->narrow, codes, i, (float)(value * (double)group.multiplier));
        }
    }
}

float quantised_number(const struct quantised_form *form, const char *codes, const char *scales,
                       int64_t i)
{
    const char *at = scales + quantised_scale_offset(form, i / form->group_elements);
    float scale;
    if (form->scale == WEFT_SCALE_UE8M0)
        scale = (float)ldexp(1, (int)(uint8_t)*at - 127);
    else
        memcpy(&scale, at, sizeof scale);
    const double code = form->narrow == WEFT_INT8 ? (double)(int8_t)codes[i]
                                                  : (double)element_load(WEFT_FP8_E4M3, codes, i);
    return (float)(code * (double)scale);
}
