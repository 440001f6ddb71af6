/* SPDX-License-Identifier: MIT */
/* Tokens that choose an expert twice in low latency: each choice has a row, where there is room for
 * it. Where there is none, although the caller has not limited the room, all ranks are told who has
 * sent too much. */
#include "harness/cmocka.h"
#include "oracle/ll_seat.h"

enum { RANKS = 4, TOKENS = 4, TOPK = 4, EXPERTS = 8, POPULAR = 3, BLAMED = 0 };
enum { CAPACITY = RANKS * TOKENS };

struct trial {
    struct ll_case problem;
    int32_t num_others; /* of other ranks' choices, that are the popular expert */
};

struct routing {
    int32_t num_tokens[RANKS];
    int32_t experts[RANKS][TOKENS][TOPK];
    float weights[RANKS][TOKENS][TOPK];
};

struct seat {
    struct ll_seat seat;
    struct ll_case problem;
    struct ll_routing table;
    struct routing routing;
};

/* All choices of one rank are the popular expert. */
static void draw(struct routing *routing, int32_t num_others)
{
    enum { NUM_OTHER_EXPERTS = EXPERTS - 1 };
    for (int32_t i = 0; i < RANKS * TOKENS * TOPK; i++) {
        const int32_t rank = i / (TOKENS * TOPK), token = i / TOPK % TOKENS, k = i % TOPK;
        const int32_t other = (5 * rank + 3 * token + k) % NUM_OTHER_EXPERTS;
        const int is_popular = rank == BLAMED || (rank == RANKS - 1 && num_others-- > 0);
        routing->num_tokens[rank] = TOKENS;
        routing->experts[rank][token][k] = is_popular ? POPULAR : other + (other >= POPULAR);
        routing->weights[rank][token][k] = 0.25f * (float)(k + 1 + token);
    }
}

static const struct ll_case cases[] = {
    {"signals", LL_TYPES(BF16, BF16, INT32), LL_EXPERTS},
    {"signals, blocks", LL_TYPES(FP32, FP32, INT64), LL_EXPERTS, LL_GRID(3, 2)},
    {"FP8", LL_TYPES(BF16, BF16, INT64), LL_EXPERTS, LL_NARROW(FP8_E4M3, FP32, 128),
     .scale_columns = 3},
    {"rows", LL_TYPES(BF16, BF16, INT32), LL_EXPERTS, LL_ANSWERS(ROWS)},
    {"weighed late", LL_TYPES(BF16, BF16, INT32), LL_EXPERTS, LL_ANSWERS(SUMS_WEIGHED_LATE)},
    {"masks", LL_TYPES(BF16, BF16, INT32), LL_EXPERTS, .on_missing = WEFT_LL_MASK},
    {"packets", LL_TYPES(BF16, BF16, INT32), LL_EXPERTS, .carrier = WEFT_LL_PACKETS},
    {"packets of FP8, blocks", LL_TYPES(BF16, BF16, INT64), LL_EXPERTS, LL_GRID(3, 4),
     LL_NARROW(FP8_E4M3, FP32, 128), .carrier = WEFT_LL_PACKETS},
    {"packets, masks", LL_TYPES(BF16, BF16, INT64), LL_EXPERTS, .carrier = WEFT_LL_PACKETS,
     .on_missing = WEFT_LL_MASK},
    {"told", LL_TYPES(BF16, BF16, INT32), LL_EXPERTS, .carrier = WEFT_LL_TOLD_PACKETS},
    {"told, FP8, blocks", LL_TYPES(BF16, BF16, INT64), LL_EXPERTS, LL_GRID(3, 4),
     LL_NARROW(FP8_E4M3, FP32, 128), .carrier = WEFT_LL_TOLD_PACKETS},
    {"told, masks", LL_TYPES(BF16, BF16, INT64), LL_EXPERTS, .carrier = WEFT_LL_TOLD_PACKETS,
     .on_missing = WEFT_LL_MASK},
    {"nodes", LL_TYPES(BF16, BF16, INT32), LL_EXPERTS, .node_ranks = 2},
    {"nodes, relayed", LL_TYPES(BF16, BF16, INT32), LL_EXPERTS, .node_ranks = 2,
     .route = WEFT_LL_RELAYED},
    {"replicas", LL_TYPES(BF16, BF16, INT32), LL_EXPERTS, .num_replicas = 1},
    {"by rank", LL_TYPES(BF16, BF16, INT32)},
    {"by rank, packets", LL_TYPES(BF16, BF16, INT32), .carrier = WEFT_LL_PACKETS},
    {"by rank, told", LL_TYPES(BF16, BF16, INT32), .carrier = WEFT_LL_TOLD_PACKETS},
};

static int open_seat(struct ranks_context *context, struct seat *seat)
{
    const struct trial *trial = context->argument;
    const struct routing *routing = &seat->routing;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    draw(&seat->routing, trial->num_others);
    seat->table =
        (struct ll_routing){routing->num_tokens, routing->experts[0][0], routing->weights[0][0]};
    seat->problem = trial->problem;
    seat->problem.routing = &seat->table;
    config.num_nodes = seat->problem.node_ranks > 0 ? RANKS / seat->problem.node_ranks : 0;
    return ll_seat_open(&seat->seat, context, &seat->problem, &config);
}

