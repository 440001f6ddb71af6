/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "machine/cpu/cpu_rows.h"

#ifdef __x86_64__
#include <emmintrin.h>

enum { LINE_BYTES = 64 };

/* Stores that bypass the cache: a row goes to another rank, so reading its old lines in first and
 * keeping the new ones here is wasted. Dispatch moves rows faster than memcpy thereby
 * (docs/performance.md). They are weakly ordered: wp_signal fences. */
static void stream_lines(char *dst, const char *src, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += LINE_BYTES) {
        __m128i part[4];
        for (int p = 0; p < 4; p++)
            part[p] = _mm_loadu_si128((const __m128i *)(const void *)(src + i) + p);
        for (int p = 0; p < 4; p++)
            _mm_stream_si128((__m128i *)(void *)(dst + i) + p, part[p]);
    }
}

void weft__cpu_row_stream(void *dst, const void *src, uint64_t num_bytes)
{
    char *to = dst;
    const char *from = src;
    const uint64_t to_line = -(uintptr_t)to % LINE_BYTES;
    const uint64_t head = to_line < num_bytes ? to_line : num_bytes;
    const uint64_t body = (num_bytes - head) / LINE_BYTES * LINE_BYTES;
    memcpy(to, from, head);
    stream_lines(to + head, from + head, body);
    memcpy(to + head + body, from + head + body, num_bytes - head - body);
}
#else
void weft__cpu_row_stream(void *dst, const void *src, uint64_t num_bytes)
{
    memcpy(dst, src, num_bytes);
}
#endif

void weft__cpu_row_copy(void *dst, const void *src, uint64_t row_bytes)
{
    if (row_bytes < WEFT__CPU_MIN_STREAM_BYTES)
        memcpy(dst, src, row_bytes);
    else
        weft__cpu_row_stream(dst, src, row_bytes);
}
