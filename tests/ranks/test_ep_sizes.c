/* SPDX-License-Identifier: MIT */
/* weft_ep_query_sizes: an arena of the size it tells holds the outputs of the worst case, and one
 * that is a byte smaller does not; memory over several nodes is as the formulas of docs/network.md
 * have it. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_trials.h"
#include "workload/ep_oracle.h"

static const struct ep_case usual = {.seed = 70,
                                     .num_ranks = 3,
                                     .max_tokens = 9,
                                     .num_topk = 3,
                                     .num_experts = 6,
                                     .tokens = EP_TOKENS_EQUAL};

struct outputs {
    uint64_t bytes[WEFT_MAX_PLANES + 3];
    int num_outputs;
};

/* In the order in which weft_ep_sizes names them. */
static struct outputs outputs_of(const weft_ep_size_args *args, int64_t num_rows)
{
    struct outputs outputs = {.num_outputs = 0};
    const uint64_t rows = (uint64_t)num_rows;
    const uint64_t num_choices = rows * (uint64_t)args->num_topk;
    for (int32_t plane = 0; plane < args->num_planes; plane++)
        outputs.bytes[outputs.num_outputs++] = rows * args->plane_row_bytes[plane];
    if (args->with_topk) {
        outputs.bytes[outputs.num_outputs++] =
            num_choices * (args->index_type == WEFT_INT32 ? 4 : 8);
        outputs.bytes[outputs.num_outputs++] = num_choices * 4;
    }
    if (args->with_src_token)
        outputs.bytes[outputs.num_outputs++] = rows * 4;
    return outputs;
}

/* How many of the outputs an arena of arena_bytes (the same on all ranks) holds. */
static int allocate(struct ep_rank *self, const struct outputs *outputs, uint64_t arena_bytes,
                    int *num_allocated, weft_result *next_byte)
{
    weft_arena *arena;
    void *memory;
    *num_allocated = 0;
    CHECK_OK(weft_arena_create(self->comm, arena_bytes, &arena));
    while (*num_allocated < outputs->num_outputs &&
           weft_arena_alloc(arena, outputs->bytes[*num_allocated], &memory) == WEFT_OK)
        ++*num_allocated;
    *next_byte = weft_arena_alloc(arena, 1, &memory);
    CHECK_OK(weft_arena_destroy(arena));
    return 0;
}

/* The last rank's answer is used by all, since creating an arena is collective. */
static int check_arena(struct ep_rank *self, const weft_ep_size_args *args,
                       const weft_ep_sizes *sizes)
{
    weft_ep_sizes all[RANKS_MAX];
    CHECK_OK(weft_comm_host_all_gather(self->comm, sizes, sizeof *sizes, all));
    const weft_ep_sizes *last = &all[self->context->num_ranks - 1];
    const struct outputs outputs = outputs_of(args, last->max_recv_tokens);
    int num_allocated;
    weft_result next_byte;
    if (last->arena_bytes == 0)
        return 0;
    if (allocate(self, &outputs, last->arena_bytes, &num_allocated, &next_byte))
        return 1;
    CHECK(num_allocated == outputs.num_outputs, "%d of %d outputs fit", num_allocated,
          outputs.num_outputs);
    CHECK(next_byte == WEFT_ERROR_OUT_OF_MEMORY, "something was left over");
    if (allocate(self, &outputs, last->arena_bytes - 1, &num_allocated, &next_byte))
        return 1;
    CHECK(num_allocated < outputs.num_outputs, "all fit in a byte less");
    return 0;
}

static int check_max_recv_tokens(struct ep_rank *self, const weft_ep_size_args *args,
                                 int64_t max_recv_tokens)
{
    const int64_t expected = ep_experts_max_recv_tokens(&self->world->experts, self->context->rank,
                                                        args->max_tokens_per_rank);
    CHECK(max_recv_tokens == expected, "max_recv_tokens is %lld, not %lld",
          (long long)max_recv_tokens, (long long)expected);
    return 0;
}

/* All choices that can be local ones, and behind each expert a gap. */
static int check_max_expanded_rows(struct ep_rank *self, const weft_ep_size_args *args,
                                   const weft_ep_sizes *sizes)
{
    const int32_t num_local = self->world->problem.num_local_experts[self->context->rank];
    const int32_t num_choices = args->num_topk < num_local ? args->num_topk : num_local;
    const int64_t expected =
        sizes->max_recv_tokens * num_choices +
        (args->expert_alignment == 0 ? 0 : args->expert_alignment - 1) * (int64_t)num_local;
    CHECK(sizes->max_expanded_rows == expected, "max_expanded_rows is %lld, not %lld",
          (long long)sizes->max_expanded_rows, (long long)expected);
    return 0;
}

