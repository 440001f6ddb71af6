/* SPDX-License-Identifier: MIT */
/* weft run: starts a program as several ranks of one job on this host, or of its part of a job on
 * several. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "launch.h"
#include "meeting.h"
#include "workload/options.h"

enum {
    MAX_RANKS = 1024,
    MAX_JOB_RANKS = 65536, /* that the library takes */
    MAX_GRACE_S = 86400
};

struct run {
    struct launch launch;
    const char *rendezvous; /* HOST:PORT; NULL: the job is of this host alone */
    struct meeting meeting;
    int32_t node_rank; /* -1: not given */
    const char *host_list, *ssh;
    struct hosts hosts;
    char drawn[MEETING_HOST_BYTES]; /* a rendezvous on the first host */
};

static const char documentation[] =
    "Starts PROGRAM as R ranks that find each other through weft_comm_create_from_env. Ends with "
    "the status of the first rank that fails here, 128 plus the signal if one killed it. SIGINT "
    "and SIGTERM are passed on to the ranks; a second one kills them.";

static void become_part(struct argp_state *state, struct run *run)
{
    struct launch *launch = &run->launch;
    if (run->node_rank >= launch->num_nodes)
        argp_error(state, "--node-rank %d: must be 0 to %d (--nodes %d)", run->node_rank,
                   launch->num_nodes - 1, launch->num_nodes);
    if (launch->num_nodes * launch->num_ranks > MAX_JOB_RANKS)
        argp_error(state, "%d ranks on each of %d hosts: at most %d are possible",
                   launch->num_ranks, launch->num_nodes, MAX_JOB_RANKS);
    meeting_read(state, run->rendezvous, &run->meeting);
    launch->address = run->meeting.host;
    launch->port = run->meeting.port;
    launch->id = run->meeting.id;
    launch->meeting = run->node_rank == 0 ? LAUNCH_SERVE : LAUNCH_JOIN;
    launch->first_rank = run->node_rank * launch->num_ranks;
    launch->num_job_ranks = launch->num_nodes * launch->num_ranks;
}

/* Whoever has started us tells the secret where no list of processes shows it. */
static void read_secret(struct argp_state *state)
{
    char secret[HOSTS_SECRET_CHARS + 1] = "";
    size_t num_chars = 0;
    ssize_t num_read = 1;
    while (num_chars < HOSTS_SECRET_CHARS && num_read > 0) {
        num_read = read(STDIN_FILENO, secret + num_chars, HOSTS_SECRET_CHARS - num_chars);
        num_chars += num_read > 0 ? (size_t)num_read : 0;
    }
    if (num_chars < HOSTS_SECRET_CHARS || setenv("WEFT_SECRET", secret, 1) != 0)
        argp_error(state, "--control: standard input has no secret");
}

/* A port that follows from the secret: it is most likely free. */
static void draw_meeting(struct run *run)
{
    enum { FIRST_PORT = 20000, NUM_PORTS = 9000 };
    const char *at = strrchr(run->hosts.hosts[0].name, '@');
    const char *host = at ? at + 1 : run->hosts.hosts[0].name;
    char digits[8] = "";
    memcpy(digits, run->hosts.secret, sizeof digits - 1);
    snprintf(run->drawn, sizeof run->drawn, "%s:%ld", host,
             FIRST_PORT + strtol(digits, NULL, 16) % NUM_PORTS);
    run->rendezvous = run->drawn;
}

/* We start no rank, but on each host a weft run that does. */
static void spread(struct argp_state *state, struct run *run)
{
    struct launch *launch = &run->launch;
    hosts_read(state, run->host_list, launch->num_ranks, &run->hosts);
    if (hosts_draw_secret(&run->hosts) != 0 || setenv("WEFT_SECRET", run->hosts.secret, 1) != 0)
        argp_error(state, "--hosts: no secret can be drawn");
    if (!run->rendezvous)
        draw_meeting(run);
    meeting_read(state, run->rendezvous, &run->meeting);
    unsetenv("WEFT_SECRET"); /* ssh has no use for it */
    const struct hosts_command command = {.ssh = run->ssh,
                                          .rendezvous = run->rendezvous,
                                          .grace_s = launch->grace_s,
                                          .output = launch->output,
                                          .argv = launch->argv};
    if (hosts_write_commands(&run->hosts, &command) != 0)
        argp_error(state, "--hosts: no memory for the commands");
    launch->hosts = &run->hosts;
    launch->id = run->meeting.id;
    launch->meeting = LAUNCH_JOIN;
    launch->num_ranks = run->hosts.num_hosts;
    launch->num_job_ranks = launch->num_ranks;
    launch->num_nodes = 1;
}

