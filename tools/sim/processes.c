/* SPDX-License-Identifier: MIT */
#include "processes.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int32_t processes_default(void)
{
    cpu_set_t cpus;
    const int count = sched_getaffinity(0, sizeof cpus, &cpus) == 0
                          ? CPU_COUNT(&cpus)
                          : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count > PROCESSES_MAX ? PROCESSES_MAX : count;
}

void *processes_alloc(size_t num_bytes)
{
    void *memory = mmap(NULL, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void processes_free(void *memory, size_t num_bytes)
{
    munmap(memory, num_bytes);
}

static pid_t start(const struct processes *processes, int32_t number)
{
    const pid_t starter = getpid();
    fflush(NULL);
    const pid_t child = fork();
    if (child != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(getppid() != starter || processes->work(processes->argument, number) != 0);
}

/* One that has ended: 0, or -1 if it has failed. */
static int reap(const struct processes *processes, pid_t *child, int32_t number, int status)
{
    *child = -1;
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status) == 0 ? 0 : -1;
    if (!processes->go_on(processes->argument, number))
        return 0;
    *child = start(processes, number);
    return *child > 0 ? 0 : -1;
}

static int reap_ended(const struct processes *processes, pid_t *children, int32_t *num_running)
{
    int result = 0;
    *num_running = 0;
    for (int32_t i = 0; i < processes->count; i++) {
        int status;
        if (children[i] > 0 && waitpid(children[i], &status, WNOHANG) == children[i])
            result |= reap(processes, &children[i], i, status);
        *num_running += children[i] > 0;
    }
    return result;
}

int processes_run(const struct processes *processes)
{
    pid_t children[PROCESSES_MAX];
    const struct timespec pause = {.tv_nsec = 100000000L};
    sigset_t ended, before;
    int32_t num_running = 0;
    int result = 0;
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ended, &before);
    for (int32_t i = 0; i < processes->count; i++) {
        children[i] = start(processes, i);
        num_running += children[i] > 0;
        result |= children[i] > 0 ? 0 : -1;
    }
    while (num_running > 0) {
        sigtimedwait(&ended, NULL, &pause);
        processes->idle(processes->argument);
        result |= reap_ended(processes, children, &num_running);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return result;
}
