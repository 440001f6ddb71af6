/* SPDX-License-Identifier: MIT */
#include "weaken.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "suite.h"
#include "workload/clock.h"
#include "workload/progress.h"
#include "workload/signals.h"

enum { DISCOVERY_SCHEDULES = 50 }; /* of each operation: they pass all sites many times */

static struct scenario_outcome outcome; /* large */

static int is_among(const struct sim_options *options, int32_t op)
{
    return options->op == SIM_ALL_OPS || options->op == op;
}

/* Sites that have been passed, and which operations have, a bit each. */
static struct passed_site {
    const char *file;
    int line;
    uint32_t ops;
    uint64_t num_passes;
} passed_sites[WEAKEN_MAX_SITES];

static struct passed_site *passed_site_of(const char *file, int line)
{
    int32_t i = 0;
    while (i < WEAKEN_MAX_SITES - 1 && passed_sites[i].file != NULL &&
           (passed_sites[i].line != line || strcmp(passed_sites[i].file, file) != 0))
        i++;
    passed_sites[i].file = file;
    passed_sites[i].line = line;
    return &passed_sites[i];
}

static void note_passes(int32_t op)
{
    for (int32_t i = 0; i < weft__sim_num_sites(); i++) {
        const struct weft__sim_site *found = weft__sim_site(i);
        struct passed_site *passed = passed_site_of(found->file, found->line);
        passed->ops |= (uint32_t)(found->num_passes > passed->num_passes) << op;
        passed->num_passes = found->num_passes;
    }
}

static int discover(const struct sim_options *options)
{
    for (int32_t op = 0; op < NUM_SCENARIO_OPS; op++) {
        for (uint64_t i = 0;
             i < DISCOVERY_SCHEDULES && is_among(options, op) && signals_noted() == 0; i++) {
            const struct scenario_request request =
                sim_options_request(options, (enum scenario_op)op, i);
            if (scenario_run(&request, &outcome) != 0)
                return -1;
        }
        note_passes(op);
    }
    return 0;
}

/* The last folder and the file: as short as it is clear. */
static void name_site(struct weakened_site *site)
{
    const char *start = site->file;
    int num_slashes = 0;
    for (const char *at = site->file + strlen(site->file); at > site->file; at--) {
        if (at[-1] == '/' && ++num_slashes == 2) {
            start = at;
            break;
        }
    }
    snprintf(site->name, sizeof site->name, "%s:%d", start, site->line);
}

static int is_wanted(const char *wanted, const char *name)
{
    const size_t wanted_length = strlen(wanted), length = strlen(name);
    if (strcmp(wanted, "all") == 0 || strcmp(wanted, name) == 0)
        return 1;
    return wanted_length < length && name[length - wanted_length - 1] == '/' &&
           strcmp(name + length - wanted_length, wanted) == 0;
}

static void list_sites(const struct sim_options *options, struct weakening *weakening)
{
    for (int32_t i = 0; i < weft__sim_num_sites() && i < WEAKEN_MAX_SITES; i++) {
        const struct weft__sim_site *found = weft__sim_site(i);
        struct weakened_site *site = &weakening->sites[weakening->num_sites];
        *site =
            (struct weakened_site){.file = found->file, .line = found->line, .kind = found->kind};
        name_site(site);
        weakening->num_sites += is_wanted(options->weaken, site->name);
    }
}

static int32_t number_of(const struct weakened_site *site)
{
    for (int32_t i = 0; i < weft__sim_num_sites(); i++) {
        const struct weft__sim_site *found = weft__sim_site(i);
        if (found->line == site->line && strcmp(found->file, site->file) == 0)
            return i;
    }
    return WEFT__SIM_NO_SITE;
}

/* A site that is passed for the first time changes the numbers of others: then once more. */
static int run_weakened(const struct sim_options *options, struct weakened_site *site,
                        enum scenario_op op, uint64_t seed)
{
    struct scenario_request request = sim_options_request(options, op, seed);
    int32_t num_sites;
    site->num_schedules++;
    site->op = op;
    site->seed = seed;
    do {
        num_sites = weft__sim_num_sites();
        request.weakened_site = number_of(site);
        if (scenario_run(&request, &outcome) != 0)
            return -1;
    } while (num_sites != weft__sim_num_sites());
    site->caught_by = outcome.finding;
    if (outcome.finding != SCENARIO_SOUND && options->request.num_trace_events > 0)
        suite_tell(options, &request, site->name, &outcome);
    return 0;
}

