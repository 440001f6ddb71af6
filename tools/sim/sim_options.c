/* SPDX-License-Identifier: MIT */
#include "sim_options.h"

#include <string.h>

#include "command.h"
#include "processes.h"
#include "workload/options.h"

enum { DEFAULT_REPLAY_EVENTS = 16, MAX_TRACE_EVENTS = 32, NOT_GIVEN = -1 };

static const char documentation[] =
    "Runs the library's operations on the sim machine: all ranks in one thread, under schedules "
    "drawn from seeds, with every access to shared memory checked to be ordered, and all results "
    "compared. Tells how to replay what it finds."
    "\vThe exit status is 0 only if nothing was found (with --weaken: if every weakened site was "
    "caught), 1 otherwise, 2 for a wrong argument.";

const char *const sim_initiator_names[WEFT__NUM_SIM_INITIATORS + 1] = {"host", "gpu", NULL};
const char *const sim_policy_names[WEFT__NUM_SIM_POLICIES + 1] = {"uniform", "pct",   "delay",
                                                                  "ahead",   "mixed", NULL};
const char *const sim_fault_names[WEFT__NUM_SIM_FAULTS + 1] = {"none", "kill", "stall", "disagree",
                                                               NULL};

static void finish(void *input, struct argp_state *state)
{
    struct sim_options *options = input;
    const int32_t num_ranks = options->request.num_ranks, num_nodes = options->request.num_nodes;
    const int may_be_uneven =
        options->op != SIM_ALL_OPS && scenario_is_collective((enum scenario_op)options->op);
    if (num_nodes != SCENARIO_DRAWN &&
        (num_ranks < num_nodes || (num_ranks % num_nodes != 0 && !may_be_uneven)))
        argp_error(state, "--nodes %d: must divide --ranks %d; with a collective, be no more",
                   num_nodes, num_ranks);
    if (options->request.fault != WEFT__SIM_NO_FAULT && num_ranks == 1)
        argp_error(state, "--ranks 1: must be 2 or more with --faults");
    if (options->request.num_trace_events == NOT_GIVEN)
        options->request.num_trace_events = options->num_schedules == 1 ? DEFAULT_REPLAY_EVENTS : 0;
}

static const char *op_choices[NUM_SCENARIO_OPS + 2]; /* filled when options are parsed */

#define AT(member) OPTION_AT(struct sim_options, member)

static const struct option_row option_table[] = {
    {OPTION_GROUP, .doc = "The job"},
    {OPTION_CHOICE, "op", "OP",
     "The operation; group is sends and receives, ll is low latency, ll_packets is low "
     "latency in packets on one node, copies those of experts for one step",
     "all", AT(op), .choices = op_choices},
    {OPTION_INTEGER, "ranks", "R", "Ranks", NULL, AT(request.num_ranks), 1, SCENARIO_MAX_RANKS,
     .without =
         "each seed draws 2 to 8 on 1 to 4 nodes, and rarely up to 16 nodes of 4; for "
         "collectives 1 to 5, or up to 6 on 2 to 4 nodes; for ll_packets 1 to 4, for gate 2 to 4"},
    {OPTION_INTEGER, "nodes", "D",
     "Number of virtual nodes; it must divide the ranks, or with a collective be at most "
     "the ranks",
     NULL, AT(request.num_nodes), 1, SCENARIO_MAX_RANKS,
     .without = "each seed draws; 1 for collectives with --ranks", .rules = {{.needs = "ranks"}}},
    {OPTION_INTEGER, "tokens", "N", "Most tokens per rank; each seed draws 0 to N", "8",
     AT(request.max_tokens), 0, SCENARIO_MAX_TOKENS},
    {OPTION_INTEGER, "count", "N", "Most elements per row of a collective; each seed draws 0 to N",
     "64", AT(request.max_count), 0, SCENARIO_MAX_COUNT},
    {OPTION_CHOICE, "staging", NULL,
     "Slots between nodes: 1 or 2 channels with 1 to 3 slots of 1 to 3 rows, or (least) one "
     "channel with one slot of one row",
     "drawn", AT(request.staging), .choices = scenario_staging_names},
    {OPTION_CHOICE, "initiator", NULL,
     "Start accesses to other nodes by the host, or by the programs themselves (gpu), which "
     "post to a model of a NIC for each pair of ranks",
     "host", AT(request.initiator), .choices = sim_initiator_names},
    {OPTION_GROUP, .doc = "The schedules"},
    {OPTION_INTEGER, "schedules", "S", "Number of schedules of each operation", "2000",
     AT(num_schedules), 1, INT64_MAX},
    {OPTION_INTEGER, "seed", "X", "Seed of the first schedule; the others count up", "1",
     AT(request.seed), 0, INT64_MAX},
    {OPTION_CHOICE, "policy", NULL,
     "How the next rank is chosen: uniformly, by random priorities with few changes "
     "(pct), with some ranks that sleep long (delay), one rank whenever it can run "
     "(ahead), or as the seed says (mixed)",
     "mixed", AT(request.policy), .choices = sim_policy_names},
    {OPTION_CHOICE, "faults", NULL,
     "Kill or stall one rank at one step; or let it make a call of a collective that does "
     "not fit the others' calls (disagree)",
     "none", AT(request.fault), .choices = sim_fault_names,
     .rules =
         {{"kill,stall,disagree", .excludes = "weaken"},
          {"disagree", .excludes = "op",
           .with =
               "layout,notify,dispatch,combine,barrier,ll,ll_packets,gate,move_experts,copies"}}},
    {OPTION_TEXT, "weaken", "SITE",
     "Switch off the ordering site FILE:LINE, or with all each site in turn, and check "
     "that it is caught",
     NULL, AT(weaken)},
    {OPTION_INTEGER, "trace", "EVENTS", "Print the last events of each fiber for a finding", NULL,
     AT(request.num_trace_events), 0, MAX_TRACE_EVENTS, .without = "16 with one schedule, else 0"},
    {OPTION_INTEGER, "jobs", "N", "Processes that share out the schedules; results are the same",
     NULL, AT(num_jobs), 1, PROCESSES_MAX, .letter = 'j',
     .without = "as many as there are processors"},
    {OPTION_FLAG, "json", NULL, "Print JSON objects, one per line", NULL, AT(format)},
    {PROGRESS_QUIET(AT(progress))},
    {0}};

void sim_options_parse(struct sim_options *options, int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, finish};
    *options = (struct sim_options){.request = {.num_ranks = SCENARIO_DRAWN,
                                                .num_nodes = SCENARIO_DRAWN,
                                                .weakened_site = WEFT__SIM_NO_SITE,
                                                .num_trace_events = NOT_GIVEN},
                                    .num_jobs = processes_default(),
                                    .progress = PROGRESS_SHOWN};
    argp_err_exit_status = STATUS_USAGE;
    memcpy(op_choices, scenario_op_names, sizeof scenario_op_names);
    op_choices[SIM_ALL_OPS] = "all";
    options_parse(&set, options, argc, argv);
}

struct scenario_request sim_options_request(const struct sim_options *options, enum scenario_op op,
                                            uint64_t seed)
{
    struct scenario_request request = options->request;
    request.op = op;
    request.seed = seed;
    return request;
}
