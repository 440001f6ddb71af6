/* SPDX-License-Identifier: MIT */
/* weft_ep_move_experts: after each of several placements every rank has the weights of its experts,
 * and nothing else has changed; or there was an error, and nothing has. */
#include <stdlib.h>
#include <time.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/victim.h"
#include "workload/rng.h"

enum { NUM_EXPERTS = 11, MOST_REPLICAS = 3, NUM_PLANES = 3, NUM_ROUNDS = 5, NOT_WRITTEN = 0xee };
static const uint64_t row_bytes[NUM_PLANES] = {1, 48, 100003};

/* Weights are all of one expert, of one round. */
struct seat {
    struct ranks_context *context;
    weft_comm *comm;
    weft_stream *stream;
    weft_ep *ep;                            /* that serves */
    weft_ep *next;                          /* that failures keep from serving */
    void *weights[2][NUM_PLANES];           /* of the one and of the next placement, in turn */
    unsigned char *contents[2][NUM_PLANES]; /* copies, [NUM_EXPERTS][row_bytes] */
    int serving;
};

static unsigned char weight_of(int32_t expert, int round, int plane)
{
    return (unsigned char)(1 + 16 * plane + expert + 53 * round);
}

/* ---------------------------------------------------------------- placements */

/* The same on all ranks; in round 0 the default. */
static int place(struct seat *seat, int round, weft_ep **ep)
{
    const int32_t num_ranks = seat->context->num_ranks;
    struct rng rng = {rng_key(7, (uint64_t)round)};
    int32_t offsets[NUM_EXPERTS + 1] = {0}, ranks[NUM_EXPERTS * MOST_REPLICAS];
    weft_ep_config config = WEFT_INIT(weft_ep_config);
    config.num_experts = NUM_EXPERTS;
    for (int32_t expert = 0; expert < NUM_EXPERTS; expert++) {
        const int32_t most = num_ranks < MOST_REPLICAS ? num_ranks : MOST_REPLICAS;
        const int32_t num_replicas = 1 + (int32_t)rng_below(&rng, (uint32_t)most);
        const int32_t first = (int32_t)rng_below(&rng, (uint32_t)num_ranks);
        for (int32_t i = 0; i < num_replicas; i++)
            ranks[offsets[expert] + i] = (first + i) % num_ranks;
        offsets[expert + 1] = offsets[expert] + num_replicas;
    }
    if (round > 0) {
        config.expert_offsets = offsets;
        config.expert_ranks = ranks;
    }
    CHECK_OK(weft_ep_create(seat->comm, &config, ep));
    return 0;
}

/* ---------------------------------------------------------------- weights */

static int fill(struct seat *seat, const weft_ep *ep, int round, int which)
{
    const int32_t rank = seat->context->rank;
    for (int plane = 0; plane < NUM_PLANES; plane++) {
        unsigned char *row = seat->contents[which][plane];
        memset(row, NOT_WRITTEN, NUM_EXPERTS * row_bytes[plane]);
        for (int32_t local = 0; ep != NULL && local < weft_ep_num_local_experts(ep, rank);
             local++, row += row_bytes[plane])
            memset(row, weight_of(weft_ep_global_expert(ep, rank, local), round, plane),
                   row_bytes[plane]);
        CHECK_OK(weft_memory_copy(seat->comm, seat->weights[which][plane],
                                  seat->contents[which][plane], NUM_EXPERTS * row_bytes[plane]));
    }
    return 0;
}

/* Rows of other experts, and those behind, are as fill has left them. */
static int check(struct seat *seat, const weft_ep *ep, int round, int which)
{
    const int32_t rank = seat->context->rank;
    const int32_t num_local = weft_ep_num_local_experts(ep, rank);
    for (int plane = 0; plane < NUM_PLANES; plane++) {
        unsigned char *contents = seat->contents[which][plane];
        CHECK_OK(weft_memory_copy(seat->comm, contents, seat->weights[which][plane],
                                  NUM_EXPERTS * row_bytes[plane]));
        for (int32_t local = 0; local < NUM_EXPERTS; local++) {
            const unsigned char *row = contents + (uint64_t)local * row_bytes[plane];
            const int32_t expert = weft_ep_global_expert(ep, rank, local);
            const int wanted =
                local < num_local ? weight_of(expert, round, plane) : (int)NOT_WRITTEN;
            for (uint64_t i = 0; i < row_bytes[plane]; i++)
                CHECK(row[i] == wanted, "round %d: plane %d, expert %d: byte %llu is %d, not %d",
                      round, plane, expert, (unsigned long long)i, row[i], wanted);
        }
    }
    return 0;
}

