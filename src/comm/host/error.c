/* SPDX-License-Identifier: MIT */
#include "comm/host/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_message[WEFT__ERROR_BYTES];

const char *weft__last_error(void)
{
    return last_message;
}

void weft__set_last_error(const char *message)
{
    snprintf(last_message, sizeof(last_message), "%s", message);
}

/* Formats through a copy: the arguments may point into the last message. */
static void set_message(const char *format, va_list arguments, const char *suffix)
{
    char message[sizeof(last_message)];
    vsnprintf(message, sizeof(message), format, arguments);
    snprintf(last_message, sizeof(last_message), "%.900s%s", message, suffix);
}

weft_result weft__error(weft_result result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_message(format, arguments, "");
    va_end(arguments);
    return result;
}

weft_result weft__system_error(const char *format, ...)
{
    const int number = errno;
    char reason[96], suffix[100];
    /* GNU strerror_r may return a static string instead of filling the buffer. */
    snprintf(suffix, sizeof(suffix), ": %s", strerror_r(number, reason, sizeof(reason)));
    va_list arguments;
    va_start(arguments, format);
    set_message(format, arguments, suffix);
    va_end(arguments);
    errno = number;
    return WEFT_ERROR_SYSTEM;
}
