/* SPDX-License-Identifier: MIT */
/* Quantised rows: a part of weft.h, which includes it and has the rules that hold for all of it. */
#include "weft.h" /* before the guard: it includes its parts in their order */

#ifndef WEFT_ROWS_H
#define WEFT_ROWS_H

#ifdef __cplusplus
extern "C" {
#endif

/* The form in which a group's scale is stored. */
typedef enum weft_scale_kind {
    WEFT_SCALE_FP32 = 0,
    WEFT_SCALE_FP32_POWER_OF_TWO = 1, /* the same rounded up to a power of two */
    WEFT_SCALE_UE8M0 = 2              /* the byte of that one's exponent */
} weft_scale_kind;

/*
 * Rows of BF16, FP16 or FP32 as rows of FP8 or INT8, with one scale for each group of elements of a
 * row: what inference kernels take, and what costs half of the links' time. No other rank takes
 * part. All in fp32, with one rounding for each operation as written, where amax is the largest
 * magnitude of the group's finite elements, 1e-4 at least [DeepEP 3]:
 *
 *     scale    FP8: amax * (1 / 448); INT8: amax / 127; of the other kinds that, rounded up to a
 *              power of two
 *     element  FP8: x * (448 / amax), INT8: x * (127 / amax), of the other kinds x * (1 / scale);
 *              rounded to nearest even
 *     back     element * scale, rounded to dtype
 *
 * Infinities become the largest element, 448 or 127, of their sign. NaN becomes the FP8 NaN with
 * all bits set but the sign, INT8 0. So no scale is 0, infinite or NaN. The same bits on every
 * machine.
 */
typedef struct weft_quantisation {
    weft_dtype dtype; /* WEFT_FP8_E4M3 or WEFT_INT8 */
    weft_scale_kind scale;
    int32_t group_elements; /* that have one scale, a divisor of the row's; 0: all of the row */
} weft_quantisation;

typedef struct weft_rows_args {
    size_t size;
    const void *src; /* quantise: of dtype, dequantise: of quantisation.dtype; any alignment */
    void *dst;       /* the other way round; rows lie side by side */
    void *scales;    /* written by quantise, read by dequantise */
    int64_t hidden;  /* elements of a row, at most WEFT_MAX_ROW_BYTES */
    uint64_t src_stride_bytes; /* between rows of src; 0: they lie side by side */
    /* 0: each row's scales lie side by side, and so do these rows. Else scales lie by columns:
     * those of a group, of all rows, side by side, and the columns this far apart, 4 bytes for each
     * row at least. With UE8M0 a column is of words, whose four bytes are the row's next four
     * groups. */
    uint64_t scale_column_bytes;
    int32_t num_rows;
    weft_dtype dtype; /* WEFT_BF16, WEFT_FP16 or WEFT_FP32 */
    weft_quantisation quantisation;
    int32_t reserved; /* 0 */
} weft_rows_args;

/* Stream operations. When one has finished, dst is complete and src may be overwritten. */
WEFT_API weft_result weft_rows_quantise(weft_comm *comm, const weft_rows_args *args,
                                        weft_stream *stream);
WEFT_API weft_result weft_rows_dequantise(weft_comm *comm, const weft_rows_args *args,
                                          weft_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