static weft_result move(struct seat *seat, const weft_ep *to)
{
    weft_plane planes[NUM_PLANES];
    for (int plane = 0; plane < NUM_PLANES; plane++)
        planes[plane] = (weft_plane){.size = sizeof(weft_plane),
                                     .src = seat->weights[seat->serving][plane],
                                     .dst = seat->weights[!seat->serving][plane],
                                     .row_bytes = row_bytes[plane]};
    return weft_ep_move_experts(seat->ep, to, planes, NUM_PLANES, seat->stream);
}

/* ---------------------------------------------------------------- life */

static int open_seat(struct ranks_context *context, const weft_comm_config *config,
                     struct seat *seat)
{
    *seat = (struct seat){.context = context};
    CHECK_OK(ranks_comm_create(context, config, &seat->comm));
    CHECK_OK(weft_stream_create(seat->comm, &seat->stream));
    for (int i = 0; i < 2 * NUM_PLANES; i++) {
        const uint64_t bytes = NUM_EXPERTS * row_bytes[i / 2];
        CHECK_OK(weft_heap_alloc(seat->comm, bytes, &seat->weights[i % 2][i / 2]));
        seat->contents[i % 2][i / 2] = malloc(bytes);
        CHECK(seat->contents[i % 2][i / 2] != NULL, "no memory");
    }
    return place(seat, 0, &seat->ep) || fill(seat, seat->ep, 0, 0) || fill(seat, NULL, 0, 1);
}

/* The heap goes with the communicator: freeing from it would wait for ranks that have failed. */
static int close_seat(void *self)
{
    struct seat *seat = self;
    for (int i = 0; i < 2 * NUM_PLANES; i++)
        free(seat->contents[i % 2][i / 2]);
    if (seat->next != NULL)
        CHECK_OK(weft_ep_destroy(seat->next));
    CHECK_OK(weft_ep_destroy(seat->ep));
    CHECK_OK(weft_stream_destroy(seat->stream));
    CHECK_OK(weft_comm_destroy(seat->comm));
    return 0;
}

/* ---------------------------------------------------------------- moves */

/* One rank fills its weights late, and the others must wait for them. A rank whose operation has
 * finished overwrites them. */
static int run_round(struct seat *seat, int round)
{
    const struct timespec late = {0, 20000000};
    weft_ep *to;
    if (place(seat, round, &to))
        return 1;
    if (round % seat->context->num_ranks == seat->context->rank)
        nanosleep(&late, NULL);
    if (fill(seat, seat->ep, round, seat->serving) || fill(seat, NULL, round, !seat->serving))
        return 1;
    CHECK_OK(move(seat, to));
    CHECK_OK(weft_stream_synchronize(seat->stream));
    if (fill(seat, NULL, round, seat->serving) || check(seat, to, round, !seat->serving))
        return 1;
    CHECK_OK(weft_ep_destroy(seat->ep));
    seat->ep = to;
    seat->serving = !seat->serving;
    return 0;
}

static int follow_placements(struct ranks_context *context)
{
    const int32_t *num_nodes = context->argument;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    struct seat seat;
    config.num_nodes = *num_nodes;
    if (open_seat(context, &config, &seat))
        return 1;
    for (int round = 1; round <= NUM_ROUNDS; round++)
        if (run_round(&seat, round))
            return 1;
    return close_seat(&seat);
}

static void run(enum ranks_mode mode, int32_t num_ranks, int32_t num_nodes)
{
    assert_int_equal(ranks_run(mode, num_ranks, follow_placements, &num_nodes), 0);
}

TEST(on_one_node)
{
    run(RANKS_THREADS, 1, 1);
    run(RANKS_THREADS, 4, 1);
    run(RANKS_PROCESSES, 3, 1);
    run(RANKS_PROCESSES, 13, 1); /* some have no expert at first */
}

TEST_OVER_ENGINES(over_nodes)
{
    run(RANKS_THREADS, 2 * TESTS_RANKS_OF_NODE, 2);
    run(RANKS_PROCESSES, 3 * TESTS_RANKS_OF_NODE, 3);
}

/* ---------------------------------------------------------------- refusals */

