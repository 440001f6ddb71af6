/* SPDX-License-Identifier: MIT */
#include "ranks.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

#include "harness/board.h"
#include "harness/machine.h"
#include "harness/memory.h"
#include "harness/pool.h"

enum {
    DEFAULT_DEADLINE_S = 600
}; /* half of ctest's: a hang names its ranks also on a machine that others want */

/* Where a rank's process, the process of all ranks that are threads, and that of the rendezvous are
 * kept. */
enum { PLACE_OF_RANKS = 0, PLACE_OF_THREADS = RANKS_MAX, PLACE_OF_HOST = POOL_MAX_PLACES - 1 };

struct run {
    const struct ranks_options *options;
    struct board *board;
    int32_t first_place;
    int num_processes;
    int is_running[RANKS_MAX]; /* by process: of the ranks, or [0] of their common one */
    int num_failed;
};

static void report(struct run *run, int32_t rank, const char *message)
{
    fprintf(stderr, "rank %d of %d failed: %s\n", rank, run->options->num_ranks, message);
    run->num_failed++;
}

/* Judges the ranks of process `index`, which ended with the given wait status. */
static void judge(struct run *run, int index, int status)
{
    int threads = run->options->mode == RANKS_THREADS;
    char how[64];
    snprintf(how, sizeof(how), WIFSIGNALED(status) ? "killed by signal %d" : "exit status %d",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    int num_failed_before = run->num_failed;
    int32_t first = threads ? 0 : index;
    int32_t end = threads ? run->options->num_ranks : index + 1;
    for (int32_t rank = first; rank < end; rank++) {
        const struct rank_slot *slot = &run->board->slots[rank];
        if (!atomic_load(&slot->finished)) {
            if (!(WIFSIGNALED(status) && (run->options->may_die >> rank & 1)))
                report(run, rank, how);
        } else if (slot->result != 0) {
            report(run, rank, slot->failure[0] != '\0' ? slot->failure : "no message");
        }
    }
    int may_die = !threads && (run->options->may_die >> index & 1) && WIFSIGNALED(status);
    if (status != 0 && !may_die && run->num_failed == num_failed_before)
        report(run, first, how);
}

static void kill_all(struct run *run)
{
    for (int32_t rank = 0; rank < run->options->num_ranks; rank++)
        if (!atomic_load(&run->board->slots[rank].finished))
            fprintf(stderr, "rank %d of %d hung\n", rank, run->options->num_ranks);
    for (int index = 0; index < run->num_processes; index++)
        if (run->is_running[index])
            pool_kill(run->first_place + index);
}

/* Judges what has ended; returns how many processes still run. */
static int look(struct run *run)
{
    int num_running = 0;
    for (int index = 0; index < run->num_processes; index++) {
        int status;
        if (!run->is_running[index])
            continue;
        if (pool_look(run->first_place + index, &status) == POOL_BUSY) {
            num_running++;
            continue;
        }
        run->is_running[index] = 0;
        /* A killed rank never reports itself gone. */
        if (run->options->mode == RANKS_PROCESSES &&
            !atomic_load(&run->board->slots[index].finished))
            atomic_fetch_add(&run->board->num_gone, 1);
        judge(run, index, status);
    }
    return num_running;
}

static void wait_for_all(struct run *run)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    uint32_t limit_s =
        run->options->deadline_s != 0 ? run->options->deadline_s : DEFAULT_DEADLINE_S;
    double deadline = clock_s() + limit_s;
    int killed = 0;
    while (look(run) > 0) {
        struct timespec slice = {.tv_sec = 1};
        sigtimedwait(&child, NULL, &slice);
        if (!killed && clock_s() > deadline) {
            kill_all(run);
            killed = 1;
        }
    }
}

static int has_host(const struct ranks_options *options)
{
    return options->mode == RANKS_PROCESSES && options->id == RANKS_ID_BY_HOST;
}

static void await_host(struct run *run)
{
    const struct timespec pause = {.tv_nsec = 100000};
    int status = 0;
    sem_post(&run->board->host_may_leave);
    while (pool_look(PLACE_OF_HOST, &status) == POOL_BUSY)
        nanosleep(&pause, NULL);
    if (status != 0) {
        fprintf(stderr, "the process of the rendezvous failed: wait status %#x\n",
                (unsigned)status);
        run->num_failed++;
    }
}

