/* SPDX-License-Identifier: MIT */
#include "harness/worker.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/memory.h"

/* ---------------------------------------------------------------- the environment */

char *worker_environment(void)
{
    size_t bytes = 1;
    for (char **entry = environ; *entry != NULL; entry++)
        bytes += strlen(*entry) + 1;
    char *block = tests_alloc(bytes), *end = block;
    for (char **entry = environ; *entry != NULL; entry++)
        end = stpcpy(end, *entry) + 1;
    return block;
}

static int has_environment(const char *block)
{
    char **entry = environ;
    for (; entry != NULL && *entry != NULL && strcmp(*entry, block) == 0; entry++)
        block += strlen(block) + 1;
    return entry != NULL && *entry == NULL && *block == '\0';
}

static void take_environment(const char *block)
{
    if (has_environment(block)) /* as nearly always: threads of libraries may read it */
        return;
    clearenv();
    for (; *block != '\0'; block += strlen(block) + 1) {
        const size_t length = strcspn(block, "=");
        char *name = strndup(block, length);
        if (name != NULL)
            setenv(name, block + length + 1, 1);
        free(name);
    }
}

/* ---------------------------------------------------------------- what else a task may have
 * changed */

struct state {
    struct sigaction actions[NSIG];
    sigset_t blocked;
    struct rlimit limits[RLIMIT_NLIMITS];
    struct stat folder;
    mode_t mask;
};

static void state_take(struct state *state)
{
    memset(state, 0, sizeof *state);
    for (int signal = 1; signal < NSIG; signal++)
        (void)sigaction(signal, NULL, &state->actions[signal]);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &state->blocked);
    for (int limit = 0; limit < RLIMIT_NLIMITS; limit++)
        (void)getrlimit(limit, &state->limits[limit]);
    (void)stat(".", &state->folder);
    state->mask = umask(0);
    umask(state->mask);
}

/* What signals do is put back, since libraries that a task loads, such as UCX, change it for
 * good. */
static void restore_actions(const struct state *state)
{
    for (int signal = 1; signal < NSIG; signal++)
        (void)sigaction(signal, &state->actions[signal], NULL);
}

static int state_is_same(const struct state *a, const struct state *b)
{
    return memcmp(&a->blocked, &b->blocked, sizeof a->blocked) == 0 &&
           memcmp(a->limits, b->limits, sizeof a->limits) == 0 && a->mask == b->mask &&
           a->folder.st_dev == b->folder.st_dev && a->folder.st_ino == b->folder.st_ino;
}

/* ---------------------------------------------------------------- tasks */

struct work {
    struct pool_task task;
    int result;
};

static void *work(void *argument)
{
    struct work *self = argument;
    self->result = self->task.function(self->task.common, self->task.index);
    return NULL;
}

/* In a thread of its own, with which goes what libraries keep for each thread, such as CUDA's
 * current context. */
static int do_task(const struct worker_order *order)
{
    struct state before, after;
    struct work self = {.task = order->task};
    pthread_t thread;
    memory_take_copy();
    take_environment(order->environment);
    state_take(&before);
    if (pthread_create(&thread, NULL, work, &self) != 0 || pthread_join(thread, NULL) != 0)
        return 1;
    state_take(&after);
    restore_actions(&before);
    fflush(NULL);
    return self.result != 0 || !state_is_same(&before, &after);
}

_Noreturn void worker_serve(struct worker_card *card, int orders_fd)
{
    struct worker_order order;
    const pid_t test = getppid();
    memory_enter_worker();
    while (read(orders_fd, &order, sizeof order) == (ssize_t)sizeof order) {
        if (do_task(&order) != 0)
            atomic_store(&card->is_spent, 1);
        atomic_fetch_add(&card->num_done, 1);
        kill(test, SIGCHLD);
    }
    exit(0);
}
