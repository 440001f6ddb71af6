/* SPDX-License-Identifier: MIT */
#include "harness/pool.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/memory.h"
#include "harness/worker.h"

/* Processes that have ended are given so long, with their leak checkers. */
enum { END_WITHIN_S = 60 };

struct place {
    pid_t pid; /* 0: nobody */
    int orders_fd;
    struct worker_card *card;
    uint32_t num_given;
    const char *environment;
};

static struct place places[POOL_MAX_PLACES];
static pid_t test_pid;

static void be_worker(struct place *place, int orders_fd)
{
    sigset_t none;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != test_pid)
        _exit(2);
    /* Else a worker's socket would stay open when the test has closed it. */
    for (int32_t i = 0; i < POOL_MAX_PLACES; i++)
        if (places[i].pid != 0)
            close(places[i].orders_fd);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    worker_serve(place->card, orders_fd);
}

/* Reaps a worker that is to end, or ends it. */
static int await_end(struct place *place)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int status = 0;
    close(place->orders_fd);
    for (int64_t i = 0; i < INT64_C(1000) * END_WITHIN_S; i++) {
        if (waitpid(place->pid, &status, WNOHANG) == place->pid)
            break;
        if (i == INT64_C(1000) * END_WITHIN_S - 1) {
            fprintf(stderr, "process %d of a rank does not end\n", (int)place->pid);
            kill(place->pid, SIGKILL);
            waitpid(place->pid, &status, 0);
        }
        nanosleep(&pause, NULL);
    }
    place->pid = 0;
    return status;
}

/* The test's process alone does it: its children inherit this. All workers end at once, and each
 * must end well. */
static void close_all(void)
{
    int num_failed = 0;
    if (getpid() != test_pid)
        return;
    for (int32_t i = 0; i < POOL_MAX_PLACES; i++) {
        if (places[i].pid != 0)
            close(places[i].orders_fd);
        places[i].orders_fd = -1;
    }
    for (int32_t i = 0; i < POOL_MAX_PLACES; i++) {
        const int status = places[i].pid != 0 ? await_end(&places[i]) : 0;
        if (status != 0)
            fprintf(stderr, "a rank's process ended with wait status %#x\n", (unsigned)status);
        num_failed += status != 0;
    }
    if (num_failed == 0)
        return;
    fflush(NULL);
    _exit(EXIT_FAILURE);
}

/* Arrays of a test come and go. Memory that is given back to the system in between costs a page
 * fault for each page when it is used again. */
static void keep_freed_memory(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the most that there is */
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

/* Before main, where the test's memory begins. */
__attribute__((constructor)) static void open_pool(void)
{
    test_pid = getpid();
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* in order with what ranks say, and when they say it */
    keep_freed_memory();
    memory_open();
    struct worker_card *cards = memory_alloc_common(POOL_MAX_PLACES * sizeof *cards);
    for (int32_t i = 0; i < POOL_MAX_PLACES; i++)
        places[i].card = &cards[i];
    (void)atexit(close_all);
}

static int start(struct place *place)
{
    int ends[2];
    atomic_store(&place->card->num_done, 0);
    atomic_store(&place->card->is_spent, 0);
    place->num_given = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return -1;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        be_worker(place, ends[0]);
    }
    close(ends[0]);
    if (pid < 0) {
        perror("fork");
        close(ends[1]);
        return -1;
    }
    place->pid = pid;
    place->orders_fd = ends[1];
    return 0;
}

int pool_fill(int32_t place)
{
    struct place *self = &places[place];
    int status;
    if (self->pid != 0 && waitpid(self->pid, &status, WNOHANG) == self->pid) {
        fprintf(stderr, "a rank's process ended by itself, with wait status %#x\n",
                (unsigned)status);
        close(self->orders_fd);
        self->pid = 0;
        return -1;
    }
    return self->pid != 0 ? 0 : start(self);
}

void pool_give(int32_t place, const struct pool_task *task)
{
    struct place *self = &places[place];
    self->environment = worker_environment();
    const struct worker_order order = {*task, self->environment};
    self->num_given++;
    if (send(self->orders_fd, &order, sizeof order, MSG_NOSIGNAL) != (ssize_t)sizeof order)
        kill(self->pid, SIGKILL); /* which the run will hear of */
}

enum pool_state pool_look(int32_t place, int *status)
{
    struct place *self = &places[place];
    enum pool_state state = POOL_DONE;
    *status = 0;
    if (waitpid(self->pid, status, WNOHANG) == self->pid) {
        close(self->orders_fd);
        self->pid = 0;
        state = POOL_DEAD;
    } else if (atomic_load(&self->card->num_done) != self->num_given) {
        return POOL_BUSY;
    } else if (atomic_load(&self->card->is_spent)) {
        *status = await_end(self);
        state = POOL_DEAD;
    }
    tests_free(self->environment);
    return state;
}

void pool_kill(int32_t place)
{
    if (places[place].pid != 0)
        kill(places[place].pid, SIGKILL);
}
