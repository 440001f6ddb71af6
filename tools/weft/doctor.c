/* SPDX-License-Identifier: MIT */
/* weft doctor: what weft can run on here and why, and how fast the links between ranks are. The
 * links are measured by ranks that it starts, unless it is itself a rank of a job. */
#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "doctor_system.h"
#include "job.h"
#include "workload/failure.h"
#include "workload/options.h"

enum { MAX_RANKS = 64, HOST_RANKS = 2 };

enum scope { SCOPE_ALL, SCOPE_LINKS };

struct doctor {
    weft_machine machine;
    int32_t num_ranks; /* 0: one per device, at least one; on cpu HOST_RANKS */
    enum scope scope;
    enum doctor_format format;
};

#define AT(member) OPTION_AT(struct doctor, member)

static const struct option_row option_table[] = {
    {JOB_MACHINE(AT(machine))},
    {OPTION_INTEGER, "ranks", "R", "Measure between R ranks; inside a launcher those of the job",
     NULL, AT(num_ranks), 1, MAX_RANKS, .without = "a rank per GPU; on cpu 2"},
    {OPTION_FLAG, "links", NULL, "Only measure the links", NULL, AT(scope)},
    {OPTION_FLAG, "json", NULL,
     "Print one JSON object per line: the system, machines, the choice, links", NULL, AT(format)},
    {0}};

static const char documentation[] =
    "Tells which machines weft can run on here, which one it uses and why, and measures the links "
    "between ranks by dispatching rows from each to each. Tells what the system gives and which "
    "versions of other libraries there are; a warning says what to do."
    "\vThe exit status is 0 only if the settings exist, the machine can be used, and every row "
    "arrived undamaged. Warnings do not count.";

/* Why `used` is what it is. */
static void explain(const struct doctor *doctor, const weft_machine_info *used, char *why,
                    size_t why_bytes)
{
    const char *setting = getenv("WEFT_MACHINE");
    if (!used->is_usable)
        snprintf(why, why_bytes, "because %s", used->reason);
    else if (doctor->machine != WEFT_MACHINE_AUTO)
        snprintf(why, why_bytes, "as --machine says");
    else if (setting && *setting)
        snprintf(why, why_bytes, "as WEFT_MACHINE=%s says", setting);
    else if (used->machine == WEFT_MACHINE_CUDA)
        snprintf(why, why_bytes, "which can be used and is faster");
    else
        snprintf(why, why_bytes, "because cuda is not usable");
}

static int print_machines(const struct doctor *doctor, const weft_machine_info *used)
{
    char why[sizeof used->reason + 16];
    for (int machine = WEFT_MACHINE_CPU; machine <= WEFT_MACHINE_CUDA; machine++) {
        weft_machine_info info = WEFT_INIT(weft_machine_info);
        if (weft_machine_query((weft_machine)machine, &info) != WEFT_OK ||
            doctor_print_machine(doctor->format, &info) != 0)
            return -1;
    }
    explain(doctor, used, why, sizeof why);
    return doctor_print_choice(doctor->format, used, why);
}

/* The network of a communicator of this job, or with NULL of one to come. Returns a status: an
 * engine that does not exist is the user's mistake. */
static int print_network(const struct doctor *doctor, const weft_comm *comm)
{
    weft_net_info info = WEFT_INIT(weft_net_info);
    const weft_result result = weft_net_query(comm, &info);
    if (result != WEFT_OK) {
        job_report_failure("weft doctor", NULL, result);
        return STATUS_USAGE;
    }
    return doctor_print_network(doctor->format, &info) == 0 ? EXIT_SUCCESS : STATUS_FAILURE;
}

static int has_several_nodes(weft_comm *comm)
{
    return weft_comm_node(comm, weft_comm_num_ranks(comm) - 1) > 0;
}

static weft_result measure(const struct doctor *doctor, weft_comm *comm, int *status)
{
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    struct link_figures *links = calloc((size_t)num_ranks * (size_t)num_ranks, sizeof *links);
    if (links == NULL)
        return LACKS_MEMORY("the links of %d ranks", num_ranks);
    const weft_result result = link_measure_all(comm, links);
    for (int32_t i = 0; i < num_ranks * num_ranks && result == WEFT_OK; i++)
        if (links[i].num_damaged_rows > 0)
            *status = STATUS_FAILURE;
    if (result == WEFT_OK && weft_comm_rank(comm) == 0 &&
        doctor_print_links(doctor->format, weft_comm_machine(comm), num_ranks, links) != 0)
        *status = STATUS_FAILURE;
    free(links);
    return result;
}

/* The system, machines, choice and network. Returns a status. */
static int print_all(const struct doctor *doctor, const weft_machine_info *used,
                     const weft_comm *comm)
{
    if (doctor_print_system(doctor->format) != 0 || print_machines(doctor, used) != 0)
        return STATUS_FAILURE;
    return print_network(doctor, comm);
}

/* As a rank of a job. */
static int join(const struct doctor *doctor, const weft_machine_info *used)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    int status = EXIT_SUCCESS;
    if (job_check_ranks("weft doctor", doctor->num_ranks) != 0)
        return STATUS_USAGE;
    config.machine = doctor->machine;
    weft_comm *comm = job_join("weft doctor", &config, &status);
    if (!comm)
        return status;
    if (doctor->scope == SCOPE_ALL && weft_comm_rank(comm) == 0)
        status = print_all(doctor, used, has_several_nodes(comm) ? comm : NULL);
    const weft_result result = measure(doctor, comm, &status);
    if (result != WEFT_OK) {
        job_report_and_abort("weft doctor", comm, result);
        status = STATUS_FAILURE;
    }
    weft_comm_destroy(comm);
    return status;
}

static int examine(const struct doctor *doctor, const weft_machine_info *used)
{
    static const char *const names[] = {"auto", "cpu", "cuda"};
    int32_t num_ranks = doctor->num_ranks;
    const int status = doctor->scope == SCOPE_ALL ? print_all(doctor, used, NULL) : EXIT_SUCCESS;
    if (status != EXIT_SUCCESS)
        return status;
    if (!used->is_usable) {
        fprintf(stderr, "weft doctor: %s\n", used->reason);
        return STATUS_FAILURE;
    }
    if (num_ranks == 0)
        num_ranks = used->machine == WEFT_MACHINE_CPU ? HOST_RANKS : used->num_devices;
    char *arguments[] = {"doctor",
                         "--links",
                         "--machine",
                         (char *)names[used->machine],
                         doctor->format == DOCTOR_FORMAT_JSON ? "--json" : NULL,
                         NULL};
    return job_launch("weft doctor", num_ranks < MAX_RANKS ? num_ranks : MAX_RANKS, 1, arguments);
}

int command_doctor(int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, NULL};
    struct doctor doctor = {.machine = WEFT_MACHINE_AUTO};
    weft_machine_info used = WEFT_INIT(weft_machine_info);
    options_parse(&set, &doctor, argc, argv);
    const weft_result result = weft_machine_query(doctor.machine, &used);
    if (result != WEFT_OK) {
        job_report_failure("weft doctor", NULL, result);
        return STATUS_USAGE;
    }
    return job_has_rank() ? join(&doctor, &used) : examine(&doctor, &used);
}
