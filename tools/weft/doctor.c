/* SPDX-License-Identifier: MIT */
/* weft doctor: what weft can run on here and why, and how fast the links between ranks are. The
 * links are measured by ranks that it starts, unless it is itself a rank of a job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "doctor_system.h"
#include "hosts.h"
#include "job.h"
#include "workload/failure.h"
#include "workload/options.h"

enum { MAX_RANKS = 64, HOST_RANKS = 2 };

enum scope { SCOPE_ALL, SCOPE_LINKS };

struct doctor {
    struct doctor_report report;
    const char *host_list, *ssh;
    struct hosts hosts;
    weft_machine machine;
    int32_t num_ranks; /* 0: one per device, at least one; on cpu HOST_RANKS */
    enum scope scope;
};

#define AT(member) OPTION_AT(struct doctor, member)

static const struct option_row option_table[] = {
    {JOB_MACHINE(AT(machine))},
    {OPTION_INTEGER, "ranks", "R", "Measure between R ranks; inside a launcher those of the job",
     NULL, AT(num_ranks), 1, MAX_RANKS, .without = "a rank per GPU; on cpu 2"},
    {OPTION_FLAG, "links", NULL, "Only measure the links", NULL, AT(scope)},
    {OPTION_FLAG, "json", NULL,
     "Print one JSON object per line: the system, machines, the choice, links", NULL,
     AT(report.format)},
    {OPTION_TEXT, "hosts", "FILE|LIST",
     "Examine these hosts, which are given as for weft run --hosts, and the network "
     "between them: ports, latency and rate of links, and clocks",
     NULL, AT(host_list), .rules = {{.excludes = "links"}}},
    {OPTION_TEXT, "ssh", "COMMAND", "Start with COMMAND HOST SCRIPT in place of ssh", HOSTS_SSH,
     AT(ssh), .rules = {{.needs = "hosts"}}},
    {0}};

static const char documentation[] =
    "Tells which machines weft can run on here, which one it uses and why, and measures the links "
    "between ranks by dispatching rows from each to each. Tells what the system gives and which "
    "versions of other libraries there are; a warning says what to do."
    "\vThe exit status is 0 if all is fine, 1 if something limits weft, and 2 if something stops "
    "it: a setting that does not exist, a machine that cannot be used, a host that cannot be "
    "reached, rows that arrived damaged.";

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

static int print_machines(struct doctor *doctor, const weft_machine_info *used)
{
    char why[sizeof used->reason + 16];
    for (int machine = WEFT_MACHINE_CPU; machine <= WEFT_MACHINE_CUDA; machine++) {
        weft_machine_info info = WEFT_INIT(weft_machine_info);
        if (weft_machine_query((weft_machine)machine, &info) != WEFT_OK ||
            doctor_print_machine(&doctor->report, &info) != 0)
            return -1;
    }
    explain(doctor, used, why, sizeof why);
    return doctor_print_choice(&doctor->report, used, why);
}

/* The network of a communicator of this job, or with NULL of one to come. Returns a status: an
 * engine that does not exist is the user's mistake. */
static int print_network(struct doctor *doctor, const weft_comm *comm)
{
    weft_net_info info = WEFT_INIT(weft_net_info), here = WEFT_INIT(weft_net_info);
    weft_result result = weft_net_query(comm, &info);
    if (result == WEFT_OK)
        result = weft_net_query(NULL, &here);
    memcpy(info.gpu_initiator, here.gpu_initiator, sizeof info.gpu_initiator);
    if (result != WEFT_OK) {
        job_report_failure("weft doctor", NULL, result);
        return STATUS_USAGE;
    }
    return doctor_print_network(&doctor->report, &info) == 0 ? EXIT_SUCCESS : STATUS_FAILURE;
}

static int has_several_nodes(weft_comm *comm)
{
    return weft_comm_node(comm, weft_comm_num_ranks(comm) - 1) > 0;
}

