/* SPDX-License-Identifier: MIT */
#include "workload/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The last error of the tools, and that of the library before it: with another one of the library's
 * the tools' is no longer the last. */
static _Thread_local char own_text[256], text_before[1024];

void describe_lack(const char *format, ...)
{
    char what[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(own_text, sizeof own_text, "no memory for %s", what);
    snprintf(text_before, sizeof text_before, "%s", weft_last_error());
}

const char *failure_text(weft_result result)
{
    const char *text = weft_last_error();
    const int is_own = result == WEFT_ERROR_OUT_OF_MEMORY && own_text[0] != '\0' &&
                       strncmp(text, text_before, sizeof text_before - 1) == 0;
    return is_own ? own_text : text;
}
