/* SPDX-License-Identifier: MIT */
#include "oracle/ep_trials.h"

#include "harness/cmocka.h"
#include "harness/memory.h"
#include "workload/elements.h"
#include "workload/ep_oracle.h"
#include "workload/rng.h"

enum { ARENA_BYTES = 4 << 20 };

struct ep_dispatch_shape ep_dispatch_shape_of(uint64_t row_bytes)
{
    return (struct ep_dispatch_shape){.num_planes = 1,
                                      .planes = {{.row_bytes = row_bytes}},
                                      .topk = EP_TOPK_IDS_AND_WEIGHTS,
                                      .src_token = EP_WITH};
}

struct ep_combine_shape ep_combine_shape_of(weft_dtype dtype, int64_t hidden)
{
    return (struct ep_combine_shape){
        .dtype = dtype, .hidden = hidden, .bias = EP_BIAS_BOTH, .weights = EP_WITH};
}

/* Makes the plane one that is quantised on its way. */
static void quantise_plane(struct ep_plane_shape *plane, struct rng *rng)
{
    static const int32_t groups[] = {1, 3, 8, 17, 32, 64, 128, 160};
    const int32_t group = groups[rng_below(rng, 8)];
    const int32_t num_groups = 1 + (int32_t)rng_below(rng, 9);
    plane->dtype = (weft_dtype)(WEFT_BF16 + rng_below(rng, 3));
    plane->quantisation.dtype = rng_below(rng, 2) == 0 ? WEFT_FP8_E4M3 : WEFT_INT8;
    plane->quantisation.scale = (weft_scale_kind)rng_below(rng, 3);
    plane->quantisation.group_elements = num_groups == 1 ? 0 : group;
    plane->row_bytes = (uint64_t)(group * num_groups) * dtype_bytes(plane->dtype);
}

struct ep_dispatch_shape ep_dispatch_shape_random(uint64_t seed)
{
    static const uint64_t row_bytes[] = {1, 2, 3, 7, 15, 16, 17, 31, 32, 48, 255, 256, 1000};
    struct rng rng = {rng_key(seed, 6)};
    struct ep_dispatch_shape shape = {.num_planes = (int32_t)rng_below(&rng, WEFT_MAX_PLANES + 1),
                                      .round = rng_next(&rng)};
    for (int32_t plane = 0; plane < shape.num_planes; plane++)
        shape.planes[plane] = (struct ep_plane_shape){
            .row_bytes = row_bytes[rng_below(&rng, 13)],
            .src_gap_bytes = rng_below(&rng, 2) == 0 ? 0 : rng_below(&rng, 40),
            .src_misalign_bytes = rng_below(&rng, 2) == 0 ? 0 : rng_below(&rng, 16),
            .dst_misalign_bytes = rng_below(&rng, 2) == 0 ? 0 : rng_below(&rng, 16)};
    if (shape.num_planes > 0 && shape.num_planes < WEFT_MAX_PLANES && rng_below(&rng, 3) > 0)
        quantise_plane(&shape.planes[rng_below(&rng, (uint32_t)shape.num_planes)], &rng);
    shape.topk = (enum ep_topk)rng_below(&rng, 3);
    shape.src_token = (enum ep_optional)rng_below(&rng, 2);
    shape.capacity = (enum ep_capacity)rng_below(&rng, EP_NUM_CAPACITIES);
    return shape;
}

struct ep_combine_shape ep_combine_shape_random(uint64_t seed)
{
    static const int64_t hidden[] = {1, 3, 8, 17, 64, 100};
    struct rng rng = {rng_key(seed, 7)};
    return (struct ep_combine_shape){.dtype = (weft_dtype)(WEFT_BF16 + rng_below(&rng, 3)),
                                     .hidden = hidden[rng_below(&rng, 6)],
                                     .bias = (enum ep_bias)rng_below(&rng, 4),
                                     .weights = (enum ep_optional)rng_below(&rng, 2),
                                     .values = (enum ep_values)rng_below(&rng, 2),
                                     .capacity =
                                         (enum ep_capacity)rng_below(&rng, EP_NUM_CAPACITIES),
                                     .misalign_bytes = 4 * rng_below(&rng, 4),
                                     .round = rng_next(&rng)};
}