static int check_size(struct ep_rank *self, const weft_ep_size_args *args)
{
    weft_ep_sizes sizes = WEFT_INIT(weft_ep_sizes);
    CHECK_OK(weft_ep_query_sizes(self->ep, args, &sizes));
    return check_max_expanded_rows(self, args, &sizes) ||
           check_max_recv_tokens(self, args, sizes.max_recv_tokens) ||
           check_arena(self, args, &sizes);
}

static int check_sizes(struct ranks_context *context)
{
    static const uint64_t row_bytes[] = {1, 7168, 16, 33, 256, 1000, 4, 14336};
    struct ep_rank self;
    if (ep_rank_open(&self, context, 0, 1 << 20) || ep_rank_enter(&self, context->argument))
        return 1;
    for (int32_t num_planes = 0; num_planes <= WEFT_MAX_PLANES; num_planes++)
        for (int i = 0; i < 8; i++) {
            weft_ep_size_args args = WEFT_INIT(weft_ep_size_args);
            args.max_tokens_per_rank = i == 7 ? 0 : 1 + 5 * i;
            args.num_topk = self.world->spec.num_topk;
            args.num_planes = num_planes;
            args.plane_row_bytes = num_planes == 0 ? NULL : row_bytes;
            args.index_type = num_planes % 2 == 0 ? WEFT_INT32 : WEFT_INT64;
            args.with_topk = i & 1;
            args.with_src_token = i >> 1 & 1;
            args.expert_alignment = 5 * (i % 3);
            if (check_size(&self, &args))
                return 1;
        }
    return ep_rank_leave(&self) || ep_rank_close(&self);
}

TEST_CALL(arenas_fit_exactly, assert_int_equal(ep_case_run(&usual, RANKS_THREADS, check_sizes), 0))

/* A rank without experts gets nothing. */
TEST(with_other_placements)
{
    for (int placement = 0; placement < EP_NUM_PLACEMENTS; placement++) {
        struct ep_case spec = usual;
        spec.placement = (enum ep_placement)placement;
        spec.num_experts = 2;
        assert_int_equal(ep_case_run(&spec, RANKS_THREADS, check_sizes), 0);
    }
}

/* The heap pays for a weft_ep what sizes.heap_bytes says, and gets it back. */
static int check_heap_bytes(struct ranks_context *context)
{
    struct ep_rank self;
    weft_heap_info before = WEFT_INIT(weft_heap_info), with_ep = WEFT_INIT(weft_heap_info),
                   after = WEFT_INIT(weft_heap_info);
    weft_ep_sizes sizes = WEFT_INIT(weft_ep_sizes);
    if (ep_rank_open(&self, context, 0, 1 << 20))
        return 1;
    CHECK_OK(weft_heap_query(self.comm, &before));
    if (ep_rank_enter(&self, context->argument))
        return 1;
    CHECK_OK(weft_heap_query(self.comm, &with_ep));
    CHECK_OK(weft_ep_query_sizes(self.ep, WEFT_ARGS(weft_ep_size_args, .num_topk = 1), &sizes));
    const uint64_t spent = with_ep.used_bytes - before.used_bytes;
    CHECK(spent >= sizes.heap_bytes && spent < sizes.heap_bytes + 256, "%llu bytes, told %llu",
          (unsigned long long)spent, (unsigned long long)sizes.heap_bytes);
    if (ep_rank_leave(&self))
        return 1;
    CHECK_OK(weft_heap_query(self.comm, &after));
    CHECK(after.used_bytes == before.used_bytes, "%llu bytes were not given back",
          (unsigned long long)(after.used_bytes - before.used_bytes));
    return ep_rank_close(&self);
}

TEST_CALL(heap_is_given_back,
          assert_int_equal(ep_case_run(&usual, RANKS_THREADS, check_heap_bytes), 0))

