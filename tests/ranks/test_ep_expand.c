/* SPDX-License-Identifier: MIT */
/* The expanded layout: rows packed by local expert, and their sums. (Every trial of dispatch with
 * ids expands and reduces, too: ep_check_expand.c.) */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/memory.h"
#include "oracle/ep_trials.h"

static const int32_t alignments[] = {1, 8, 128};
static const int32_t topks[] = {1, 8, 32};
enum { NUM_ALIGNMENTS = 3, NUM_TOPKS = 3 };

static void add_shapes(struct ep_trials *trials, enum ep_routing routing, enum ep_tokens tokens)
{
    for (int i = 0; i < NUM_ALIGNMENTS * NUM_TOPKS; i++) {
        const struct ep_case spec = {.seed = (uint64_t)(100 * routing + 10 * tokens + i),
                                     .max_tokens = 19,
                                     .num_topk = topks[i / NUM_ALIGNMENTS],
                                     .num_experts = 40 * trials->num_ranks,
                                     .expert_alignment = alignments[i % NUM_ALIGNMENTS],
                                     .order = (weft_ep_order)(i % 2),
                                     .tokens = tokens,
                                     .routing = routing,
                                     .placement = (enum ep_placement)(i % EP_NUM_PLACEMENTS),
                                     .num_blocks = 1 + i % 3,
                                     .num_warps = 1 + i % 4};
        struct ep_trial *trial = ep_trials_add(trials, &spec);
        trial->dispatch.expanded_capacity = i % 2 == 0 ? EP_CAPACITY_EXACT : EP_CAPACITY_MORE;
        trial->dispatch.planes[0] =
            (struct ep_plane_shape){.row_bytes = 256,
                                    .dtype = WEFT_BF16,
                                    .quantisation = {WEFT_FP8_E4M3, WEFT_SCALE_FP32, 32}};
        if (i % 3 == 0)
            trial->dispatch.planes[0] = (struct ep_plane_shape){.row_bytes = 1 + 411 * (uint64_t)i};
    }
}

static void run_shapes(struct ep_trials *trials)
{
    for (int routing = 0; routing < EP_NUM_ROUTINGS; routing++)
        add_shapes(trials, (enum ep_routing)routing,
                   (enum ep_tokens)(1 + routing % (EP_NUM_TOKENS - 1)));
}

TEST_CALL(shapes_on_one_node,
          RUN_TRIALS(run_shapes, IN_THREADS(1, .last = 7, .step = 3), IN_PROCESSES(3)))

TEST_OVER(shapes_over_nodes, "auto")
{
    RUN_TRIALS(run_shapes, IN_THREADS(4, .num_nodes = 2));
}

/* So many local experts that their choices are counted in fewer chunks than there are warps. */
TEST_OF_TRIALS(many_experts, IN_THREADS(2))
{
    for (int32_t num_experts = 1 << 12; num_experts <= 1 << 14; num_experts <<= 2) {
        const struct ep_case spec = {.seed = 3,
                                     .max_tokens = 9,
                                     .num_topk = 4,
                                     .num_experts = num_experts,
                                     .num_blocks = 4,
                                     .num_warps = 16};
        ep_trials_add(trials, &spec);
    }
}

/* ---------------------------------------------------------------- combine by choice */

/* Every sum of these shows its order. */
static void combine_by_choice(struct ep_trials *trials)
{
    for (int i = 0; i < 4 * EP_NUM_ROUTINGS; i++) {
        const struct ep_case spec = {.seed = (uint64_t)i,
                                     .max_tokens = 30,
                                     .num_topk = 2 + 10 * (i % 4),
                                     .num_experts = 50,
                                     .order = WEFT_ORDER_BY_CHOICE,
                                     .tokens = EP_TOKENS_RAGGED,
                                     .routing = (enum ep_routing)(i / 4),
                                     .placement = (enum ep_placement)(i % EP_NUM_PLACEMENTS),
                                     .staging_bytes = i % 2 == 0 ? 0 : EP_STAGING_OF_FEW,
                                     .reach = i % 2 == 0 ? EP_REACH_HEAP : EP_REACH_DIFFERS};
        ep_trials_add(trials, &spec)->combine =
            ep_combine_shape_of((weft_dtype)(WEFT_BF16 + i % 3), 17);
    }
}

