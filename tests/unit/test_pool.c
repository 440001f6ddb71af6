/* SPDX-License-Identifier: MIT */
/* What the harness promises of ranks' processes: they are kept; no run sees what another one
 * changed; who died, failed or hung is replaced, and named. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/memory.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 3 };

/* What ranks have seen of themselves. Mapped before the first of them is forked. */
static struct seen {
    pid_t pids[NUM_RANKS];
} * seen;

static int look_at_pid(struct ranks_context *context)
{
    seen->pids[context->rank] = getpid();
    return 0;
}

static struct seen pids_now(enum ranks_mode mode)
{
    assert_int_equal(ranks_run(mode, NUM_RANKS, look_at_pid, NULL), 0);
    return *seen;
}

/* ---------------------------------------------------------------- kept, and replaced */

TEST(processes_are_kept)
{
    const struct seen processes = pids_now(RANKS_PROCESSES), threads = pids_now(RANKS_THREADS);
    const struct seen again = pids_now(RANKS_PROCESSES);
    assert_memory_equal(&processes, &again, sizeof again);
    const struct seen threads_again = pids_now(RANKS_THREADS);
    assert_memory_equal(&threads, &threads_again, sizeof threads);
    for (int rank = 0; rank < NUM_RANKS; rank++) {
        assert_int_equal(threads.pids[rank], threads.pids[0]);
        assert_int_not_equal(processes.pids[rank], threads.pids[0]);
        assert_int_not_equal(processes.pids[rank], getpid());
    }
}

/* Rank 1 gets another process, the others keep theirs. */
static void expect_rank_1_replaced(struct seen before)
{
    const struct seen now = pids_now(RANKS_PROCESSES);
    assert_int_equal(now.pids[0], before.pids[0]);
    assert_int_not_equal(now.pids[1], before.pids[1]);
    assert_int_equal(now.pids[2], before.pids[2]);
}

static int die(struct ranks_context *context)
{
    if (context->rank == 1)
        raise(SIGKILL);
    ranks_barrier(context);
    return 0;
}

TEST(who_died_is_replaced)
{
    const struct seen before = pids_now(RANKS_PROCESSES);
    const struct ranks_options options = {
        .mode = RANKS_PROCESSES, .num_ranks = NUM_RANKS, .may_die = 1 << 1};
    assert_int_equal(ranks_run_with(&options, die), 0);
    expect_rank_1_replaced(before);
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, die, NULL), 1);
}

static int fail_as_planned(struct ranks_context *context)
{
    CHECK(context->rank != 1, "as is wanted here");
    return 0;
}

TEST(who_failed_is_replaced)
{
    const struct seen before = pids_now(RANKS_PROCESSES);
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, fail_as_planned, NULL), 1);
    expect_rank_1_replaced(before);
    const struct seen threads = pids_now(RANKS_THREADS);
    assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, fail_as_planned, NULL), 1);
    assert_int_not_equal(pids_now(RANKS_THREADS).pids[0], threads.pids[0]);
}

static int keep_communicator(struct ranks_context *context)
{
    weft_comm *comm;
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    return 0;
}

TEST(communicators_that_are_left_are_failures)
{
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, keep_communicator, NULL), NUM_RANKS);
    assert_int_equal(ranks_run(RANKS_THREADS, 1, keep_communicator, NULL), 1);
}

/* ---------------------------------------------------------------- hangs */

static int hang(struct ranks_context *context)
{
    while (context->rank == 1)
        pause();
    return 0;
}

/* What is said to stderr meanwhile is in `text`. */
static int run_quietly(const struct ranks_options *options, rank_function function, char *text,
                       size_t text_bytes)
{
    const int kept = dup(STDERR_FILENO);
    FILE *file = tmpfile();
    assert_true(kept >= 0 && file != NULL);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    const int num_failed = ranks_run_with(options, function);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(file);
    text[fread(text, 1, text_bytes - 1, file)] = '\0';
    fclose(file);
    return num_failed;
}

TEST(who_hangs_is_named_and_replaced)
{
    char text[1000];
    const struct ranks_options options = {
        .mode = RANKS_PROCESSES, .num_ranks = NUM_RANKS, .deadline_s = 1};
    const struct seen before = pids_now(RANKS_PROCESSES);
    assert_int_equal(run_quietly(&options, hang, text, sizeof text), 1);
    assert_non_null(strstr(text, "rank 1 of 3 hung"));
    assert_null(strstr(text, "rank 0 of 3"));
    expect_rank_1_replaced(before);
}

/* ---------------------------------------------------------------- what a run leaves */

static const char *const path = "/";

static int change_process(struct ranks_context *context)
{
    (void)context;
    const struct rlimit no_cores = {0, 0};
    CHECK(setenv("WEFT_TEST_POOL", "of another run", 1) == 0, "setenv");
    CHECK(unsetenv("PATH") == 0, "unsetenv");
    umask(077);
    CHECK(chdir(path) == 0 && setrlimit(RLIMIT_CORE, &no_cores) == 0, "not allowed");
    signal(SIGUSR1, SIG_IGN);
    return 0;
}

