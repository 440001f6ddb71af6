/* SPDX-License-Identifier: MIT */
/*
 * weft run --hosts: ranks on several hosts, of which each has its own weft run, started by ssh.
 *
 * The control pipe, which is that weft run's standard input, begins with the secret of the job, so
 * that no list of processes shows it. Then each byte is the number of a signal to end. The end of
 * the pipe ends the ranks: so they go with us and with the connection.
 */
#pragma once

#include <argp.h>
#include <stdint.h>

#include "spawn.h"

enum { HOSTS_NAME_BYTES = 128, HOSTS_SECRET_CHARS = 32, HOSTS_MAX = 1024 };

/* By default. */
#define HOSTS_SSH "ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3"

struct host {
    char name[HOSTS_NAME_BYTES];
    int32_t num_slots; /* 0: not given */
    char **argv;       /* that starts its ranks */
};

struct hosts {
    struct host *hosts;
    int32_t num_hosts;
    int32_t ranks_per_host;
    char secret[HOSTS_SECRET_CHARS + 1];
};

/* The work of each host, all but its number. */
struct hosts_command {
    const char *ssh;        /* with its options */
    const char *rendezvous; /* HOST:PORT */
    double grace_s;
    enum spawn_output output;
    char *const *argv;
};

/* Reads a:4,b:4 or the file of that name with a line per host, "a slots=4", and places num_ranks
 * ranks on the first hosts; 0: all hosts stay. Ends the process with a message if that cannot be.
 */
void hosts_read(struct argp_state *state, const char *text, int32_t num_ranks, struct hosts *hosts);
/* Draws the secret. 0, or -1 if the system has no random bytes. */
int hosts_draw_secret(struct hosts *hosts);
/* Fills in argv of each host: 0, or -1 without memory. */
int hosts_write_commands(struct hosts *hosts, const struct hosts_command *command);
void hosts_free(struct hosts *hosts);