TEST_CALL(by_choice_on_one_node,
          RUN_TRIALS(combine_by_choice, IN_THREADS(5), IN_THREADS(8), IN_PROCESSES(4)))

TEST_OVER(by_choice_over_nodes, "auto")
{
    RUN_TRIALS(combine_by_choice, IN_THREADS(6, .num_nodes = 2), IN_PROCESSES(6, .num_nodes = 3));
}

/* ---------------------------------------------------------------- capacity */

/* Rows that expand has had no room for, of a rank. */
static int32_t num_without_row(const struct ep_world *world, int32_t rank, int32_t capacity)
{
    const struct ep_received *received = &world->received[rank];
    const int32_t num_rows = ep_oracle_num_expanded_rows(&world->problem, rank);
    struct ep_expanded_row *rows = tests_alloc(sizeof *rows * ((size_t)num_rows + 1));
    int32_t num_dropped = 0;
    ep_oracle_expand(&world->problem, rank, received, received->num_rows, rows);
    for (int32_t row = capacity; row < num_rows; row++)
        num_dropped += rows[row].row >= 0;
    tests_free(rows);
    return num_dropped;
}

static int expand_into_less(struct ranks_context *context)
{
    const struct ep_world *world = context->argument;
    const int32_t num_rows = ep_oracle_num_expanded_rows(&world->problem, context->rank);
    struct ep_dispatch_shape shape = ep_dispatch_shape_of(48);
    struct ep_rank self;
    int32_t expected = 0, num_dropped = -1;
    if (ep_rank_open(&self, context, 0, 1 << 20) || ep_rank_enter(&self, world) || ep_route(&self))
        return 1;
    for (int i = 0; i < EP_CAPACITY_BY_RANK; i++) {
        shape.expanded_capacity = (enum ep_capacity)i;
        shape.round = (uint64_t)i;
        if (ep_check_dispatch(&self, &shape))
            return 1;
        const int32_t dropped = i == EP_CAPACITY_LESS
                                    ? num_without_row(world, context->rank, num_rows / 2)
                                : i == EP_CAPACITY_ZERO ? num_without_row(world, context->rank, 0)
                                                        : 0;
        expected = dropped > expected ? dropped : expected;
        if (expected == 0)
            CHECK_OK(weft_ep_check(self.handle, &num_dropped));
        else
            CHECK_ERROR(weft_ep_check(self.handle, &num_dropped), WEFT_ERROR_CAPACITY,
                        "expanded_capacity did not suffice for the");
        CHECK(num_dropped == expected, "%d dropped, not %d", num_dropped, expected);
    }
    if (ep_route(&self)) /* which forgets */
        return 1;
    CHECK_OK(weft_stream_synchronize(self.stream));
    CHECK_OK(weft_ep_check(self.handle, NULL));
    return ep_rank_leave(&self) || ep_rank_close(&self);
}

TEST(capacities)
{
    for (int routing = 0; routing < EP_NUM_ROUTINGS; routing++) {
        const struct ep_case spec = {.seed = 5,
                                     .num_ranks = 3,
                                     .max_tokens = 12,
                                     .num_topk = 4,
                                     .num_experts = 10,
                                     .expert_alignment = 8,
                                     .routing = (enum ep_routing)routing};
        assert_int_equal(ep_case_run(&spec, RANKS_THREADS, expand_into_less), 0);
    }
}

/* ---------------------------------------------------------------- rows of another origin */

enum { OWN_ROWS = 70, OWN_TOPK = 3, OWN_EXPERTS = 5, OWN_ALIGNMENT = 4 };

/* What is expected of ids, by plain loops. */
struct own_blocks {
    int32_t selections[OWN_EXPERTS], rows[OWN_EXPERTS], firsts[OWN_EXPERTS], num_rows;
    int32_t choice_rows[OWN_ROWS * OWN_TOPK];
};