static int find_unchanged(struct ranks_context *context)
{
    (void)context;
    char folder[1000];
    struct rlimit cores;
    sigset_t blocked;
    const mode_t mask = umask(022);
    umask(mask);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    CHECK(getenv("WEFT_TEST_POOL") == NULL, "%s", getenv("WEFT_TEST_POOL"));
    CHECK(getenv("PATH") != NULL, "it is gone");
    CHECK(mask == 022, "%o", (unsigned)mask);
    CHECK(getcwd(folder, sizeof folder) != NULL && strcmp(folder, path) != 0, "moved");
    CHECK(getrlimit(RLIMIT_CORE, &cores) == 0 && cores.rlim_cur == 1, "limited");
    CHECK(signal(SIGUSR1, SIG_DFL) == SIG_DFL, "SIGUSR1 is ignored");
    CHECK(!sigismember(&blocked, SIGUSR2), "SIGUSR2 is blocked");
    return 0;
}

static int block_signal(struct ranks_context *context)
{
    (void)context;
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    CHECK(pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0, "not blocked");
    return 0;
}

TEST(nothing_of_the_process_reaches_the_next_run)
{
    static const rank_function functions[] = {change_process, block_signal};
    for (size_t i = 0; i < 2; i++)
        for (int mode = RANKS_THREADS; mode <= RANKS_PROCESSES; mode++) {
            assert_int_equal(ranks_run((enum ranks_mode)mode, 2, functions[i], NULL), 0);
            assert_int_equal(ranks_run((enum ranks_mode)mode, 2, find_unchanged, NULL), 0);
        }
}

static int see_environment(struct ranks_context *context)
{
    const char *expected = context->argument, *value = getenv("WEFT_TEST_POOL");
    CHECK(strcmp(value != NULL ? value : "", expected) == 0, "\"%s\", not \"%s\"", value, expected);
    return 0;
}

TEST(the_environment_is_the_tests)
{
    static const char texts[][8] = {"first", "other", ""};
    for (size_t i = 0; i < 3; i++) {
        if (texts[i][0] != '\0')
            setenv("WEFT_TEST_POOL", texts[i], 1);
        else
            unsetenv("WEFT_TEST_POOL");
        assert_int_equal(ranks_run(RANKS_PROCESSES, 2, see_environment, &texts[i]), 0);
        assert_int_equal(ranks_run(RANKS_THREADS, 2, see_environment, &texts[i]), 0);
    }
}

/* ---------------------------------------------------------------- memory */

struct plan {
    int number;
    int *numbers; /* of tests_alloc */
};

/* Each has a copy: what it writes is its own. */
static int read_and_write(struct ranks_context *context)
{
    struct plan *plan = context->argument;
    CHECK(plan->numbers[99] == plan->number, "%d, not %d", plan->numbers[99], plan->number);
    ranks_barrier(context);
    plan->numbers[99] = plan->number = -1 - context->rank;
    ranks_barrier(context);
    CHECK(plan->numbers[99] == -1 - context->rank, "%d", plan->numbers[99]);
    return 0;
}

TEST(ranks_have_a_copy_of_the_tests_memory)
{
    for (int number = 1; number <= 3; number++) {
        struct plan plan = {number, tests_alloc(100 * sizeof(int))};
        assert_int_equal(plan.numbers[99], 0);
        plan.numbers[99] = number;
        assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, read_and_write, &plan), 0);
        assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, read_and_write, &plan), 0);
        assert_int_equal(plan.numbers[99], number);
        tests_free(plan.numbers);
    }
}

static int share(struct ranks_context *context)
{
    _Atomic int *sum = context->shared;
    atomic_fetch_add(sum, 1 + context->rank);
    ranks_barrier(context);
    CHECK(atomic_load(sum) == 6, "%d", atomic_load(sum));
    return 0;
}

TEST(shared_memory_is_zero_at_first)
{
    const struct ranks_options options = {
        .mode = RANKS_PROCESSES, .num_ranks = NUM_RANKS, .shared_bytes = sizeof(int)};
    for (int i = 0; i < 3; i++)
        assert_int_equal(ranks_run_with(&options, share), 0);
}

/* ---------------------------------------------------------------- the end */

static void end_badly(void)
{
    _exit(3);
}

static int plan_a_bad_end(struct ranks_context *context)
{
    (void)context;
    CHECK(atexit(end_badly) == 0, "atexit");
    return 0;
}

/* As a leak checker does. In a program of its own, whose end is looked at. */
TEST(who_ends_badly_fails_the_program)
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "test_pool", "end badly", (char *)NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return ranks_run(RANKS_PROCESSES, 1, plan_a_bad_end, NULL);
    const struct rlimit one_byte = {1, 1};
    umask(022);
    setrlimit(RLIMIT_CORE, &one_byte);
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED)
        return EXIT_FAILURE;
    return tests_run(NULL, NULL);
}
