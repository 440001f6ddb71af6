/* SPDX-License-Identifier: MIT */
/* Errors that the tools find themselves, of which weft_last_error() knows nothing. */
#pragma once

#include "weft.h"

/* WEFT_ERROR_OUT_OF_MEMORY, which failure_text describes as "no memory for ..." until it is told. */
weft_result lacks_memory(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What belongs to the result: the tools' own text, or that of the library; "" for none. */
const char *failure_text(weft_result result);
