/* SPDX-License-Identifier: MIT */
/* Copies of experts for a step: weft_ep_fetch_copies brings their weights and changes no other row,
 * weft_ep_reduce_copies adds their gradients to those of the owners, and weft_ep_choose_replicas
 * says where choices go; or there is an error. */
#include <stdlib.h>
#include <time.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "workload/convert.h"
#include "workload/rng.h"

/* A rank owns some of its replicas, one expert each; the others may be copies. */
enum { REPLICAS = 5, OWNED = 3, NUM_PLANES = 3, NUM_ROUNDS = 4, MOST_RANKS = 8 };
enum { MOST_REPLICAS = REPLICAS * MOST_RANKS, MOST_ELEMENTS = 5001, STAGING_BYTES = 3 << 14 };
enum { CONTENTS_BYTES = REPLICAS * MOST_ELEMENTS * 4 };
static const uint64_t num_elements[NUM_PLANES] = {1, 36, MOST_ELEMENTS};

struct seat {
    struct ranks_context *context;
    weft_comm *comm;
    weft_stream *stream;
    unsigned char *rows[NUM_PLANES]; /* [REPLICAS][row_bytes], in the heap */
    unsigned char *contents;         /* a copy of one of them */
    void *staging;
    int32_t base[MOST_REPLICAS], experts[MOST_REPLICAS];
    uint64_t element_bytes;
};

static int32_t num_replicas_of(const struct seat *seat)
{
    return seat->context->num_ranks * REPLICAS;
}

/* ---------------------------------------------------------------- placements */

static int is_owned(int32_t replica)
{
    return (replica % REPLICAS + replica / REPLICAS) % REPLICAS < OWNED;
}

/* Expert e is owned by the first of two replicas, or by one: some experts are owned twice. */
static int32_t owned_expert(int32_t replica)
{
    return replica % 7 == 6 && is_owned(replica - 6) ? replica - 6 : replica;
}

static int32_t draw_expert(struct rng *rng, int32_t num_replicas)
{
    int32_t replica;
    do
        replica = (int32_t)rng_below(rng, (uint32_t)num_replicas);
    while (!is_owned(replica));
    return owned_expert(replica);
}

/* The same on all ranks. Replicas that are not owned have an expert, another one, or none, before
 * and in the step. */
static void place(struct seat *seat, int round)
{
    struct rng rng = {rng_key(11, (uint64_t)round)};
    const int32_t num_replicas = num_replicas_of(seat);
    for (int32_t i = 0; i < num_replicas; i++) {
        const int32_t before = draw_expert(&rng, num_replicas),
                      after = draw_expert(&rng, num_replicas);
        const uint32_t kind = rng_below(&rng, 6);
        seat->base[i] = is_owned(i) ? owned_expert(i) : kind < 3 ? -1 : before;
        seat->experts[i] = is_owned(i) ? owned_expert(i) : kind == 0 || kind == 3 ? -1 : after;
    }
}

static int stays(const struct seat *seat, int32_t replica, int32_t expert)
{
    return seat->base[replica] == expert && seat->experts[replica] == expert;
}

static int32_t owner_of(const struct seat *seat, int32_t expert)
{
    int32_t owner = 0;
    while (!stays(seat, owner, expert))
        owner++;
    return owner;
}

/* ---------------------------------------------------------------- life */

static int open_seat(struct ranks_context *context, const weft_comm_config *config,
                     struct seat *seat)
{
    *seat = (struct seat){.context = context, .element_bytes = 1};
    CHECK_OK(ranks_comm_create(context, config, &seat->comm));
    CHECK_OK(weft_stream_create(seat->comm, &seat->stream));
    for (int plane = 0; plane < NUM_PLANES; plane++)
        CHECK_OK(weft_heap_alloc(seat->comm, REPLICAS * num_elements[plane] * sizeof(float),
                                 (void **)&seat->rows[plane]));
    CHECK_OK(weft_heap_alloc(seat->comm, STAGING_BYTES, &seat->staging));
    seat->contents = malloc(CONTENTS_BYTES);
    CHECK(seat->contents != NULL, "no memory");
    place(seat, 0);
    return 0;
}

