/* SPDX-License-Identifier: MIT */
/* Errors are values; the message of the last one is kept per thread. Whoever first notices an
 * error sets its message; callers pass the result up untouched. */
#ifndef WEFT_COMM_ERROR_H
#define WEFT_COMM_ERROR_H

#include "weft.h"

/* Formats the calling thread's message and returns `result`. */
weft_result weft__error(weft_result result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets the message of a failed system call: appends ": " and strerror(errno), and keeps errno. */
weft_result weft__system_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The calling thread's last message. */
enum { WEFT__ERROR_BYTES = 1024 };
const char *weft__last_error(void);
/* Where ranks share a thread: makes it another's turn. */
void weft__set_last_error(const char *message);

/* Checks a config struct's leading size: copies min(size, known) bytes to `copy` (zero-extended)
 * and refuses a longer struct whose unknown tail is not zero. config may be NULL: all zeros. */
weft_result weft__config_copy(void *copy, size_t known_bytes, const void *config,
                              const char *type_name);

/* Returns from the calling function unless `call` gives WEFT_OK. */
#define WEFT__TRY(call)                                                                            \
    do {                                                                                           \
        const weft_result result_of_try = (call);                                                  \
        if (result_of_try != WEFT_OK)                                                              \
            return result_of_try;                                                                  \
    } while (0)

#endif
