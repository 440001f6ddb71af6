/* SPDX-License-Identifier: MIT */
/* A rank is killed (SIGKILL) while communicators are made, split and used from the host. Every
 * survivor learns by number who died, within two seconds; nothing is left behind, and the survivors
 * go on with a new communicator. */
#include <dirent.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/stock.h"
#include "harness/victim.h"

enum { NUM_RANKS = 4, MAX_ROUNDS = 1000000 };

enum moment {
    BETWEEN_GATHERS, /* the others wait for the victim's blob */
    INSIDE_GATHER,   /* the victim waits for that of a rank that then kills it */
    BETWEEN_SPLITS,
    BETWEEN_ALLOCATIONS,
    AT_RANDOM /* during splits, which are meetings and heaps in the making */
};

struct plan {
    enum moment moment;
    int32_t victim;
    uint64_t seed; /* of AT_RANDOM */
};

struct board {
    struct victim victim;
    pid_t orphan; /* a child of the victim */
};

static int check_no_files(void)
{
    struct dirent *entry;
    DIR *folder = opendir("/dev/shm");
    int num_left = 0;
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        num_left += strstr(entry->d_name, "weft") != NULL;
    if (folder != NULL)
        closedir(folder);
    CHECK(num_left == 0, "%d files are left in /dev/shm", num_left);
    return 0;
}

static weft_result use_once(struct ranks_context *context, weft_comm *comm)
{
    const struct plan *plan = context->argument;
    int32_t all[NUM_RANKS];
    weft_comm *child;
    void *ptr;
    if (plan->moment == BETWEEN_ALLOCATIONS)
        return weft_heap_alloc(comm, 100000, &ptr);
    if (plan->moment == BETWEEN_GATHERS || plan->moment == INSIDE_GATHER)
        return weft_comm_host_all_gather(comm, &context->rank, sizeof(int32_t), all);
    weft_result result = weft_comm_split(comm, 0, 0, NULL, &child);
    if (result == WEFT_OK)
        weft_comm_destroy(child);
    return result;
}

/* Does what the plan says until it fails; the victim dies in it. */
static weft_result use_until_failure(struct ranks_context *context, weft_comm *comm)
{
    const struct plan *plan = context->argument;
    int32_t killer = plan->moment == INSIDE_GATHER ? (plan->victim + 1) % NUM_RANKS : plan->victim;
    const int num_rounds_before = tests_rounds(20, 4);
    weft_result result = WEFT_OK;
    if (plan->moment == AT_RANDOM && victim_is_self(context) &&
        victim_strike_later(context, SIGKILL, plan->seed))
        return WEFT_ERROR_SYSTEM;
    for (int round = 0; round < MAX_ROUNDS && result == WEFT_OK; round++) {
        if (round == num_rounds_before && plan->moment != AT_RANDOM && context->rank == killer)
            victim_strike(context, SIGKILL);
        result = use_once(context, comm);
    }
    return result;
}

static int check_failure(struct ranks_context *context, weft_comm *comm, weft_result result)
{
    /* A split may hear of it through the child first. */
    CHECK_ERROR(weft_comm_host_barrier(comm), WEFT_ERROR_RANK_FAILED, "died");
    return victim_check_death(context, comm, result);
}

static int begin(struct ranks_context *context)
{
    weft_comm *comm;
    int32_t all[NUM_RANKS];
    const struct stock before = stock_take();
    ranks_barrier(context);
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    CHECK_OK(weft_comm_host_all_gather(comm, &context->rank, sizeof(int32_t), all));
    for (int32_t other = 0; other < context->num_ranks; other++)
        CHECK(all[other] == other, "rank %d says %d", other, all[other]);
    CHECK_OK(weft_comm_destroy(comm));
    /* The rendezvous, which lives in one of the survivors, has closed its ends by then, too. */
    ranks_barrier(context);
    return stock_check(before, stock_take()) || check_no_files();
}

static int live_through_a_death(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    weft_comm *comm;
    CHECK_OK(tests_warm_up(&context->id));
    victim_choose(context, plan->victim);
    const struct stock before = stock_take();
    ranks_barrier(context);
    CHECK_OK(weft_comm_create(&context->id, context->rank, NUM_RANKS, NULL, &comm));
    if (check_failure(context, comm, use_until_failure(context, comm)) != 0)
        return 1;
    CHECK_OK(weft_comm_destroy(comm));
    ranks_barrier(context);
    return stock_check(before, stock_take()) || victim_go_on_without(context, begin);
}

static int num_failed(rank_function function, struct plan plan, enum ranks_id id)
{
    struct ranks_options options = victim_options(NUM_RANKS, 1u << plan.victim, &plan, sizeof plan);
    options.id = id;
    options.shared_bytes = sizeof(struct board);
    return ranks_run_with(&options, function);
}

static void kill_rank(struct plan plan, enum ranks_id id)
{
    if (num_failed(live_through_a_death, plan, id) != 0)
        fail_msg("moment %d, victim %d, seed %llu, id %d", plan.moment, plan.victim,
                 (unsigned long long)plan.seed, id);
}