/* The heap goes with the communicator: freeing from it would wait for ranks that have failed. */
static int close_seat(void *self)
{
    struct seat *seat = self;
    free(seat->contents);
    CHECK_OK(weft_stream_destroy(seat->stream));
    CHECK_OK(weft_comm_destroy(seat->comm));
    return 0;
}

static weft_result call(struct seat *seat,
                        weft_result (*function)(weft_comm *, const weft_ep_copies_args *,
                                                weft_stream *),
                        weft_ep_copies_args args)
{
    weft_plane planes[NUM_PLANES];
    for (int plane = 0; plane < NUM_PLANES; plane++)
        planes[plane] = (weft_plane){.size = sizeof(weft_plane),
                                     .dst = seat->rows[plane],
                                     .row_bytes = num_elements[plane] * seat->element_bytes};
    args.size = sizeof args;
    args.base = seat->base;
    args.experts = seat->experts;
    args.num_replicas = num_replicas_of(seat);
    args.num_planes = NUM_PLANES;
    args.planes = planes;
    return function(seat->comm, &args, seat->stream);
}

/* ---------------------------------------------------------------- weights */

static unsigned char weight_of(int32_t expert, int round, int plane)
{
    return (unsigned char)(expert < 0 ? 0xee : 1 + expert + 80 * plane + 31 * round);
}

static int fill(struct seat *seat, int round)
{
    for (int plane = 0; plane < NUM_PLANES; plane++) {
        for (int32_t local = 0; local < REPLICAS; local++)
            memset(seat->contents + (uint64_t)local * num_elements[plane],
                   weight_of(seat->base[seat->context->rank * REPLICAS + local], round, plane),
                   num_elements[plane]);
        CHECK_OK(weft_memory_copy(seat->comm, seat->rows[plane], seat->contents,
                                  REPLICAS * num_elements[plane]));
    }
    return 0;
}

/* Rows that are not copies are as fill has left them. */
static int check(struct seat *seat, const int32_t *experts, int round)
{
    for (int plane = 0; plane < NUM_PLANES; plane++) {
        CHECK_OK(weft_memory_copy(seat->comm, seat->contents, seat->rows[plane],
                                  REPLICAS * num_elements[plane]));
        for (uint64_t i = 0; i < REPLICAS * num_elements[plane]; i++) {
            const int32_t replica =
                seat->context->rank * REPLICAS + (int32_t)(i / num_elements[plane]);
            const int32_t expert = experts[replica] >= 0 ? experts[replica] : seat->base[replica];
            const int wanted = weight_of(expert, round, plane);
            CHECK(seat->contents[i] == wanted,
                  "round %d: plane %d, replica %d: byte %d is %d, not %d", round, plane, replica,
                  (int)(i % num_elements[plane]), seat->contents[i], wanted);
        }
    }
    return 0;
}

static void be_late(const struct seat *seat, int round)
{
    const struct timespec late = {0, 20000000};
    if (round % seat->context->num_ranks == seat->context->rank)
        nanosleep(&late, NULL);
}

/* One rank writes its weights late, and the others must wait for them. A rank whose operation has
 * finished overwrites them. */
static int fetch_round(struct seat *seat, int round)
{
    place(seat, round);
    be_late(seat, round);
    if (fill(seat, round))
        return 1;
    CHECK_OK(call(seat, weft_ep_fetch_copies, (weft_ep_copies_args){.size = 0}));
    CHECK_OK(weft_stream_synchronize(seat->stream));
    if (check(seat, seat->experts, round))
        return 1;
    return fill(seat, round + NUM_ROUNDS);
}

/* ---------------------------------------------------------------- gradients */

static float gradient_of(int round, int plane, int32_t replica, uint64_t element)
{
    struct rng rng = {rng_key(
        rng_key((uint64_t)round * NUM_PLANES + (uint64_t)plane, (uint64_t)replica), element)};
    return ((float)rng_below(&rng, 1 << 16) - 30000.0f) / (float)(1 + rng_below(&rng, 1000));
}

