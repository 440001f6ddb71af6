/* SPDX-License-Identifier: MIT */
/* Errors that the tools find themselves; weft_last_error() does not have them. */
#pragma once

#include "weft.h"

/* WEFT_ERROR_OUT_OF_MEMORY, for which failure_text() then says "no memory for ...", until the
 * library describes an error of its own. An expression, so that compilers see that the result is no
 * WEFT_OK. */
#define LACKS_MEMORY(...) (describe_lack(__VA_ARGS__), WEFT_ERROR_OUT_OF_MEMORY)
void describe_lack(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The text of the result: that of the tools, or that of the library; "" for none. */
const char *failure_text(weft_result result);
