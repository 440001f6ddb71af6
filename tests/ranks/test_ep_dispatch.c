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

TEST_OF_TRIALS(every_row_size, IN_THREADS(1), IN_THREADS(4), IN_THREADS(9), IN_PROCESSES(2),
               IN_PROCESSES(8))
{
    for (int i = 0; i < NUM_ROW_SIZES; i++)
        ep_trials_add(trials, &usual)->dispatch = ep_dispatch_shape_of(row_sizes[i]);
}

/* Source and destination off by every small distance, with sizes around the 16-byte path. */
TEST_OF_TRIALS(every_alignment, IN_THREADS(3))
{
    const uint64_t distances[] = {0, 1, 2, 4, 8, 15};
    const uint64_t sizes[] = {16, 17, 48, 1000, 4096};
    for (int i = 0; i < 36; i++) {
        struct ep_trial *trial = ep_trials_add(trials, &usual);
        trial->dispatch = ep_dispatch_shape_of(sizes[i % 5]);
        trial->dispatch.planes[0].src_misalign_bytes = distances[i % 6];
        trial->dispatch.planes[0].dst_misalign_bytes = distances[i / 6];
    }
}

TEST_OF_TRIALS(strided_sources, IN_THREADS(4))
{
    const uint64_t gaps[] = {1, 5, 16, 64, 4096};
    for (int i = 0; i < 25; i++) {
        struct ep_trial *trial = ep_trials_add(trials, &usual);
        trial->dispatch = ep_dispatch_shape_of(row_sizes[3 * (i / 5)]);
        trial->dispatch.planes[0].src_gap_bytes = gaps[i % 5];
    }
}

TEST_OF_TRIALS(any_number_of_planes, IN_THREADS(4))
{
    for (int32_t num_planes = 0; num_planes <= WEFT_MAX_PLANES; num_planes++) {
        struct ep_trial *trial = ep_trials_add(trials, &usual);
        trial->dispatch.num_planes = num_planes;
        for (int32_t plane = 0; plane < num_planes; plane++)
            trial->dispatch.planes[plane] = (struct ep_plane_shape){
                .row_bytes = row_sizes[(7 * plane + num_planes) % NUM_ROW_SIZES],
                .src_gap_bytes = plane % 2 == 0 ? 0 : 3 * (uint64_t)plane,
                .dst_misalign_bytes = (uint64_t)plane};
    }
}

TEST_OF_TRIALS(every_set_of_outputs, IN_THREADS(1, .last = 5, .step = 2))
{
    for (int i = 0; i < 24; i++) {
        struct ep_case spec = usual;
        spec.index_type = i % 2 == 0 ? WEFT_INT32 : WEFT_INT64;
        spec.routing = i < 12 ? EP_ROUTING_DISTINCT : EP_ROUTING_HOLES;
        struct ep_trial *trial = ep_trials_add(trials, &spec);
        trial->dispatch.topk = (enum ep_topk)(i / 2 % 3);
        trial->dispatch.src_token = (enum ep_optional)(i / 6 % 2);
        trial->dispatch.num_planes = i % 4 == 0 ? 0 : 1;
    }
}

/* Such a token has one row at a rank, which names the expert for each choice. */
TEST_OF_TRIALS(experts_that_a_token_chooses_twice, IN_THREADS(1, .last = 5, .step = 2))
{
    static const enum ep_routing routings[] = {EP_ROUTING_DUPLICATES, EP_ROUTING_ONE_EXPERT};
    for (int i = 0; i < 12; i++) {
        struct ep_case spec = usual;
        spec.index_type = i % 2 == 0 ? WEFT_INT32 : WEFT_INT64;
        spec.routing = routings[i / 6];
        spec.seed = (uint64_t)i;
        ep_trials_add(trials, &spec)->dispatch.topk = (enum ep_topk)(i / 2 % 3);
    }
}

/* Every form, with few tokens, whose rows several warps share, and with many. */
TEST_OF_TRIALS(quantised_on_the_way, IN_THREADS(5))
{
    for (int i = 0; i < 3 * 2 * 3 * 2; i++) {
        struct ep_case spec = usual;
        spec.max_tokens = i % 2 == 0 ? 1 : 40;
        spec.seed = (uint64_t)i;
        struct ep_trial *trial = ep_trials_add(trials, &spec);
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
}

/* Each row to more ranks than a warp has pointers for at a time. */
TEST_OF_TRIALS(quantised_for_many_ranks, IN_THREADS(tests_on_cuda() ? 4 : 40))
{
    struct ep_case spec = usual;
    spec.max_tokens = 2;
    spec.num_topk = WEFT_MAX_TOPK;
    spec.num_experts = 120;
    struct ep_trial *trial = ep_trials_add(trials, &spec);
    trial->dispatch.planes[0] = (struct ep_plane_shape){
        .row_bytes = 512, .dtype = WEFT_BF16, .quantisation = {WEFT_FP8_E4M3, WEFT_SCALE_FP32, 64}};
}

/* Enough rows that every warp of every block has several of them for every rank. */
TEST_OF_TRIALS(many_tokens, IN_THREADS(4))
{
    for (int i = 0; i < 4; i++) {
        struct ep_case spec = usual;
        spec.max_tokens = tests_grid_size(2000, 300);
        spec.tokens = i % 2 == 0 ? EP_TOKENS_EQUAL : EP_TOKENS_RAGGED;
        spec.routing = i < 2 ? EP_ROUTING_DISTINCT : EP_ROUTING_SKEWED;
        ep_trials_add(trials, &spec)->dispatch = ep_dispatch_shape_of(256);
    }
}
