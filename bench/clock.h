/* SPDX-License-Identifier: MIT */
#pragma once

#include <time.h>

/* The same clock in all processes of the host, so that stamps of different ranks compare. */
static inline double clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}
