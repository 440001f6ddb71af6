/* SPDX-License-Identifier: MIT */
#include "workload/failure.h"

#include <stdarg.h>
#include <stdio.h>

/* The text of an error on its way up to the caller that reports it. No other error intervenes. */
static _Thread_local char own_text[256];

weft_result lacks_memory(const char *format, ...)
{
    char what[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(own_text, sizeof own_text, "no memory for %s", what);
    return WEFT_ERROR_OUT_OF_MEMORY;
}

const char *failure_text(weft_result result)
{
    return result == WEFT_ERROR_OUT_OF_MEMORY && own_text[0] != '\0' ? own_text : weft_last_error();
}
