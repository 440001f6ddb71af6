/* SPDX-License-Identifier: MIT */
/* A binary tree over places. Pure integers. */
#pragma once

#include <stdint.h>

enum { WEFT__NO_PLACE = -1 };

/* A place's neighbours in a tree. */
struct weft__tree_place {
    int32_t up;      /* NO_PLACE: it is the root */
    int32_t down[2]; /* NO_PLACE: none */
    int32_t child;   /* which of its parent's children it is, 0 or 1 */
};

/* The place of 0..num_places-1. */
struct weft__tree_place weft__binary_tree(int32_t num_places, int32_t place);
