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
    return weft__invalid("%s is %s, allowed are %s", name, given, allowed);
}

weft_result weft__check_wire(weft_dtype wire, const char *name)
{
    char given[64];
    if (wire == WEFT_DTYPE_NONE || (wire >= WEFT_BF16 && wire <= WEFT_FP32))
        return WEFT_OK;
    describe(WEFT__ENUM_DTYPE, (int32_t)wire, given, sizeof given);
    return weft__invalid("%s is %s, allowed are WEFT_DTYPE_NONE (%d), WEFT_BF16 (%d), WEFT_FP16 "
                         "(%d) and WEFT_FP32 (%d)",
                         name, given, WEFT_DTYPE_NONE, WEFT_BF16, WEFT_FP16, WEFT_FP32);
}

weft_result weft__check_quantisation(const weft_quantisation *quantisation, int64_t hidden)
{
    const int32_t group_elements = quantisation->group_elements;
    WEFT__TRY(weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)quantisation->dtype, WEFT_FP8_E4M3,
                               WEFT_INT8, "quantisation.dtype"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_SCALE, (int32_t)quantisation->scale, WEFT_SCALE_FP32,
                               WEFT_SCALE_UE8M0, "quantisation.scale"));
    WEFT__TRY(weft__check_range(group_elements, 0, hidden, "quantisation.group_elements"));
    if (group_elements > 0 && hidden % group_elements != 0)
        return weft__invalid("quantisation.group_elements is %d, must divide hidden, which is %lld",
                             group_elements, (long long)hidden);
    return WEFT_OK;
}
