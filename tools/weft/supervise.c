/* SPDX-License-Identifier: MIT */
#include "supervise.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command.h"
#include "status_report.h"
#include "workload/clock.h"
#include "workload/failure.h"
#include "workload/signals.h"

static const double kill_delay_s =
    2; /* between SIGTERM and SIGKILL, and for readers after SIGKILL */
static const double same_signal_s = 0.2;
enum { LOOK_MS = 100 }; /* for ranks that have ended */

/* Nobody may read our standard error any more, or not now: then the message is lost, and nothing
 * waits. */
static void tell(const struct job *job, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void tell(const struct job *job, const char *format, ...)
{
    struct pollfd reader = {.fd = STDERR_FILENO, .events = POLLOUT};
    va_list arguments;
    if (poll(&reader, 1, 0) != 1)
        return;
    fprintf(stderr, "%s: ", job->launch->command);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

const char *job_name(const struct launch *launch, int32_t rank, char name[JOB_NAME_BYTES])
{
    const struct hosts *hosts = launch->hosts;
    const int32_t first = hosts ? rank * hosts->ranks_per_host : launch->first_rank + rank;
    if (hosts)
        snprintf(name, JOB_NAME_BYTES, "host %s (ranks %d-%d)", hosts->hosts[rank].name, first,
                 first + hosts->ranks_per_host - 1);
    else
        snprintf(name, JOB_NAME_BYTES, "rank %d", first);
    return name;
}

/* Lists the ranks that run, as "0, 3, 5"; names at most MAX_NAMED of them. */
static const char *list_running(const struct job *job, char *list, size_t list_bytes)
{
    enum { MAX_NAMED = 16 };
    int32_t num_named = 0;
    size_t length = 0;
    list[0] = '\0';
    for (int32_t r = 0; r < job->launch->num_ranks; r++) {
        if (job->ranks[r].pid <= 0)
            continue;
        const char *before = num_named == 0 ? "" : ", ";
        if (num_named++ == MAX_NAMED || length >= list_bytes / 2) {
            snprintf(list + length, list_bytes - length, ", ...");
            break;
        }
        if (job->launch->hosts)
            length += (size_t)snprintf(list + length, list_bytes - length, "%s%s", before,
                                       job->launch->hosts->hosts[r].name);
        else
            length += (size_t)snprintf(list + length, list_bytes - length, "%s%d", before,
                                       job->launch->first_rank + r);
    }
    return list;
}

/* On another host the ranks' launcher passes it on, and continues those that it ends. */
static void send_signal(const struct rank_process *process, int signal_number)
{
    const unsigned char byte = (unsigned char)signal_number;
    if (process->control_fd < 0 || signal_number == SIGKILL)
        kill(-process->pid, signal_number);
    else if (signal_number != SIGCONT)
        (void)!write(process->control_fd, &byte, 1);
}

static void signal_all(const struct job *job, int signal_number)
{
    for (int32_t r = 0; r < job->launch->num_ranks; r++)
        if (job->ranks[r].pid > 0)
            send_signal(&job->ranks[r], signal_number);
}

static void begin_grace(struct job *job)
{
    if (job->phase != JOB_RUNNING)
        return;
    job->phase = JOB_GRACE;
    job->deadline_s = clock_s() + job->launch->grace_s;
}

void job_fail(struct job *job, int exit_status)
{
    if (job->exit_status == 0)
        job->exit_status = exit_status;
    begin_grace(job);
}

/* From now on ranks end because we make them. */
static void stop_waiting(struct job *job)
{
    if (job->exit_status == 0)
        job->exit_status = STATUS_SIGNAL + job->stop_signal;
}

void job_kill(struct job *job)
{
    signal_all(job, SIGKILL);
    job->phase = JOB_KILLED;
    job->deadline_s = clock_s() + kill_delay_s;
}

/* ---------------------------------------------------------------- ends of ranks */

/* A rank that is killed has closed its connections before it has ended: others, who learn of it so,
 * may end before. But what we end is no cause. */
static int is_cause(const struct job *job)
{
    return !job->has_killed && job->phase == JOB_GRACE && job->stop_signal == 0;
}

static void record_end(struct job *job, int32_t rank, int wait_status)
{
    const struct launch *launch = job->launch;
    const int is_first = job->exit_status == 0;
    char name[JOB_NAME_BYTES];
    job_name(launch, rank, name);
    if (WIFSIGNALED(wait_status)) {
        const int signal_number = WTERMSIG(wait_status);
        if (is_first || is_cause(job))
            tell(job, "%s was killed by signal %d (%s)%s", name, signal_number,
                 strsignal(signal_number),
                 signal_number == SIGKILL ? ": out of memory? dmesg(1) tells" : "");
        job->has_killed = 1;
        job_fail(job, STATUS_SIGNAL + signal_number);
    } else if (WEXITSTATUS(wait_status) != 0) {
        if (is_first && launch->report == LAUNCH_REPORT_FAILURES)
            tell(job, "%s exited with status %d%s", name, WEXITSTATUS(wait_status),
                 launch->hosts && WEXITSTATUS(wait_status) == STATUS_SSH
                     ? ": it cannot be reached, or the connection broke"
                     : "");
        job_fail(job, WEXITSTATUS(wait_status));
        /* The rank that refuses an argument aborts the others, which may end first. */
        if (launch->report == LAUNCH_REPORT_SIGNALS && job->exit_status == STATUS_FAILURE &&
            WEXITSTATUS(wait_status) == STATUS_USAGE)
            job->exit_status = STATUS_USAGE;
    }
}

static void reap_rank(struct job *job, int32_t rank)
{
    struct rank_process *process = &job->ranks[rank];
    int wait_status;
    /* Processes that the rank started go with it, while its id still cannot be reused. */
    kill(-process->pid, SIGKILL);
    waitpid(process->pid, &wait_status, 0);
    process->pid = 0;
    job->num_running--;
    lines_close(&process->out);
    lines_close(&process->err);
    if (process->control_fd >= 0)
        close(process->control_fd);
    process->control_fd = -1;
    record_end(job, rank, wait_status);
}

static int is_rank(const struct job *job, pid_t pid)
{
    for (int32_t r = 0; r < job->launch->num_ranks; r++)
        if (job->ranks[r].pid == pid)
            return 1;
    return 0;
}

static void reap_orphans(const struct job *job)
{
    siginfo_t info = {0};
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0 &&
           !is_rank(job, info.si_pid)) {
        waitpid(info.si_pid, NULL, 0);
        info.si_pid = 0;
    }
}

/* Signals of several children may arrive as one, so all ranks are looked at. */
static void reap(struct job *job)
{
    const int32_t num_ranks = job->launch->num_ranks;
    for (int32_t i = 0; i < 2 * num_ranks; i++) {
        const int32_t rank = i % num_ranks;
        const pid_t pid = job->ranks[rank].pid;
        siginfo_t info = {0};
        if (pid == 0 || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid == 0)
            continue;
        /* If several have ended together, one that was killed is the cause: it comes first. */
        if (i < num_ranks && info.si_code == CLD_EXITED)
            continue;
        reap_rank(job, rank);
    }
    reap_orphans(job);
}

/* ---------------------------------------------------------------- signals and deadlines */

/* As `tell`: nothing waits for our reader. */
static void tell_status(const struct job *job)
{
    char *text = NULL;
    size_t text_bytes;
    FILE *stream = open_memstream(&text, &text_bytes);
    const int32_t server_pid = job->launch->meeting == LAUNCH_JOIN ? 0 : getpid();
    const weft_result result = stream
                                   ? status_print(stream, STATUS_FORMAT_TEXT, job->id, server_pid)
                                   : LACKS_MEMORY("%s", "the status");
    if (stream)
        fclose(stream);
    if (result != WEFT_OK)
        tell(job, "no status: %s", failure_text(result));
    else
        tell(job, "status\n%.*s", (int)text_bytes - 1, text);
    free(text);
}

static int asks_to_end(int signal_number)
{
    return signal_number != SIGCHLD && signal_number != SIGUSR2;
}

static void take_signal(struct job *job, int signal_number)
{
    char list[256];
    const int is_second = job->stop_signal != 0 && asks_to_end(signal_number);
    if (is_second && clock_s() - job->stop_s < same_signal_s)
        return; /* timeout(1) for one sends it to us and to our process group: that is one signal */
    if (is_second && job->phase != JOB_KILLED) {
        stop_waiting(job);
        job_kill(job);
        tell(job, "SIG%s, the second signal: SIGKILL to the remaining ranks (%d): %s",
             signal_name(signal_number), job->num_running, list_running(job, list, sizeof list));
        return;
    }
    signal_all(job, signal_number);
    if (asks_to_end(signal_number) && !is_second) {
        job->stop_signal = signal_number;
        job->stop_s = clock_s();
        begin_grace(job);
    }
}

void job_take_signals(struct job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGUSR1)
            tell_status(job);
        else if (info.ssi_signo != SIGCHLD)
            take_signal(job, (int)info.ssi_signo);
    }
}

