/* SPDX-License-Identifier: MIT */
#include "topo/double_tree.h"

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

void topo_double_tree(int32_t num_places, int32_t place, struct weft__tree_place trees[2])
{
    const enum renaming renaming = renaming_of(num_places);
    const int32_t in_second =
        renaming == MIRROR ? num_places - 1 - place : (place + num_places - 1) % num_places;
    trees[0] = weft__binary_tree(num_places, place);
    trees[1] = weft__binary_tree(num_places, in_second);
    trees[1].up = rename_place(renaming, num_places, trees[1].up);
    for (int i = 0; i < 2; i++)
        trees[1].down[i] = rename_place(renaming, num_places, trees[1].down[i]);
}