/* Ranks that are threads need as many queues of a GPU as they are, which a process is started
 * with. */
static struct run run_of(const struct ranks_options *options)
{
    struct run run = {.options = options, .num_processes = 1};
    run.first_place = PLACE_OF_THREADS + tests_num_queues(options->num_ranks) / 8;
    if (options->mode == RANKS_PROCESSES) {
        run.first_place = PLACE_OF_RANKS;
        run.num_processes = options->num_ranks;
    }
    return run;
}

static int fill_places(const struct run *run)
{
    int failed = 0;
    for (int index = 0; index < run->num_processes; index++)
        failed |= pool_fill(run->first_place + index);
    if (has_host(run->options))
        failed |= pool_fill(PLACE_OF_HOST);
    return failed;
}

static void open_board(struct run *run, rank_function function)
{
    const struct ranks_options *options = run->options;
    struct board *board = memory_alloc_common(sizeof(struct board) + options->shared_bytes);
    board->options = *options;
    board->function = function;
    board->num_ranks = (uint32_t)options->num_ranks;
    if (options->argument != NULL) {
        void *copy = tests_alloc(options->argument_bytes);
        memcpy(copy, options->argument, options->argument_bytes);
        board->options.argument = copy;
    }
    sem_init(&board->id_made, 1, 0);
    sem_init(&board->host_may_leave, 1, 0);
    run->board = board;
}

static void close_board(struct run *run)
{
    sem_destroy(&run->board->id_made);
    sem_destroy(&run->board->host_may_leave);
    tests_free(run->board->options.argument);
    memory_free_common(run->board);
}

static void start_all(struct run *run)
{
    const struct pool_task host = {.function = board_be_host, .common = run->board};
    if (has_host(run->options))
        pool_give(PLACE_OF_HOST, &host);
    for (int index = 0; index < run->num_processes; index++) {
        const struct pool_task task = {
            .function = run->options->mode == RANKS_THREADS ? board_be_threads : board_be_process,
            .common = run->board,
            .index = index};
        pool_give(run->first_place + index, &task);
        run->is_running[index] = 1;
    }
}

_Thread_local struct ranks_context *ranks_self;

void ranks_note(const char *file, int line, const char *condition, const char *format, ...)
{
    char text[sizeof ranks_self->failure];
    const int length = snprintf(text, sizeof text, "%s:%d: %s: ", file, line, condition);
    va_list arguments;
    va_start(arguments, format);
    if (length >= 0 && (size_t)length < sizeof text)
        vsnprintf(text + length, sizeof text - (size_t)length, format, arguments);
    va_end(arguments);
    memcpy(ranks_self->failure, text, sizeof text);
}

int ranks_run_with(const struct ranks_options *options, rank_function function)
{
    sigset_t child, before;
    if (options->num_ranks < 1 || options->num_ranks > RANKS_MAX)
        return 1;
    if (options->argument != NULL && options->argument_bytes == 0) {
        fprintf(stderr, "ranks_run_with: how long is the argument?\n");
        return options->num_ranks;
    }
    tests_choose_machine();
    struct run run = run_of(options);
    if (fill_places(&run) != 0)
        return options->num_ranks;
    open_board(&run, function);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    start_all(&run);
    wait_for_all(&run);
    if (has_host(options))
        await_host(&run);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close_board(&run);
    return run.num_failed;
}

int ranks_run_sized(enum ranks_mode mode, int32_t num_ranks, rank_function function,
                    const void *argument, size_t argument_bytes)
{
    const struct ranks_options options = {.mode = mode,
                                          .num_ranks = num_ranks,
                                          .argument = argument,
                                          .argument_bytes = argument_bytes};
    return ranks_run_with(&options, function);
}

int ranks_run_in_both_modes(int32_t num_ranks, rank_function function)
{
    const enum ranks_mode modes[] = {RANKS_THREADS, RANKS_PROCESSES};
    int num_failed = 0;
    for (int i = 0; i < 2; i++)
        num_failed += ranks_run(modes[i], num_ranks, function, &modes[i]);
    return num_failed;
}

int ranks_run_host(int32_t num_ranks, rank_function function)
{
    const int num_failed = ranks_run(RANKS_THREADS, num_ranks, function, NULL);
    return tests_on_cuda() ? num_failed
                           : num_failed + ranks_run(RANKS_PROCESSES, num_ranks, function, NULL);
}