/* Its end is that of whoever has started us. */
static void take_control(struct job *job)
{
    unsigned char signals[16];
    const ssize_t num_bytes = read(job->control_fd, signals, sizeof signals);
    for (ssize_t i = 0; i < num_bytes; i++)
        take_signal(job, signals[i]);
    if (num_bytes > 0)
        return;
    take_signal(job, SIGTERM);
    job->control_fd = -1;
}

static void pass_deadline(struct job *job)
{
    if (job->phase == JOB_RUNNING || clock_s() < job->deadline_s)
        return;
    if (job->phase == JOB_GRACE) {
        char list[256];
        const int is_failure = job->exit_status != 0;
        stop_waiting(job);
        signal_all(job, SIGTERM);
        signal_all(job, SIGCONT); /* those that are stopped */
        job->phase = JOB_TERMINATED;
        job->deadline_s = clock_s() + kill_delay_s;
        tell(job, "%g s after %s%s: SIGTERM to the remaining ranks (%d): %s", job->launch->grace_s,
             is_failure ? "the first failure" : "SIG",
             is_failure ? "" : signal_name(job->stop_signal), job->num_running,
             list_running(job, list, sizeof list));
    } else if (job->phase == JOB_TERMINATED) {
        job_kill(job);
    }
}

enum sink_wait job_wait_for_reader(void *argument)
{
    struct job *job = argument;
    job_take_signals(job);
    pass_deadline(job);
    return job->phase == JOB_KILLED && clock_s() >= job->deadline_s ? SINK_GIVE_UP : SINK_WAIT_ON;
}

