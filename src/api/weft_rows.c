/* SPDX-License-Identifier: MIT */
#include "launch/local_rows.h"

#include "api/objects.h"
#include "api/overlap.h"
#include "api/structs.h"

/* ---------------------------------------------------------------- checks */

/* Sets group_elements if it was 0. */
static weft_result check_shape(weft_rows_args *args)
{
    WEFT__TRY(
        weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)args->dtype, WEFT_BF16, WEFT_FP32, "dtype"));
    WEFT__TRY(weft__check_range(args->num_rows, 0, INT32_MAX, "num_rows"));
    WEFT__TRY(weft__check_unused((uint64_t)args->reserved, "reserved"));
    WEFT__TRY(weft__check_range(
        args->hidden, 1, WEFT_MAX_ROW_BYTES / (int64_t)wp_dtype_bytes(args->dtype), "hidden"));
    WEFT__TRY(weft__check_quantisation(&args->quantisation, args->hidden));
    if (args->quantisation.group_elements == 0)
        args->quantisation.group_elements = (int32_t)args->hidden;
    return WEFT_OK;
}

static weft_result check_strides(const weft_rows_args *args, uint64_t src_row_bytes)
{
    const uint64_t least_column = (uint64_t)args->num_rows * sizeof(float);
    if (args->src_stride_bytes != 0 && args->src_stride_bytes < src_row_bytes)
        return weft__invalid(
            "src_stride_bytes is %llu, allowed are 0 and %llu or more, the bytes of a row",
            (unsigned long long)args->src_stride_bytes, (unsigned long long)src_row_bytes);
    if (args->scale_column_bytes != 0 &&
        (args->scale_column_bytes < least_column || args->scale_column_bytes % sizeof(float) != 0))
        return weft__invalid("scale_column_bytes is %llu, allowed are 0 and multiples of 4 from "
                             "%llu on, 4 for each row",
                             (unsigned long long)args->scale_column_bytes,
                             (unsigned long long)least_column);
    return WEFT_OK;
}

/* Columns with what lies between them. */
static struct weft__extent extent_of_scales(const weft_rows_args *args, enum weft__extent_use use)
{
    const uint64_t num_groups = (uint64_t)(args->hidden / args->quantisation.group_elements);
    const int is_byte = args->quantisation.scale == WEFT_SCALE_UE8M0;
    const uint64_t num_columns = is_byte ? (num_groups + 3) / 4 : num_groups;
    if (args->scale_column_bytes == 0)
        return weft__extent_of("scales", use, args->scales, (uint64_t)args->num_rows,
                               num_groups * (is_byte ? 1 : sizeof(float)));
    return weft__extent_of("scales", use, args->scales, num_columns, args->scale_column_bytes);
}

static weft_result check_memory(const weft_rows_args *args, struct wp_quantise_args *filled)
{
    const uint64_t num_rows = (uint64_t)args->num_rows;
    const uint64_t src_row_bytes = wp_elements_bytes(filled->how.src_dtype, args->hidden);
    const uint64_t dst_row_bytes = wp_elements_bytes(filled->how.dst_dtype, args->hidden);
    WEFT__TRY(check_strides(args, src_row_bytes));
    filled->src_stride_bytes = args->src_stride_bytes == 0 ? src_row_bytes : args->src_stride_bytes;
    filled->dst_stride_bytes = dst_row_bytes;
    WEFT__TRY(weft__check_array(args->src, args->num_rows, "src"));
    WEFT__TRY(weft__check_array(args->dst, args->num_rows, "dst"));
    WEFT__TRY(weft__check_array(args->scales, args->num_rows, "scales"));
    const enum weft__extent_use use_of_scales =
        filled->direction == WP_QUANTISE ? WEFT__EXTENT_WRITTEN : WEFT__EXTENT_READ;
    struct weft__extent extents[] = {
        weft__extent_of("src", WEFT__EXTENT_READ, args->src, num_rows, src_row_bytes),
        weft__extent_of("dst", WEFT__EXTENT_WRITTEN, args->dst, num_rows, dst_row_bytes),
        extent_of_scales(args, use_of_scales)};
    extents[0].stride_bytes = filled->src_stride_bytes;
    filled->scales_stride_bytes =
        args->scale_column_bytes == 0 ? extents[2].row_bytes : sizeof(float);
    return weft__check_overlaps(extents, 3);
}

/* ---------------------------------------------------------------- launches */

static struct wp_quantisation quantisation_of(const weft_rows_args *args,
                                              enum wp_quantise_direction direction)
{
    const int is_there = direction == WP_QUANTISE;
    return (struct wp_quantisation){.src_dtype = is_there ? args->dtype : args->quantisation.dtype,
                                    .dst_dtype = is_there ? args->quantisation.dtype : args->dtype,
                                    .scale = (enum wp_scale_kind)args->quantisation.scale,
                                    .group_elements = args->quantisation.group_elements,
                                    .scale_stride_bytes = (int64_t)args->scale_column_bytes};
}

static weft_result run(weft_comm *comm, const weft_rows_args *given,
                       enum wp_quantise_direction direction, weft_stream *stream)
{
    weft_rows_args args;
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    WEFT__TRY(WEFT__READ(weft_rows_args, &args, given, "args"));
    WEFT__TRY(check_shape(&args));
    struct wp_quantise_args filled = {.direction = direction,
                                      .num_rows = args.num_rows,
                                      .num_elements = args.hidden,
                                      .how = quantisation_of(&args, direction),
                                      .src = args.src,
                                      .dst = args.dst,
                                      .scales = args.scales};
    WEFT__TRY(check_memory(&args, &filled));
    return weft__rows_launch(comm, &filled, stream);
}

weft_result weft_rows_quantise(weft_comm *comm, const weft_rows_args *args, weft_stream *stream)
{
    weft__current_call = WEFT__CALL_ROWS_QUANTISE;
    return run(comm, args, WP_QUANTISE, stream);
}

weft_result weft_rows_dequantise(weft_comm *comm, const weft_rows_args *args, weft_stream *stream)
{
    weft__current_call = WEFT__CALL_ROWS_DEQUANTISE;
    return run(comm, args, WP_DEQUANTISE, stream);
}
