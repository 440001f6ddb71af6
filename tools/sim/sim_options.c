/* SPDX-License-Identifier: MIT */
#include "sim_options.h"

#include <string.h>

#include "command.h"
#include "workload/options.h"

enum {
    DEFAULT_SCHEDULES = 2000,
    DEFAULT_TOKENS = 8,
    DEFAULT_COUNT = 64,
    DEFAULT_REPLAY_EVENTS = 16,
    MAX_TRACE_EVENTS = 32,
    NOT_GIVEN = -1
};

enum key {
    KEY_OP = 256,
    KEY_RANKS,
    KEY_NODES,
    KEY_TOKENS,
    KEY_COUNT,
    KEY_STAGING,
    KEY_SCHEDULES,
    KEY_SEED,
    KEY_POLICY,
    KEY_FAULTS,
    KEY_WEAKEN,
    KEY_TRACE,
    KEY_JSON
};

static const struct argp_option option_table[] = {
    {0, 0, 0, 0, "The job:", 1},
    {"op", KEY_OP, "OP", 0,
     "layout, notify, dispatch, combine, barrier, all_reduce, reduce_scatter, all_gather, "
     "all_to_all, broadcast or all (all)",
     0},
    {"ranks", KEY_RANKS, "R", 0,
     "Ranks (each seed draws 1 to 4 nodes with 2 to 8 in all, now and then up to 16 nodes of 4; "
     "for collectives "
     "1 to 5)",
     0},
    {"nodes", KEY_NODES, "D", 0, "Virtual nodes; needs --ranks (each seed draws; of collectives 1)",
     0},
    {"tokens", KEY_TOKENS, "N", 0, "Most tokens per rank; each seed draws 0 to N (8)", 0},
    {"count", KEY_COUNT, "N", 0,
     "Most elements per row of a collective; each seed draws 0 to N (64)", 0},
    {"staging", KEY_STAGING, "KIND", 0,
     "Slots between nodes: drawn, or least: one channel with one slot of one row (drawn)", 0},
    {0, 0, 0, 0, "The schedules:", 2},
    {"schedules", KEY_SCHEDULES, "S", 0, "How many, of each operation (2000)", 0},
    {"seed", KEY_SEED, "X", 0, "Of the first schedule; the others count up (1)", 0},
    {"policy", KEY_POLICY, "P", 0, "uniform, pct, delay, ahead or mixed (mixed)", 0},
    {"faults", KEY_FAULTS, "F", 0,
     "none, kill or stall one rank at one step, or disagree: a call of a collective that does not "
     "fit "
     "the others' (none)",
     0},
    {"weaken", KEY_WEAKEN, "SITE", 0,
     "Let the ordering site FILE:LINE, or each in turn (all), not order, and see that it is caught",
     0},
    {"trace", KEY_TRACE, "EVENTS", 0,
     "Tell the last events of each fiber for a finding (16 with one schedule, else 0)", 0},
    {"json", KEY_JSON, NULL, 0, "Print JSON objects, one per line", 0},
    {0}};

static const char documentation[] =
    "Runs the library's operations on the sim machine: all ranks in one thread, under schedules "
    "drawn from seeds, with every access to shared memory checked to be ordered, and all results "
    "compared. Tells how to replay what it finds."
    "\vThe exit status is 0 only if nothing was found (with --weaken: if every weakened site was "
    "caught), 1 otherwise, 2 for a wrong argument.";

const char *const sim_policy_names[WEFT__NUM_SIM_POLICIES + 1] = {"uniform", "pct",   "delay",
                                                                  "ahead",   "mixed", NULL};
const char *const sim_fault_names[WEFT__NUM_SIM_FAULTS + 1] = {"none", "kill", "stall", "disagree",
                                                               NULL};