/* On GPUs each moment with one place of the rendezvous only. */
static void kill_each_rank_at_each_moment(enum ranks_id id)
{
    struct plan plan = {0};
    for (int moment = tests_rounds(0, id == RANKS_ID_BY_HOST); moment < AT_RANDOM;
         moment += tests_rounds(1, 2)) {
        plan.moment = (enum moment)moment;
        for (int32_t i = 0; i < tests_rounds(NUM_RANKS, 1); i++) {
            plan.victim = (moment + i) % NUM_RANKS;
            kill_rank(plan, id);
        }
    }
    plan.moment = AT_RANDOM;
    const uint64_t num_seeds = (uint64_t)tests_rounds(3 * NUM_RANKS, 1);
    for (plan.seed = 1; plan.seed <= num_seeds; plan.seed++) {
        plan.victim = (int32_t)(plan.seed % NUM_RANKS);
        kill_rank(plan, id);
    }
}

TEST_CALL(survivors_name_the_dead, kill_each_rank_at_each_moment(RANKS_ID_BY_HOST))

/* Here the rendezvous dies with rank 0. */
TEST_CALL(survivors_name_the_dead_host, kill_each_rank_at_each_moment(RANKS_ID_BY_RANK_0))

/* A child of the split does not have the rank that dies: it goes on, and fails only with the
 * rendezvous. */
static int split_before_a_death(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    weft_comm *comm, *child;
    int32_t all[NUM_RANKS];
    CHECK_OK(weft_comm_create(&context->id, context->rank, NUM_RANKS, NULL, &comm));
    CHECK_OK(weft_comm_split(comm, context->rank == plan->victim, 0, NULL, &child));
    victim_choose(context, plan->victim);
    if (victim_is_self(context))
        victim_strike(context, SIGKILL);
    if (check_failure(context, comm, weft_comm_host_barrier(comm)) != 0)
        return 1;
    for (int round = 0; round < 10; round++)
        CHECK_OK(weft_comm_host_all_gather(child, &round, sizeof(round), all));
    CHECK_OK(weft_comm_status(child, NULL));
    CHECK_OK(weft_comm_destroy(comm));
    CHECK_OK(weft_comm_host_barrier(child));
    CHECK_OK(weft_comm_destroy(child));
    return 0;
}

TEST(a_split_without_the_dead_goes_on)
{
    assert_int_equal(num_failed(split_before_a_death, (struct plan){.victim = 2}, RANKS_ID_BY_HOST),
                     0);
}

