/* SPDX-License-Identifier: MIT */
/* Lines on standard error, as WEFT_LOG asks. Errors that a caller gets as a value are not
 * logged. */
#pragma once

#include <stdint.h>

enum weft__log_level {
    WEFT__LOG_ERROR, /* something broke that no caller can be told of */
    WEFT__LOG_WARN,  /* works, but somebody should look */
    WEFT__LOG_INFO,  /* what the job is made of (api/log_job.h); ranks come and go */
    WEFT__LOG_DEBUG  /* each call of a rank */
};

enum { WEFT__LOG_NO_RANK = -1 };

/* Reads WEFT_LOG; on the caller's thread, because the program may change its environment while the
 * library's threads log. */
void weft__log_configure(void);

/* Whether lines of this level are written, for those that take work to make. */
int weft__log_wants(enum weft__log_level level);

void weft__log(enum weft__log_level level, int32_t rank, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
