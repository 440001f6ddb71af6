/* SPDX-License-Identifier: MIT */
/* weft topo: what machines are made of, by their files or by looking, and the rings and trees that
 * NCCL's search finds. As the ranks of a job it looks at the machine of each node. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/host/error.h"
#include "command.h"
#include "job.h"
#include "topo/channels_file.h"
#include "topo/constants.h"
#include "topo/file.h"
#include "topo_job.h"
#include "workload/output.h"

enum { MAX_SEARCHED_NODES = 4096 };

/* AUTO is the first; the rest are the types that a level may be. */
static const char *const level_names[] = {"auto", "LOC", "NVL", "NVB", "C2C", "PIX",
                                          "PXB",  "P2C", "PXN", "PHB", "SYS", NULL};

#define AT(member) OPTION_AT(struct topo_options, member)

static const struct option_row option_table[] = {
    {OPTION_GROUP, .doc = "The search"},
    {OPTION_INTEGER, "nodes", "N",
     "Search for N such machines, or N of each FILE, with a network between", "1", AT(num_alike), 1,
     MAX_SEARCHED_NODES},
    {OPTION_CHOICE, "peer-access", "LEVEL",
     "Farthest paths by which GPUs reach each other's memory, from LOC (none) to SYS "
     "(all); auto is PXB, or SYS for two GPUs beside an AMD processor",
     "auto", AT(p2p_level), .choices = level_names},
    {OPTION_TEXT, "nccl", "VERSION",
     "Assume the rates of links that NCCL VERSION assumes, 2.27.3 or newer", NULL, AT(nccl_version),
     .without = "the newest that is known"},
    {OPTION_GROUP, .doc = "The output"},
    {OPTION_TEXT, "graph", "OUT", "Write the channels to OUT, in the format of NCCL_GRAPH_FILE",
     NULL, AT(graph_out)},
    {OPTION_TEXT, "dump", "OUT", "Write the topology to OUT, in NCCL's format", NULL, AT(dump),
     .without = "WEFT_TOPO_DUMP_FILE, or NCCL_TOPO_DUMP_FILE"},
    {OPTION_TEXT, "svg", "FILE", "Draw nodes, links and channels", NULL, AT(svg)},
    {OPTION_FLAG, "json", NULL, "Print one JSON object", NULL, AT(json)},
    {OPTION_ARGUMENTS, .arg = "[FILE...]", AT(files)},
    {0}};

static const char documentation[] =
    "Tells what a machine is made of: GPUs, switches, processors and ports, the bandwidth of each "
    "link, the best path between each two; and which rings, trees and NVLS heads NCCL's search "
    "finds on it. FILE is a topology file of NCCL; without it WEFT_TOPO_FILE or NCCL_TOPO_FILE is "
    "completed by what this machine shows, or this machine is looked at alone. Several FILEs are "
    "machines with a network between. As the ranks of a job, under weft run, it does so on each "
    "node, "
    "and rank 0 tells of all."
    "\vThe exit status is 0 only if all was found and written; 1 if a file cannot be read, or is "
    "wrong; 2 for a wrong argument.";

/* ------------------------------------------------------------------ what is written */

/* For one machine alone. */
static weft_result check_files(const struct topo_options *options, const struct topo_job *job)
{
    const struct {
        const char *name, *value;
    } files[] = {
        {"--graph", options->graph_out}, {"--dump", options->dump}, {"--svg", options->svg}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (files[i].value != NULL && job->num_machines > 1)
            return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                               "%s %s: is for one machine, and there are %d", files[i].name,
                               files[i].value, job->num_machines);
    return WEFT_OK;
}

static weft_result dump(const struct topo_options *options, const struct topo_job *job)
{
    const char *path = options->dump != NULL ? options->dump : topo_file_to_write();
    return path != NULL && job->num_machines == 1 ? xml_write(job->machines[0].system, path)
                                                  : WEFT_OK;
}

static weft_result write_channels(const struct topo_options *options, const struct topo_job *job)
{
    struct xml *graphs = NULL;
    const struct topo_view *view = &job->machines[0];
    const enum topo_reach reach = view->num_nodes > 1 ? TOPO_SEVERAL_NODES : TOPO_ONE_NODE;
    if (options->graph_out == NULL)
        return WEFT_OK;
    WEFT__TRY(channels_to_xml(view->topo, &view->sets, reach, &graphs));
    const weft_result result = xml_write(graphs, options->graph_out);
    xml_remove(graphs);
    return result;
}

/* ------------------------------------------------------------------ the command */

static int show(const struct topo_options *options, const struct topo_job *job)
{
    if (options->svg != NULL && topo_write_svg(&job->machines[0], options->svg) != 0)
        return STATUS_FAILURE;
    const int result = options->json ? topo_print_json(job) : topo_print_text(job);
    return output_flush() != 0 || result != 0 ? STATUS_FAILURE : EXIT_SUCCESS;
}

/* Once it is known what the machines are made of. */
static weft_result search(const struct topo_options *options, struct topo_job *job)
{
    WEFT__TRY(dump(options, job));
    WEFT__TRY(topo_job_search(options, job));
    return write_channels(options, job);
}

static int search_and_show(const struct topo_options *options, struct topo_job *job,
                           weft_result result)
{
    int status = STATUS_FAILURE;
    if (result == WEFT_OK) {
        result = check_files(options, job);
        status = result == WEFT_OK ? STATUS_FAILURE : STATUS_USAGE;
    }
    if (result == WEFT_OK)
        result = search(options, job);
    if (result == WEFT_OK)
        return show(options, job);
    fprintf(stderr, "weft topo: %s\n", weft__last_error());
    return status;
}

/* Machine cpu: what ranks have to tell needs no GPU. */
static int work_as_rank(const struct topo_options *options, struct topo_job *job)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    int status = EXIT_SUCCESS;
    config.machine = WEFT_MACHINE_CPU;
    weft_comm *comm = job_join("weft topo", &config, &status);
    if (comm == NULL)
        return status;
    const int32_t rank = weft_comm_rank(comm);
    const weft_result result = topo_job_gather(options, comm, job);
    if (result != WEFT_OK)
        job_report_and_abort("weft topo", comm, result);
    weft_comm_destroy(comm);
    if (result != WEFT_OK)
        return STATUS_FAILURE;
    return rank == 0 ? search_and_show(options, job, WEFT_OK) : EXIT_SUCCESS;
}

static void finish(void *input, struct argp_state *state)
{
    struct topo_options *options = input;
    const struct topo_constants *constants;
    if (topo_constants_of(options->nccl_version, &constants) != WEFT_OK)
        argp_error(state, "--nccl %s: %s", options->nccl_version, weft__last_error());
    if (job_has_rank() && options->files.count > 1)
        argp_error(state, "argument %s: a rank of a job tells of one machine, its own or a FILE's",
                   options->files.texts[1]);
}

int command_topo(int argc, char **argv)
{
    struct topo_options options = {0};
    const struct option_set set = {option_table, documentation, finish};
    struct topo_job job = {0};
    int status;
    options_parse(&set, &options, argc, argv);
    if (job_has_rank())
        status = work_as_rank(&options, &job);
    else
        status = search_and_show(&options, &job, topo_job_read(&options, &job));
    topo_job_free(&job);
    return status;
}
