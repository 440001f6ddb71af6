/* SPDX-License-Identifier: MIT */
#include "api/check.h"

#include <stdio.h>
#include <string.h>

/* "WEFT_BF16 (2)", or the number alone if nothing has it. */
static void describe(enum weft__enum kind, int32_t value, char *text, size_t text_bytes)
{
    const char *constant = weft__constant_name(kind, value);
    if (strcmp(constant, "?") == 0)
        snprintf(text, text_bytes, "%d", value);
    else
        snprintf(text, text_bytes, "%s (%d)", constant, value);
}

weft_result weft__check_enum(enum weft__enum kind, int32_t value, int32_t lowest, int32_t highest,
                             const char *name)
{
    char given[64], one[64], allowed[512] = "";
    if (value >= lowest && value <= highest)
        return WEFT_OK;
    for (int32_t i = lowest; i <= highest; i++) {
        const size_t length = strlen(allowed);
        describe(kind, i, one, sizeof one);
        snprintf(allowed + length, sizeof allowed - length, "%s%s", i == lowest ? "" : ", ", one);
    }
    describe(kind, value, given, sizeof given);
    return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "%s is %s, allowed are %s", name, given,
                       allowed);
}

weft_result weft__check_quantisation(weft_dtype narrow_dtype, weft_scale_kind scale,
                                     int64_t group_elements, int64_t hidden)
{
    WEFT__TRY(weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)narrow_dtype, WEFT_FP8_E4M3, WEFT_INT8,
                               "narrow_dtype"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_SCALE, (int32_t)scale, WEFT_SCALE_FP32, WEFT_SCALE_UE8M0,
                               "scale"));
    WEFT__TRY(weft__check_range(group_elements, 0, hidden, "group_elements"));
    if (group_elements > 0 && hidden % group_elements != 0)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "group_elements is %lld, must divide hidden, which is %lld",
                           (long long)group_elements, (long long)hidden);
    return WEFT_OK;
}
