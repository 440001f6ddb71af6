/* SPDX-License-Identifier: MIT */
/* Two binary trees over the same places: who has children in one is a leaf in the other, so that everybody sends and
 * receives about as much in both together. Pure integers. */
#pragma once

#include <stdint.h>

enum { WEFT__NO_PLACE = -1 };

/* A place's neighbours in a tree. */
struct weft__tree_place {
    int32_t up;      /* NO_PLACE: it is the root */
    int32_t down[2]; /* NO_PLACE: none */
    int32_t child;   /* which of its parent's children it is, 0 or 1 */
};

/* The place of 0..num_places-1 in the first and in the second tree. */
void weft__double_tree(int32_t num_places, int32_t place, struct weft__tree_place trees[2]);
/* The root of the first (0) or the second (1). */
int32_t weft__double_tree_root(int32_t num_places, int tree);
