/* SPDX-License-Identifier: MIT */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "command.h"
#include "supervise.h"
#include "workload/clock.h"

enum { LOOK_MS = 100 }; /* whether ranks of other hosts have left */

static void start_failed(struct job *job, int32_t rank, int error)
{
    const struct launch *launch = job->launch;
    int status = error == ENOENT   ? STATUS_NOT_FOUND
                 : error == EACCES ? STATUS_NOT_EXECUTABLE
                                   : STATUS_FAILURE;
    const char *program = launch->hosts ? launch->hosts->hosts[rank].argv[0] : launch->argv[0];
    char name[JOB_NAME_BYTES];
    fprintf(stderr, "%s: cannot start %s, %s: %s\n", launch->command, job_name(launch, rank, name),
            program, strerror(error));
    job_fail(job, status);
    job_kill(job);
}

/* The ranks of a host; its end of the control pipe is closed with it. */
static int spawn_host(struct job *job, const struct spawn *spawn, int32_t host,
                      struct spawned *spawned)
{
    const struct hosts *hosts = job->launch->hosts;
    struct spawn remote = *spawn;
    int control[2];
    if (pipe2(control, O_CLOEXEC) != 0)
        return errno;
    remote.num_ranks = 0;
    remote.argv = hosts->hosts[host].argv;
    remote.stdin_fd = control[0];
    (void)!write(control[1], hosts->secret, HOSTS_SECRET_CHARS); /* into an empty pipe */
    const int error = spawn_rank(&remote, host, spawned);
    close(control[0]);
    job->ranks[host].control_fd = control[1];
    return error;
}

static void start_ranks(struct job *job, const struct spawn *spawn)
{
    const struct launch *launch = job->launch;
    for (int32_t r = 0; r < launch->num_ranks; r++) {
        struct spawned spawned;
        const int32_t number = launch->hosts ? LINES_HAVE_RANKS : launch->first_rank + r;
        const int error = launch->hosts ? spawn_host(job, spawn, r, &spawned)
                                        : spawn_rank(spawn, number, &spawned);
        if (error != 0) {
            start_failed(job, r, error);
            return;
        }
        struct rank_process *rank = &job->ranks[r];
        rank->pid = spawned.pid;
        lines_open(&rank->out, spawned.stdout_fd, job->out, number);
        lines_open(&rank->err, spawned.stderr_fd, job->err, number);
        job->num_running++;
    }
}

static int open_sinks(struct job *job)
{
    const struct sink sink = {
        .wake_fd = job->signal_fd, .ask = job_wait_for_reader, .argument = job};
    job->out_sink = job->err_sink = sink;
    job->out_sink.fd = STDOUT_FILENO;
    job->err_sink.fd = STDERR_FILENO;
    job->out = sink_open(&job->out_sink);
    job->err = sink_open(&job->err_sink);
    return job->out && job->err ? 0 : -1;
}

static int open_job(struct job *job, const sigset_t *signals)
{
    const size_t num_ranks = (size_t)job->launch->num_ranks;
    job->signal_fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
    job->ranks = calloc(num_ranks, sizeof *job->ranks);
    job->polls = calloc(2 + 2 * num_ranks, sizeof *job->polls);
    if (job->signal_fd < 0 || !job->ranks || !job->polls || open_sinks(job) != 0)
        return -1;
    for (size_t r = 0; r < num_ranks; r++)
        job->ranks[r].out.fd = job->ranks[r].err.fd = job->ranks[r].control_fd = -1;
    job->orphans = orphans_adopt();
    return 0;
}

static void close_job(struct job *job)
{
    if (job->out)
        fclose(job->out);
    if (job->err)
        fclose(job->err);
    if (job->signal_fd >= 0)
        close(job->signal_fd);
    free(job->ranks);
    free(job->polls);
}

static weft_result open_meeting(const struct launch *launch, weft_unique_id *id)
{
    if (launch->meeting == LAUNCH_MEET_HERE)
        return weft_unique_id_create(id);
    *id = launch->id;
    return launch->meeting == LAUNCH_SERVE ? weft_rendezvous_serve(id) : WEFT_OK;
}