static int use(weft_comm *comm)
{
    weft_stream *stream;
    void *ptr;
    int32_t all[NUM_RANKS];
    const int32_t rank = weft_comm_rank(comm);
    CHECK_OK(weft_comm_host_all_gather(comm, &rank, sizeof rank, all));
    for (int32_t i = 0; i < weft_comm_num_ranks(comm); i++)
        CHECK(all[i] == i, "rank %d says %d", i, all[i]);
    CHECK_OK(weft_heap_alloc(comm, 100, &ptr));
    CHECK_OK(weft_stream_create(comm, &stream));
    CHECK_OK(weft_comm_barrier(comm, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK_OK(weft_stream_destroy(stream));
    return 0;
}

/* Rank 1 dies, then rank 3: in the communicator of three, before rank 3 comes there, or while the
 * others wait for it there. */
enum second_death { IN_THE_NEXT, AT_ONCE, AWAITED, NUM_SECOND_DEATHS };

static int shrink_after_deaths(struct ranks_context *context)
{
    const uint64_t second = ((const struct plan *)context->argument)->seed;
    const struct timespec while_others_wait = {0, 300000000};
    const int64_t begin_ns = clock_ns();
    weft_comm *comm, *next, *last;
    CHECK_OK(weft_comm_create(&context->id, context->rank, NUM_RANKS, NULL, &comm));
    victim_choose(context, 1);
    if (victim_is_self(context))
        victim_strike(context, SIGKILL);
    if (victim_check_death(context, comm, weft_comm_host_barrier(comm)))
        return 1;
    if (context->rank == 3 && second != IN_THE_NEXT) {
        if (second == AWAITED)
            nanosleep(&while_others_wait, NULL);
        raise(SIGKILL);
    }
    CHECK_OK(weft_comm_shrink(comm, NULL, 0, NULL, &next));
    if (second == IN_THE_NEXT) {
        if (use(next))
            return 1;
        if (context->rank == 3)
            raise(SIGKILL);
        CHECK_ERROR(weft_comm_host_barrier(next), WEFT_ERROR_RANK_FAILED, "rank 2 died");
        CHECK_OK(weft_comm_shrink(next, NULL, 0, NULL, &last));
        CHECK_OK(weft_comm_destroy(next));
        next = last;
    }
    CHECK(clock_ns() - begin_ns < INT64_C(20000000000), "a deadline has passed");
    CHECK_OK(weft_comm_destroy(comm));
    CHECK(weft_comm_num_ranks(next) == 2, "%d ranks", weft_comm_num_ranks(next));
    if (use(next))
        return 1;
    CHECK_OK(weft_comm_destroy(next));
    return 0;
}

TEST(a_shrunk_communicator_goes_on)
{
    for (struct plan plan = {.victim = 1}; plan.seed < NUM_SECOND_DEATHS; plan.seed++) {
        const struct ranks_options options =
            victim_options(NUM_RANKS, 1u << 1 | 1u << 3, &plan, sizeof plan);
        assert_int_equal(ranks_run_with(&options, shrink_after_deaths), 0);
    }
}

/* The rendezvous dies with rank 0: before the others shrink, or while they wait for rank 3. */
static int shrink_without_rendezvous(struct ranks_context *context)
{
    const int is_awaited = ((const struct plan *)context->argument)->moment == AT_RANDOM;
    const struct timespec while_others_wait = {0, 300000000};
    weft_comm *comm, *next;
    CHECK_OK(weft_comm_create(&context->id, context->rank, NUM_RANKS, NULL, &comm));
    victim_choose(context, 0);
    if (victim_is_self(context)) {
        if (is_awaited)
            nanosleep(&while_others_wait, NULL);
        victim_strike(context, SIGKILL);
    }
    if (context->rank != NUM_RANKS - 1) {
        if (!is_awaited)
            CHECK_ERROR(weft_comm_host_barrier(comm), WEFT_ERROR_RANK_FAILED, "rank 0 died");
        CHECK_ERROR(weft_comm_shrink(comm, NULL, 0, NULL, &next), WEFT_ERROR_RANK_FAILED,
                    "rank 0 died, and with it the rendezvous");
        CHECK(clock_s() - ((struct victim *)context->shared)->strike_time_s < 2, "it took long");
    }
    ranks_barrier(context);
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

TEST(nobody_shrinks_without_the_rendezvous)
{
    for (int i = 0; i < tests_rounds(6, 2); i++)
        assert_int_equal(num_failed(shrink_without_rendezvous,
                                    (struct plan){.moment = i % 2 ? AT_RANDOM : BETWEEN_GATHERS},
                                    RANKS_ID_BY_RANK_0),
                         0);
}

/* Without the output, which whoever runs the tests reads to its end. */
static void linger(void)
{
    enum { LONGEST_S = 60 };
    close(STDOUT_FILENO);
    close(STDERR_FILENO);
    alarm(LONGEST_S);
    pause();
    _exit(0);
}

/* The victim has forked a child that lives on, and with it the victim's descriptors. */
static int die_with_an_heir(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct board *board = context->shared;
    weft_comm *comm;
    CHECK_OK(weft_comm_create(&context->id, context->rank, NUM_RANKS, NULL, &comm));
    victim_choose(context, plan->victim);
    if (victim_is_self(context)) {
        pid_t orphan = fork();
        if (orphan == 0)
            linger();
        CHECK(orphan > 0, "fork failed");
        board->orphan = orphan;
        victim_strike(context, SIGKILL);
    }
    int failed = check_failure(context, comm, weft_comm_host_barrier(comm));
    ranks_barrier(context);
    if (context->rank == (plan->victim + 1) % NUM_RANKS)
        kill(board->orphan, SIGKILL);
    CHECK_OK(weft_comm_destroy(comm));
    return failed;
}

TEST(a_child_of_the_dead_does_not_hide_the_death)
{
    for (int32_t victim = 0; victim < tests_rounds(2, 1); victim++)
        assert_int_equal(
            num_failed(die_with_an_heir, (struct plan){.victim = victim}, RANKS_ID_BY_RANK_0), 0);
}

/* Rank 0 serves the rendezvous without being in the communicator of the others, and is killed. */
static int lose_the_rendezvous(struct ranks_context *context)
{
    const struct victim *victim = context->shared;
    weft_comm *comm = NULL;
    int32_t failed_rank = 99;
    char text[64];
    if (context->rank > 0)
        CHECK_OK(weft_comm_create(&context->id, context->rank - 1, NUM_RANKS - 1, NULL, &comm));
    victim_choose(context, 0);
    if (victim_is_self(context))
        victim_strike(context, SIGKILL);
    weft_result result = WEFT_OK;
    while (result == WEFT_OK)
        result = weft_comm_host_barrier(comm);
    snprintf(text, sizeof(text), "(pid %d on ", victim->pid);
    CHECK_ERROR(result, WEFT_ERROR_RANK_FAILED, text);
    CHECK_ERROR(weft_comm_status(comm, &failed_rank), WEFT_ERROR_RANK_FAILED, text);
    CHECK(failed_rank == -1, "failed_rank is %d", failed_rank);
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

TEST(the_loss_of_the_rendezvous_is_told)
{
    assert_int_equal(
        num_failed(lose_the_rendezvous, (struct plan){.victim = 0}, RANKS_ID_BY_RANK_0), 0);
}
