/* SPDX-License-Identifier: MIT */
/*
 * One thread, one loop: it sleeps in poll until a rank writes, a signal arrives (through a signalfd:
 * they are blocked from the start, also for the rendezvous thread) or a deadline passes. That a rank has
 * ended it sees for itself, soon after at the latest: threads of libraries, CUDA's for one, may have been there
 * before, and one that does not block SIGCHLD takes it, and drops it. The first
 * failure starts a countdown: the other ranks learn of it through weft and get grace_s to end by
 * themselves, then SIGTERM, then SIGKILL.
 */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "lines.h"

static const double kill_delay_s = 2; /* between SIGTERM and SIGKILL */
enum { LOOK_MS = 100 };               /* for ranks that have ended */

struct rank_process {
    pid_t pid; /* 0: ended */
    struct lines out, err;
};

enum phase { PHASE_RUNNING, PHASE_GRACE, PHASE_TERMINATED, PHASE_KILLED };

struct job {
    const struct launch *launch;
    struct rank_process *ranks;
    struct pollfd *polls; /* the signalfd, then out and err of each rank */
    int32_t num_running;
    int signal_fd;
    enum phase phase;
    double deadline_s; /* of the phases GRACE and TERMINATED */
    int exit_status;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void signal_all(const struct job *job, int signal_number)
{
    for (int32_t r = 0; r < job->launch->num_ranks; r++)
        if (job->ranks[r].pid > 0)
            kill(-job->ranks[r].pid, signal_number);
}

static void record_failure(struct job *job, int exit_status)
{
    if (job->phase != PHASE_RUNNING)
        return;
    job->exit_status = exit_status;
    job->phase = PHASE_GRACE;
    job->deadline_s = now_s() + job->launch->grace_s;
}

static void record_end(struct job *job, int32_t rank, int wait_status)
{
    const struct launch *launch = job->launch;
    int is_first = job->phase == PHASE_RUNNING;
    if (WIFSIGNALED(wait_status)) {
        int signal_number = WTERMSIG(wait_status);
        if (is_first)
            fprintf(stderr, "%s: rank %d was killed by signal %d (%s)\n", launch->command,
                    launch->first_rank + rank, signal_number, strsignal(signal_number));
        record_failure(job, STATUS_SIGNAL + signal_number);
    } else if (WEXITSTATUS(wait_status) != 0) {
        if (is_first && launch->report == LAUNCH_REPORT_FAILURES)
            fprintf(stderr, "%s: rank %d exited with status %d\n", launch->command,
                    launch->first_rank + rank, WEXITSTATUS(wait_status));
        record_failure(job, WEXITSTATUS(wait_status));
    }
}

/* Signals of several children may arrive as one, so all ranks are looked at. */
static void reap(struct job *job)
{
    int32_t num_ranks = job->launch->num_ranks;
    for (int32_t i = 0; i < 2 * num_ranks; i++) {
        int32_t r = i % num_ranks;
        struct rank_process *rank = &job->ranks[r];
        siginfo_t info = {0};
        int wait_status;
        if (rank->pid == 0 ||
            waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid == 0)
            continue;
        /* Of those that have ended together, one that was killed is the cause: it comes first. */
        if (i < num_ranks && info.si_code == CLD_EXITED)
            continue;
        /* What the rank itself started goes with it, while its id still cannot be reused. */
        kill(-rank->pid, SIGKILL);
        waitpid(rank->pid, &wait_status, 0);
        rank->pid = 0;
        job->num_running--;
        lines_close(&rank->out);
        lines_close(&rank->err);
        record_end(job, r, wait_status);
    }
}

static void take_signals(struct job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo != SIGCHLD)
            signal_all(job, (int)info.ssi_signo);
    }
}

static void pass_deadline(struct job *job)
{
    int has_deadline = job->phase == PHASE_GRACE || job->phase == PHASE_TERMINATED;
    if (!has_deadline || now_s() < job->deadline_s)
        return;
    if (job->phase == PHASE_GRACE) {
        fprintf(stderr, "%s: %g s after the first failure: SIGTERM to the remaining ranks (%d)\n",
                job->launch->command, job->launch->grace_s, job->num_running);
        signal_all(job, SIGTERM);
        job->phase = PHASE_TERMINATED;
        job->deadline_s = now_s() + kill_delay_s;
    } else {
        signal_all(job, SIGKILL);
        job->phase = PHASE_KILLED;
    }
}

static int poll_timeout_ms(const struct job *job)
{
    if (job->phase != PHASE_GRACE && job->phase != PHASE_TERMINATED)
        return LOOK_MS;
    double remaining_ms = (job->deadline_s - now_s()) * 1000;
    if (remaining_ms < 0)
        return 0;
    return remaining_ms < LOOK_MS ? (int)remaining_ms + 1 : LOOK_MS;
}

