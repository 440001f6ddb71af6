/* SPDX-License-Identifier: MIT */
/*
 * Elements of rows on the cuda machine: chunks of 16 bytes to values that arithmetic is done in,
 * and back. Types are told apart by overloads on E, an element of the row; V is what its values
 * are. Part of primitives.h.
 */
#pragma once

/* Only names for overloads: the types of cuda_bf16.h and cuda_fp8.h would bring the compile time of
 * these headers to each program. */
struct weft__cuda_bf16 {
    uint16_t bits;
};
struct weft__cuda_fp8 {
    uint8_t bits;
};

template <typename E> struct weft__cuda_values {
    typedef float type;
};
template <> struct weft__cuda_values<double> {
    typedef double type;
};
/* Unsigned, so that they wrap around. */
template <> struct weft__cuda_values<int32_t> {
    typedef uint32_t type;
};
template <> struct weft__cuda_values<int64_t> {
    typedef uint64_t type;
};
/* Wider than the element, whose bits are the low ones. */
template <> struct weft__cuda_values<uint8_t> {
    typedef uint32_t type;
};

/* Calls `act` with an element of the type. */
template <typename Act> WP_FN void weft__cuda_with_element(weft_dtype dtype, Act act)
{
    switch (dtype) {
    case WEFT_BF16:
        return act(weft__cuda_bf16());
    case WEFT_FP16:
        return act(__half());
    case WEFT_FP32:
        return act(float());
    case WEFT_FP64:
        return act(double());
    case WEFT_INT32:
        return act(int32_t());
    case WEFT_INT64:
        return act(int64_t());
    case WEFT_UINT8:
        return act(uint8_t());
    case WEFT_FP8_E4M3:
    case WEFT_INT8: /* is not reduced */
    case WEFT_DTYPE_NONE:
        break;
    }
    act(weft__cuda_fp8());
}

/* Calls `act` with an element of a type of two bytes, or of fp32. */
template <typename Act> WP_FN void weft__cuda_with_wide_float(weft_dtype dtype, Act act)
{
    if (dtype == WEFT_BF16)
        return act(weft__cuda_bf16());
    if (dtype == WEFT_FP16)
        return act(__half());
    act(float());
}

/* ------------------------------------------------------------------ from a 32-bit word */

WP_FN void weft__cuda_decode_word(float *values, uint32_t word, float)
{
    values[0] = __uint_as_float(word);
}
WP_FN void weft__cuda_decode_word(float *values, uint32_t word, weft__cuda_bf16)
{
    values[0] = __uint_as_float(word << 16);
    values[1] = __uint_as_float(word & 0xffff0000u);
}
WP_FN void weft__cuda_decode_word(float *values, uint32_t word, __half)
{
    __half2 pair;
    memcpy(&pair, &word, sizeof pair);
    values[0] = __low2float(pair);
    values[1] = __high2float(pair);
}
/* With the exponent's bits in place, 2^120 is between the biases; subnormals come out right,
 * too. */
WP_FN void weft__cuda_decode_word(float *values, uint32_t word, weft__cuda_fp8)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t byte = word >> (8 * i) & 0xffu, magnitude = byte & 0x7fu;
        const float value = __fmul_rn(__uint_as_float(magnitude << 20), 0x1p120f);
        const uint32_t bits = magnitude == 0x7fu ? 0x7fffffffu : __float_as_uint(value);
        values[i] = __uint_as_float(bits | (byte & 0x80u) << 24);
    }
}
WP_FN void weft__cuda_decode_word(uint32_t *values, uint32_t word, int32_t)
{
    values[0] = word;
}
WP_FN void weft__cuda_decode_word(uint32_t *values, uint32_t word, uint8_t)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        values[i] = word >> (8 * i) & 0xffu;
}

/* ------------------------------------------------------------------ to a 32-bit word */

/* The conversions to bf16 and fp16 give the one NaN by themselves. */
WP_FN uint32_t weft__cuda_encode_word(const float *values, float)
{
    return isnan(values[0]) ? 0x7fffffffu : __float_as_uint(values[0]);
}
WP_FN uint32_t weft__cuda_encode_word(const float *values, weft__cuda_bf16)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(values[1]), "f"(values[0]));
    return word;
}
WP_FN uint32_t weft__cuda_encode_word(const float *values, __half)
{
    const __half2 pair = __floats2half2_rn(values[0], values[1]);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}