struct ep_trials ep_trials_create(int32_t num_ranks, int32_t num_nodes)
{
    return (struct ep_trials){.num_ranks = num_ranks, .num_nodes = num_nodes};
}

struct ep_trial *ep_trials_add(struct ep_trials *trials, const struct ep_case *spec)
{
    struct ep_case of_ranks = *spec;
    of_ranks.num_ranks = trials->num_ranks;
    of_ranks.num_nodes = trials->num_nodes;
    if (trials->num_nodes > 1 && spec->staging_bytes > 0) /* there are no rounds between nodes */
        of_ranks.staging_bytes = EP_STAGING_OF_ALL;
    if (trials->num_trials == trials->max_trials) {
        trials->max_trials = 2 * trials->max_trials + 8;
        struct ep_trial *larger = tests_alloc(sizeof *larger * (size_t)trials->max_trials);
        for (int32_t i = 0; i < trials->num_trials; i++)
            larger[i] = trials->trials[i];
        tests_free(trials->trials);
        trials->trials = larger;
    }
    struct ep_trial *trial = &trials->trials[trials->num_trials++];
    *trial = (struct ep_trial){ep_world_create(&of_ranks), ep_dispatch_shape_of(48),
                               ep_combine_shape_of(WEFT_FP32, 5)};
    return trial;
}

static weft_dtype draw_wire(uint64_t seed)
{
    struct rng rng = {rng_key(seed, 10)};
    return wire_dtypes[rng_below(&rng, NUM_WIRES)];
}

struct ep_trial *ep_trials_add_random(struct ep_trials *trials, uint64_t seed, int32_t max_tokens)
{
    const struct ep_case spec = ep_case_random(seed, trials->num_ranks, max_tokens);
    struct ep_trial *trial = ep_trials_add(trials, &spec);
    trial->dispatch = ep_dispatch_shape_random(seed);
    trial->combine = ep_combine_shape_random(seed);
    trial->world->spec.wire = draw_wire(seed);
    return trial;
}

static int run_rank(struct ranks_context *context)
{
    const struct ep_trials *trials = context->argument;
    struct ep_rank self;
    if (ep_rank_open(&self, context, trials->num_nodes, ARENA_BYTES))
        return 1;
    for (int32_t i = 0; i < trials->num_trials; i++) {
        const struct ep_trial *trial = &trials->trials[i];
        if (ep_check_world(&self, trial->world, &trial->dispatch, &trial->combine))
            return 1;
    }
    return ep_rank_close(&self);
}

int ep_trials_run(struct ep_trials *trials, enum ranks_mode mode)
{
    const int num_failed = ranks_run(mode, trials->num_ranks, run_rank, trials);
    for (int32_t i = 0; i < trials->num_trials; i++)
        ep_world_destroy(trials->trials[i].world);
    tests_free(trials->trials);
    *trials = (struct ep_trials){0};
    return num_failed;
}

void ep_trials_run_in(const struct ep_worlds *worlds, size_t count,
                      void (*add)(struct ep_trials *trials))
{
    for (const struct ep_worlds *world = worlds; world < worlds + count; world++) {
        const int32_t last = world->step == 0 ? world->first : world->last;
        for (int32_t num_ranks = world->first; num_ranks <= last;
             num_ranks += world->step + (world->step == 0)) {
            struct ep_trials trials = ep_trials_create(num_ranks, world->num_nodes);
            add(&trials);
            if (ep_trials_run(&trials, world->mode) != 0)
                fail_msg("%d ranks, %d nodes", num_ranks, world->num_nodes);
        }
    }
}
