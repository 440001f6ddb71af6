/* SPDX-License-Identifier: MIT */
#include "coll/trees.h"

/* The root is 0 and has one child, the largest power of two; what has b as its lowest bit is b / 2 above its children:
 * places of odd numbers are leaves. Where that is beyond the last place, the next nearer one takes its part. */
static struct weft__tree_place binary_tree(int32_t num_places, int32_t place)
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

/* How places of a tree are called in another. */
enum renaming {
    MIRROR, /* the last is first */
    SHIFT   /* the root is 1 */
};

static int32_t rename_place(enum renaming renaming, int32_t num_places, int32_t place)
{
    if (place == WEFT__NO_PLACE)
        return place;
    return renaming == MIRROR ? num_places - 1 - place : (place + 1) % num_places;
}

static enum renaming renaming_of(int32_t num_places)
{
    return num_places % 2 == 0 ? MIRROR : SHIFT;
}

int32_t weft__double_tree_root(int32_t num_places, int tree)
{
    return tree == 0 ? 0 : rename_place(renaming_of(num_places), num_places, 0);
}

void weft__double_tree(int32_t num_places, int32_t place, struct weft__tree_place trees[2])
{
    const enum renaming renaming = renaming_of(num_places);
    const int32_t in_second =
        renaming == MIRROR ? num_places - 1 - place : (place + num_places - 1) % num_places;
    trees[0] = binary_tree(num_places, place);
    trees[1] = binary_tree(num_places, in_second);
    trees[1].up = rename_place(renaming, num_places, trees[1].up);
    for (int i = 0; i < 2; i++)
        trees[1].down[i] = rename_place(renaming, num_places, trees[1].down[i]);
}