static weft_result measure(struct doctor *doctor, weft_comm *comm, int *status)
{
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    struct link_figures *links = calloc((size_t)num_ranks * (size_t)num_ranks, sizeof *links);
    if (links == NULL)
        return LACKS_MEMORY("the links of %d ranks", num_ranks);
    const weft_result result = link_measure_all(comm, links);
    for (int32_t i = 0; i < num_ranks * num_ranks && result == WEFT_OK; i++)
        if (links[i].num_damaged_rows > 0)
            doctor->report.worst = DOCTOR_STOPS;
    if (result == WEFT_OK && weft_comm_rank(comm) == 0 &&
        doctor_print_links(&doctor->report, weft_comm_machine(comm), num_ranks, links) != 0)
        *status = STATUS_FAILURE;
    free(links);
    return result;
}

/* The system, machines, choice and network. Returns a status. */
static int print_all(struct doctor *doctor, const weft_machine_info *used, const weft_comm *comm)
{
    if (doctor_print_system(&doctor->report) != 0 || print_machines(doctor, used) != 0)
        return STATUS_FAILURE;
    return print_network(doctor, comm);
}

/* ---------------------------------------------------------------- several hosts */

static int print_clock(struct doctor *doctor, const weft_comm *comm)
{
    const double far_ms = 1000;
    weft_stats stats = WEFT_INIT(weft_stats);
    if (weft_stats_query(comm, &stats) != WEFT_OK || stats.clock_error_ns == 0)
        return 0;
    const double ms = (double)stats.clock_ahead_ns / 1e6;
    const int is_far = ms > far_ms || ms < -far_ms;
    struct doctor_finding finding = {
        .what = "clock",
        .severity = is_far ? DOCTOR_LIMITS : DOCTOR_FINE,
        .advice = is_far ? "times in logs do not fit together: run NTP on all hosts" : NULL};
    snprintf(finding.value, sizeof finding.value, "%.3f ms %s that of rank 0, to within %.3f ms",
             ms < 0 ? -ms : ms, ms < 0 ? "behind" : "ahead of", (double)stats.clock_error_ns / 1e6);
    return doctor_print_finding(&doctor->report, &finding);
}

/* All ranks have the worst severity of all. */
static weft_result agree(struct doctor *doctor, weft_comm *comm)
{
    enum doctor_severity all[MAX_RANKS];
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    const weft_result result =
        num_ranks > MAX_RANKS
            ? WEFT_OK
            : weft_comm_host_all_gather(comm, &doctor->report.worst, sizeof *all, all);
    for (int32_t rank = 0; rank < num_ranks && num_ranks <= MAX_RANKS && result == WEFT_OK; rank++)
        if (all[rank] > doctor->report.worst)
            doctor->report.worst = all[rank];
    return result;
}

/* Rank 0 tells all; of each other host, a rank what there is. Returns a status. */
static int print_as_rank(struct doctor *doctor, const weft_machine_info *used, weft_comm *comm)
{
    weft_stats stats = WEFT_INIT(weft_stats);
    if (weft_comm_rank(comm) == 0)
        return print_all(doctor, used, has_several_nodes(comm) ? comm : NULL);
    if (weft_stats_query(comm, &stats) != WEFT_OK || stats.clock_error_ns == 0)
        return EXIT_SUCCESS;
    return doctor_print_system(&doctor->report) != 0 || print_clock(doctor, comm) != 0
               ? STATUS_FAILURE
               : EXIT_SUCCESS;
}

/* As a rank of a job. */
static int join(struct doctor *doctor, const weft_machine_info *used)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    int status = EXIT_SUCCESS;
    if (job_check_ranks("weft doctor", doctor->num_ranks) != 0)
        return STATUS_USAGE;
    config.machine = doctor->machine;
    weft_comm *comm = job_join("weft doctor", &config, &status);
    if (!comm)
        return DOCTOR_STOPS;
    if (doctor->scope == SCOPE_ALL)
        status = print_as_rank(doctor, used, comm);
    weft_result result = measure(doctor, comm, &status);
    if (result == WEFT_OK)
        result = agree(doctor, comm);
    if (result != WEFT_OK) {
        job_report_and_abort("weft doctor", comm, result);
        status = DOCTOR_STOPS;
    }
    weft_comm_destroy(comm);
    return status == EXIT_SUCCESS ? (int)doctor->report.worst : status;
}

