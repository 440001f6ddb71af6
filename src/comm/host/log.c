/* SPDX-License-Identifier: MIT */
#include "comm/host/log.h"

#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/host/settings.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static _Atomic int wanted_level = WEFT__LOG_WARN;

void weft__log_configure(void)
{
    static atomic_flag has_warned = ATOMIC_FLAG_INIT;
    const char *text = weft__setting_text(WEFT__SETTING_LOG);
    if (strcmp(text, "off") == 0) {
        atomic_store(&wanted_level, WEFT__LOG_ERROR - 1);
        return;
    }
    for (int level = WEFT__LOG_ERROR; level <= WEFT__LOG_DEBUG; level++) {
        if (strcmp(text, level_names[level]) == 0) {
            atomic_store(&wanted_level, level);
            return;
        }
    }
    if (!atomic_flag_test_and_set(&has_warned))
        weft__log(WEFT__LOG_WARN, WEFT__LOG_NO_RANK,
                  "%s is \"%.64s\"; it must be off, error, warn, info or debug",
                  weft__settings[WEFT__SETTING_LOG].name, text);
}

int weft__log_wants(enum weft__log_level level)
{
    return (int)level <= atomic_load(&wanted_level);
}

void weft__log(enum weft__log_level level, int32_t rank, const char *format, ...)
{
    if (!weft__log_wants(level))
        return;
    char message[1024], who[16] = "", host[HOST_NAME_MAX + 1] = "?", when[16];
    struct timespec now;
    struct tm local;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    if (rank != WEFT__LOG_NO_RANK)
        snprintf(who, sizeof(who), "[%d]", rank);
    (void)gethostname(host, sizeof(host) - 1);
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(when, sizeof(when), "%H:%M:%S", localtime_r(&now.tv_sec, &local));
    fprintf(stderr, "%s.%03d %s:%d weft%s %s: %s\n", when, (int)(now.tv_nsec / 1000000), host,
            (int)getpid(), who, level_names[level], message);
}
