/* SPDX-License-Identifier: MIT */
#include "suite.h"

#include <signal.h>
#include <stdio.h>

#include "workload/clock.h"
#include "workload/progress.h"

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
            is_collective ? options->max_count : options->max_tokens,
            sim_policy_names[options->policy]);
    if (options->num_ranks != SCENARIO_DRAWN)
        fprintf(stderr, " --ranks %d", options->num_ranks);
    if (options->num_nodes != SCENARIO_DRAWN)
        fprintf(stderr, " --nodes %d", options->num_nodes);
    if (options->staging != SCENARIO_STAGING_DRAWN)
        fprintf(stderr, " --staging %s", scenario_staging_names[options->staging]);
    if (options->fault != WEFT__SIM_NO_FAULT)
        fprintf(stderr, " --faults %s", sim_fault_names[options->fault]);
    if (site != NULL)
        fprintf(stderr, " --weaken %s", site);
    fputc('\n', stderr);
}

static volatile sig_atomic_t signal_number;

static void note_signal(int number)
{
    signal_number = number;
}

void suite_heed_signals(void)
{
    const struct sigaction action = {.sa_handler = note_signal, .sa_flags = (int)SA_RESETHAND};
    static const int numbers[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

int suite_signal(void)
{
    return signal_number;
}

static void count(struct suite_tally *tally, const struct scenario_outcome *outcome)
{
    tally->num_schedules++;
    tally->num_found[outcome->finding]++;
    tally->num_faults_injected += outcome->fault_struck;
    tally->num_faults_survived += outcome->fault_struck && outcome->finding == SCENARIO_SOUND;
}

int suite_run(const struct sim_options *options, enum scenario_op op, struct suite_tally *tally)
{
    static struct scenario_outcome outcome; /* large */
    struct progress progress;
    const double start = clock_s();
    *tally = (struct suite_tally){0};
    progress_begin(&progress, PROGRESS_SHOWN, scenario_op_names[op], options->num_schedules);
    for (int64_t i = 0; i < options->num_schedules && signal_number == 0; i++) {
        const struct scenario_request request =
            sim_options_request(options, op, options->seed + (uint64_t)i);
        if (scenario_run(&request, &outcome) != 0)
            return -1;
        count(tally, &outcome);
        if (outcome.finding != SCENARIO_SOUND && suite_num_findings(tally) == 1) {
            tally->first_failing_seed = request.seed;
            progress_end(&progress);
            suite_tell(options, &request, NULL, &outcome);
        }
        progress_update(&progress, i + 1);
    }
    progress_end(&progress);
    tally->seconds = clock_s() - start;
    return 0;
}