static int step_is_right(struct ranks_context *context)
{
    struct seat opened;
    struct ll_seat *seat = &opened.seat;
    if (open_seat(context, &opened))
        return 1;
    for (int32_t step = 0; step < 3; step++)
        if (ll_fill_step(seat, step) || ll_dispatch(seat, step, WEFT_LL_SEND_AND_RECEIVE) ||
            ll_check_dispatched(seat, step) ||
            ll_combine(seat, step, WEFT_LL_SEND_AND_RECEIVE, 0) || ll_check_combined(seat, step))
            return 1;
    return ll_seat_close(seat);
}

/* A rank that does not own the expert may get all that is for it, and hear of the failure when it
 * goes on. */
static weft_result run_step(struct ll_seat *seat)
{
    weft_result result = ll_issue_dispatch(seat, 0, WEFT_LL_SEND_AND_RECEIVE);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(seat->stream);
    if (result == WEFT_OK)
        result = ll_issue_combine(seat, 0, WEFT_LL_SEND_AND_RECEIVE, 0);
    return result == WEFT_OK ? weft_stream_synchronize(seat->stream) : result;
}

/* Experts lie evenly, or take turns, by which the popular one is the first of its rank. */
static int32_t owner_of(const struct ll_case *problem)
{
    return problem->num_replicas > 0 ? POPULAR % RANKS : POPULAR * RANKS / EXPERTS;
}

static int32_t local_of(const struct ll_case *problem)
{
    return problem->num_replicas > 0 ? POPULAR / RANKS : POPULAR % (EXPERTS / RANKS);
}

/* Work behind the dispatch in its stream trusts what it counts. */
static int counts_rows_that_are_there(struct ll_seat *seat)
{
    const struct ll_step *at = &seat->steps[0];
    const int32_t local = local_of(seat->problem);
    int64_t ranges[RANKS];
    int32_t count = -1, end = 0;
    CHECK_OK(weft_memory_copy(seat->comm, &count, at->expert_counts + local, sizeof count));
    CHECK_OK(
        weft_memory_copy(seat->comm, ranges, at->ranges + (ptrdiff_t)local * RANKS, sizeof ranges));
    CHECK(count == CAPACITY, "%d rows are counted, of which %d are there", count, CAPACITY);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        CHECK(ranges[rank] >> 32 == end, "the rows of rank %d begin at %lld, not %d", rank,
              (long long)(ranges[rank] >> 32), end);
        end += (int32_t)ranges[rank];
    }
    CHECK(end == CAPACITY, "the ranges end at %d, not %d", end, CAPACITY);
    return 0;
}

static int step_fails_everywhere(struct ranks_context *context)
{
    struct seat opened;
    struct ll_seat *seat = &opened.seat;
    char expert[64];
    const char *const texts[] = {"weft_ll_dispatch #1", expert, "room for 16 rows", "17 times",
                                 "tokens of rank 0"};
    if (open_seat(context, &opened) || ll_fill_step(seat, 0))
        return 1;
    const int32_t owner = owner_of(&opened.problem);
    snprintf(expert, sizeof expert, "expert %d on rank %d", POPULAR, owner);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        CHECK_ERROR(run_step(seat), WEFT_ERROR_CAPACITY, texts[i]);
    if (context->rank == owner && counts_rows_that_are_there(seat))
        return 1;
    (void)weft_comm_destroy(seat->comm);
    CHECK_OK(weft_stream_destroy(seat->stream));
    return 0;
}

static void run(struct ll_case problem, int32_t num_others, int (*step)(struct ranks_context *))
{
    struct trial trial = {problem, num_others};
    trial.problem.num_ranks = RANKS;
    trial.problem.max_tokens = TOKENS;
    trial.problem.num_topk = TOPK;
    trial.problem.num_experts = EXPERTS;
    trial.problem.hidden = 256;
    if (problem.carrier == WEFT_LL_AUTO)
        trial.problem.carrier = WEFT_LL_SIGNALS;
    if (ranks_run(RANKS_THREADS, RANKS, step, &trial) != 0)
        fail_msg("%s", problem.name);
}

enum { NUM_CASES = sizeof cases / sizeof *cases };

TEST(each_choice_has_a_row_while_there_is_room)
{
    for (int i = 0; i < NUM_CASES; i++)
        run(cases[i], 0, step_is_right);
}

TEST(too_many_choices_fail_on_all_ranks)
{
    for (int i = 0; i < NUM_CASES; i++)
        run(cases[i], 1,
            cases[i].layout == WEFT_LL_BY_EXPERT ? step_fails_everywhere : step_is_right);
}

/* Whose rows are dropped, as the caller has wished. */
TEST(a_capacity_that_is_given_fails_nobody)
{
    for (int i = 0; i < NUM_CASES; i++)
        if (cases[i].layout == WEFT_LL_BY_EXPERT) {
            struct ll_case problem = cases[i];
            problem.expert_capacity = CAPACITY;
            run(problem, 1, step_is_right);
        }
}