static void finish(struct sim_options *options, struct argp_state *state)
{
    const int32_t num_ranks = options->num_ranks, num_nodes = options->num_nodes;
    if (num_nodes != SCENARIO_DRAWN && (num_ranks == SCENARIO_DRAWN || num_ranks % num_nodes != 0))
        argp_error(state, "--nodes %d: must divide the ranks, which --ranks must give", num_nodes);
    if (options->fault != WEFT__SIM_NO_FAULT && num_ranks == 1)
        argp_error(state, "--ranks 1: must be 2 or more with --faults");
    if (options->fault != WEFT__SIM_NO_FAULT && options->weaken != NULL)
        argp_error(state, "--weaken %s: must be absent with --faults", options->weaken);
    if (options->fault == WEFT__SIM_DISAGREE && options->op != SIM_ALL_OPS &&
        !scenario_is_collective((enum scenario_op)options->op))
        argp_error(state, "--op %s: must be a collective with --faults disagree",
                   scenario_op_names[options->op]);
    if (options->num_trace_events == NOT_GIVEN)
        options->num_trace_events = options->num_schedules == 1 ? DEFAULT_REPLAY_EVENTS : 0;
}

#define NUMBER(key, name, member, min, max)                                                        \
    OPTION_NUMBER(key, name, struct sim_options, member, min, max)
#define CHOICE(key, name, member, choices)                                                         \
    OPTION_CHOICE(key, name, struct sim_options, member, choices)

static const struct stored_option stored_options[] = {
    NUMBER(KEY_RANKS, "--ranks", num_ranks, 1, SCENARIO_MAX_RANKS),
    NUMBER(KEY_NODES, "--nodes", num_nodes, 1, SCENARIO_MAX_RANKS),
    NUMBER(KEY_TOKENS, "--tokens", max_tokens, 0, SCENARIO_MAX_TOKENS),
    NUMBER(KEY_COUNT, "--count", max_count, 0, SCENARIO_MAX_COUNT),
    NUMBER(KEY_SCHEDULES, "--schedules", num_schedules, 1, INT64_MAX),
    NUMBER(KEY_SEED, "--seed", seed, 0, INT64_MAX),
    CHOICE(KEY_STAGING, "--staging", staging, scenario_staging_names),
    CHOICE(KEY_POLICY, "--policy", policy, sim_policy_names),
    CHOICE(KEY_FAULTS, "--faults", fault, sim_fault_names),
    NUMBER(KEY_TRACE, "--trace", num_trace_events, 0, MAX_TRACE_EVENTS),
    OPTION_FLAG(KEY_JSON, "--json", struct sim_options, format),
    {0}};

static void parse_op(struct sim_options *options, const char *text, struct argp_state *state)
{
    const char *ops[NUM_SCENARIO_OPS + 2] = {[SIM_ALL_OPS] = "all"};
    memcpy(ops, scenario_op_names, sizeof scenario_op_names);
    options->op = option_choice(state, "--op", text, ops);
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct sim_options *options = state->input;
    switch (key) {
    case KEY_OP:
        parse_op(options, text, state);
        return 0;
    case KEY_WEAKEN:
        options->weaken = text;
        return 0;
    case ARGP_KEY_END:
        finish(options, state);
        return 0;
    default:
        return option_store(stored_options, key, text, state);
    }
}

void sim_options_parse(struct sim_options *options, int argc, char **argv)
{
    static const struct argp argp = {
        .options = option_table, .parser = parse_option, .doc = documentation};
    *options = (struct sim_options){
        .op = SIM_ALL_OPS,
        .num_ranks = SCENARIO_DRAWN,
        .num_nodes = SCENARIO_DRAWN,
        .max_tokens = DEFAULT_TOKENS,
        .max_count = DEFAULT_COUNT,
        .num_schedules = DEFAULT_SCHEDULES,
        .seed = 1,
        .policy = WEFT__SIM_MIXED,
        .num_trace_events = NOT_GIVEN,
    };
    argp_err_exit_status = STATUS_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, options);
}

struct scenario_request sim_options_request(const struct sim_options *options, enum scenario_op op,
                                            uint64_t seed)
{
    return (struct scenario_request){.op = op,
                                     .seed = seed,
                                     .num_ranks = options->num_ranks,
                                     .num_nodes = options->num_nodes,
                                     .max_tokens = options->max_tokens,
                                     .max_count = options->max_count,
                                     .staging = options->staging,
                                     .policy = options->policy,
                                     .fault = options->fault,
                                     .weakened_site = WEFT__SIM_NO_SITE,
                                     .num_trace_events = options->num_trace_events};
}