/* Sizes beyond what 64 bits tell are refused, not wrapped. */
static int ask_for_too_much(struct ranks_context *context)
{
    const uint64_t row_bytes[WEFT_MAX_PLANES] = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX,
                                                 INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
    struct ep_rank self;
    weft_ep_sizes sizes = WEFT_INIT(weft_ep_sizes);
    if (ep_rank_open(&self, context, 0, 1 << 20) || ep_rank_enter(&self, context->argument))
        return 1;
    const weft_result result = weft_ep_query_sizes(
        self.ep,
        WEFT_ARGS(weft_ep_size_args, .max_tokens_per_rank = INT32_MAX, .num_topk = 1,
                  .num_planes = WEFT_MAX_PLANES, .plane_row_bytes = row_bytes),
        &sizes);
    CHECK(result == WEFT_ERROR_INVALID_ARGUMENT ||
              (result == WEFT_OK &&
               sizes.arena_bytes / INT32_MAX >= (uint64_t)WEFT_MAX_PLANES * INT32_MAX),
          "%s", weft_result_string(result));
    return ep_rank_leave(&self) || ep_rank_close(&self);
}

TEST(too_much)
{
    struct ep_case spec = usual;
    spec.num_ranks = 1;
    assert_int_equal(ep_case_run(&spec, RANKS_THREADS, ask_for_too_much), 0);
}

/* ---------------------------------------------------------------- over several nodes */

