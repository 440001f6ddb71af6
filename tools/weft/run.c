/* SPDX-License-Identifier: MIT */
/* weft run: starts a program as several ranks of one job on this host, or of its part of a job on
 * several. */
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

static void finish(void *input, struct argp_state *state)
{
    struct run *run = input;
    struct launch *launch = &run->launch;
    if (!launch->argv)
        argp_error(state, "no program given");
    if (launch->num_ranks == 0)
        argp_error(state, "no number of ranks given: -n R, from 1 to %d", MAX_RANKS);
    launch->num_job_ranks = launch->num_ranks;
    if (run->rendezvous)
        become_part(state, run);
    else if (launch->num_ranks % launch->num_nodes != 0)
        argp_error(state, "--nodes %d: must divide the number of ranks, %d", launch->num_nodes,
                   launch->num_ranks);
}

#define AT(member) OPTION_AT(struct run, member)

static const struct option_row option_table[] = {
    {OPTION_INTEGER, "ranks", "R", "Start R ranks; with --rendezvous so many on each host", NULL,
     AT(launch.num_ranks), 1, MAX_RANKS, .letter = 'n'},
    {OPTION_INTEGER, "nodes", "D",
     "Declare D virtual nodes of R/D consecutive ranks; with --rendezvous the number of hosts, "
     "each of which is a node",
     "1", AT(launch.num_nodes), 1, MAX_RANKS, .letter = 'd'},
    {OPTION_TEXT, "rendezvous", "HOST:PORT",
     "Be one of D hosts, on each of which weft run is started alike. Their ranks meet at HOST, "
     "which is that of node rank 0, as the others know it; an IPv6 address, and nothing else, is "
     "in brackets. WEFT_SECRET must be set to the same 32 random hexadecimal digits on all",
     NULL, AT(rendezvous), .rules = {{.needs = "node-rank"}}},
    {OPTION_INTEGER, "node-rank", "K", "Be number K of the D hosts, from 0", NULL, AT(node_rank), 0,
     MAX_RANKS - 1, .rules = {{.needs = "rendezvous"}}},
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
    return launch_ranks(&run.launch);
}