/* A port of this host that nobody uses now; 0 if there is none. */
static int32_t find_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t address_bytes = sizeof address;
    int32_t port = 0;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, address_bytes) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &address_bytes) == 0)
        port = ntohs(address.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

/* Where libraries beside weft can meet. All hosts name the same port without asking each other: the
 * one behind that of the rendezvous. */
static void name_port(const struct launch *launch, struct spawn *spawn)
{
    const int is_here = launch->meeting == LAUNCH_MEET_HERE;
    spawn->address = is_here ? "127.0.0.1" : launch->address;
    spawn->port = is_here ? find_port() : launch->port < UINT16_MAX ? launch->port + 1 : 0;
}

/* Ranks of other hosts may go on for longer, and lose their failure detector with us. They have
 * been told of a failure; then they get no more time than our own had. A signal to end ends it. */
static void serve_the_others(struct job *job)
{
    const struct launch *launch = job->launch;
    const double deadline_s = clock_s() + launch->grace_s;
    const int earlier_signal = job->stop_signal;
    job->stop_signal = 0;
    while (weft_rendezvous_num_ranks(&launch->id) > 0 && job->stop_signal == 0) {
        struct pollfd signals = {.fd = job->signal_fd, .events = POLLIN};
        if ((job->exit_status != 0 || earlier_signal != 0) && clock_s() >= deadline_s)
            return;
        if (poll(&signals, 1, LOOK_MS) > 0)
            job_take_signals(job);
    }
    if (job->stop_signal != 0 && job->exit_status == 0)
        job->exit_status = STATUS_SIGNAL + job->stop_signal;
}

/* Signals that our starter made us ignore, as nohup does, are ignored by the ranks too: no reason
 * to end them. */
static void choose_signals(sigset_t *signals)
{
    static const int handled[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigemptyset(signals);
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) {
        struct sigaction action;
        if (sigaction(handled[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(signals, handled[i]);
    }
}

/* Each rank takes up to four descriptors here, which of 1024 ranks are more than shells allow
 * unless they are asked. The ranks get what our starter has left us. */
static void allow_files(struct rlimit *before)
{
    getrlimit(RLIMIT_NOFILE, before);
    const struct rlimit most = {before->rlim_max, before->rlim_max};
    setrlimit(RLIMIT_NOFILE, &most);
}

static int open_stdin(const struct launch *launch, struct spawn *spawn)
{
    spawn->stdin_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (spawn->stdin_fd < 0)
        fprintf(stderr, "%s: cannot open /dev/null, the ranks' standard input: %s\n",
                launch->command, strerror(errno));
    return spawn->stdin_fd < 0 ? -1 : 0;
}

int launch_ranks(const struct launch *launch)
{
    struct spawn spawn = {.num_ranks = launch->num_job_ranks,
                          .num_nodes = launch->num_nodes,
                          .argv = launch->argv,
                          .output = launch->output,
                          .stdin_fd = -1};
    struct job job = {.launch = launch, .id = &spawn.id, .signal_fd = -1};
    job.control_fd = launch->control == LAUNCH_BY_STDIN ? STDIN_FILENO : -1;
    sigset_t signals;
    signal(SIGCHLD, SIG_DFL); /* ignored, it would take the ranks' statuses along */
    choose_signals(&signals);
    sigprocmask(SIG_BLOCK, &signals, &spawn.signal_mask);
    allow_files(&spawn.num_files);
    signal(SIGPIPE, SIG_IGN); /* lines.c closes the rank's pipe instead */

    if (open_job(&job, &signals) != 0) {
        fprintf(stderr, "%s: %s\n", launch->command, strerror(errno));
        job.exit_status = STATUS_FAILURE;
    } else if (open_stdin(launch, &spawn) != 0) {
        job.exit_status = STATUS_FAILURE;
    } else if (open_meeting(launch, &spawn.id) != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", launch->command, weft_last_error());
        job.exit_status = STATUS_FAILURE;
    } else {
        name_port(launch, &spawn);
        start_ranks(&job, &spawn);
        job_supervise(&job);
        if (launch->meeting == LAUNCH_SERVE)
            serve_the_others(&job);
    }
    close_job(&job);
    if (spawn.stdin_fd >= 0)
        close(spawn.stdin_fd);
    return job.exit_status;
}
