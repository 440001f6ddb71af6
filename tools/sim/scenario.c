/* SPDX-License-Identifier: MIT */
#include "scenario.h"

#include <stdio.h>
#include <string.h>

#include "party.h"
#include "workload/failure.h"
#include "workload/rng.h"

/* Virtual time. The survivors of a fault come to their new communicator up to a deadline apart. */
enum { TIMEOUT_MS = 1000, SURVIVORS_TIMEOUT_MS = 60000 };

const char *const scenario_op_names[NUM_SCENARIO_OPS] = {
    "layout",     "notify",         "dispatch",     "combine",    "barrier",
    "all_reduce", "reduce_scatter", "all_gather",   "all_to_all", "broadcast",
    "reduce",     "gather",         "scatter",      "group",      "ll",
    "ll_packets", "gate",           "move_experts", "copies"};
const char *const scenario_finding_names[NUM_SCENARIO_FINDINGS] = {"nothing", "race", "hang",
                                                                   "wrong result", "crash"};

const char *const scenario_staging_names[NUM_SCENARIO_STAGINGS + 1] = {"drawn", "least", NULL};

/* ---------------------------------------------------------------- ranks */

static weft_result create_comm(struct party *party, const weft_unique_id *id, uint32_t timeout_ms)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.timeout_ms = timeout_ms;
    config.num_nodes = party->shape->num_nodes;
    return weft_comm_create(id, party->rank, party->shape->num_ranks, &config, &party->comm);
}

static weft_result run_operation(struct party *party)
{
    TRY(create_comm(party, &party->scenario->id, TIMEOUT_MS));
    TRY(party_open(party));
    return party_run(party);
}

/* "rank N" and no further digit. */
static int names_rank(const char *message, int32_t rank)
{
    char name[32];
    const int length = snprintf(name, sizeof name, "rank %d", rank);
    for (const char *at = strstr(message, name); at != NULL; at = strstr(at + 1, name)) {
        if (at[length] < '0' || at[length] > '9')
            return 1;
    }
    return 0;
}

static int fits_fault(const struct scenario *scenario, weft_result result)
{
    if (scenario->fault == WEFT__SIM_DISAGREE)
        return result == WEFT_ERROR_MISMATCH;
    return result == WEFT_ERROR_RANK_FAILED || result == WEFT_ERROR_TIMEOUT;
}

/* The rank that was struck, or, of two whose calls differ, the one that somebody else has found. */
static int may_be_blamed(const struct scenario *scenario, int32_t rank, const char *message)
{
    return rank == scenario->fault_rank ||
           (scenario->fault == WEFT__SIM_DISAGREE && names_rank(message, rank));
}

/* Every survivor names the rank that was struck, in words and, where there is a communicator that
 * has failed, by number. */
static void check_survivors_error(struct party *party, weft_result result, const char *message)
{
    const int32_t struck = party->scenario->fault_rank;
    int32_t failed_rank = struck;
    if (!fits_fault(party->scenario, result))
        party_complain(party, "after the fault: error %d: %s", result, message);
    else if (!names_rank(message, struck))
        party_complain(party, "after the fault: rank %d is not named: %s", struck, message);
    else if (party->comm != NULL && weft_comm_status(party->comm, &failed_rank) != WEFT_OK &&
             !may_be_blamed(party->scenario, failed_rank, message))
        party_complain(party, "after the fault: failed_rank is %d, not %d: %s", failed_rank, struck,
                       message);
}

/* Once all have a weft_ll with masks, no fault is an error for the others. */
static int goes_on_without_the_struck(const struct party *party)
{
    const struct scenario *scenario = party->scenario;
    return party->shape->ll_terms.on_missing == WEFT_LL_MASK &&
           party->rank != scenario->fault_rank && scenario->num_ll_open == party->shape->num_ranks;
}

/* With three nodes or more, one may have done its part of the last call before those who see that
 * calls differ tell all. */
static int may_see_nothing(const struct party *party, weft_result result)
{
    return party->scenario->has_disagreed && party->shape->num_nodes > 2 && result == WEFT_OK;
}

static void check_error(struct party *party, weft_result result)
{
    struct scenario *scenario = party->scenario;
    const char *message = failure_text(result);
    scenario->num_told += scenario->has_disagreed && result != WEFT_OK;
    if (may_see_nothing(party, result))
        return;
    if (scenario->has_disagreed && result != WEFT_ERROR_MISMATCH)
        party_complain(party, "after calls that do not fit: %d: %s", result,
                       result == WEFT_OK ? "no error" : message);
    if (result == WEFT_OK)
        return;
    if (goes_on_without_the_struck(party))
        party_complain(party, "failed with %d, which has masks: %s", result, message);
    else if (scenario->fault == WEFT__SIM_NO_FAULT)
        party_complain(party, "failed with %d: %s", result, message);
    else if (party->rank != scenario->fault_rank)
        check_survivors_error(party, result, message);
}

/* The survivors meet before they leave the old communicator, so that nobody takes another
 * survivor's leaving for the fault. */