TEST_ON_RANKS(arguments, RANKS_THREADS, 2)
{
    struct seat seat;
    weft_ep_config config = WEFT_INIT(weft_ep_config);
    weft_ep *other;
    config.num_experts = NUM_EXPERTS + 1;
    if (open_seat(context, NULL, &seat))
        return 1;
    CHECK_OK(weft_ep_create(seat.comm, &config, &other));
    CHECK_ERROR(move(&seat, other), WEFT_ERROR_INVALID_ARGUMENT,
                "to has 12 experts, must have as many as from, 11");
    CHECK_OK(weft_ep_destroy(other));
    CHECK_ERROR(move(&seat, other), WEFT_ERROR_INVALID_ARGUMENT, "to");

    struct refusal {
        void *src, *dst;
        uint64_t row_bytes, src_stride_bytes;
        const char *text;
    };
    char *const block = seat.weights[0][2];
    char outside;
    const struct refusal refusals[] = {
        {block, block + 6, 1, 0, NULL},
        {block, block + 5, 1, 0, "overlap those of planes[0].src"},
        {block, block + 6, 0, 0, "planes[0].row_bytes is 0, allowed are 1.."},
        {block, block + 6, UINT64_MAX, 0, "planes[0].row_bytes is 18446744073709551615"},
        {block, block + 6, UINT64_MAX / 6, 0, "planes[0].src is"},
        {block, block + 6, 1, 1, "planes[0]: src_stride_bytes and the fields behind must be 0"},
        {&outside, block, 1, 0, "planes[0].src is"},
        {block, NULL, 1, 0, "planes[0].dst is"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal *refusal = &refusals[i];
        weft_plane plane = WEFT_INIT(weft_plane);
        plane.src = refusal->src;
        plane.dst = refusal->dst;
        plane.row_bytes = refusal->row_bytes;
        plane.src_stride_bytes = refusal->src_stride_bytes;
        if (refusal->text == NULL)
            CHECK_OK(weft_ep_move_experts(seat.ep, seat.ep, &plane, 1, seat.stream));
        else
            CHECK_ERROR(weft_ep_move_experts(seat.ep, seat.ep, &plane, 1, seat.stream),
                        WEFT_ERROR_INVALID_ARGUMENT, refusal->text);
    }
    CHECK_OK(weft_stream_synchronize(seat.stream));
    return close_seat(&seat);
}

/* ---------------------------------------------------------------- failures */

static int victim_open(struct victim_seat *victim)
{
    const weft_comm_config config = victim_config(victim->context);
    struct seat *seat = victim->self;
    if (open_seat(victim->context, &config, seat) || place(seat, 1, &seat->next))
        return 1;
    victim->comm = seat->comm;
    victim->stream = seat->stream;
    return 0;
}

static weft_result victim_issue(void *self)
{
    struct seat *seat = self;
    return move(seat, seat->next);
}

static int check_unchanged(void *self, weft_result expected, const char *text)
{
    struct seat *seat = self;
    CHECK_ERROR(move(seat, seat->next), expected, text);
    return check(seat, seat->ep, 0, 0);
}

static const struct victim_subject subject = {sizeof(struct seat), victim_open, victim_issue,
                                              check_unchanged,     close_seat,  NULL};

static void strike(struct victim_plan plan)
{
    plan.subject = &subject;
    plan.name = plan.named = "weft_ep_move_experts";
    victim_run_sized(&plan, sizeof plan, 4);
}

TEST(failed_ranks)
{
    strike((struct victim_plan){.fault = VICTIM_IS_KILLED, .victim = 2});
    strike((struct victim_plan){.fault = VICTIM_IS_STOPPED, .victim = 1});
    strike((struct victim_plan){.fault = VICTIM_STAYS_AWAY, .victim = 3});
    strike((struct victim_plan){.fault = VICTIM_ABORTS, .victim = 0});
    for (uint64_t seed = 0; seed < 8; seed++)
        strike((struct victim_plan){.fault = VICTIM_IS_KILLED,
                                    .moment = VICTIM_AT_RANDOM,
                                    .victim = (int32_t)seed % 4,
                                    .seed = seed});
}

TEST_OVER(failed_ranks_over_nodes, "tcp")
{
    const int32_t num_nodes = 4 / TESTS_RANKS_OF_NODE;
    strike((struct victim_plan){.victim = 2, .num_nodes = num_nodes, .engine = engine});
    strike((struct victim_plan){
        .victim = 1, .moment = VICTIM_AT_RANDOM, .num_nodes = num_nodes, .engine = engine});
}
