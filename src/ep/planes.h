/* SPDX-License-Identifier: MIT */
/* The planes of a dispatch as its program knows them: those that are given, and behind them the
 * scales of one that is quantised on its way. */
#pragma once

#include "ep/ep_staging.h"
#include "programs/ep/dispatch.h"

/* Names of the arrays of a plane, for errors. */
extern const struct weft__plane_names {
    const char *src, *dst, *scales;
} weft__plane_names[WEFT_MAX_PLANES];

static inline int weft__plane_is_quantised(const weft_plane *plane)
{
    return plane->quantisation.dtype != WEFT_DTYPE_NONE;
}

/* 1 if its scales and the fields behind are 0. */
static inline int weft__plane_is_plain(const weft_plane *plane)
{
    return plane->scales == NULL && plane->dtype == WEFT_DTYPE_NONE &&
           !weft__plane_is_quantised(plane) && plane->quantisation.scale == 0 &&
           plane->quantisation.group_elements == 0;
}

/* Which one is quantised; -1: none. */
int32_t weft__planes_quantised(const weft_ep_dispatch_args *args);
/* With the scales. */
int32_t weft__planes_num(const weft_ep_dispatch_args *args);
/* Bytes of the rows that the receivers get. */
uint64_t weft__plane_received_bytes(const weft_plane *plane);
/* Bytes of the scales of a row, if it is quantised. */
uint64_t weft__plane_scales_bytes(const weft_plane *plane);

/* Tells them in the call and the arguments, and lists their outputs. */
void weft__planes_announce(const weft_ep_dispatch_args *args, struct wp_dispatch_args *program_args,
                           struct weft__arrays *arrays);
