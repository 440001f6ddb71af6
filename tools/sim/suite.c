/* SPDX-License-Identifier: MIT */
#include "suite.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "processes.h"
#include "workload/clock.h"
#include "workload/progress.h"
#include "workload/signals.h"

void suite_tell(const struct sim_options *options, const struct scenario_request *request,
                const char *site, const struct scenario_outcome *outcome)
{
    const char *name = scenario_op_names[request->op];
    fprintf(stderr, "%s, seed %llu: %s\n%s%s", name, (unsigned long long)request->seed,
            scenario_finding_names[outcome->finding], outcome->message,
            outcome->message[0] != '\0' ? "\n" : "");
    fputs(outcome->sim.report, stderr);
    const int is_collective = scenario_is_collective(request->op);
    fprintf(stderr, "replay: weft sim --op %s --seed %llu --schedules 1 --%s %d --policy %s", name,
            (unsigned long long)request->seed, is_collective ? "count" : "tokens",
            is_collective ? options->request.max_count : options->request.max_tokens,
            sim_policy_names[options->request.policy]);
    if (options->request.num_ranks != SCENARIO_DRAWN)
        fprintf(stderr, " --ranks %d", options->request.num_ranks);
    if (options->request.num_nodes != SCENARIO_DRAWN)
        fprintf(stderr, " --nodes %d", options->request.num_nodes);
    if (options->request.staging != SCENARIO_STAGING_DRAWN)
        fprintf(stderr, " --staging %s", scenario_staging_names[options->request.staging]);
    if (options->request.initiator != WEFT__SIM_BY_HOST)
        fprintf(stderr, " --initiator %s", sim_initiator_names[options->request.initiator]);
    if (options->request.fault != WEFT__SIM_NO_FAULT)
        fprintf(stderr, " --faults %s", sim_fault_names[options->request.fault]);
    if (site != NULL)
        fprintf(stderr, " --weaken %s", site);
    fputc('\n', stderr);
}

/* ---------------------------------------------------------------- the schedules */

enum { MAX_SITES = 256 };
enum { NO_SCHEDULE = -1 };

struct passed_site {
    const char *file;
    int line;
};

/* The findings of one process. */
struct share {
    struct suite_tally tally;
    int64_t current, first_failing; /* the number of a schedule, or NO_SCHEDULE */
    int32_t first_has_crashed;
    int32_t num_sites;
    struct passed_site sites[MAX_SITES];
};

struct suite {
    const struct sim_options *options;
    enum scenario_op op;
    struct progress *progress;
    atomic_int_fast64_t num_begun, num_done;
    atomic_int is_stopped;
    struct share shares[];
};

/* A new site changes the numbers of others. */
static void note_sites(struct share *share)
{
    const int32_t num_sites = weft__sim_num_sites();
    if (share->num_sites == num_sites)
        return;
    for (int32_t i = 0; i < num_sites && i < MAX_SITES; i++) {
        const struct weft__sim_site *site = weft__sim_site(i);
        share->sites[i] = (struct passed_site){site->file, site->line};
    }
    share->num_sites = num_sites < MAX_SITES ? num_sites : MAX_SITES;
}

static void note_failure(struct share *share)
{
    if (share->first_failing == NO_SCHEDULE || share->current < share->first_failing)
        share->first_failing = share->current;
}

static void count(struct suite_tally *tally, const struct scenario_outcome *outcome)
{
    tally->num_schedules++;
    tally->num_found[outcome->finding]++;
    tally->num_faults_injected += outcome->fault_struck;
    tally->num_faults_survived += outcome->fault_struck && outcome->finding == SCENARIO_SOUND;
}

static struct scenario_request request_of(const struct suite *suite, int64_t schedule)
{
    return sim_options_request(suite->options, suite->op,
                               suite->options->request.seed + (uint64_t)schedule);
}

/* One schedule after the other that no process has begun. */
static int run_share(void *argument, int32_t number)
{
    static struct scenario_outcome outcome; /* large */
    struct suite *suite = argument;
    struct share *share = &suite->shares[number];
    while (signals_noted() == 0 && !atomic_load(&suite->is_stopped)) {
        share->current = atomic_fetch_add(&suite->num_begun, 1);
        if (share->current >= suite->options->num_schedules)
            break;
        const struct scenario_request request = request_of(suite, share->current);
        if (scenario_run(&request, &outcome) != 0)
            return -1;
        count(&share->tally, &outcome);
        if (outcome.finding != SCENARIO_SOUND)
            note_failure(share);
        note_sites(share);
        share->current = NO_SCHEDULE;
        atomic_fetch_add(&suite->num_done, 1);
    }
    return 0;
}

