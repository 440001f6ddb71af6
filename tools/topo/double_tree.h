/* SPDX-License-Identifier: MIT */
/* Two binary trees over the same places: a place with children in one tree is a leaf in the other,
 * so that every place sends and receives about as much in both together. */
#pragma once

#include "coll/trees.h"

/* The place of 0..num_places-1 in the first and in the second tree. */
void topo_double_tree(int32_t num_places, int32_t place, struct weft__tree_place trees[2]);
