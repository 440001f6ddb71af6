/* SPDX-License-Identifier: MIT */
/* weft-sim: what `weft sim` runs. A program of its own, since it is linked with the library on
 * another machine. */
#include <stdio.h>
#include <string.h>

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

static int weaken(const struct sim_options *options)
{
    static struct weakening weakening; /* large */
    if (weaken_run(options, &weakening) != 0)
        return no_memory();
    if (weakening.num_sites == 0) {
        fprintf(stderr, "weft sim: --weaken %s: no operation passes such an ordering site\n",
                options->weaken);
        return STATUS_USAGE;
    }
    const int is_printed = report_weakening(options, &weakening) == 0;
    return is_printed && weakening.num_caught == weakening.num_sites ? 0 : STATUS_FAILURE;
}

static int explore(const struct sim_options *options)
{
    int status = 0;
    suite_heed_signals();
    for (int32_t op = 0; op < NUM_SCENARIO_OPS && suite_signal() == 0; op++) {
        struct suite_tally tally;
        if (options->op != SIM_ALL_OPS && options->op != op)
            continue;
        if (options->fault == WEFT__SIM_DISAGREE && !scenario_is_collective((enum scenario_op)op))
            continue;
        if (suite_run(options, (enum scenario_op)op, &tally) != 0)
            return no_memory();
        if (report_suite(options, (enum scenario_op)op, &tally) != 0 ||
            suite_num_findings(&tally) > 0)
            status = STATUS_FAILURE;
    }
    if (suite_signal() == 0)
        return status;
    fprintf(stderr, "weft sim: SIG%s: these are the schedules until then\n",
            signal_name(suite_signal()));
    return STATUS_SIGNAL + suite_signal();
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
    return options.weaken != NULL ? weaken(&options) : explore(&options);
}
