/* SPDX-License-Identifier: MIT */
/* The layer over several nodes: all shapes of routing and of rows, and rings of all sizes, the
 * smallest among them. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_operation.h"
#include "oracle/ep_trials.h"
#include "workload/ep_oracle.h"
#include "workload/rng.h"

static const struct shape {
    int32_t num_nodes, num_local;
} shapes[] = {{2, 2}, {2, 1}, {2, 3}, {3, 1}, {3, 2}, {4, 2}, {5, 1}};
enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static const struct ep_case usual = {
    .max_tokens = 11, .num_topk = 3, .num_experts = 16, .tokens = EP_TOKENS_RAGGED};

/* Adds the trials of a test. */
typedef void (*add_function)(struct ep_trials *trials);

static void run_shape(struct shape shape, enum ranks_mode mode, add_function add)
{
    struct ep_trials trials = ep_trials_create(shape.num_nodes * shape.num_local, shape.num_nodes);
    add(&trials);
    if (ep_trials_run(&trials, mode) != 0)
        fail_msg("%d nodes of %d ranks, WEFT_NET=%s", shape.num_nodes, shape.num_local,
                 getenv("WEFT_NET"));
}

/* The default engine gets all shapes, the others get fewer. On GPUs each shape takes seconds, so
 * that few are tried, by threads and by processes in turn. */
static int step_of(int engine)
{
    if (tests_on_cuda())
        return engine == 0 ? 3 : NUM_SHAPES;
    return engine == 0 ? 1 : 2;
}

/* With every engine that there is, as threads and as processes in turn. */
static void run_shapes(int first, int step, add_function add)
{
    static const char *const engines[] = {"tcp", "ucx"};
    for (int engine = 0; engine < 2; engine++) {
        if (!tests_network_is_there(engines[engine]))
            continue;
        setenv("WEFT_NET", engines[engine], 1);
        for (int i = first; i < NUM_SHAPES; i += step * step_of(engine) * tests_grid_size(1, 5))
            run_shape(shapes[i], (i + engine) % 2 == 0 ? RANKS_THREADS : RANKS_PROCESSES, add);
        unsetenv("WEFT_NET");
    }
}

/* Before the body of a test, which adds its `trials`. */
#define TEST_ON_SHAPES(name, first, step)                                                          \
    static void name##_with(struct ep_trials *trials);                                             \
    TEST(name)                                                                                     \
    {                                                                                              \
        run_shapes(first, step, name##_with);                                                      \
    }                                                                                              \
    static void name##_with(struct ep_trials *trials)

/* ---------------------------------------------------------------- routing */

TEST_ON_SHAPES(every_token_shape, 0, 1)
{
    for (int tokens = 0; tokens < EP_NUM_TOKENS; tokens++) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)tokens;
        spec.tokens = (enum ep_tokens)tokens;
        ep_trials_add(trials, &spec);
    }
}

TEST_ON_SHAPES(every_routing_and_placement, 0, 1)
{
    for (int i = 0; i < EP_NUM_ROUTINGS * EP_NUM_PLACEMENTS; i++) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)i;
        spec.routing = (enum ep_routing)(i % EP_NUM_ROUTINGS);
        spec.placement = (enum ep_placement)(i / EP_NUM_ROUTINGS);
        spec.tokens = i % 5 == 0 ? EP_TOKENS_SOME_EMPTY : EP_TOKENS_RAGGED;
        spec.index_type = i % 2 == 0 ? WEFT_INT32 : WEFT_INT64;
        ep_trials_add(trials, &spec);
    }
}

TEST_ON_SHAPES(every_topk, 2, 2)
{
    for (int32_t num_topk = 1; num_topk <= WEFT_MAX_TOPK; num_topk += num_topk < 10 ? 1 : 11) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)num_topk;
        spec.num_topk = num_topk;
        spec.num_experts = 70;
        spec.index_type = num_topk % 2 == 0 ? WEFT_INT32 : WEFT_INT64;
        spec.placement = num_topk % 3 == 0 ? EP_PLACEMENT_REPLICATED : EP_PLACEMENT_DEFAULT;
        ep_trials_add(trials, &spec);
    }
}