static uint64_t round_up(uint64_t bytes, uint64_t multiple)
{
    return (bytes + multiple - 1) / multiple * multiple;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* As docs/network.md names them. */
struct letters {
    uint64_t R, D, L, C, S, B;
    uint64_t E, E_most, E_rank; /* in all, of the rank with most, of this rank */
    uint64_t K, T, N, W, G;
};

static struct letters letters_of(const struct ep_rank *self, uint64_t max_tokens)
{
    const struct ep_case *spec = &self->world->spec;
    const int32_t num_local = spec->num_ranks / spec->num_nodes;
    struct letters n = {
        .R = (uint64_t)spec->num_ranks,
        .D = (uint64_t)spec->num_nodes,
        .L = (uint64_t)num_local,
        .C = spec->num_channels != 0 ? (uint64_t)spec->num_channels
             : tests_on_cuda()       ? 4
                                     : 1,
        .S = spec->num_staging_slots == 0 ? 8 : (uint64_t)spec->num_staging_slots,
        .B = spec->staging_slot_bytes == 0 ? 64 << 10 : round_up(spec->staging_slot_bytes, 16),
        .E_rank = (uint64_t)weft_ep_num_local_experts(self->ep, self->context->rank),
        .K = (uint64_t)spec->num_topk,
        .T = max_tokens,
        .G = spec->staging_bytes,
        .N = (uint64_t)spec->num_blocks,
        .W = (uint64_t)spec->num_warps,
    };
    for (int32_t rank = 0; rank < spec->num_ranks; rank++) {
        const uint64_t of_rank = (uint64_t)weft_ep_num_local_experts(self->ep, rank);
        n.E += of_rank;
        n.E_most = of_rank > n.E_most ? of_rank : n.E_most;
    }
    return n;
}

static uint64_t expected_network_bytes(const struct letters *n)
{
    return 2 * (n->D - 1) * n->C * n->S * (n->B + 8) + 16 * n->D +
           4 * n->D * round_up(64 + 4 * (n->R + n->L * n->E_most), 16);
}

static uint64_t expected_heap_bytes(const struct letters *n)
{
    const uint64_t num_blocks = n->N + 1 + round_up(2 * (n->D - 1) * n->C, n->W) / n->W;
    return 512 * n->L + round_up(8 * n->L * num_blocks, 256) + 8 * n->R * (n->R + 1 + n->E_most) +
           n->G + round_up(n->G, 64) / 16;
}

static uint64_t expected_sum_bytes(const struct letters *n)
{
    return n->B * ((n->D - 1) * n->C + n->N * n->W + (n->W > 8 ? n->W : 8) - 1);
}

/* Of the choices that are counted to expand rows. */
static uint64_t expert_chunks(const struct letters *n)
{
    const uint64_t most = n->E_rank > 0 ? (1 << 18) / n->E_rank : 1;
    return most < 1 ? 1 : least(most, n->N * n->W);
}

static uint64_t expected_handle_bytes(const struct letters *n)
{
    const uint64_t tables[] = {8 * n->T * least(n->K, n->R),
                               4 * n->N * n->W * n->R,
                               4 * n->N * n->W * n->D,
                               4 * n->R,
                               4 * n->R,
                               4 * n->R,
                               4 * n->R,
                               4 * n->R,
                               4 * n->R,
                               4 * n->E,
                               4 * n->E,
                               4,
                               4 * n->E_rank,
                               4 * n->E_rank,
                               4 * n->E_rank,
                               4,
                               8,
                               4 * n->E_rank,
                               4 * n->E_rank * expert_chunks(n),
                               4 * n->D,
                               8,
                               4,
                               8 * n->T * least(n->K, n->D),
                               4 * n->D,
                               4 * n->D * n->T,
                               4 * n->R,
                               8 * n->D * n->T * least(n->K, n->L),
                               4};
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        bytes += round_up(tables[i], 64);
    return bytes;
}

static int check_memory(struct ep_rank *self, int32_t max_tokens, uint64_t row_bytes)
{
    weft_ep_sizes sizes = WEFT_INIT(weft_ep_sizes);
    CHECK_OK(weft_ep_query_sizes(self->ep,
                                 WEFT_ARGS(weft_ep_size_args, .max_tokens_per_rank = max_tokens,
                                           .num_topk = self->world->spec.num_topk, .num_planes = 1,
                                           .plane_row_bytes = &row_bytes),
                                 &sizes));
    const struct letters n = letters_of(self, (uint64_t)max_tokens);
    CHECK(sizes.network_bytes == expected_network_bytes(&n), "network_bytes is %llu, not %llu",
          (unsigned long long)sizes.network_bytes, (unsigned long long)expected_network_bytes(&n));
    CHECK(sizes.heap_bytes == expected_heap_bytes(&n), "heap_bytes is %llu, not %llu",
          (unsigned long long)sizes.heap_bytes, (unsigned long long)expected_heap_bytes(&n));
    const uint64_t sum_bytes =
        self->world->spec.wire == WEFT_DTYPE_NONE ? 0 : expected_sum_bytes(&n);
    CHECK(sizes.sum_bytes == sum_bytes, "sum_bytes is %llu, not %llu",
          (unsigned long long)sizes.sum_bytes, (unsigned long long)sum_bytes);
    CHECK(sizes.handle_bytes == expected_handle_bytes(&n), "handle_bytes is %llu, not %llu",
          (unsigned long long)sizes.handle_bytes, (unsigned long long)expected_handle_bytes(&n));
    return 0;
}

/* On cpu the heap pays for both kinds. */
static int check_node_sizes(struct ranks_context *context)
{
    const struct ep_world *world = context->argument;
    struct ep_rank self;
    weft_heap_info before = WEFT_INIT(weft_heap_info), with_ep = WEFT_INIT(weft_heap_info);
    weft_ep_sizes sizes = WEFT_INIT(weft_ep_sizes);
    if (ep_rank_open(&self, context, world->spec.num_nodes, 1 << 20))
        return 1;
    CHECK_OK(weft_heap_query(self.comm, &before));
    if (ep_rank_enter(&self, world))
        return 1;
    CHECK_OK(weft_heap_query(self.comm, &with_ep));
    CHECK_OK(weft_ep_query_sizes(self.ep, WEFT_ARGS(weft_ep_size_args, .num_topk = 1), &sizes));
    const uint64_t spent = with_ep.used_bytes - before.used_bytes;
    const uint64_t told = sizes.heap_bytes + sizes.network_bytes;
    CHECK(weft_comm_machine(self.comm) != WEFT_MACHINE_CPU ||
              (spent >= told && spent < told + 3 * (uint64_t)256),
          "%llu bytes, told %llu", (unsigned long long)spent, (unsigned long long)told);
    return check_memory(&self, 1, 1) || check_memory(&self, 100, 14336) ||
           check_memory(&self, 4096, 33) || ep_rank_leave(&self) || ep_rank_close(&self);
}

TEST_OVER(memory_over_nodes, "auto")
{
    const int32_t shapes[][2] = {{2, 1}, {2, 2}, {3, 2}, {8, 1}}; /* nodes of ranks */
    for (int i = 0; i < 8; i++) {
        struct ep_case spec = usual;
        spec.num_nodes = shapes[i % 4][0];
        spec.num_ranks = shapes[i % 4][0] * shapes[i % 4][1];
        spec.num_experts = 5 + 9 * i;
        spec.num_topk = 1 + i;
        spec.placement = (enum ep_placement)(i % EP_NUM_PLACEMENTS);
        spec.num_blocks = 1 + i % 2;
        spec.num_warps = 1 + i % 3;
        spec.wire = wire_dtypes[i % NUM_WIRES];
        spec.num_channels = i % 3;
        spec.num_staging_slots = i % 4;
        spec.staging_bytes = (uint64_t)i * 1001;
        spec.staging_slot_bytes = i < 2 ? 0 : 1000 * (uint64_t)i;
        assert_int_equal(ep_case_run(&spec, RANKS_THREADS, check_node_sizes), 0);
    }
}
