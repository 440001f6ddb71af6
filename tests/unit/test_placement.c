/* SPDX-License-Identifier: MIT */
/* A table of experts and ranks: what it may say, and what is made of it. */
#include "comm/error.h"
#include "ep/placement.h"
#include "harness/cmocka.h"

enum { NUM_RANKS = 3, NUM_EXPERTS = 3 };

static weft_result place(const int32_t *offsets, const int32_t *ranks,
                         struct weft__placement *placement)
{
    weft_ep_config config = WEFT_INIT(weft_ep_config);
    config.num_experts = NUM_EXPERTS;
    config.expert_offsets = offsets;
    config.expert_ranks = ranks;
    *placement = (struct weft__placement){0};
    return weft__placement_create(placement, &config, NUM_RANKS);
}

static const int32_t offsets[NUM_EXPERTS + 1] = {0, 2, 3, 6};

/* The same rank may have several experts, but each of them once. */
TEST(a_rank_that_is_named_twice_for_an_expert_is_refused)
{
    static const int32_t once[] = {2, 0, 0, 0, 2, 1}, twice[] = {2, 0, 0, 0, 2, 0},
                         twice_at_first[] = {2, 2, 0, 0, 2, 1};
    struct weft__placement placement;
    assert_ok(place(offsets, once, &placement));
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        assert_int_equal(weft__placement_num_local(&placement, rank), rank == 0   ? 3
                                                                      : rank == 1 ? 1
                                                                                  : 2);
    weft__placement_destroy(&placement);
    assert_int_equal(place(offsets, twice, &placement), WEFT_ERROR_INVALID_ARGUMENT);
    assert_string_equal(weft__last_error(),
                        "expert_ranks[5] is 0, which is named twice for expert 2");
    weft__placement_destroy(&placement);
    assert_int_equal(place(offsets, twice_at_first, &placement), WEFT_ERROR_INVALID_ARGUMENT);
    assert_string_equal(weft__last_error(),
                        "expert_ranks[1] is 2, which is named twice for expert 0");
    weft__placement_destroy(&placement);
}

TEST(a_rank_that_is_not_there_is_refused)
{
    static const int32_t outside[][6] = {{2, 0, 0, 0, NUM_RANKS, 1}, {2, 0, 0, 0, -1, 1}};
    struct weft__placement placement;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(place(offsets, outside[i], &placement), WEFT_ERROR_INVALID_ARGUMENT);
        weft__placement_destroy(&placement);
    }
}
