/* SPDX-License-Identifier: MIT */
/* Errors are values; the message of the last one is kept per thread. Whoever first notices an
 * error sets its message; callers pass the result up untouched. */
#pragma once

#include "weft.h"

/* Formats the calling thread's message and returns `result`. */
weft_result weft__error(weft_result result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#define weft__invalid(...)   weft__error(WEFT_ERROR_INVALID_ARGUMENT, __VA_ARGS__)
#define weft__no_memory(...) weft__error(WEFT_ERROR_OUT_OF_MEMORY, __VA_ARGS__)

/* Sets the message of a failed system call: appends ": " and strerror(errno), and keeps errno. */
weft_result weft__system_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The calling thread's last message. */
enum { WEFT__ERROR_BYTES = 1024 };
const char *weft__last_error(void);
/* Where ranks share a thread: makes it another's turn. */
void weft__set_last_error(const char *message);

/* Returns from the calling function unless `call` gives WEFT_OK. */
#define WEFT__TRY(call)                                                                            \
    do {                                                                                           \
        const weft_result result_of_try = (call);                                                  \
        if (result_of_try != WEFT_OK)                                                              \
            return result_of_try;                                                                  \
    } while (0)

/* Returns from the calling function if there was no memory for ptr; then its message. */
#define WEFT__CHECK_MEMORY(ptr, ...)                                                               \
    do {                                                                                           \
        if ((ptr) == NULL)                                                                         \
            return weft__no_memory(__VA_ARGS__);                                                   \
    } while (0)
