/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <jansson.h>
#include <stdio.h>

#include "workload/output.h"

static json_t *number_or_null(int32_t number)
{
    return number == SCENARIO_DRAWN ? json_null() : json_integer(number);
}

static double per_second(int64_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

static int suite_json(const struct sim_options *options, enum scenario_op op,
                      const struct suite_tally *tally)
{
    const int64_t num_findings = suite_num_findings(tally);
    return output_json(
        json_pack(
            "{s:s, s:o, s:o, s:i, s:i, s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I, "
            "s:o, s:i, s:n, s:b}",
            "op", scenario_op_names[op], "ranks", number_or_null(options->request.num_ranks),
            "nodes", number_or_null(options->request.num_nodes), "tokens",
            options->request.max_tokens, "count", options->request.max_count, "staging",
            scenario_staging_names[options->request.staging], "policy",
            sim_policy_names[options->request.policy], "faults",
            sim_fault_names[options->request.fault], "seed", (json_int_t)options->request.seed,
            "schedules", (json_int_t)tally->num_schedules, "seconds", tally->seconds,
            "schedules_per_second", per_second(tally->num_schedules, tally->seconds), "races",
            (json_int_t)tally->num_found[SCENARIO_RACE], "wrong_results",
            (json_int_t)tally->num_found[SCENARIO_WRONG], "hangs",
            (json_int_t)tally->num_found[SCENARIO_HANG], "faults_injected",
            (json_int_t)tally->num_faults_injected, "faults_survived",
            (json_int_t)tally->num_faults_survived, "first_failing_seed",
            num_findings > 0 ? json_integer((json_int_t)tally->first_failing_seed) : json_null(),
            "sites", tally->num_sites, "sites_caught", "ok", num_findings == 0),
        NULL);
}

int report_suite(const struct sim_options *options, enum scenario_op op,
                 const struct suite_tally *tally)
{
    if (options->format == SIM_FORMAT_JSON)
        return suite_json(options, op, tally);
    printf("%-14s %9lld schedules, %6.0f per second: %lld races, %lld hangs, %lld wrong results",
           scenario_op_names[op], (long long)tally->num_schedules,
           per_second(tally->num_schedules, tally->seconds),
           (long long)tally->num_found[SCENARIO_RACE], (long long)tally->num_found[SCENARIO_HANG],
           (long long)tally->num_found[SCENARIO_WRONG]);
    if (options->request.fault != WEFT__SIM_NO_FAULT)
        printf("; %lld of %lld faults survived", (long long)tally->num_faults_survived,
               (long long)tally->num_faults_injected);
    putchar('\n');
    return output_flush();
}

static int site_json(const struct weakened_site *site)
{
    const int is_caught = weakened_is_caught(site);
    return output_json(
        json_pack("{s:s, s:s, s:b, s:I, s:o, s:o, s:o}", "site", site->name, "kind", site->kind,
                  "caught", is_caught, "schedules", (json_int_t)site->num_schedules, "by",
                  is_caught ? json_string(scenario_finding_names[site->caught_by]) : json_null(),
                  "caught_op", is_caught ? json_string(scenario_op_names[site->op]) : json_null(),
                  "seed", is_caught ? json_integer((json_int_t)site->seed) : json_null()),
        NULL);
}

static int print_site(const struct weakened_site *site)
{
    if (!weakened_is_caught(site))
        return printf("%-28s %-16s NOT CAUGHT in %lld schedules%s\n", site->name, site->kind,
                      (long long)site->num_schedules,
                      site->caught_by == SCENARIO_CRASH ? ": a crash of no known cause" : "");
    return printf("%-28s %-16s caught after %lld schedules: %s (%s, seed %llu)\n", site->name,
                  site->kind, (long long)site->num_schedules,
                  scenario_finding_names[site->caught_by], scenario_op_names[site->op],
                  (unsigned long long)site->seed);
}

static int weakening_json(const struct sim_options *options, const struct weakening *weakening)
{
    const char *op =
        options->op == SIM_ALL_OPS ? "all" : scenario_op_names[(enum scenario_op)options->op];
    return output_json(
        json_pack("{s:s, s:s, s:o, s:I, s:f, s:f, s:i, s:i, s:b}", "op", op, "weaken",
                  options->weaken, "ranks", number_or_null(options->request.num_ranks), "schedules",
                  (json_int_t)weakening->num_schedules, "seconds", weakening->seconds,
                  "schedules_per_second", per_second(weakening->num_schedules, weakening->seconds),
                  "sites", weakening->num_sites, "sites_caught", weakening->num_caught, "ok",
                  weakening->num_caught == weakening->num_sites),
        NULL);
}

int report_weakening(const struct sim_options *options, const struct weakening *weakening)
{
    const int is_json = options->format == SIM_FORMAT_JSON;
    for (int32_t i = 0; i < weakening->num_sites; i++) {
        const struct weakened_site *site = &weakening->sites[i];
        if (is_json ? site_json(site) != 0 : print_site(site) < 0)
            return -1;
    }
    if (is_json)
        return weakening_json(options, weakening);
    printf("%d of %d sites caught\n", weakening->num_caught, weakening->num_sites);
    return output_flush();
}
