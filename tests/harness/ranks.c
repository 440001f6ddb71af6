/* SPDX-License-Identifier: MIT */
#include "ranks.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/machine.h"

enum { DEFAULT_DEADLINE_S = 120 };

struct rank_slot {
    _Atomic int finished;
    int result;
    char failure[1024];
};

/* One mapping that the test process, the host process and all ranks share. */
struct board {
    sem_t id_made; /* posted once per rank */
    int id_result;
    char id_failure[512];
    weft_unique_id id;
    uint32_t num_ranks;
    _Atomic uint32_t num_arrived, num_gone, barrier_round;
    struct rank_slot slots[RANKS_MAX];
    _Alignas(64) char shared[];
};

struct run {
    const struct ranks_options *options;
    rank_function function;
    struct board *board;
    size_t board_bytes;
    pid_t pids[RANKS_MAX]; /* of the ranks, or [0] of their common process; 0: reaped */
    int num_pids;
    pid_t host_pid;
    int host_pipe; /* closing it ends the host process */
    int num_failed;
};

struct rank_thread {
    struct run *run;
    int32_t rank;
    pthread_t thread;
};

double ranks_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void make_id(struct board *board, int32_t num_ranks)
{
    board->id_result = weft_unique_id_create(&board->id);
    snprintf(board->id_failure, sizeof(board->id_failure), "%s", weft_last_error());
    for (int32_t rank = 0; rank < num_ranks; rank++)
        sem_post(&board->id_made);
}

static struct board *board_of(struct ranks_context *context)
{
    return (struct board *)(void *)((char *)context->shared - offsetof(struct board, shared));
}

void ranks_barrier(struct ranks_context *context)
{
    struct board *board = board_of(context);
    uint32_t round = atomic_load(&board->barrier_round);
    atomic_fetch_add(&board->num_arrived, 1);
    const struct timespec pause = {.tv_nsec = 500000};
    while (atomic_load(&board->barrier_round) == round) {
        uint32_t num_arrived = atomic_load(&board->num_arrived);
        uint32_t num_expected = board->num_ranks - atomic_load(&board->num_gone);
        /* Whoever takes the arrivals away opens the next round. */
        if (num_arrived >= num_expected &&
            atomic_compare_exchange_strong(&board->num_arrived, &num_arrived, 0))
            atomic_fetch_add(&board->barrier_round, 1);
        else
            nanosleep(&pause, NULL);
    }
}

int ranks_warm_up(struct ranks_context *context)
{
    weft_comm *comm;
    if (!tests_on_cuda())
        return 0;
    RANK_CHECK_OK(context,
                  weft_comm_create(&context->id, context->rank, context->num_ranks, NULL, &comm));
    ranks_barrier(context);
    RANK_CHECK_OK(context, weft_comm_destroy(comm));
    ranks_barrier(context);
    return 0;
}

static int run_rank(struct run *run, int32_t rank)
{
    struct rank_slot *slot = &run->board->slots[rank];
    struct ranks_context context = {.rank = rank,
                                    .num_ranks = run->options->num_ranks,
                                    .argument = run->options->argument,
                                    .shared = run->board->shared};
    int result = 1;
    if (run->options->id != RANKS_ID_NONE) {
        while (sem_wait(&run->board->id_made) != 0)
            continue;
        context.id = run->board->id;
    }
    if (run->options->id != RANKS_ID_NONE && run->board->id_result != WEFT_OK)
        snprintf(context.failure, sizeof(context.failure), "weft_unique_id_create: %s",
                 run->board->id_failure);
    else
        result = run->function(&context);
    slot->result = result;
    memcpy(slot->failure, context.failure, sizeof(slot->failure));
    atomic_fetch_add(&run->board->num_gone, 1);
    atomic_store(&slot->finished, 1);
    return result;
}

static void *rank_thread_main(void *argument)
{
    struct rank_thread *self = argument;
    run_rank(self->run, self->rank);
    return NULL;
}

static void run_all_in_threads(struct run *run)
{
    int32_t num_ranks = run->options->num_ranks;
    struct rank_thread threads[RANKS_MAX];
    if (run->options->id != RANKS_ID_NONE)
        make_id(run->board, num_ranks);
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        threads[rank] = (struct rank_thread){.run = run, .rank = rank};
        if (pthread_create(&threads[rank].thread, NULL, rank_thread_main, &threads[rank]) != 0)
            exit(2);
    }
    for (int32_t rank = 0; rank < num_ranks; rank++)
        pthread_join(threads[rank].thread, NULL);
}

