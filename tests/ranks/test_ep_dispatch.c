/* SPDX-License-Identifier: MIT */
/* Dispatch: every row size, several planes, strides, alignments, optional outputs. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_trials.h"

static const uint64_t row_sizes[] = {1,  2,   3,   7,    15,   16,   17,    31,   32,
                                     48, 255, 256, 1000, 4096, 7168, 14336, 16384};
enum { NUM_ROW_SIZES = sizeof row_sizes / sizeof row_sizes[0] };

static const struct ep_case usual = {.seed = 3,
                                     .max_tokens = 13,
                                     .num_topk = 4,
                                     .num_experts = 12,
                                     .tokens = EP_TOKENS_RAGGED,
                                     .num_blocks = 2,
                                     .num_warps = 3};

static void every_row_size(enum ranks_mode mode, int32_t num_ranks)
{
    struct ep_trials trials = ep_trials_create(num_ranks, 0);
    for (int i = 0; i < NUM_ROW_SIZES; i++)
        ep_trials_add(&trials, &usual)->dispatch = ep_dispatch_shape_of(row_sizes[i]);
    assert_int_equal(ep_trials_run(&trials, mode), 0);
}

TEST(row_sizes_in_threads)
{
    every_row_size(RANKS_THREADS, 1);
    every_row_size(RANKS_THREADS, 4);
    every_row_size(RANKS_THREADS, 9);
}

TEST(row_sizes_in_processes)
{
    every_row_size(RANKS_PROCESSES, 2);
    every_row_size(RANKS_PROCESSES, 8);
}

/* Source and destination off by every small distance, with sizes around the 16-byte path. */
TEST(every_alignment)
{
    const uint64_t distances[] = {0, 1, 2, 4, 8, 15};
    const uint64_t sizes[] = {16, 17, 48, 1000, 4096};
    struct ep_trials trials = ep_trials_create(3, 0);
    for (int i = 0; i < 36; i++) {
        struct ep_trial *trial = ep_trials_add(&trials, &usual);
        trial->dispatch = ep_dispatch_shape_of(sizes[i % 5]);
        trial->dispatch.planes[0].src_misalign_bytes = distances[i % 6];
        trial->dispatch.planes[0].dst_misalign_bytes = distances[i / 6];
    }
    assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
}

TEST(strided_sources)
{
    const uint64_t gaps[] = {1, 5, 16, 64, 4096};
    struct ep_trials trials = ep_trials_create(4, 0);
    for (int i = 0; i < 25; i++) {
        struct ep_trial *trial = ep_trials_add(&trials, &usual);
        trial->dispatch = ep_dispatch_shape_of(row_sizes[3 * (i / 5)]);
        trial->dispatch.planes[0].src_gap_bytes = gaps[i % 5];
    }
    assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
}

TEST(any_number_of_planes)
{
    struct ep_trials trials = ep_trials_create(4, 0);
    for (int32_t num_planes = 0; num_planes <= WEFT_MAX_PLANES; num_planes++) {
        struct ep_trial *trial = ep_trials_add(&trials, &usual);
        trial->dispatch.num_planes = num_planes;
        for (int32_t plane = 0; plane < num_planes; plane++)
            trial->dispatch.planes[plane] = (struct ep_plane_shape){
                .row_bytes = row_sizes[(7 * plane + num_planes) % NUM_ROW_SIZES],
                .src_gap_bytes = plane % 2 == 0 ? 0 : 3 * (uint64_t)plane,
                .dst_misalign_bytes = (uint64_t)plane};
    }
    assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
}