TEST_ON_SHAPES(any_number_of_experts, 1, 3)
{
    const int32_t num_experts[] = {1, 2, 3, 5, 7, 13, 60, 257};
    for (int i = 0; i < 8; i++) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)i;
        spec.num_experts = num_experts[i];
        spec.expert_alignment = i % 3 * 8;
        ep_trials_add(trials, &spec);
    }
}

/* ---------------------------------------------------------------- rows */

TEST_ON_SHAPES(every_row_size, 1, 2)
{
    const uint64_t row_sizes[] = {1, 2, 3, 7, 15, 16, 17, 31, 48, 255, 1000, 7168, 14336};
    for (int i = 0; i < 13; i++) {
        struct ep_trial *trial = ep_trials_add(trials, &usual);
        trial->dispatch = ep_dispatch_shape_of(row_sizes[i]);
        trial->dispatch.planes[0].src_gap_bytes = i % 2 == 0 ? 0 : 5;
        trial->dispatch.planes[0].dst_misalign_bytes = i % 3 == 0 ? 0 : 4;
        trial->combine =
            ep_combine_shape_of((weft_dtype)(WEFT_BF16 + i % 3), (int64_t)(row_sizes[i] + 3) / 4);
        trial->combine.bias = (enum ep_bias)(i % 4);
        trial->combine.weights = i % 5 == 0 ? EP_WITHOUT : EP_WITH;
        trial->world->spec.wire = wire_dtypes[i % NUM_WIRES];
    }
}

/* In launches of all sizes: each warp needs a place for the sum of its node. */
TEST_ON_SHAPES(sums_that_cross_in_another_type, 0, 2)
{
    for (int i = 0; i < 12; i++) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)i;
        spec.max_tokens = 40;
        spec.num_channels = 1 + i % 2;
        spec.num_blocks = i % 4;
        spec.num_warps = i % 5;
        spec.grid = i % 3 == 0 ? EP_GRID_DIFFERS_BY_RANK : EP_GRID_AS_GIVEN;
        struct ep_trial *trial = ep_trials_add(trials, &spec);
        trial->combine = ep_combine_shape_of((weft_dtype)(WEFT_BF16 + i % 3), 1 + 333 * (i % 4));
        trial->combine.values = i % 2 == 0 ? EP_VALUES_SPECIAL : trial->combine.values;
        trial->combine.bias = (enum ep_bias)(i % 4);
        trial->world->spec.wire = i % 4 < 2 ? WEFT_FP32 : WEFT_FP16;
    }
}

/* FP8 with a scale for every 128 elements, and other sets of planes. */
TEST_ON_SHAPES(any_number_of_planes, 0, 4)
{
    for (int32_t num_planes = 0; num_planes <= WEFT_MAX_PLANES; num_planes++) {
        struct ep_trial *trial = ep_trials_add(trials, &usual);
        trial->dispatch.num_planes = num_planes;
        for (int32_t plane = 0; plane < num_planes; plane++)
            trial->dispatch.planes[plane] =
                (struct ep_plane_shape){.row_bytes = num_planes != 2 ? 1 + 37 * (uint64_t)plane
                                                     : plane == 0    ? 7168
                                                                     : 224,
                                        .dst_misalign_bytes = (uint64_t)plane};
        trial->dispatch.topk = (enum ep_topk)(num_planes % 3);
        trial->dispatch.src_token = (enum ep_optional)(num_planes % 2);
    }
}

TEST_ON_SHAPES(every_capacity, 0, 2)
{
    const uint64_t row_sizes[] = {1, 16, 100};
    for (int i = 0; i < EP_NUM_CAPACITIES * 3; i++) {
        struct ep_case spec = usual;
        spec.seed = 21;
        spec.routing = EP_ROUTING_SKEWED;
        spec.index_type = i % 2 == 0 ? WEFT_INT32 : WEFT_INT64;
        struct ep_trial *trial = ep_trials_add(trials, &spec);
        trial->dispatch = ep_dispatch_shape_of(row_sizes[i % 3]);
        trial->dispatch.capacity = (enum ep_capacity)(i / 3);
        trial->combine.capacity = (enum ep_capacity)(i / 3);
    }
}