static void find_blocks(const int32_t *ids, struct own_blocks *blocks)
{
    *blocks = (struct own_blocks){.num_rows = 0};
    for (int32_t i = 0; i < OWN_ROWS * OWN_TOPK; i++)
        blocks->choice_rows[i] = -1;
    for (int32_t expert = 0; expert < OWN_EXPERTS; expert++) {
        blocks->firsts[expert] = blocks->num_rows;
        for (int32_t i = 0; i < OWN_ROWS * OWN_TOPK; i++)
            if (ids[i] == expert)
                blocks->choice_rows[i] = blocks->num_rows + blocks->selections[expert]++;
        blocks->rows[expert] =
            (blocks->selections[expert] + OWN_ALIGNMENT - 1) / OWN_ALIGNMENT * OWN_ALIGNMENT;
        blocks->num_rows += blocks->rows[expert];
    }
}

static int compare_counts(struct ep_rank *self, const struct own_blocks *blocks)
{
    int32_t found[3][OWN_EXPERTS], num_rows;
    weft_ep_device_counts counts = WEFT_INIT(weft_ep_device_counts);
    CHECK_OK(weft_ep_query_device_counts(self->handle, &counts));
    CHECK_OK(
        weft_memory_copy(self->comm, found[0], counts.num_selections_per_expert, sizeof found[0]));
    CHECK_OK(weft_memory_copy(self->comm, found[1], counts.num_recv_per_expert, sizeof found[1]));
    CHECK_OK(weft_memory_copy(self->comm, found[2], counts.first_row_per_expert, sizeof found[2]));
    CHECK_OK(weft_memory_copy(self->comm, &num_rows, counts.num_expanded_rows, sizeof num_rows));
    CHECK(num_rows == blocks->num_rows, "%d rows", num_rows);
    return ep_compare(self, found[0], blocks->selections, sizeof found[0], "selections", 0) ||
           ep_compare(self, found[1], blocks->rows, sizeof found[1], "rows", 0) ||
           ep_compare(self, found[2], blocks->firsts, sizeof found[2], "first rows", 0);
}

/* With other ids each time: no layout, no notify. */
static int expand_own_rows(struct ranks_context *context)
{
    struct ep_rank self;
    struct ep_array ids, choice_rows;
    struct own_blocks blocks;
    if (ep_rank_open(&self, context, 0, 1 << 20) || ep_rank_enter(&self, context->argument))
        return 1;
    for (int32_t round = 0; round < 3; round++) {
        if (ep_array_alloc(&self, &ids, EP_INPUT, OWN_ROWS * OWN_TOPK * 4, 0) ||
            ep_array_alloc(&self, &choice_rows, EP_OWN, OWN_ROWS * OWN_TOPK * 4, 0))
            return 1;
        for (int32_t i = 0; i < OWN_ROWS * OWN_TOPK; i++)
            ((int32_t *)ids.host)[i] = (i * i + round + context->rank) % (OWN_EXPERTS + 3) - 1;
        find_blocks(ids.host, &blocks);
        weft_ep_expand_args args = WEFT_INIT(weft_ep_expand_args);
        args.capacity = OWN_ROWS;
        args.expanded_capacity = blocks.num_rows;
        args.index_type = WEFT_INT32;
        args.recv_topk_idx = ids.data;
        args.choice_rows = choice_rows.data;
        if (ep_array_push(&self, &ids))
            return 1;
        CHECK_OK(weft_ep_expand(self.handle, &args, self.stream));
        CHECK_OK(weft_stream_synchronize(self.stream));
        CHECK_OK(weft_ep_check(self.handle, NULL));
        if (compare_counts(&self, &blocks) || ep_array_pull(&self, &choice_rows) ||
            ep_compare(&self, choice_rows.host, blocks.choice_rows, sizeof blocks.choice_rows,
                       "choice_rows", round) ||
            ep_array_free(&self, &ids) ||
            ep_array_check_and_free(&self, &choice_rows, "choice_rows"))
            return 1;
    }
    return ep_rank_leave(&self) || ep_rank_close(&self);
}

TEST(rows_without_dispatch)
{
    for (int32_t num_warps = 1; num_warps <= 16; num_warps += 5) {
        const struct ep_case spec = {.num_ranks = 2,
                                     .max_tokens = 1,
                                     .num_topk = OWN_TOPK,
                                     .num_experts = 2 * OWN_EXPERTS,
                                     .expert_alignment = OWN_ALIGNMENT,
                                     .num_blocks = 2,
                                     .num_warps = num_warps};
        assert_int_equal(ep_case_run(&spec, RANKS_THREADS, expand_own_rows), 0);
    }
}

/* ---------------------------------------------------------------- refusals */