TEST(every_set_of_outputs)
{
    for (int32_t num_ranks = 1; num_ranks <= 5; num_ranks += 2) {
        struct ep_trials trials = ep_trials_create(num_ranks, 0);
        for (int i = 0; i < 24; i++) {
            struct ep_case spec = usual;
            spec.index_type = i % 2 == 0 ? WEFT_INT32 : WEFT_INT64;
            spec.routing = i < 12 ? EP_ROUTING_DISTINCT : EP_ROUTING_HOLES;
            struct ep_trial *trial = ep_trials_add(&trials, &spec);
            trial->dispatch.topk = (enum ep_topk)(i / 2 % 3);
            trial->dispatch.src_token = (enum ep_optional)(i / 6 % 2);
            trial->dispatch.num_planes = i % 4 == 0 ? 0 : 1;
        }
        assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
    }
}

/* Such a token has one row at a rank, which names the expert for each choice. */
TEST(experts_that_a_token_chooses_twice)
{
    static const enum ep_routing routings[] = {EP_ROUTING_DUPLICATES, EP_ROUTING_ONE_EXPERT};
    for (int32_t num_ranks = 1; num_ranks <= 5; num_ranks += 2) {
        struct ep_trials trials = ep_trials_create(num_ranks, 0);
        for (int i = 0; i < 12; i++) {
            struct ep_case spec = usual;
            spec.index_type = i % 2 == 0 ? WEFT_INT32 : WEFT_INT64;
            spec.routing = routings[i / 6];
            spec.seed = (uint64_t)i;
            ep_trials_add(&trials, &spec)->dispatch.topk = (enum ep_topk)(i / 2 % 3);
        }
        assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
    }
}

/* Every form, with few tokens, whose rows several warps share, and with many. */
TEST(quantised_on_the_way)
{
    struct ep_trials trials = ep_trials_create(5, 0);
    for (int i = 0; i < 3 * 2 * 3 * 2; i++) {
        struct ep_case spec = usual;
        spec.max_tokens = i % 2 == 0 ? 1 : 40;
        spec.seed = (uint64_t)i;
        struct ep_trial *trial = ep_trials_add(&trials, &spec);
        const weft_dtype dtype = (weft_dtype)(WEFT_BF16 + i / 2 % 3);
        trial->dispatch.num_planes = 1 + i % 3;
        for (int32_t plane = 0; plane < trial->dispatch.num_planes; plane++)
            trial->dispatch.planes[plane].row_bytes = 48;
        trial->dispatch.planes[i % 3 / 2] = (struct ep_plane_shape){
            .row_bytes = 1536 * (dtype == WEFT_FP32 ? 4 : 2),
            .dtype = dtype,
            .quantisation = {i / 6 % 2 == 0 ? WEFT_FP8_E4M3 : WEFT_INT8, (weft_scale_kind)(i / 12),
                             i % 4 == 3 ? 0 : 128}};
    }
    assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
}

/* Each row to more ranks than a warp has pointers for at a time. */
TEST(quantised_for_many_ranks)
{
    struct ep_trials trials = ep_trials_create(tests_on_cuda() ? 4 : 40, 0);
    struct ep_case spec = usual;
    spec.max_tokens = 2;
    spec.num_topk = WEFT_MAX_TOPK;
    spec.num_experts = 120;
    struct ep_trial *trial = ep_trials_add(&trials, &spec);
    trial->dispatch.planes[0] = (struct ep_plane_shape){
        .row_bytes = 512, .dtype = WEFT_BF16, .quantisation = {WEFT_FP8_E4M3, WEFT_SCALE_FP32, 64}};
    assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
}

/* Enough rows that every warp of every block has several of them for every rank. */
TEST(many_tokens)
{
    struct ep_trials trials = ep_trials_create(4, 0);
    for (int i = 0; i < 4; i++) {
        struct ep_case spec = usual;
        spec.max_tokens = tests_grid_size(2000, 300);
        spec.tokens = i % 2 == 0 ? EP_TOKENS_EQUAL : EP_TOKENS_RAGGED;
        spec.routing = i < 2 ? EP_ROUTING_DISTINCT : EP_ROUTING_SKEWED;
        ep_trials_add(&trials, &spec)->dispatch = ep_dispatch_shape_of(256);
    }
    assert_int_equal(ep_trials_run(&trials, RANKS_THREADS), 0);
}