static void supervise(struct job *job)
{
    int32_t num_ranks = job->launch->num_ranks;
    while (job->num_running > 0) {
        job->polls[0] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
        for (int32_t r = 0; r < num_ranks; r++) {
            struct rank_process *rank = &job->ranks[r];
            job->polls[1 + 2 * r] = (struct pollfd){.fd = rank->out.fd, .events = POLLIN};
            job->polls[2 + 2 * r] = (struct pollfd){.fd = rank->err.fd, .events = POLLIN};
        }
        if (poll(job->polls, 1 + 2 * (nfds_t)num_ranks, poll_timeout_ms(job)) < 0 && errno != EINTR)
            record_failure(job, STATUS_FAILURE);
        for (int32_t r = 0; r < num_ranks; r++) {
            if (job->polls[1 + 2 * r].revents)
                lines_copy(&job->ranks[r].out);
            if (job->polls[2 + 2 * r].revents)
                lines_copy(&job->ranks[r].err);
        }
        take_signals(job);
        reap(job);
        pass_deadline(job);
    }
}

static void start_failed(struct job *job, int32_t rank, int error)
{
    const struct launch *launch = job->launch;
    int status = error == ENOENT   ? STATUS_NOT_FOUND
                 : error == EACCES ? STATUS_NOT_EXECUTABLE
                                   : STATUS_FAILURE;
    fprintf(stderr, "%s: cannot start rank %d, %s: %s\n", launch->command,
            launch->first_rank + rank, launch->argv[0], strerror(error));
    record_failure(job, status);
    signal_all(job, SIGKILL);
    job->phase = PHASE_KILLED;
}

static void start_ranks(struct job *job, const struct spawn *spawn)
{
    const struct launch *launch = job->launch;
    for (int32_t r = 0; r < launch->num_ranks; r++) {
        struct spawned spawned;
        int error = spawn_rank(spawn, launch->first_rank + r, &spawned);
        if (error != 0) {
            start_failed(job, r, error);
            return;
        }
        struct rank_process *rank = &job->ranks[r];
        rank->pid = spawned.pid;
        lines_open(&rank->out, spawned.stdout_fd, stdout, launch->first_rank + r);
        lines_open(&rank->err, spawned.stderr_fd, stderr, launch->first_rank + r);
        job->num_running++;
    }
}

static int allocate(struct job *job)
{
    size_t num_ranks = (size_t)job->launch->num_ranks;
    job->ranks = calloc(num_ranks, sizeof *job->ranks);
    job->polls = calloc(1 + 2 * num_ranks, sizeof *job->polls);
    if (!job->ranks || !job->polls)
        return -1;
    for (size_t r = 0; r < num_ranks; r++)
        job->ranks[r].out.fd = job->ranks[r].err.fd = -1;
    return 0;
}

static weft_result open_meeting(const struct launch *launch, weft_unique_id *id)
{
    if (launch->meeting == LAUNCH_MEET_HERE)
        return weft_unique_id_create(id);
    *id = launch->id;
    return launch->meeting == LAUNCH_SERVE ? weft_rendezvous_serve(id) : WEFT_OK;
}

/* Ranks of other hosts may go on for longer, and lose their failure detector with us. They have been told of
 * a failure; then they get no more time than our own had. A signal ends it. */
static void serve_the_others(struct job *job)
{
    const struct launch *launch = job->launch;
    const double deadline_s = now_s() + launch->grace_s;
    struct signalfd_siginfo info;
    while (weft_rendezvous_num_ranks(&launch->id) > 0) {
        struct pollfd signals = {.fd = job->signal_fd, .events = POLLIN};
        if (job->exit_status != 0 && now_s() >= deadline_s)
            return;
        if (poll(&signals, 1, LOOK_MS) <= 0)
            continue;
        if (read(job->signal_fd, &info, sizeof info) == sizeof info && info.ssi_signo != SIGCHLD) {
            if (job->exit_status == 0)
                job->exit_status = STATUS_SIGNAL + (int)info.ssi_signo;
            return;
        }
    }
}

int launch_ranks(const struct launch *launch)
{
    struct job job = {.launch = launch, .signal_fd = -1};
    struct spawn spawn = {.num_ranks = launch->num_job_ranks,
                          .num_nodes = launch->num_nodes,
                          .argv = launch->argv,
                          .output = launch->output};
    const int handled[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
        sigaddset(&signals, handled[i]);
    sigprocmask(SIG_BLOCK, &signals, &spawn.signal_mask);
    signal(SIGPIPE, SIG_IGN); /* lines.c closes the rank's pipe instead */

    job.signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (job.signal_fd < 0 || allocate(&job) != 0) {
        fprintf(stderr, "%s: %s\n", launch->command, strerror(errno));
        job.exit_status = STATUS_FAILURE;
    } else if (open_meeting(launch, &spawn.id) != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", launch->command, weft_last_error());
        job.exit_status = STATUS_FAILURE;
    } else {
        start_ranks(&job, &spawn);
        supervise(&job);
        if (launch->meeting == LAUNCH_SERVE)
            serve_the_others(&job);
    }
    if (job.signal_fd >= 0)
        close(job.signal_fd);
    free(job.ranks);
    free(job.polls);
    return job.exit_status;
}