/* Forks; the child dies with the test process. */
static pid_t fork_child(void)
{
    fflush(NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        perror("fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(2);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
    }
    return pid;
}

/* The children leave through exit(), so that leak checkers look at them too. */
static void start_rank_process(struct run *run, int32_t rank)
{
    pid_t pid = fork_child();
    if (pid == 0) {
        if (run->host_pipe >= 0)
            close(run->host_pipe);
        if (rank == 0 && run->options->id == RANKS_ID_BY_RANK_0)
            make_id(run->board, run->options->num_ranks);
        exit(run_rank(run, rank) != 0);
    }
    run->pids[run->num_pids++] = pid;
}

static void start_thread_process(struct run *run)
{
    pid_t pid = fork_child();
    if (pid == 0) {
        tests_expect_ranks(run->options->num_ranks);
        run_all_in_threads(run);
        exit(0);
    }
    run->pids[run->num_pids++] = pid;
}

static void start_host_process(struct run *run)
{
    int ends[2];
    if (pipe(ends) != 0)
        return;
    run->host_pid = fork_child();
    if (run->host_pid == 0) {
        close(ends[1]);
        make_id(run->board, run->options->num_ranks);
        char byte;
        while (read(ends[0], &byte, 1) > 0)
            continue;
        exit(0);
    }
    close(ends[0]);
    run->host_pipe = ends[1];
}

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
    for (int index = 0; index < run->num_pids; index++)
        if (run->pids[index] > 0)
            kill(run->pids[index], SIGKILL);
}

/* Reaps what has ended; returns how many processes still run. */
static int reap(struct run *run)
{
    int num_running = 0;
    for (int index = 0; index < run->num_pids; index++) {
        int status = W_EXITCODE(2, 0); /* of a process that could not be forked */
        if (run->pids[index] == 0)
            continue;
        if (run->pids[index] > 0 && waitpid(run->pids[index], &status, WNOHANG) == 0) {
            num_running++;
            continue;
        }
        run->pids[index] = 0;
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
    double deadline = ranks_seconds() + limit_s;
    int killed = 0;
    while (reap(run) > 0) {
        struct timespec slice = {.tv_sec = 1};
        sigtimedwait(&child, NULL, &slice);
        if (!killed && ranks_seconds() > deadline) {
            kill_all(run);
            killed = 1;
        }
    }
}

static void end_host_process(struct run *run)
{
    if (run->host_pid <= 0)
        return;
    int status = 0;
    close(run->host_pipe);
    waitpid(run->host_pid, &status, 0);
    if (status != 0) {
        fprintf(stderr, "the process of the rendezvous failed: wait status %#x\n",
                (unsigned)status);
        run->num_failed++;
    }
}

static void start_all(struct run *run)
{
    if (run->options->mode == RANKS_THREADS) {
        start_thread_process(run);
        return;
    }
    if (run->options->id == RANKS_ID_BY_HOST)
        start_host_process(run);
    for (int32_t rank = 0; rank < run->options->num_ranks; rank++)
        start_rank_process(run, rank);
}

int ranks_run_with(const struct ranks_options *options, rank_function function)
{
    struct run run = {.options = options, .function = function, .host_pipe = -1};
    if (options->num_ranks < 1 || options->num_ranks > RANKS_MAX)
        return 1;
    tests_choose_machine();
    run.board_bytes = sizeof(struct board) + options->shared_bytes;
    run.board =
        mmap(NULL, run.board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run.board == MAP_FAILED)
        return options->num_ranks;
    sem_init(&run.board->id_made, 1, 0);
    run.board->num_ranks = (uint32_t)options->num_ranks;
    sigset_t child, before;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    start_all(&run);
    wait_for_all(&run);
    end_host_process(&run);
    sigprocmask(SIG_SETMASK, &before, NULL);
    sem_destroy(&run.board->id_made);
    munmap(run.board, run.board_bytes);
    return run.num_failed;
}

int ranks_run(enum ranks_mode mode, int32_t num_ranks, rank_function function, void *argument)
{
    struct ranks_options options = {.mode = mode, .num_ranks = num_ranks, .argument = argument};
    return ranks_run_with(&options, function);
}