/* ---------------------------------------------------------------- rings */

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

/* As docs/network.md has it: the smallest slot that dispatch and combine can do with. */
static uint64_t least_slot_bytes(const struct shape *shape, const struct ep_trial *trial)
{
    const uint64_t num_topk = (uint64_t)trial->world->spec.num_topk;
    const uint64_t num_local = (uint64_t)shape->num_local;
    const struct ep_combine_shape *combine = &trial->combine;
    const weft_dtype wire = trial->world->spec.wire;
    const uint64_t hidden = (uint64_t)combine->hidden;
    const uint64_t element_bytes =
        (wire == WEFT_DTYPE_NONE ? combine->dtype : wire) == WEFT_FP32 ? 4 : 2;
    const uint64_t sum_bytes = round_up(4 * num_topk) + round_up(hidden * element_bytes);
    uint64_t token_bytes =
        round_up(8 + 8 * (num_topk < num_local ? num_topk : num_local) + 8 * num_topk);
    for (int32_t plane = 0; plane < trial->dispatch.num_planes; plane++)
        token_bytes += round_up(ep_plane_received_bytes(&trial->dispatch.planes[plane])) +
                       round_up(ep_plane_scales_bytes(&trial->dispatch.planes[plane]));
    return 64 + (token_bytes > sum_bytes ? token_bytes : sum_bytes);
}

static struct shape shape_of(const struct ep_trials *trials)
{
    return (struct shape){trials->num_nodes, trials->num_ranks / trials->num_nodes};
}

/* From a slot of one row to more than there is to send. */
static void draw_rings(const struct ep_trials *trials, struct ep_trial *trial, uint64_t seed)
{
    const struct shape shape = shape_of(trials);
    struct rng rng = {rng_key(seed, 8)};
    struct ep_case *spec = &trial->world->spec;
    const uint64_t least = least_slot_bytes(&shape, trial);
    const uint64_t slot_bytes[] = {least, least, least + 16 * rng_below(&rng, 40),
                                   3 * least + rng_below(&rng, 100), 0};
    spec->num_channels = (int32_t)rng_below(&rng, 4);
    spec->num_staging_slots = (int32_t)rng_below(&rng, 9);
    spec->staging_slot_bytes = slot_bytes[rng_below(&rng, 5)];
}

TEST_ON_SHAPES(every_ring, 0, 1)
{
    const struct shape shape = shape_of(trials);
    for (int i = 0; i < 3 * 4 * 3; i++) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)i;
        spec.max_tokens = 30;
        spec.num_channels = 1 + i % 3;
        spec.num_staging_slots = (int32_t[]){1, 2, 3, 8}[i / 3 % 4];
        struct ep_trial *trial = ep_trials_add(trials, &spec);
        trial->world->spec.staging_slot_bytes =
            least_slot_bytes(&shape, trial) + (uint64_t[]){0, 200, 5000}[i / 12];
    }
}

/* Enough tokens that rings go round many times. */
TEST_ON_SHAPES(many_tokens, 1, 3)
{
    const struct shape shape = shape_of(trials);
    for (int i = 0; i < 2; i++) {
        struct ep_case spec = usual;
        spec.seed = (uint64_t)i;
        spec.max_tokens = tests_grid_size(500, 100);
        spec.num_blocks = 2;
        spec.num_channels = 1 + i;
        spec.num_staging_slots = 2;
        struct ep_trial *trial = ep_trials_add(trials, &spec);
        trial->world->spec.staging_slot_bytes = 2 * least_slot_bytes(&shape, trial);
    }
}

/* ---------------------------------------------------------------- everything */

TEST_ON_SHAPES(everything_at_random, 0, 1)
{
    for (int32_t i = 0; i < tests_rounds(tests_grid_size(60, 6), 15); i++) {
        const uint64_t seed = 1000000 * (uint64_t)trials->num_ranks +
                              100000 * (uint64_t)trials->num_nodes + (uint64_t)i;
        draw_rings(trials, ep_trials_add_random(trials, seed, 1 + i % 24), seed);
    }
}