/* As weft run --hosts does, with a rank on each host. */
static int examine_hosts(struct doctor *doctor)
{
    static char exe[4096], list[HOSTS_MAX * HOSTS_NAME_BYTES], num_ranks[16];
    const int is_json = doctor->report.format == DOCTOR_FORMAT_JSON;
    size_t length = 0;
    for (int32_t i = 0; i < doctor->hosts.num_hosts; i++)
        length += (size_t)snprintf(list + length, sizeof list - length, "%s%s", i == 0 ? "" : ",",
                                   doctor->hosts.hosts[i].name);
    snprintf(num_ranks, sizeof num_ranks, "%d", doctor->hosts.num_hosts);
    hosts_free(&doctor->hosts);
    if (readlink("/proc/self/exe", exe, sizeof exe - 1) < 0)
        return DOCTOR_STOPS;
    char *argv[] = {"weft run",
                    "--hosts",
                    list,
                    "--ssh",
                    (char *)doctor->ssh,
                    "-n",
                    num_ranks,
                    is_json ? "--no-prefix" : "--grace=5",
                    "--",
                    exe,
                    "doctor",
                    "--machine",
                    (char *)job_machine_names[doctor->machine],
                    is_json ? "--json" : NULL,
                    NULL};
    const int status = command_run((int)(sizeof argv / sizeof *argv) - (is_json ? 1 : 2), argv);
    if (status == DOCTOR_FINE || status == DOCTOR_LIMITS)
        return status;
    fprintf(stderr, "weft doctor: these hosts cannot work together. Does ssh HOST true work, is "
                    "weft there at the same path, and do the hosts reach each other's ports "
                    "(WEFT_PORTS, WEFT_ADDR)?\n");
    return DOCTOR_STOPS;
}

static void finish(void *input, struct argp_state *state)
{
    struct doctor *doctor = input;
    if (doctor->host_list)
        hosts_read(state, doctor->host_list, 0, &doctor->hosts);
}

static int examine(struct doctor *doctor, const weft_machine_info *used)
{
    static const char *const names[] = {"auto", "cpu", "cuda"};
    int32_t num_ranks = doctor->num_ranks;
    const int status = doctor->scope == SCOPE_ALL ? print_all(doctor, used, NULL) : EXIT_SUCCESS;
    if (status != EXIT_SUCCESS)
        return status;
    if (!used->is_usable) {
        fprintf(stderr, "weft doctor: %s\n", used->reason);
        return DOCTOR_STOPS;
    }
    if (num_ranks == 0)
        num_ranks = used->machine == WEFT_MACHINE_CPU ? HOST_RANKS : used->num_devices;
    char *arguments[] = {"doctor",
                         "--links",
                         "--machine",
                         (char *)names[used->machine],
                         doctor->report.format == DOCTOR_FORMAT_JSON ? "--json" : NULL,
                         NULL};
    const int links =
        job_launch("weft doctor", num_ranks < MAX_RANKS ? num_ranks : MAX_RANKS, 1, arguments);
    return links == EXIT_SUCCESS ? (int)doctor->report.worst : links;
}

int command_doctor(int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, finish};
    struct doctor doctor = {.machine = WEFT_MACHINE_AUTO};
    weft_machine_info used = WEFT_INIT(weft_machine_info);
    options_parse(&set, &doctor, argc, argv);
    if (doctor.host_list)
        return examine_hosts(&doctor);
    const weft_result result = weft_machine_query(doctor.machine, &used);
    if (result != WEFT_OK) {
        job_report_failure("weft doctor", NULL, result);
        return STATUS_USAGE;
    }
    return job_has_rank() ? join(&doctor, &used) : examine(&doctor, &used);
}
