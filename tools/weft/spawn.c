/* SPDX-License-Identifier: MIT */
#include "spawn.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Ends of the pipes between launcher and rank; -1: not open. */
struct pipes {
    int out[2], err[2];
    int failure[2]; /* closed by a successful exec, else carries its errno */
};

static int set_number(const char *name, int32_t value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return setenv(name, text, 1);
}

/* For others than weft, as PyTorch's env:// has them; what the user has set already holds. */
static int set_meeting(const struct spawn *spawn)
{
    char port[16];
    snprintf(port, sizeof port, "%d", spawn->port);
    if (spawn->port > 0 &&
        (setenv("MASTER_ADDR", spawn->address, 0) != 0 || setenv("MASTER_PORT", port, 0) != 0))
        return errno;
    return 0;
}

/* In the launcher, before the fork: setenv may allocate, which the child of a process with threads
 * must not. */
static int set_environment(const struct spawn *spawn, int32_t rank)
{
    char id[2 * sizeof spawn->id.bytes + 1];
    for (size_t i = 0; i < sizeof spawn->id.bytes; i++)
        snprintf(id + 2 * i, 3, "%02x", spawn->id.bytes[i]);
    if (spawn->num_ranks == 0)
        return 0;
    int32_t ranks_per_node = spawn->num_ranks / spawn->num_nodes;
    if (setenv("WEFT_ID", id, 1) != 0 || set_number("WEFT_RANK", rank) != 0 ||
        set_number("WEFT_WORLD_SIZE", spawn->num_ranks) != 0 ||
        set_number("WEFT_NODES", spawn->num_nodes) != 0 || set_number("RANK", rank) != 0 ||
        set_number("WORLD_SIZE", spawn->num_ranks) != 0 ||
        set_number("LOCAL_RANK", rank % ranks_per_node) != 0 ||
        set_number("LOCAL_WORLD_SIZE", ranks_per_node) != 0)
        return errno;
    return set_meeting(spawn);
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_pipes(struct pipes *pipes)
{
    int *ends[] = {pipes->out, pipes->err, pipes->failure};
    for (int i = 0; i < 3; i++) {
        close_end(&ends[i][0]);
        close_end(&ends[i][1]);
    }
}

static int open_pipes(struct pipes *pipes, enum spawn_output output)
{
    *pipes = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}};
    int is_open = pipe2(pipes->failure, O_CLOEXEC) == 0;
    if (is_open && output == SPAWN_OUTPUT_PIPED)
        is_open = pipe2(pipes->out, O_CLOEXEC) == 0 && pipe2(pipes->err, O_CLOEXEC) == 0 &&
                  fcntl(pipes->out[0], F_SETFL, O_NONBLOCK) == 0 &&
                  fcntl(pipes->err[0], F_SETFL, O_NONBLOCK) == 0;
    if (is_open)
        return 0;
    int error = errno;
    close_pipes(pipes);
    return error;
}

/* In the child, until exec: async-signal-safe calls only. */
static void become_rank(const struct spawn *spawn, const struct pipes *pipes, pid_t launcher)
{
    int is_ready = dup2(spawn->stdin_fd, STDIN_FILENO) >= 0;
    if (is_ready && spawn->output == SPAWN_OUTPUT_PIPED)
        is_ready =
            dup2(pipes->out[1], STDOUT_FILENO) >= 0 && dup2(pipes->err[1], STDERR_FILENO) >= 0;
    /* A process group of its own: no Ctrl-C twice. Not a session, for sched_autogroup, under which
     * a rank that yields its core would keep it from the ranks of other sessions. The launcher may
     * have died before prctl, which then would signal nothing. */
    if (is_ready && setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
        getppid() == launcher) {
        signal(SIGPIPE, SIG_DFL);
        signal(SIGXFSZ, SIG_DFL);
        signal(SIGTTIN, SIG_IGN); /* no stop for using the terminal in the background */
        signal(SIGTTOU, SIG_IGN);
        sigprocmask(SIG_SETMASK, &spawn->signal_mask, NULL);
        setrlimit(RLIMIT_NOFILE, &spawn->num_files);
        execvp(spawn->argv[0], spawn->argv);
    }
    int error = errno;
    ssize_t written = write(pipes->failure[1], &error, sizeof error);
    (void)written; /* the launcher then sees that we end */
    _exit(127);
}

static int wait_for_exec(struct pipes *pipes)
{
    int error = 0;
    ssize_t bytes;
    close_end(&pipes->failure[1]);
    do
        bytes = read(pipes->failure[0], &error, sizeof error);
    while (bytes < 0 && errno == EINTR);
    return bytes == sizeof error ? error : 0;
}

int spawn_rank(const struct spawn *spawn, int32_t rank, struct spawned *spawned)
{
    struct pipes pipes;
    pid_t launcher = getpid();
    int error = set_environment(spawn, rank);
    if (error == 0)
        error = open_pipes(&pipes, spawn->output);
    if (error != 0)
        return error;
    pid_t pid = fork();
    if (pid == 0)
        become_rank(spawn, &pipes, launcher);
    if (pid < 0) {
        error = errno;
        close_pipes(&pipes);
        return error;
    }
    error = wait_for_exec(&pipes);
    if (error != 0) {
        waitpid(pid, NULL, 0);
        close_pipes(&pipes);
        return error;
    }
    *spawned = (struct spawned){pid, pipes.out[0], pipes.err[0]};
    pipes.out[0] = pipes.err[0] = -1;
    close_pipes(&pipes);
    return 0;
}

/* ---------------------------------------------------------------- orphans */

/* 0 if it has ended. */
static pid_t parent_of(const char *pid)
{
    char path[64], text[256];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%.16s/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *name_end = strrchr(text, ')'); /* names may have blanks and brackets */
    if (name_end && sscanf(name_end + 1, " %*c %d", &parent) != 1)
        parent = 0;
    return parent;
}

/* Sends a signal (0: none) to every child, and returns how many there are. */
static int signal_children(int signal_number)
{
    DIR *processes = opendir("/proc");
    int num_children = 0;
    if (!processes)
        return 0;
    for (struct dirent *entry; (entry = readdir(processes)) != NULL;) {
        if (!isdigit((unsigned char)entry->d_name[0]) || parent_of(entry->d_name) != getpid())
            continue;
        num_children++;
        if (signal_number != 0)
            kill((pid_t)strtol(entry->d_name, NULL, 10), signal_number);
    }
    closedir(processes);
    return num_children;
}

enum orphans orphans_adopt(void)
{
    if (signal_children(0) > 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        return ORPHANS_LEFT;
    return ORPHANS_ADOPTED;
}

/* The children of a child that was killed become ours: one round after another. */
void orphans_kill(void)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int round = 0; round < 100 && signal_children(SIGKILL) > 0; round++) {
        nanosleep(&pause, NULL);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
}
