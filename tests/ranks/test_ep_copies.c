/* SPDX-License-Identifier: MIT */
/* Copies of experts for a step: weft_ep_fetch_copies brings their weights and changes no other row,
 * weft_ep_reduce_copies adds their gradients to those of the owners. */
#include <stdlib.h>
#include <time.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"
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