static uint32_t bits_of(weft_dtype dtype, float value)
{
    uint32_t bits;
    if (dtype == WEFT_BF16)
        return bf16_from_fp32(value);
    if (dtype == WEFT_FP16)
        return fp16_from_fp32(value);
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* As it is in memory. */
static float value_of(weft_dtype dtype, float value)
{
    if (dtype == WEFT_BF16)
        return fp32_from_bf16(bf16_from_fp32(value));
    return dtype == WEFT_FP16 ? fp32_from_fp16(fp16_from_fp32(value)) : value;
}

static void write_element(struct seat *seat, uint64_t at, uint32_t bits)
{
    memcpy(seat->contents + at * seat->element_bytes, &bits, seat->element_bytes);
}

static int fill_gradients(struct seat *seat, int round, weft_dtype dtype)
{
    for (int plane = 0; plane < NUM_PLANES; plane++) {
        for (uint64_t i = 0; i < REPLICAS * num_elements[plane]; i++)
            write_element(seat, i,
                          bits_of(dtype, gradient_of(round, plane,
                                                     seat->context->rank * REPLICAS +
                                                         (int32_t)(i / num_elements[plane]),
                                                     i % num_elements[plane])));
        CHECK_OK(weft_memory_copy(seat->comm, seat->rows[plane], seat->contents,
                                  REPLICAS * num_elements[plane] * seat->element_bytes));
    }
    return 0;
}

static float sum_of(const struct seat *seat, int round, weft_dtype dtype, int plane,
                    int32_t replica, uint64_t element)
{
    const int32_t expert = seat->experts[replica];
    float sum = value_of(dtype, gradient_of(round, plane, replica, element));
    if (expert < 0 || owner_of(seat, expert) != replica)
        return sum;
    for (int32_t i = 0; i < num_replicas_of(seat); i++)
        if (i != replica && seat->experts[i] == expert)
            sum += value_of(dtype, gradient_of(round, plane, i, element));
    return sum;
}

static int check_gradients(struct seat *seat, int round, weft_dtype dtype)
{
    for (int plane = 0; plane < NUM_PLANES; plane++) {
        CHECK_OK(weft_memory_copy(seat->comm, seat->contents, seat->rows[plane],
                                  REPLICAS * num_elements[plane] * seat->element_bytes));
        for (uint64_t i = 0; i < REPLICAS * num_elements[plane]; i++) {
            const int32_t replica =
                seat->context->rank * REPLICAS + (int32_t)(i / num_elements[plane]);
            const uint32_t wanted =
                bits_of(dtype, sum_of(seat, round, dtype, plane, replica, i % num_elements[plane]));
            uint32_t bits = 0;
            memcpy(&bits, seat->contents + i * seat->element_bytes, seat->element_bytes);
            CHECK(bits == wanted, "round %d: plane %d, replica %d: element %d is %x, not %x", round,
                  plane, replica, (int)(i % num_elements[plane]), bits, wanted);
        }
    }
    return 0;
}

/* With staging for a few elements, and for all. */
static int reduce_round(struct seat *seat, int round)
{
    static const weft_dtype dtypes[] = {WEFT_FP32, WEFT_BF16, WEFT_FP16};
    const weft_dtype dtype = dtypes[round % 3];
    place(seat, round);
    seat->element_bytes = dtype == WEFT_FP32 ? 4 : 2;
    be_late(seat, round);
    if (fill_gradients(seat, round, dtype))
        return 1;
    CHECK_OK(call(seat, weft_ep_reduce_copies,
                  (weft_ep_copies_args){.dtype = dtype,
                                        .staging = seat->staging,
                                        .staging_bytes = round % 2 ? 1 << 13 : STAGING_BYTES}));
    CHECK_OK(weft_stream_synchronize(seat->stream));
    if (check_gradients(seat, round, dtype) || fill_gradients(seat, round + 9, dtype))
        return 1;
    seat->element_bytes = 1;
    return 0;
}

static int follow_steps(struct ranks_context *context)
{
    const int32_t *num_nodes = context->argument;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    struct seat seat;
    config.num_nodes = *num_nodes;
    if (open_seat(context, &config, &seat))
        return 1;
    for (int round = 0; round < NUM_ROUNDS; round++)
        if (fetch_round(&seat, round) || reduce_round(&seat, round))
            return 1;
    return close_seat(&seat);
}

static void run(enum ranks_mode mode, int32_t num_ranks, int32_t num_nodes)
{
    assert_int_equal(ranks_run(mode, num_ranks, follow_steps, &num_nodes), 0);
}

TEST(on_one_node)
{
    run(RANKS_THREADS, 1, 1);
    run(RANKS_THREADS, 4, 1);
    run(RANKS_PROCESSES, MOST_RANKS, 1);
}

TEST_OVER_ENGINES(over_nodes)
{
    run(RANKS_THREADS, 4, 2);
    run(RANKS_PROCESSES, 6, 3);
}

/* ---------------------------------------------------------------- choices */

enum { NUM_TOKENS = 40, NUM_TOPK = 3, NUM_EXPERTS = 6 };
enum { NUM_CHOICES = NUM_TOKENS * NUM_TOPK };

/* [NUM_CHOICES] of a type, as the call reads and writes them. */
static int64_t read_choice(const void *choices, weft_dtype type, int32_t i)
{
    return type == WEFT_INT64 ? ((const int64_t *)choices)[i] : ((const int32_t *)choices)[i];
}

static int choose(weft_comm *comm, weft_stream *stream, weft_dtype type, int is_in_place)
{
    const uint64_t bytes = NUM_CHOICES * (type == WEFT_INT64 ? 8 : 4);
    int32_t granules[NUM_EXPERTS * WEFT_BALANCE_GRANULES];
    int64_t given[NUM_CHOICES], written[NUM_CHOICES];
    void *topk_idx, *replica_idx, *table;
    struct rng rng = {rng_key(3, type)};
    for (int32_t i = 0; i < NUM_EXPERTS * WEFT_BALANCE_GRANULES; i++)
        granules[i] = (int32_t)rng_below(&rng, 1000);
    for (int32_t i = 0; i < NUM_CHOICES; i++) {
        const int64_t expert = (int64_t)rng_below(&rng, NUM_EXPERTS + 2) - 1;
        if (type == WEFT_INT64)
            given[i] = expert == NUM_EXPERTS ? INT64_C(1) << 32 : expert;
        else
            ((int32_t *)given)[i] = (int32_t)expert;
    }
    CHECK_OK(weft_memory_alloc(comm, bytes, &topk_idx));
    CHECK_OK(weft_memory_alloc(comm, bytes, &replica_idx));
    CHECK_OK(weft_memory_alloc(comm, sizeof granules, &table));
    CHECK_OK(weft_memory_copy(comm, topk_idx, given, bytes));
    CHECK_OK(weft_memory_copy(comm, table, granules, sizeof granules));
    const weft_ep_replicas_args args = {.size = sizeof args,
                                        .topk_idx = topk_idx,
                                        .replica_idx = is_in_place ? topk_idx : replica_idx,
                                        .granules = table,
                                        .index_type = type,
                                        .num_tokens = NUM_TOKENS,
                                        .num_topk = NUM_TOPK,
                                        .num_experts = NUM_EXPERTS};
    CHECK_OK(weft_ep_choose_replicas(comm, &args, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK_OK(weft_memory_copy(comm, written, args.replica_idx, bytes));
    for (int32_t i = 0; i < NUM_CHOICES; i++) {
        const int64_t expert = read_choice(given, type, i);
        const int32_t granule = (weft_comm_rank(comm) + i / NUM_TOPK) % WEFT_BALANCE_GRANULES;
        const int64_t wanted = expert >= 0 && expert < NUM_EXPERTS
                                   ? granules[expert * WEFT_BALANCE_GRANULES + granule]
                                   : -1;
        CHECK(read_choice(written, type, i) == wanted, "choice %d of %lld is %lld, not %lld", i,
              (long long)expert, (long long)read_choice(written, type, i), (long long)wanted);
    }
    CHECK_OK(weft_memory_free(comm, topk_idx));
    CHECK_OK(weft_memory_free(comm, replica_idx));
    CHECK_OK(weft_memory_free(comm, table));
    return 0;
}

TEST_ON_RANKS(choices, RANKS_THREADS, 3)
{
    struct seat seat;
    if (open_seat(context, NULL, &seat))
        return 1;
    for (int is_in_place = 0; is_in_place < 2; is_in_place++)
        if (choose(seat.comm, seat.stream, WEFT_INT32, is_in_place) ||
            choose(seat.comm, seat.stream, WEFT_INT64, is_in_place))
            return 1;
    return close_seat(&seat);
}

/* ---------------------------------------------------------------- refusals */

TEST_ON_RANKS(arguments_of_choices, RANKS_THREADS, 1)
{
    struct seat seat;
    if (open_seat(context, NULL, &seat))
        return 1;
    int32_t *block = seat.staging;
    const weft_ep_replicas_args good = {sizeof good, block, block + 6, block + 12,
                                        WEFT_INT32,  2,     3,         2};
    const struct refusal {
        weft_ep_replicas_args args;
        const char *text;
    } refusals[] = {
        {{sizeof good, NULL, block, block + 12, WEFT_INT32, 2, 3, 2}, "topk_idx is NULL"},
        {{sizeof good, block, NULL, block + 12, WEFT_INT32, 2, 3, 2}, "replica_idx is NULL"},
        {{sizeof good, block, block, NULL, WEFT_INT32, 2, 3, 2}, "granules is NULL"},
        {{sizeof good, block, block + 5, block + 12, WEFT_INT32, 2, 3, 2}, "overlap"},
        {{sizeof good, block, block + 7, block + 12, WEFT_INT32, 2, 3, 2}, "overlap"},
        {{sizeof good, block, block, block + 12, WEFT_FP32, 2, 3, 2}, "index_type is"},
        {{sizeof good, block, block + 1, block + 64, WEFT_INT64, 2, 3, 2}, "must be aligned to 8"},
        {{sizeof good, block, block, block + 12, WEFT_INT32, -1, 3, 2}, "num_tokens is -1"},
        {{sizeof good, block, block, block + 12, WEFT_INT32, 2, 0, 2}, "num_topk is 0"},
        {{sizeof good, block, block, block + 12, WEFT_INT32, 2, 3, 0}, "num_experts is 0"},
    };
    CHECK_OK(weft_ep_choose_replicas(seat.comm, &good, seat.stream));
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        CHECK_ERROR(weft_ep_choose_replicas(seat.comm, &refusals[i].args, seat.stream),
                    WEFT_ERROR_INVALID_ARGUMENT, refusals[i].text);
    CHECK_OK(weft_stream_synchronize(seat.stream));
    return close_seat(&seat);
}

TEST_ON_RANKS(arguments, RANKS_THREADS, 2)
{
    struct seat seat;
    if (open_seat(context, NULL, &seat))
        return 1;
    char outside;
    char *const rows = (char *)seat.rows[2];
    const int32_t base[] = {0, -1, 1, -1}, good[] = {0, 1, 1, 0}, orphan[] = {0, 1, 1, 2},
                  moved[] = {1, 0, 1, 0}, beyond[] = {0, -2, 1, 0};
    struct refusal {
        const int32_t *experts;
        void *src, *dst;
        uint64_t row_bytes;
        weft_ep_copies_args reduced; /* what reduce is given besides; dtype 0: fetch is called */
        const char *text;
    };
    const weft_ep_copies_args none = {.size = 0};
#define REDUCED(...) ((weft_ep_copies_args){__VA_ARGS__})
    const struct refusal refusals[] = {
        {good, NULL, rows, 4, none, NULL},
        {good, NULL, rows, 4,
         REDUCED(.dtype = WEFT_FP32, .staging = seat.staging, .staging_bytes = 16), NULL},
        {orphan, NULL, rows, 4, none, "experts[3] is 2, which no replica has in base and experts"},
        {moved, NULL, rows, 4, none, "experts[1] is 0, which no replica has in base and experts"},
        {beyond, NULL, rows, 4, none, "experts[1] is -2, allowed are -1.."},
        {NULL, NULL, rows, 4, none, "experts is NULL"},
        {good, rows, rows, 4, none, "planes[0]: src, src_stride_bytes"},
        {good, NULL, &outside, 4, none, "planes[0].dst is"},
        {good, NULL, rows, 0, none, "planes[0].row_bytes is 0, allowed are 1.."},
        {good, NULL, rows, 4, REDUCED(.staging_bytes = 16), "staging_bytes is 16, must be 0"},
        {good, NULL, rows, 4, REDUCED(.dtype = WEFT_INT32), "dtype is"},
        {good, NULL, rows, 6,
         REDUCED(.dtype = WEFT_FP32, .staging = seat.staging, .staging_bytes = 16),
         "planes[0].row_bytes is 6, must be a multiple of 4"},
        {good, NULL, rows + 2, 4,
         REDUCED(.dtype = WEFT_FP32, .staging = seat.staging, .staging_bytes = 16),
         "must be aligned to 4 bytes"},
        {good, NULL, rows, 4,
         REDUCED(.dtype = WEFT_FP32, .staging = seat.staging, .staging_bytes = 15),
         "staging_bytes is 15, must be at least 16"},
        {good, NULL, rows, 4,
         REDUCED(.dtype = WEFT_FP32, .staging = (char *)seat.staging + 8, .staging_bytes = 16),
         "staging is"},
        {good, NULL, rows, 4, REDUCED(.dtype = WEFT_FP32, .staging = rows, .staging_bytes = 16),
         "overlap"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal *refusal = &refusals[i];
        weft_plane plane = WEFT_INIT(weft_plane);
        weft_ep_copies_args args = refusal->reduced;
        plane.src = refusal->src;
        plane.dst = refusal->dst;
        plane.row_bytes = refusal->row_bytes;
        args.size = sizeof args;
        args.base = base;
        args.experts = refusal->experts;
        args.num_replicas = 4;
        args.planes = &plane;
        args.num_planes = 1;
        const weft_result result = args.dtype != WEFT_DTYPE_NONE
                                       ? weft_ep_reduce_copies(seat.comm, &args, seat.stream)
                                       : weft_ep_fetch_copies(seat.comm, &args, seat.stream);
        if (refusal->text == NULL)
            CHECK_OK(result);
        else
            CHECK_ERROR(result, WEFT_ERROR_INVALID_ARGUMENT, refusal->text);
    }
#undef REDUCED
    CHECK_OK(weft_stream_synchronize(seat.stream));
    return close_seat(&seat);
}

/* ---------------------------------------------------------------- failures */

static int victim_open(struct victim_seat *victim)
{
    const weft_comm_config config = victim_config(victim->context);
    struct seat *seat = victim->self;
    if (open_seat(victim->context, &config, seat) || fill(seat, 0))
        return 1;
    victim->comm = seat->comm;
    victim->stream = seat->stream;
    return 0;
}

static weft_result issue_fetch(void *self)
{
    return call(self, weft_ep_fetch_copies, (weft_ep_copies_args){.size = 0});
}

static weft_result issue_reduce(void *self)
{
    struct seat *seat = self;
    seat->element_bytes = 4;
    return call(seat, weft_ep_reduce_copies,
                (weft_ep_copies_args){
                    .dtype = WEFT_FP32, .staging = seat->staging, .staging_bytes = STAGING_BYTES});
}

static int check_failed(void *self, weft_result expected, const char *text)
{
    CHECK_ERROR(issue_fetch(self), expected, text);
    return 0;
}

static const struct victim_subject fetching = {sizeof(struct seat), victim_open, issue_fetch,
                                               check_failed,        close_seat,  NULL};
static const struct victim_subject reducing = {sizeof(struct seat), victim_open, issue_reduce,
                                               check_failed,        close_seat,  NULL};

static void strike(struct victim_plan plan)
{
    plan.subject = &fetching;
    plan.name = plan.named = "weft_ep_fetch_copies";
    victim_run_sized(&plan, sizeof plan, 4);
    plan.subject = &reducing;
    plan.name = plan.named = "weft_ep_reduce_copies";
    victim_run_sized(&plan, sizeof plan, 4);
}

TEST(failed_ranks)
{
    strike((struct victim_plan){.fault = VICTIM_IS_KILLED, .victim = 2});
    strike((struct victim_plan){.fault = VICTIM_STAYS_AWAY, .victim = 3});
    for (uint64_t seed = 0; seed < 4; seed++)
        strike((struct victim_plan){.fault = VICTIM_IS_KILLED,
                                    .moment = VICTIM_AT_RANDOM,
                                    .victim = (int32_t)seed % 4,
                                    .seed = seed});
}

TEST_OVER(failed_ranks_over_nodes, "tcp")
{
    strike((struct victim_plan){
        .victim = 1, .moment = VICTIM_AT_RANDOM, .num_nodes = 2, .engine = engine});
}