static void go_on_with_survivors(struct party *old)
{
    struct scenario *scenario = old->scenario;
    const int is_one_gone = scenario->fault != WEFT__SIM_DISAGREE;
    struct party party = {.scenario = scenario,
                          .shape = &scenario->survivors_shape,
                          .rank = old->rank - (is_one_gone && old->rank > scenario->fault_rank)};
    (void)party_synchronize(old); /* its lanes may still write to the others; the error is known */
    weft_result result = create_comm(&party, &scenario->survivors_id, SURVIVORS_TIMEOUT_MS);
    party_close(old);
    if (result == WEFT_OK)
        result = weft_comm_host_barrier(party.comm);
    if (result == WEFT_OK)
        result = party_open(&party);
    if (result == WEFT_OK)
        result = party_run(&party);
    if (result != WEFT_OK)
        party_complain(&party, "the survivors' operation failed with %d: %s", result,
                       weft_last_error());
    party_close(&party);
}

static int run_rank(int32_t rank, void *argument)
{
    struct scenario *scenario = argument;
    struct party party = {.scenario = scenario, .shape = &scenario->shape, .rank = rank};
    check_error(&party, run_operation(&party));
    const int is_struck = scenario->fault != WEFT__SIM_DISAGREE && rank == scenario->fault_rank;
    if (scenario->fault != WEFT__SIM_NO_FAULT && !is_struck)
        go_on_with_survivors(&party);
    else
        party_close(&party);
    return scenario->message[0] != '\0';
}

/* ---------------------------------------------------------------- runs */

static enum scenario_finding finding_of(const struct scenario_outcome *outcome)
{
    if (outcome->sim.num_races > 0)
        return SCENARIO_RACE;
    if (outcome->sim.num_hangs > 0)
        return SCENARIO_HANG;
    return outcome->message[0] != '\0' || outcome->sim.num_wrong > 0 ? SCENARIO_WRONG
                                                                     : SCENARIO_SOUND;
}

static int run_once(struct scenario *scenario, struct weft__sim_config *config,
                    struct scenario_outcome *outcome)
{
    scenario->fault = config->fault;
    scenario->has_disagreed = 0;
    scenario->num_told = 0;
    scenario->num_ll_open = 0;
    scenario->message[0] = '\0';
    if (weft_unique_id_create(&scenario->id) != WEFT_OK ||
        weft_unique_id_create(&scenario->survivors_id) != WEFT_OK)
        return -1;
    const int failed = weft__sim_run(config, &outcome->sim);
    const int is_intact = guarded_free_all(&scenario->memory);
    outcome->fault_struck |= outcome->sim.fault_struck;
    if (scenario->has_disagreed && scenario->num_told == 0 && scenario->message[0] == '\0')
        snprintf(scenario->message, sizeof scenario->message,
                 "calls that do not fit are an error for nobody");
    snprintf(outcome->message, sizeof outcome->message, "%s",
             scenario->message[0] == '\0' && !is_intact ? "memory beside an output was overwritten"
                                                        : scenario->message);
    outcome->finding = finding_of(outcome);
    return failed;
}

int scenario_run(const struct scenario_request *request, struct scenario_outcome *outcome)
{
    static struct scenario scenario; /* large, and there is one run at a time */
    memset(&scenario, 0, sizeof scenario);
    shape_draw(&scenario.shape, request);
    /* Who is cut off from the stalled rank would not wait for it, and wait in vain for those who
     * do. */
    if (request->fault == WEFT__SIM_STALL)
        memset(scenario.shape.ll_cuts, 0, sizeof scenario.shape.ll_cuts);
    struct weft__sim_config config = {.seed = request->seed,
                                      .policy = request->policy,
                                      .num_ranks = scenario.shape.num_ranks,
                                      .initiator = request->initiator,
                                      .rank_main = run_rank,
                                      .argument = &scenario,
                                      .weakened_site = request->weakened_site,
                                      .num_trace_events = request->num_trace_events};
    outcome->fault_struck = 0;
    const int failed = run_once(&scenario, &config, outcome);
    if (failed || request->fault == WEFT__SIM_NO_FAULT || outcome->finding != SCENARIO_SOUND)
        return failed;
    /* Again, the same up to the fault: the run without it has told how many steps there are. */
    struct rng rng = {rng_key(request->seed, (uint64_t)request->fault)};
    config.fault = request->fault;
    config.fault_rank = (int32_t)rng_below(&rng, (uint32_t)config.num_ranks);
    if (scenario.shape.ll_terms.on_missing == WEFT_LL_MASK) /* it may come back */
        config.stall_ns =
            (int64_t)rng_below(&rng, 5 * TIMEOUT_MS) * 1000000 + 1; /* 0: not at all */
    config.fault_step = rng_below(&rng, (uint32_t)outcome->sim.num_steps);
    scenario.fault_rank = config.fault_rank;
    scenario.survivors_shape = scenario.shape;
    if (config.fault != WEFT__SIM_DISAGREE)
        shape_without_rank(&scenario.survivors_shape);
    return run_once(&scenario, &config, outcome);
}