/* ---------------------------------------------------------------- the loop */

static int poll_timeout_ms(const struct job *job)
{
    if (job->phase != JOB_GRACE && job->phase != JOB_TERMINATED)
        return LOOK_MS;
    const double remaining_ms = (job->deadline_s - clock_s()) * 1000;
    if (remaining_ms < 0)
        return 0;
    return remaining_ms < LOOK_MS ? (int)remaining_ms + 1 : LOOK_MS;
}

static void wait_for_events(struct job *job)
{
    const int32_t num_ranks = job->launch->num_ranks;
    job->polls[0] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    for (int32_t r = 0; r < num_ranks; r++) {
        const struct rank_process *rank = &job->ranks[r];
        job->polls[1 + 2 * r] = (struct pollfd){.fd = rank->out.fd, .events = POLLIN};
        job->polls[2 + 2 * r] = (struct pollfd){.fd = rank->err.fd, .events = POLLIN};
    }
    job->polls[1 + 2 * num_ranks] = (struct pollfd){.fd = job->control_fd, .events = POLLIN};
    if (poll(job->polls, 2 + 2 * (nfds_t)num_ranks, poll_timeout_ms(job)) < 0 && errno != EINTR)
        job_fail(job, STATUS_FAILURE);
}

void job_supervise(struct job *job)
{
    while (job->num_running > 0) {
        wait_for_events(job);
        job_take_signals(job);
        if (job->polls[1 + 2 * job->launch->num_ranks].revents)
            take_control(job);
        for (int32_t r = 0; r < job->launch->num_ranks; r++) {
            if (job->polls[1 + 2 * r].revents)
                lines_copy(&job->ranks[r].out);
            if (job->polls[2 + 2 * r].revents)
                lines_copy(&job->ranks[r].err);
        }
        reap(job);
        pass_deadline(job);
    }
    if (job->orphans == ORPHANS_ADOPTED)
        orphans_kill();
}
