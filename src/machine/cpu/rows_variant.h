/* SPDX-License-Identifier: MIT */
/* The body of the row sum, compiled once per instruction set by the rows_*.c files, which define
 * ROW_SUM as the name to give it. Plain loops that the compiler vectorises; only fp16 needs the
 * f16c instructions by name.
 *
 * avx512_bf16's VCVTNEPS2BF16 is not used: it flushes subnormals to zero, which would make the
 * result depend on the machine. Integer rounding costs nothing here, the loop is bound by memory. */
#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "machine/cpu/rows.h"
#include "machine/float_bits.h"

enum {
    TILE = 512, /* elements summed at a time: the fp32 sums stay in the first-level cache */
    LINE_BYTES = 64
};

static void sum_add_bf16(float *restrict sum, const uint16_t *restrict src, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += weft__float_of_bits((uint32_t)src[i] << 16);
}

static void sum_store_bf16(uint16_t *restrict dst, const float *restrict sum, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = weft__bf16_of_float(sum[i]);
}

static void sum_add_fp16(float *restrict sum, const uint16_t *restrict src, int64_t n)
{
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) {
        __m256 value = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(src + i)));
        _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), value));
    }
#endif
    for (; i < n; i++)
        sum[i] += weft__float_of_fp16(src[i]);
}

static void sum_store_fp16(uint16_t *restrict dst, const float *restrict sum, int64_t n)
{
    int64_t i = 0;
#ifdef __F16C__
    const __m256 canonical_nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    for (; i + 8 <= n; i += 8) {
        __m256 value = _mm256_loadu_ps(sum + i);
        __m256 is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
        value = _mm256_blendv_ps(value, canonical_nan, is_nan);
        _mm_storeu_si128((__m128i *)(void *)(dst + i),
                         _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    for (; i < n; i++)
        dst[i] = weft__fp16_of_float(sum[i]);
}

static void sum_add_fp32(float *restrict sum, const float *restrict src, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += src[i];
}

static void sum_store_fp32(uint32_t *restrict dst, const float *restrict sum, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = weft__canonical_float_bits(sum[i]);
}

/* Rows may start at any byte; a tile is copied to aligned memory when its elements are not aligned. */
static const void *aligned_tile(const void *src, size_t element_bytes, int64_t n, void *buffer)
{
    if ((uintptr_t)src % element_bytes == 0)
        return src;
    return memcpy(buffer, src, (size_t)n * element_bytes);
}

/* The rows of a token lie far apart, so the processor does not see what comes next: while one row's
 * tile is added, the next row's is fetched. */
static void prefetch_tile(const void *const *srcs, int32_t num_srcs, size_t offset_bytes,
                          size_t tile_bytes)
{
    for (int32_t i = 0; i < num_srcs; i++) {
        if (srcs[i] == NULL)
            continue;
        for (size_t line = 0; line < tile_bytes; line += LINE_BYTES)
            __builtin_prefetch((const char *)srcs[i] + offset_bytes + line);
        return;
    }
}

static void sum_tile(void *dst, const void *const *srcs, int32_t num_srcs, size_t offset_bytes,
                     weft_dtype dtype, int64_t n)
{
    float sum[TILE] = {0};
    float buffer[TILE];
    const size_t element_bytes = dtype == WEFT_FP32 ? 4 : 2;
    for (int32_t i = 0; i < num_srcs; i++) {
        if (srcs[i] == NULL)
            continue;
        prefetch_tile(srcs + i + 1, num_srcs - i - 1, offset_bytes, (size_t)n * element_bytes);
        const void *src =
            aligned_tile((const char *)srcs[i] + offset_bytes, element_bytes, n, buffer);
        if (dtype == WEFT_BF16)
            sum_add_bf16(sum, src, n);
        else if (dtype == WEFT_FP16)
            sum_add_fp16(sum, src, n);
        else
            sum_add_fp32(sum, src, n);
    }
    char *out = (char *)dst + offset_bytes;
    void *aligned_out = (uintptr_t)out % element_bytes == 0 ? (void *)out : (void *)buffer;
    if (dtype == WEFT_BF16)
        sum_store_bf16(aligned_out, sum, n);
    else if (dtype == WEFT_FP16)
        sum_store_fp16(aligned_out, sum, n);
    else
        sum_store_fp32(aligned_out, sum, n);
    if (aligned_out != (void *)out)
        memcpy(out, buffer, (size_t)n * element_bytes);
}

void ROW_SUM(void *dst, const void *const *srcs, int32_t num_srcs, weft_dtype dtype,
             int64_t num_elements);
void ROW_SUM(void *dst, const void *const *srcs, int32_t num_srcs, weft_dtype dtype,
             int64_t num_elements)
{
    const size_t element_bytes = dtype == WEFT_FP32 ? 4 : 2;
    for (int64_t begin = 0; begin < num_elements; begin += TILE) {
        const int64_t n = num_elements - begin < TILE ? num_elements - begin : TILE;
        sum_tile(dst, srcs, num_srcs, (size_t)begin * element_bytes, dtype, n);
    }
}
