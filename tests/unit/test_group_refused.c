/* SPDX-License-Identifier: MIT */
/* Who is told of a stranger that the rendezvous has refused: those that wait for a rank of its
 * number. */
#include <stdlib.h>
#include <string.h>

#include "comm/rendezvous/group_internal.h"
#include "harness/cmocka.h"

enum { NUM_RANKS = 3, KEY = 7 };

static struct weft__group *new_group(struct weft__group *next, uint64_t key)
{
    struct weft__group *group = calloc(1, sizeof *group + NUM_RANKS * sizeof group->members[0]);
    assert_non_null(group);
    group->next = next;
    group->key = key;
    group->num_ranks = NUM_RANKS;
    group->phase = WEFT__GROUP_MEETING;
    group->members[0].presence = WEFT__PRESENT;
    return group;
}

static int is_told(struct weft__group *group, int32_t rank)
{
    const struct weft__hello hello = {.key = KEY, .rank = rank, .num_ranks = 100};
    group->refused[0] = '\0';
    weft__groups_note_refused(group, &hello, "a host");
    return strstr(group->refused, "from a host has another unique id") != NULL;
}

TEST(who_misses_the_rank_is_told_of_the_stranger)
{
    struct weft__group *group = new_group(NULL, KEY);
    assert_true(is_told(group, 1));
    assert_true(is_told(group, NUM_RANKS - 1));
    assert_false(is_told(group, 0)); /* it is there */
    assert_false(is_told(group, NUM_RANKS));
    assert_false(is_told(group, 99));
    group->phase = WEFT__GROUP_FAILED_TO_MEET;
    assert_false(is_told(group, 1));
    free(group);
}

TEST(other_groups_are_not_told)
{
    struct weft__group *last = new_group(NULL, KEY), *first = new_group(last, KEY + 1);
    last->refused[0] = '\0';
    assert_false(is_told(first, 1));
    assert_string_not_equal(last->refused, "");
    free(first);
    free(last);
}