/* Seed by seed, all operations that pass it: each site is caught by the first that notices. */
static int weaken_site(const struct sim_options *options, struct weakened_site *site)
{
    const uint32_t ops = passed_site_of(site->file, site->line)->ops;
    while (site->num_seeds < options->num_schedules) {
        const int64_t i = site->num_seeds++;
        for (int32_t op = 0; op < NUM_SCENARIO_OPS; op++) {
            if ((ops >> op & 1u) == 0)
                continue;
            if (run_weakened(options, site, (enum scenario_op)op,
                             options->request.seed + (uint64_t)i) != 0)
                return -1;
            if (site->caught_by != SCENARIO_SOUND)
                return 0;
        }
    }
    return 0;
}

/* The process that weakens it; see `outcome` for what its run has found until then. */
static struct weakened_site *crashing_site;

/* A wild pointer is what comes of missing order. What counts is that the sim had told of that
 * before. */
static void note_crash(int number)
{
    (void)number; /* its default, now set again, is what comes next */
    if (outcome.sim.num_races == 0)
        return;
    crashing_site->caught_by = SCENARIO_RACE;
    _exit(0);
}

/* On a stack of its own: programs run on those of fibers. */
static void heed_crashes(struct weakened_site *site)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    static char memory[1 << 16];
    const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    const struct sigaction action = {.sa_handler = note_crash,
                                     .sa_flags = SA_ONSTACK | (int)SA_RESETHAND};
    crashing_site = site;
    sigaltstack(&stack, NULL);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
}

/* In a process of its own, since programs that are not ordered follow wild pointers; `shared` is
 * what both processes see. Where one was followed before the sim had told, the seeds behind that
 * may tell. */
static int weaken_apart(const struct sim_options *options, struct weakened_site *shared)
{
    int status, has_crashed = 0;
    do {
        fflush(NULL);
        shared->caught_by = SCENARIO_SOUND;
        const pid_t child = fork();
        if (child == 0) {
            heed_crashes(shared);
            _exit(weaken_site(options, shared) != 0);
        }
        if (child < 0)
            return -1;
        while (waitpid(child, &status, 0) != child) {
            if (errno != EINTR)
                return -1;
            kill(child, SIGKILL); /* what it has of this site is of no use */
        }
        has_crashed |= WIFSIGNALED(status);
    } while (WIFSIGNALED(status) && shared->num_seeds < options->num_schedules &&
             signals_noted() == 0);
    if (has_crashed && shared->caught_by == SCENARIO_SOUND)
        shared->caught_by = SCENARIO_CRASH;
    return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? -1 : 0;
}

static int weaken_sites(const struct sim_options *options, struct weakening *weakening,
                        struct weakened_site *shared)
{
    struct progress progress;
    int failed = 0;
    progress_begin(&progress, options->progress, "weaken", weakening->num_sites);
    for (int32_t i = 0; i < weakening->num_sites && !failed; i++) {
        *shared = weakening->sites[i];
        failed = weaken_apart(options, shared);
        if (signals_noted() != 0)
            weakening->num_sites = i;
        if (i == weakening->num_sites)
            break;
        weakening->sites[i] = *shared;
        weakening->num_caught += weakened_is_caught(shared);
        weakening->num_schedules += shared->num_schedules;
        progress_update(&progress, i + 1);
    }
    progress_end(&progress);
    return failed;
}

int weaken_run(const struct sim_options *options, struct weakening *weakening)
{
    const double start = clock_s();
    memset(weakening, 0, sizeof *weakening);
    struct weakened_site *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return -1;
    int failed = discover(options);
    list_sites(options, weakening);
    if (!failed)
        failed = weaken_sites(options, weakening, shared);
    munmap(shared, sizeof *shared);
    weakening->seconds = clock_s() - start;
    return failed;
}