static void finish(void *input, struct argp_state *state)
{
    struct run *run = input;
    struct launch *launch = &run->launch;
    if (!launch->argv)
        argp_error(state, "no program given");
    if (launch->num_ranks == 0)
        argp_error(state, "no number of ranks given: -n R, from 1 to %d", MAX_RANKS);
    launch->num_job_ranks = launch->num_ranks;
    if (launch->control == LAUNCH_BY_STDIN)
        read_secret(state);
    if (run->host_list)
        spread(state, run);
    else if (run->rendezvous && run->node_rank < 0)
        argp_error(state, "--rendezvous %s: needs --node-rank, or --hosts", run->rendezvous);
    else if (run->rendezvous)
        become_part(state, run);
    else if (launch->num_ranks % launch->num_nodes != 0)
        argp_error(state, "--nodes %d: must divide the number of ranks, %d", launch->num_nodes,
                   launch->num_ranks);
}

#define AT(member) OPTION_AT(struct run, member)

static const struct option_row option_table[] = {
    {OPTION_INTEGER, "ranks", "R", "Start R ranks; with --node-rank R on each host", NULL,
     AT(launch.num_ranks), 1, MAX_RANKS, .letter = 'n'},
    {OPTION_INTEGER, "nodes", "D",
     "Declare D virtual nodes of R/D consecutive ranks; with --node-rank the number of hosts, "
     "each of which is a node",
     "1", AT(launch.num_nodes), 1, MAX_RANKS, .letter = 'd'},
    {OPTION_TEXT, "rendezvous", "HOST:PORT",
     "Start the ranks of one of D hosts; each host starts weft run with the same "
     "HOST:PORT. HOST is the name or address by which the other hosts reach node rank 0; "
     "an IPv6 address is in brackets. WEFT_SECRET must be the same 32 random hexadecimal "
     "digits on all hosts",
     NULL, AT(rendezvous)},
    {OPTION_INTEGER, "node-rank", "K", "Number of this host among the D hosts, from 0", NULL,
     AT(node_rank), 0, MAX_RANKS - 1, .rules = {{.needs = "rendezvous"}}},
    {OPTION_TEXT, "hosts", "FILE|LIST",
     "Start all R ranks on other hosts by ssh. LIST is a:4,b:4, and a line of FILE is \"a "
     "slots=4\"; hosts are filled in this order. Without numbers all hosts get equally "
     "many ranks. weft, PROGRAM and this directory must have the same paths there. Ranks "
     "meet at the first host's name and a port of 20000 to 28999, unless --rendezvous "
     "names another place",
     NULL, AT(host_list), .rules = {{.excludes = "node-rank"}, {.excludes = "nodes"}}},
    {OPTION_TEXT, "ssh", "COMMAND", "Start with COMMAND HOST SCRIPT in place of ssh", HOSTS_SSH,
     AT(ssh), .rules = {{.needs = "hosts"}}},
    {OPTION_FLAG, "control", NULL,
     "Read the secret from standard input, and end the ranks when standard input ends; "
     "--hosts uses this",
     NULL, AT(launch.control), 0, LAUNCH_BY_STDIN, .rules = {{.needs = "node-rank"}}},
    {OPTION_REAL, "grace", "SECONDS",
     "After the first failure, and after a signal to end, give the ranks SECONDS to end by "
     "themselves, then SIGTERM, 2 seconds later SIGKILL",
     "5", AT(launch.grace_s), 0, MAX_GRACE_S},
    {OPTION_FLAG, "no-prefix", NULL,
     "Let ranks write to standard output and error themselves, without [rank] before lines", NULL,
     AT(launch.output), 0, SPAWN_OUTPUT_SHARED},
    {OPTION_PROGRAM, .arg = "[--] PROGRAM [ARGUMENT...]", AT(launch.argv)},
    {0}};

int command_run(int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, finish};
    struct run run = {.launch = {.command = argv[0], .report = LAUNCH_REPORT_FAILURES},
                      .node_rank = -1};
    options_parse(&set, &run, argc, argv);
    const int status = launch_ranks(&run.launch);
    hosts_free(&run.hosts);
    return status;
}
