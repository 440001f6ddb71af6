/* SPDX-License-Identifier: MIT */
#include "ep/planes.h"

#define PLANE_NAMES(i)                                                                             \
    {                                                                                              \
        "planes[" #i "].src", "planes[" #i "].dst", "planes[" #i "].scales"                        \
    }
const struct weft__plane_names weft__plane_names[WEFT_MAX_PLANES] = {
    PLANE_NAMES(0), PLANE_NAMES(1), PLANE_NAMES(2), PLANE_NAMES(3),
    PLANE_NAMES(4), PLANE_NAMES(5), PLANE_NAMES(6), PLANE_NAMES(7)};
#undef PLANE_NAMES

int32_t weft__planes_quantised(const weft_ep_dispatch_args *args)
{
    for (int32_t i = 0; i < args->num_planes; i++)
        if (weft__plane_is_quantised(&args->planes[i]))
            return i;
    return -1;
}

int32_t weft__planes_num(const weft_ep_dispatch_args *args)
{
    return args->num_planes + (weft__planes_quantised(args) >= 0);
}

/* ---------------------------------------------------------------- bytes */

static uint64_t num_elements(const weft_plane *plane)
{
    return plane->row_bytes / wp_dtype_bytes(plane->dtype);
}

uint64_t weft__plane_received_bytes(const weft_plane *plane)
{
    return weft__plane_is_quantised(plane)
               ? num_elements(plane) * wp_dtype_bytes(plane->quantisation.dtype)
               : plane->row_bytes;
}

static int32_t group_elements(const weft_plane *plane)
{
    return plane->quantisation.group_elements == 0 ? (int32_t)num_elements(plane)
                                                   : plane->quantisation.group_elements;
}

uint64_t weft__plane_scales_bytes(const weft_plane *plane)
{
    return num_elements(plane) / (uint64_t)group_elements(plane) *
           wp_scale_bytes((enum wp_scale_kind)plane->quantisation.scale);
}

/* ---------------------------------------------------------------- what the program gets */

static struct wp_quantised_plane quantised_plane(const weft_ep_dispatch_args *args, int32_t idx)
{
    const weft_plane *plane = &args->planes[idx];
    return (struct wp_quantised_plane){
        .idx = idx,
        .how = {.src_dtype = plane->dtype,
                .dst_dtype = plane->quantisation.dtype,
                .scale = (enum wp_scale_kind)plane->quantisation.scale,
                .group_elements = group_elements(plane)}};
}

/* Those who do not quantise, or to another type, are told by the call's dtype. */
static void announce_quantised(const weft_ep_dispatch_args *args,
                               struct wp_dispatch_args *program_args, struct weft__arrays *arrays)
{
    const int32_t idx = program_args->quantised.idx;
    const weft_plane *plane = &args->planes[idx];
    const uint64_t scales_bytes = weft__plane_scales_bytes(plane);
    struct wp_call *call = &program_args->message.call;
    call->head.kind |= (uint64_t)plane->quantisation.dtype << WP_CALL_DTYPE_BIT;
    call->row_bytes[args->num_planes] = (uint32_t)scales_bytes;
    weft__arrays_add(arrays, WP_ARRAY_PLANE + args->num_planes, plane->scales, scales_bytes,
                     weft__plane_names[idx].scales);
}

void weft__planes_announce(const weft_ep_dispatch_args *args, struct wp_dispatch_args *program_args,
                           struct weft__arrays *arrays)
{
    const int32_t quantised = weft__planes_quantised(args);
    struct wp_call *call = &program_args->message.call;
    call->head.kind |= (uint64_t)weft__planes_num(args) << WP_CALL_NUM_PLANES_BIT;
    for (int32_t i = 0; i < args->num_planes; i++) {
        const weft_plane *plane = &args->planes[i];
        const uint64_t row_bytes = weft__plane_received_bytes(plane);
        call->row_bytes[i] = (uint32_t)row_bytes;
        program_args->planes[i].rows = plane->src;
        program_args->planes[i].stride_bytes =
            plane->src_stride_bytes == 0 ? plane->row_bytes : plane->src_stride_bytes;
        weft__arrays_add(arrays, WP_ARRAY_PLANE + i, plane->dst, row_bytes,
                         weft__plane_names[i].dst);
    }
    if (quantised >= 0) {
        program_args->quantised = quantised_plane(args, quantised);
        announce_quantised(args, program_args, arrays);
    }
}