/* The schedule that a process was killed in is a finding. Another process has the next ones. */
static int go_on(void *argument, int32_t number)
{
    struct suite *suite = argument;
    struct share *share = &suite->shares[number];
    if (share->current == NO_SCHEDULE || share->current >= suite->options->num_schedules)
        return 1;
    share->tally.num_schedules++;
    share->tally.num_found[SCENARIO_CRASH]++;
    note_failure(share);
    share->first_has_crashed |= share->first_failing == share->current;
    atomic_fetch_add(&suite->num_done, 1);
    return 1;
}

static void idle(void *argument)
{
    struct suite *suite = argument;
    if (signals_noted() != 0)
        atomic_store(&suite->is_stopped, 1);
    progress_update(suite->progress, atomic_load(&suite->num_done));
}

/* ---------------------------------------------------------------- all of them */

/* How many sites have been passed, in all suites until now. */
static int32_t add_sites(const struct share *share)
{
    static struct passed_site all[MAX_SITES];
    static int32_t num_sites;
    for (int32_t i = 0; i < share->num_sites; i++) {
        int32_t k = 0;
        while (k < num_sites && (all[k].line != share->sites[i].line ||
                                 strcmp(all[k].file, share->sites[i].file) != 0))
            k++;
        if (k == num_sites && num_sites < MAX_SITES)
            all[num_sites++] = share->sites[i];
    }
    return num_sites;
}

static void add_share(struct suite_tally *tally, const struct share *share)
{
    tally->num_schedules += share->tally.num_schedules;
    for (int i = 0; i < NUM_SCENARIO_FINDINGS; i++)
        tally->num_found[i] += share->tally.num_found[i];
    tally->num_faults_injected += share->tally.num_faults_injected;
    tally->num_faults_survived += share->tally.num_faults_survived;
    tally->num_sites = add_sites(share);
}

/* Runs the schedule again, which has the same finding, unless it would end this process. */
static int tell_first(const struct suite *suite, const struct share *share)
{
    static struct scenario_outcome outcome;
    const struct scenario_request request = request_of(suite, share->first_failing);
    if (share->first_has_crashed)
        outcome = (struct scenario_outcome){.finding = SCENARIO_CRASH};
    else if (scenario_run(&request, &outcome) != 0)
        return -1;
    suite_tell(suite->options, &request, NULL, &outcome);
    return 0;
}

static int sum_up(const struct suite *suite, int32_t num_shares, struct suite_tally *tally)
{
    const struct share *first = NULL;
    for (int32_t i = 0; i < num_shares; i++) {
        const struct share *share = &suite->shares[i];
        add_share(tally, share);
        if (share->first_failing != NO_SCHEDULE &&
            (first == NULL || share->first_failing < first->first_failing))
            first = share;
    }
    if (first == NULL)
        return 0;
    tally->first_failing_seed = suite->options->request.seed + (uint64_t)first->first_failing;
    return tell_first(suite, first);
}

static int run_all(struct suite *suite, int32_t num_shares)
{
    const struct processes processes = {
        .count = num_shares, .work = run_share, .go_on = go_on, .idle = idle, .argument = suite};
    for (int32_t i = 0; i < num_shares; i++)
        suite->shares[i].current = suite->shares[i].first_failing = NO_SCHEDULE;
    /* A schedule alone is for a debugger, too. */
    return suite->options->num_schedules == 1 ? run_share(suite, 0) : processes_run(&processes);
}

int suite_run(const struct sim_options *options, enum scenario_op op, struct suite_tally *tally)
{
    struct progress progress;
    const double start = clock_s();
    const int32_t num_shares = options->num_schedules < options->num_jobs
                                   ? (int32_t)options->num_schedules
                                   : options->num_jobs;
    const size_t num_bytes = sizeof(struct suite) + (size_t)num_shares * sizeof(struct share);
    struct suite *suite = processes_alloc(num_bytes);
    if (suite == NULL)
        return -1;
    *tally = (struct suite_tally){0};
    suite->options = options;
    suite->op = op;
    suite->progress = &progress;
    progress_begin(&progress, options->progress, scenario_op_names[op], options->num_schedules);
    int result = run_all(suite, num_shares);
    progress_end(&progress);
    if (result == 0)
        result = sum_up(suite, num_shares, tally);
    processes_free(suite, num_bytes);
    tally->seconds = clock_s() - start;
    return result;
}