static int refuse(struct ranks_context *context)
{
    struct ep_rank self;
    int32_t rows[4];
    float floats[4];
    if (ep_rank_open(&self, context, 0, 1 << 20) || ep_rank_enter(&self, context->argument))
        return 1;
    weft_ep_expand_args expand = WEFT_INIT(weft_ep_expand_args);
    weft_ep_layout_args layout;
    expand.capacity = INT32_MAX / 2;
    CHECK_ERROR(weft_ep_expand(self.handle, &expand, self.stream), WEFT_ERROR_INVALID_ARGUMENT,
                "capacity is 1073741823, allowed are 0..1073217535");
    if (ep_layout_args(&self, &layout))
        return 1;
    CHECK_OK(weft_ep_layout(self.handle, &layout, self.stream));
    CHECK_ERROR(weft_ep_expand(self.handle, &expand, self.stream), WEFT_ERROR_INVALID_ARGUMENT,
                "weft_ep_notify must be called");
    CHECK_OK(weft_ep_notify(self.handle, self.stream));
    expand.capacity = 1;
    expand.choice_rows = rows;
    CHECK_ERROR(weft_ep_expand(self.handle, &expand, self.stream), WEFT_ERROR_INVALID_ARGUMENT,
                "recv_topk_idx is NULL, allowed only after a weft_ep_expand that had it");
    weft_plane plane = WEFT_INIT(weft_plane);
    plane.src = floats;
    plane.row_bytes = 4;
    plane.quantisation.dtype = WEFT_INT8;
    expand.planes = &plane;
    expand.num_planes = 1;
    CHECK_ERROR(weft_ep_expand(self.handle, &expand, self.stream), WEFT_ERROR_INVALID_ARGUMENT,
                "planes[0]: its scales and the fields behind must be 0");
    weft_ep_reduce_args reduce = WEFT_INIT(weft_ep_reduce_args);
    reduce.hidden = 1;
    reduce.dtype = WEFT_FP16;
    reduce.out_dtype = WEFT_BF16;
    CHECK_ERROR(weft_ep_reduce(self.handle, &reduce, self.stream), WEFT_ERROR_INVALID_ARGUMENT,
                "out_dtype is WEFT_BF16 (3), allowed are dtype, which is WEFT_FP16, WEFT_FP32 and");
    reduce.out_dtype = WEFT_DTYPE_NONE;
    reduce.capacity = reduce.expanded_capacity = 1;
    void *memory;
    CHECK_OK(weft_memory_alloc(self.comm, 4096, &memory));
    reduce.rows = reduce.out = memory;
    reduce.choice_rows = (int32_t *)memory + 512;
    CHECK_ERROR(weft_ep_reduce(self.handle, &reduce, self.stream), WEFT_ERROR_INVALID_ARGUMENT,
                "overlap");
    CHECK_OK(weft_memory_free(self.comm, memory));
    return ep_rank_leave(&self) || ep_rank_close(&self);
}

TEST(what_is_wrong_is_refused)
{
    const struct ep_case spec = {.num_ranks = 1, .max_tokens = 4, .num_topk = 2, .num_experts = 3};
    assert_int_equal(ep_case_run(&spec, RANKS_THREADS, refuse), 0);
}

/* Rows are counted in 32 bits, with all gaps. */
static int refuse_gaps(struct ranks_context *context)
{
    struct ep_rank self;
    weft_ep_expand_args expand = WEFT_INIT(weft_ep_expand_args);
    if (ep_rank_open(&self, context, 0, 1 << 20) || ep_rank_enter(&self, context->argument) ||
        ep_route(&self))
        return 1;
    CHECK_ERROR(
        weft_ep_expand(self.handle, &expand, self.stream), WEFT_ERROR_INVALID_ARGUMENT,
        "expert_alignment of 1048576 makes gaps of up to 2097150 rows behind the 2 experts");
    return ep_rank_leave(&self) || ep_rank_close(&self);
}

TEST(gaps_that_are_too_large_are_refused)
{
    const struct ep_case spec = {.num_ranks = 1,
                                 .max_tokens = 4,
                                 .num_topk = 2,
                                 .num_experts = 2,
                                 .expert_alignment = 1 << 20};
    assert_int_equal(ep_case_run(&spec, RANKS_THREADS, refuse_gaps), 0);
}
