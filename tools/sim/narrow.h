/* SPDX-License-Identifier: MIT */
/* What an element of a quantised row becomes, by weft.h, given the largest of its group, which is positive and
 * not small. */
#pragma once

#include "weft.h"

float narrow_scale(weft_dtype narrow, weft_scale_kind kind, float amax);
float narrow_element(weft_dtype narrow, weft_scale_kind kind, float amax, float value);