/* Two, side by side. From sm_89 on by an instruction, which rounds, saturates, and has its NaN as
 * the other GPUs do by bits. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
WP_FN uint32_t weft__cuda_fp8_of_floats(float low, float high)
{
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}
WP_FN uint32_t weft__cuda_fp8_of_float(float value)
{
    return weft__cuda_fp8_of_floats(value, 0.0f);
}
#else
WP_FN uint32_t weft__cuda_fp8_of_float(float value)
{
    const uint32_t bits = __float_as_uint(value);
    const uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return 0x7fu;
    if (magnitude < 0x3c800000u) {
        /* Below 2^-6: the sum's last place is that of the subnormals, 2^-9, so the addition
         * rounds. */
        const float sum = __fadd_rn(__uint_as_float(magnitude), 0x1p14f);
        return sign | (__float_as_uint(sum) - __float_as_uint(0x1p14f));
    }
    const uint32_t rebased = magnitude - ((127u - 7u) << 23);
    const uint32_t rounded = (rebased + 0x7ffffu + (rebased >> 20 & 1u)) >> 20;
    return sign | (rounded < 0x7eu ? rounded : 0x7eu);
}
WP_FN uint32_t weft__cuda_fp8_of_floats(float low, float high)
{
    return weft__cuda_fp8_of_float(low) | weft__cuda_fp8_of_float(high) << 8;
}
#endif
WP_FN uint32_t weft__cuda_encode_word(const float *values, weft__cuda_fp8)
{
    return weft__cuda_fp8_of_floats(values[0], values[1]) |
           weft__cuda_fp8_of_floats(values[2], values[3]) << 16;
}
WP_FN uint32_t weft__cuda_encode_word(const uint32_t *values, int32_t)
{
    return values[0];
}
WP_FN uint32_t weft__cuda_encode_word(const uint32_t *values, uint8_t)
{
    uint32_t word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        word |= (values[i] & 0xffu) << (8 * i);
    return word;
}

/* ------------------------------------------------------------------ chunks */

template <typename E, typename V> WP_FN void weft__cuda_decode(V *values, int4 chunk, E)
{
    enum { PER_WORD = 4 / sizeof(E) };
    weft__cuda_decode_word(values, (uint32_t)chunk.x, E());
    weft__cuda_decode_word(values + PER_WORD, (uint32_t)chunk.y, E());
    weft__cuda_decode_word(values + 2 * PER_WORD, (uint32_t)chunk.z, E());
    weft__cuda_decode_word(values + 3 * PER_WORD, (uint32_t)chunk.w, E());
}
WP_FN void weft__cuda_decode(double *values, int4 chunk, double)
{
    values[0] = __hiloint2double(chunk.y, chunk.x);
    values[1] = __hiloint2double(chunk.w, chunk.z);
}
WP_FN void weft__cuda_decode(uint64_t *values, int4 chunk, int64_t)
{
    values[0] = (uint64_t)(uint32_t)chunk.y << 32 | (uint32_t)chunk.x;
    values[1] = (uint64_t)(uint32_t)chunk.w << 32 | (uint32_t)chunk.z;
}

template <typename E, typename V> WP_FN int4 weft__cuda_encode(const V *values, E)
{
    enum { PER_WORD = 4 / sizeof(E) };
    return make_int4((int)weft__cuda_encode_word(values, E()),
                     (int)weft__cuda_encode_word(values + PER_WORD, E()),
                     (int)weft__cuda_encode_word(values + 2 * PER_WORD, E()),
                     (int)weft__cuda_encode_word(values + 3 * PER_WORD, E()));
}
WP_FN int4 weft__cuda_encode(const uint64_t *values, int64_t)
{
    return make_int4((int)values[0], (int)(values[0] >> 32), (int)values[1],
                     (int)(values[1] >> 32));
}
WP_FN int4 weft__cuda_encode(const double *values, double)
{
    uint64_t bits[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        bits[i] =
            isnan(values[i]) ? 0x7fffffffffffffffu : (uint64_t)__double_as_longlong(values[i]);
    return weft__cuda_encode(bits, int64_t());
}

/* ------------------------------------------------------------------ single elements */

template <typename E> WP_FN int4 weft__cuda_load_element(const void *row, int64_t i)
{
    const char *element = (const char *)row + i * (int64_t)sizeof(E);
    int4 chunk = make_int4(0, 0, 0, 0);
    if ((uint64_t)element % sizeof(E) == 0) {
        const E value = *(const E *)element;
        memcpy(&chunk, &value, sizeof(E));
    } else {
        memcpy(&chunk, element, sizeof(E)); /* byte by byte */
    }
    return chunk;
}

template <typename E> WP_FN void weft__cuda_store_element(void *row, int64_t i, int4 chunk)
{
    char *element = (char *)row + i * (int64_t)sizeof(E);
    if ((uint64_t)element % sizeof(E) == 0) {
        E value;
        memcpy(&value, &chunk, sizeof(E));
        *(E *)element = value;
        return;
    }
    /* By way of memory: ptxas 13.0 stores the low byte of a rounded bf16 as if an integer were
     * wanted, 0.6 as 1. */
    volatile uint32_t words[2] = {(uint32_t)chunk.x, (uint32_t)chunk.y};
#pragma unroll
    for (int byte = 0; byte < (int)sizeof(E); byte++)
        element[byte] = (char)(words[byte / 4] >> (8 * (byte % 4)));
}
