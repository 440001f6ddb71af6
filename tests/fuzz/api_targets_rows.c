/* SPDX-License-Identifier: MIT */
/* Quantised rows of a rank alone. */
#include "api_targets.h"

enum { DST_OFFSET = 4 << 10, SCALES_OFFSET = 6 << 10, MAX_FUZZ_ROWS = 4, MAX_GROUPS = 8 };

/* Source and destination have the same room, whichever is wide. */
static void fill_rows(struct fuzz_arguments *a, struct rng *rng)
{
    weft_rows_args *args = &a->rows.known;
    FUZZ_FILL_SIZE(a, rows, rng);
    args->dtype = rng_below(rng, 2) == 0 ? WEFT_BF16 : WEFT_FP16;
    args->quantisation.dtype = rng_below(rng, 2) == 0 ? WEFT_FP8_E4M3 : WEFT_INT8;
    args->quantisation.scale = (weft_scale_kind)rng_below(rng, WEFT_SCALE_UE8M0 + 1);
    args->num_rows = 2 + (int32_t)rng_below(rng, MAX_FUZZ_ROWS - 1);
    args->quantisation.group_elements = 3 + 8 * (int32_t)rng_below(rng, 2);
    args->hidden = args->quantisation.group_elements * (1 + rng_below(rng, MAX_GROUPS));
    args->src_stride_bytes = rng_below(rng, 2) == 0 ? 0 : (uint64_t)args->hidden * 2 + 5;
    args->scale_column_bytes = rng_below(rng, 2) == 0 ? 0 : MAX_FUZZ_ROWS * sizeof(float);
    args->src = a->arena_memory + rng_below(rng, 64);
    args->dst = a->arena_memory + DST_OFFSET + rng_below(rng, 64);
    args->scales = a->arena_memory + SCALES_OFFSET + rng_below(rng, 64);
}

FUZZ_CALL(call_quantise, weft_rows_quantise(a->comm, a->config, a->stream))
FUZZ_CALL(call_dequantise, weft_rows_dequantise(a->comm, a->config, a->stream))

static const struct fuzz_mutation rows_mutations[] = {
    FUZZ_ENQUEUED(comm, weft_rows_args, rows),
    FUZZ_POINTERS("src", rows.known.src, FUZZ_NULL),
    FUZZ_POINTERS("dst", rows.known.dst, FUZZ_NULL),
    FUZZ_POINTERS("scales", rows.known.scales, FUZZ_NULL),
    FUZZ_FIELD(rows, num_rows, -1, INT32_MIN),
    FUZZ_FIELD(rows, hidden, -1, 0, INT64_MAX, INT32_MAX),
    FUZZ_NUMBERS(FUZZ_INT32, "group_elements", rows.known.quantisation.group_elements, -1, 97,
                 INT32_MAX),
    FUZZ_NUMBERS(FUZZ_INT64, "src", rows.known.src_stride_bytes, 1, -1),
    FUZZ_NUMBERS(FUZZ_INT64, "scale", rows.known.scale_column_bytes, 1, 3, 4 * 5 + 2, -4),
    FUZZ_FIELD(rows, dtype, -1, WEFT_INT32, WEFT_FP64, INT32_MAX),
    FUZZ_NUMBERS(FUZZ_INT32, "quantisation.dtype", rows.known.quantisation.dtype, -1, WEFT_UINT8,
                 WEFT_INT8 + 1),
    FUZZ_FIELD(rows, reserved, -1, 1),
    FUZZ_NUMBERS(FUZZ_INT32, "quantisation.scale", rows.known.quantisation.scale, -1,
                 WEFT_SCALE_UE8M0 + 1, INT32_MAX),
};

FUZZ_TARGET_LIKE(rows_quantise, rows_quantise, fill_rows, call_quantise, fuzz_wait, rows)
FUZZ_TARGET_LIKE(rows_dequantise, rows_dequantise, fill_rows, call_dequantise, fuzz_wait, rows)
