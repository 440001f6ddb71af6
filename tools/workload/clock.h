/* SPDX-License-Identifier: MIT */
/* The same clock in all processes of the host, so that stamps of different ranks compare. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline double clock_us(void)
{
    return (double)clock_ns() * 1e-3;
}

static inline double clock_s(void)
{
    return (double)clock_ns() * 1e-9;
}
