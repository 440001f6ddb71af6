/* SPDX-License-Identifier: MIT */
#include "coll/trees.h"

/* The root is 0 and has one child, the largest power of two; what has b as its lowest bit is b / 2
 * above its children: places of odd numbers are leaves. Where that is beyond the last place, the
 * next nearer one takes its part. */
struct weft__tree_place weft__binary_tree(int32_t num_places, int32_t place)
{
    struct weft__tree_place tree = {WEFT__NO_PLACE, {WEFT__NO_PLACE, WEFT__NO_PLACE}, 0};
    int64_t bit = 1;
    while (bit < num_places && !(bit & place))
        bit <<= 1;
    if (place == 0) {
        if (num_places > 1)
            tree.down[1] = (int32_t)(bit >> 1);
        return tree;
    }
    const int64_t above = (place ^ bit) | bit << 1;
    tree.up = (int32_t)(above < num_places ? above : place ^ bit);
    tree.child = place < tree.up ? 0 : 1;
    int64_t step = bit >> 1;
    if (step == 0)
        return tree;
    tree.down[0] = (int32_t)(place - step);
    while (step > 0 && place + step >= num_places)
        step >>= 1;
    if (step > 0)
        tree.down[1] = (int32_t)(place + step);
    return tree;
}
