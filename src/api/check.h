/* SPDX-License-Identifier: MIT */
/* Checks of arguments: each names the argument, its value and what is allowed. */
#pragma once

#include "comm/host/error.h"
#include "launch/names.h"

static inline weft_result weft__check_not_null(const void *ptr, const char *name)
{
    return ptr != NULL ? WEFT_OK : weft__invalid("%s is NULL, must not be", name);
}

static inline weft_result weft__check_range(int64_t value, int64_t lowest, int64_t highest,
                                            const char *name)
{
    if (value >= lowest && value <= highest)
        return WEFT_OK;
    return weft__invalid("%s is %lld, allowed are %lld..%lld", name, (long long)value,
                         (long long)lowest, (long long)highest);
}

static inline weft_result weft__check_at_most(uint64_t value, uint64_t highest, const char *name)
{
    if (value <= highest)
        return WEFT_OK;
    return weft__invalid("%s is %llu, allowed are 0..%llu", name, (unsigned long long)value,
                         (unsigned long long)highest);
}

static inline weft_result weft__check_address(const void *ptr, uint64_t alignment, const char *name)
{
    if ((uintptr_t)ptr % alignment == 0)
        return WEFT_OK;
    return weft__invalid("%s is %p, must be aligned to %llu bytes", name, ptr,
                         (unsigned long long)alignment);
}

/* A field that the call does not use, or that is for later versions. */
static inline weft_result weft__check_unused(uint64_t value, const char *name)
{
    if (value == 0)
        return WEFT_OK;
    return weft__invalid("%s is %lld, must be 0: this call does not use it", name,
                         (long long)value);
}

/* One of the enumerators from `lowest` to `highest`, which the message names. */
weft_result weft__check_enum(enum weft__enum kind, int32_t value, int32_t lowest, int32_t highest,
                             const char *name);

/* How rows of `hidden` elements are quantised: FP8 or INT8, and groups that divide them; 0: all of
 * the row. */
weft_result weft__check_quantisation(const weft_quantisation *quantisation, int64_t hidden);

/* The type of rows that are combined on their way, an argument named so. */
weft_result weft__check_wire(weft_dtype wire, const char *name);

/* An array of `count` elements may be NULL only if there are none. */
static inline weft_result weft__check_array(const void *ptr, int64_t count, const char *name)
{
    return ptr != NULL || count == 0
               ? WEFT_OK
               : weft__invalid("%s is NULL, allowed only for 0 elements, not for %lld", name,
                               (long long)count);
}
