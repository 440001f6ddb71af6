/* SPDX-License-Identifier: MIT */
/* A table of experts and ranks: what it may say, and what is made of it. */
#include "comm/host/error.h"
#include "ep/expert_placement.h"
#include "harness/cmocka.h"
#include "harness/ranks.h"

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

/* Where experts are spread evenly, programs find places by arithmetic, if it is exact. */
static int places_are_the_tables(const struct wp_placement *placement)
{
    struct wp_placement tables = *placement;
    tables.is_even = 0;
    for (int64_t expert = -1; expert <= placement->num_experts; expert++) {
        const struct wp_place_of_expert found = wp_place_expert(placement, expert, 1, 5);
        const struct wp_place_of_expert wanted = wp_place_expert(&tables, expert, 1, 5);
        if (found.rank != wanted.rank || found.local_expert != wanted.local_expert)
            return 0;
    }
    return 1;
}

TEST(places_by_arithmetic_are_those_of_the_tables)
{
    static const int32_t sizes[][3] = {/* experts, ranks, whether by arithmetic */
                                       {1, 1, 1},       {7, 5, 1},       {3, 8, 1},
                                       {256, 2, 1},     {256, 8, 1},     {288, 32, 1},
                                       {256, 320, 1},   {1000, 300, 1},  {1024, 1024, 1},
                                       {1290, 1290, 1}, {1291, 1291, 0}, {100000, 1, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct weft__placement placement = {0};
        weft_ep_config config = WEFT_INIT(weft_ep_config);
        config.num_experts = sizes[i][0];
        assert_ok(weft__placement_create(&placement, &config, sizes[i][1]));
        assert_int_equal(placement.host.is_even, sizes[i][2]);
        assert_true(places_are_the_tables(&placement.host));
        weft__placement_destroy(&placement);
    }
}

/* What programs get is a copy. */
TEST_ON_RANKS(programs_find_places_by_arithmetic, RANKS_THREADS, 1)
{
    struct weft__placement placement = {0};
    weft_ep_config config = WEFT_INIT(weft_ep_config);
    weft_comm *const comm = ranks_comm(context, NULL);
    config.num_experts = NUM_EXPERTS;
    CHECK_OK(weft__placement_create(&placement, &config, 1));
    CHECK_OK(weft__placement_upload(&placement, comm));
    CHECK(placement.device.is_even && places_are_the_tables(&placement.device), "is_even is %d",
          placement.device.is_even);
    weft__placement_unload(&placement, comm);
    weft__placement_destroy(&placement);
    return 0;
}
