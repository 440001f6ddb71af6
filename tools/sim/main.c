/* SPDX-License-Identifier: MIT */
/* weft-sim: what `weft sim` runs. A program of its own, since it is linked with the library on
 * another machine. */
#include <stdio.h>

#include "command.h"
#include "report.h"
#include "workload/output.h"
#include "workload/signals.h"
#include "workload/version.h"

static int no_memory(void)
{
    fprintf(stderr, "weft sim: out of memory\n");
    return STATUS_FAILURE;
}

/* The status of a command that has got so far. */
static int end_with(int status, const char *what)
{
    if (signals_noted() == 0)
        return status;
    fprintf(stderr, "weft sim: SIG%s: these are the %s until then\n", signal_name(signals_noted()),
            what);
    return STATUS_SIGNAL + signals_noted();
}

static int weaken(const struct sim_options *options)
{
    static struct weakening weakening; /* large */
    if (weaken_run(options, &weakening) != 0)
        return no_memory();
    if (weakening.num_sites == 0 && signals_noted() == 0) {
        fprintf(stderr, "weft sim: --weaken %s: no operation passes such an ordering site\n",
                options->weaken);
        return STATUS_USAGE;
    }
    const int is_printed = report_weakening(options, &weakening) == 0;
    return end_with(is_printed && weakening.num_caught == weakening.num_sites ? 0 : STATUS_FAILURE,
                    "sites");
}

static int explore(const struct sim_options *options)
{
    int status = 0;
    for (int32_t op = 0; op < NUM_SCENARIO_OPS && signals_noted() == 0; op++) {
        struct suite_tally tally;
        if (options->op != SIM_ALL_OPS && options->op != op)
            continue;
        if (options->request.fault == WEFT__SIM_DISAGREE &&
            !scenario_is_collective((enum scenario_op)op))
            continue;
        if (suite_run(options, (enum scenario_op)op, &tally) != 0)
            return no_memory();
        if (report_suite(options, (enum scenario_op)op, &tally) != 0 ||
            suite_num_findings(&tally) > 0)
            status = STATUS_FAILURE;
    }
    return end_with(status, "schedules");
}

int main(int argc, char **argv)
{
    static char name[] = "weft sim"; /* in messages, as the user called it */
    static const char *own_name = name;
    struct sim_options options;
    output_check_at_exit(&own_name);
    argv[0] = name;
    argp_program_version_hook = version_print;
    sim_options_parse(&options, argc, argv);
    signals_heed(SIGNALS_SECOND_KILLS);
    return options.weaken != NULL ? weaken(&options) : explore(&options);
}
