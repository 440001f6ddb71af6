/* SPDX-License-Identifier: MIT */
#include "comm/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CONFIG_BYTES = 65536 }; /* a larger size is an uninitialised one */

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

weft_result weft__config_copy(void *copy, size_t known_bytes, const void *config,
                              const char *type_name)
{
    size_t size = known_bytes;
    if (config != NULL)
        memcpy(&size, config, sizeof(size));
    if (size < sizeof(size) || size > MAX_CONFIG_BYTES)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "size of %s is %zu; it must be sizeof(%s), which is %zu", type_name,
                           size, type_name, known_bytes);
    for (size_t byte = known_bytes; byte < size; byte++)
        if (((const unsigned char *)config)[byte] != 0)
            return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                               "%s has %zu bytes, of which this library knows %zu, and byte %zu is "
                               "not zero",
                               type_name, size, known_bytes, byte);
    memset(copy, 0, known_bytes);
    if (config != NULL)
        memcpy(copy, config, size < known_bytes ? size : known_bytes);
    memcpy(copy, &known_bytes, sizeof(known_bytes));
    return WEFT_OK;
}