/* ---------------------------------------------------------------- slots that are too small */

enum { HIDDEN = 25 };

/* By `operation`, which needs `needed` bytes; all ranks are told so, and go on. */
static int try_slot(struct ep_rank *self, const struct ep_buffers *buffers,
                    enum ep_operation operation, uint64_t needed)
{
    const uint64_t slot_bytes = self->world->spec.staging_slot_bytes;
    char text[128];
    if (round_up(slot_bytes) >= needed) {
        CHECK_OK(ep_operation_run(self, buffers, operation));
        return 0;
    }
    snprintf(text, sizeof text,
             "staging_slot_bytes is %llu; a row of all planes with its top-k data "
             "takes %llu between nodes",
             (unsigned long long)round_up(slot_bytes), (unsigned long long)needed);
    CHECK_ERROR(ep_operation_run(self, buffers, operation), WEFT_ERROR_INVALID_ARGUMENT, text);
    return 0;
}

/* An ep after the other, with slots from a byte on. */
static int try_slots(struct ranks_context *context)
{
    const uint64_t row_bytes = round_up(HIDDEN * sizeof(float));
    const uint64_t of_sum = 64 + round_up(3 * 4) + row_bytes;
    const uint64_t of_token = 64 + round_up(8 + 8 * 2 + 8 * 3) + row_bytes;
    const uint64_t slot_bytes[] = {1, 64, of_sum - 16, of_sum - 15, of_token - 16, of_token};
    struct ep_world *world = context->argument;
    struct ep_rank self;
    if (ep_rank_open(&self, context, 2, 1 << 20))
        return 1;
    for (int i = 0; i < 6; i++) {
        struct ep_buffers buffers;
        struct ep_world tight = *world;
        tight.spec.staging_slot_bytes = slot_bytes[i];
        if (ep_rank_enter(&self, &tight) || ep_route(&self) ||
            ep_buffers_create(&self, HIDDEN, &buffers) ||
            try_slot(&self, &buffers, EP_COMBINE, of_sum) ||
            try_slot(&self, &buffers, EP_DISPATCH, of_token) ||
            try_slot(&self, &buffers, EP_COMBINE, of_sum) || ep_buffers_destroy(&self, &buffers) ||
            ep_rank_leave(&self))
            return 1;
    }
    return ep_rank_close(&self);
}

TEST_OVER(slots_that_are_too_small_are_refused, "auto")
{
    struct ep_case spec = usual;
    spec.num_ranks = 4;
    spec.num_nodes = 2;
    assert_int_equal(ep_case_run(&spec, RANKS_THREADS, try_slots), 0);
}

/* ---------------------------------------------------------------- configs that are wrong */

TEST_ON_RANKS_OVER(wires_that_are_wrong, "auto", RANKS_THREADS, 2)
{
    struct ep_rank self;
    weft_ep_config config = WEFT_INIT(weft_ep_config);
    if (ep_rank_open(&self, context, 2, 4096))
        return 1;
    config.num_experts = 8;
    config.combine_wire = WEFT_FP64;
    CHECK_ERROR(weft_ep_create(self.comm, &config, &self.ep), WEFT_ERROR_INVALID_ARGUMENT,
                "combine_wire is WEFT_FP64 (6), allowed are WEFT_DTYPE_NONE (0), WEFT_BF16 "
                "(3), WEFT_FP16 (4) and WEFT_FP32 (5)");
    config.combine_wire = context->rank == 1 ? WEFT_FP32 : 0;
    CHECK_ERROR(weft_ep_create(self.comm, &config, &self.ep), WEFT_ERROR_MISMATCH,
                "ranks disagree on combine_wire: ");
    CHECK_ERROR(weft_ep_create(self.comm, &config, &self.ep), WEFT_ERROR_MISMATCH, "WEFT_FP32 on ");
    self.ep = NULL;
    return ep_rank_close(&self);
}
