/* SPDX-License-Identifier: MIT */
/* weft run: starts a program as several ranks of one job on this host. */
#include <stdlib.h>

#include "command.h"
#include "launch.h"
#include "workload/options.h"

enum { MAX_RANKS = 1024, MAX_GRACE_S = 86400, KEY_GRACE = 256, KEY_NO_PREFIX };

static const struct argp_option options[] = {
    {"ranks", 'n', "R", 0, "Start R ranks (1 to 1024)", 0},
    {"nodes", 'd', "D", 0, "Declare D virtual nodes of R/D consecutive ranks; default 1", 0},
    {"grace", KEY_GRACE, "SECONDS", 0,
     "Let the other ranks run on for SECONDS after the first failure, then terminate them; "
     "default 5",
     0},
    {"no-prefix", KEY_NO_PREFIX, NULL, 0,
     "Let ranks write to standard output and error themselves, without `[rank] ' before lines", 0},
    {0}};

static const char documentation[] =
    "Starts PROGRAM as R ranks that find each other through weft_comm_create_from_env. Ends with "
    "the status of the first rank that fails, 128 plus the signal if one killed it.";

static void check(struct argp_state *state, struct launch *launch)
{
    if (!launch->argv)
        argp_error(state, "no program given");
    if (launch->num_ranks == 0)
        argp_error(state, "no number of ranks given: -n R, from 1 to %d", MAX_RANKS);
    if (launch->num_ranks % launch->num_nodes != 0)
        argp_error(state, "--nodes %d: must divide the number of ranks, %d", launch->num_nodes,
                   launch->num_ranks);
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct launch *launch = state->input;
    switch (key) {
    case 'n':
        launch->num_ranks = (int32_t)option_integer(state, "--ranks", argument, 1, MAX_RANKS);
        return 0;
    case 'd':
        launch->num_nodes = (int32_t)option_integer(state, "--nodes", argument, 1, MAX_RANKS);
        return 0;
    case KEY_GRACE:
        launch->grace_s = option_number(state, "--grace", argument, 0, MAX_GRACE_S);
        return 0;
    case KEY_NO_PREFIX:
        launch->output = SPAWN_OUTPUT_SHARED;
        return 0;
    case ARGP_KEY_ARG:
        launch->argv = state->argv + state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_END:
        check(state, launch);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int command_run(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse_option,
        .args_doc = "[--] PROGRAM [ARGUMENT...]",
        .doc = documentation,
    };
    struct launch launch = {
        .command = argv[0],
        .num_nodes = 1,
        .output = SPAWN_OUTPUT_PIPED,
        .report = LAUNCH_REPORT_FAILURES,
        .grace_s = 5,
    };
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &launch);
    return launch_ranks(&launch);
}
