/* SPDX-License-Identifier: MIT */
/* weft tune: times the algorithms of the collective operations, and writes a table of the fastest.
 * Started alone it launches itself as the ranks of a job; as a rank of a job it does the work. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "job.h"
#include "tune.h"
#include "workload/failure.h"
#include "workload/options.h"
#include "workload/output.h"
#include "workload/signals.h"

static const char documentation[] =
    "Times every algorithm of the collective operations over a range of sizes, out of place and in "
    "place, and writes a table of those whose slower form is fastest, for WEFT_TUNING. Starts its "
    "own ranks, unless it is itself a rank of a job."
    "\vThe exit status is 0 only if every call succeeded and the table was written, 1 otherwise, "
    "2 for a wrong argument.";

/* So many rows of every operation are a table that the library takes. */
static void check_sizes(void *input, struct argp_state *state)
{
    const struct tune_options *options = input;
    const struct option_steps *sizes = &options->coll.sizes;
    uint64_t bytes = sizes->min;
    int num_sizes = 1;
    while (num_sizes <= TUNE_MAX_SIZES && option_steps_next(sizes, &bytes))
        num_sizes++;
    if (num_sizes > TUNE_MAX_SIZES)
        argp_error(state, "--bytes: must be at most %d sizes", TUNE_MAX_SIZES);
}

#define AT(member) OPTION_AT(struct tune_options, member)

static const struct option_row option_table[] = {
    {OPTION_GROUP, .doc = "The job"},
    {OPTION_INTEGER, "ranks", "R",
     "Number of ranks; inside a launcher leave it out, or give the job's", NULL,
     AT(coll.job.num_ranks), 1, WEFT_COLL_MAX_RANKS, .without = "4"},
    {JOB_MACHINE(AT(coll.job.machine))},
    {JOB_TIMEOUT(AT(coll.job.timeout_ms))},
    {OPTION_GROUP, .doc = "What is tried"},
    {OPTION_CHOICES, "ops", "LIST", "The operations, separated by commas",
     "all_reduce,reduce_scatter,all_gather,all_to_all,broadcast,reduce,gather,scatter", AT(ops),
     .choices = collective_names},
    {OPTION_STEPS, "bytes", "SIZES", "Sizes, as of weft coll; at most 25", "1K:64M:x4",
     AT(coll.sizes)},
    {OPTION_INTEGERS, "blocks", "LIST",
     "Blocks per operation, separated by commas; 0: the machine's choice", NULL, AT(blocks), 0,
     MAX_BLOCKS, .without = "0; on cuda 0,16,32,64 if each rank has a device"},
    {OPTION_INTEGERS, "warps", "LIST",
     "Warps per block, separated by commas; 0: the machine's choice", NULL, AT(warps), 0, MAX_WARPS,
     .without = "0; on cuda 0,16 if each rank has a device"},
    {OPTION_GROUP, .doc = "The run"},
    {JOB_ITERS(AT(coll.num_iters))},
    {JOB_WARMUP("5", AT(coll.num_warmup))},
    {OPTION_TEXT, "output", "FILE", "File of the table, which is written when all is measured",
     NULL, AT(output), .without = "standard output"},
    {PROGRESS_QUIET(AT(progress))},
    {0}};

static void parse_options(struct tune_options *options, int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, check_sizes};
    *options = (struct tune_options){.coll = {.dtype = WEFT_BF16, .seed = 1}};
    options_parse(&set, options, argc, argv);
}

/* ---------------------------------------------------------------- the work */

/* Whether each rank has a device of its own on cuda, as rank 0 sees it. */
static weft_result ask_for_devices(weft_comm *comm, int *has_own_device)
{
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    weft_machine_info info = WEFT_INIT(weft_machine_info);
    int32_t *num_devices = calloc((size_t)num_ranks, sizeof *num_devices);
    if (num_devices == NULL)
        return LACKS_MEMORY("%d ranks", num_ranks);
    weft_result result = weft_machine_query(weft_comm_machine(comm), &info);
    if (result == WEFT_OK)
        result = weft_comm_host_all_gather(comm, &info.num_devices, sizeof info.num_devices,
                                           num_devices);
    if (result == WEFT_OK)
        *has_own_device =
            weft_comm_machine(comm) == WEFT_MACHINE_CUDA && num_devices[0] >= num_ranks;
    free(num_devices);
    return result;
}

/* More blocks or warps than the machine's choice make sense on cuda alone, and only where ranks do
 * not share a device, whose blocks must all run at once. */
static weft_result choose_lists(weft_comm *comm, struct tune_options *options)
{
    static const struct option_list machines_choice = {1, {0}};
    static const struct option_list cuda_blocks = {4, {0, 16, 32, 64}}, cuda_warps = {2, {0, 16}};
    int has_own_device = 0;
    const weft_result result = ask_for_devices(comm, &has_own_device);
    if (options->blocks.count == 0)
        options->blocks = has_own_device ? cuda_blocks : machines_choice;
    if (options->warps.count == 0)
        options->warps = has_own_device ? cuda_warps : machines_choice;
    return result;
}

static int is_wanted(const struct tune_options *options, int op)
{
    int is_listed = 0;
    for (int32_t i = 0; i < options->ops.count; i++)
        is_listed |= options->ops.values[i] == op;
    return is_listed;
}

static void begin_progress(weft_comm *comm, const struct tune_options *options,
                           struct progress *progress)
{
    int64_t num_steps = 0;
    for (int i = 0; i < NUM_COLLECTIVES; i++)
        num_steps += is_wanted(options, i) ? tune_num_steps(options, (weft_collective)i) : 0;
    progress_begin(progress, weft_comm_rank(comm) == 0 ? options->progress : PROGRESS_HIDDEN,
                   "weft tune", num_steps);
}

static weft_result measure_all(weft_comm *comm, struct tune_options *options,
                               const struct tune_table *table)
{
    struct progress progress;
    weft_result result = choose_lists(comm, options);
    /* Where there are graphs, what matters is an operation in one: the host's time to launch does
     * not. */
    if (table->machine == WEFT_MACHINE_CUDA)
        options->coll.launch = COLL_LAUNCH_GRAPHS;
    tune_table_begin(table, options);
    begin_progress(comm, options, &progress);
    for (int i = 0; i < NUM_COLLECTIVES && result == WEFT_OK; i++) {
        struct tune_curve curve = {.op = (weft_collective)i};
        if (!is_wanted(options, i))
            continue;
        result = tune_measure(comm, options, &curve, &progress);
        if (result == WEFT_OK)
            tune_table_add(table, &curve);
    }
    progress_end(&progress);
    if (job_signal() == 0)
        return result;
    fprintf(table->file, "# SIG%s: what follows was not measured\n", signal_name(job_signal()));
    return WEFT_OK;
}

static int tell_unwritable(const char *path)
{
    fprintf(stderr, "weft tune: cannot write %s: %s\n", path, strerror(errno));
    return -1;
}

/* The old file stays until the new one is written. A FIFO that nobody reads is an error, and not
 * waited for. */
static int open_output(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
}

/* 0, or -1 with the reason told: before the work whose result would be lost. */
static int check_output(const char *path)
{
    const int fd = path ? open_output(path) : STDOUT_FILENO;
    if (fd < 0)
        return tell_unwritable(path);
    if (path)
        close(fd);
    return 0;
}

/* The same. */
static int write_table(const char *path, const char *text)
{
    if (!path) {
        fputs(text, stdout);
        return output_flush();
    }
    const int fd = open_output(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!file)
        return tell_unwritable(path);
    (void)!ftruncate(fd, 0); /* what is no file has no length */
    int status = fputs(text, file) >= 0 && fflush(file) == 0 ? 0 : tell_unwritable(path);
    if (fclose(file) != 0 && status == 0)
        status = tell_unwritable(path);
    return status;
}

/* Nobody would read a table of others: over several nodes there is nothing to choose. */
static int check_ranks(weft_comm *comm)
{
    char error[JOB_ERROR_BYTES];
    weft_team_info node = WEFT_INIT(weft_team_info);
    weft_team_query(comm, WEFT_TEAM_LOCAL, &node);
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    if (node.num_teams == 1 && num_ranks <= WEFT_COLL_MAX_RANKS)
        return EXIT_SUCCESS;
    snprintf(error, sizeof error, "tables are for up to %d ranks of one node, the job has %d on %d",
             WEFT_COLL_MAX_RANKS, num_ranks, node.num_teams);
    return weft_comm_rank(comm) == 0 ? job_report_usage("weft tune", error) : STATUS_USAGE;
}

/* Every rank makes the table, and rank 0 writes it, once all is measured. */
static int work(void *argument, weft_comm *comm)
{
    struct tune_options *options = argument;
    char *text = NULL;
    size_t text_bytes;
    int status = check_ranks(comm);
    signals_heed(SIGNALS_SECOND_WAITS);
    if (status != EXIT_SUCCESS)
        return status;
    const struct tune_table table = {
        .file = open_memstream(&text, &text_bytes),
        .machine = weft_comm_machine(comm),
        .num_ranks = weft_comm_num_ranks(comm),
    };
    weft_result result =
        table.file ? measure_all(comm, options, &table) : LACKS_MEMORY("the table");
    if (table.file && fclose(table.file) != 0 && result == WEFT_OK)
        result = LACKS_MEMORY("the table");
    if (result != WEFT_OK)
        job_report_and_abort("weft tune", comm, result);
    status = job_status_of(result);
    if (status == EXIT_SUCCESS && weft_comm_rank(comm) == 0 &&
        write_table(options->output, text) != 0)
        status = STATUS_FAILURE;
    free(text);
    return status == EXIT_SUCCESS && job_signal() != 0 ? STATUS_SIGNAL + job_signal() : status;
}

static int resolve(void *argument, char error[JOB_ERROR_BYTES])
{
    struct tune_options *options = argument;
    return coll_options_resolve(&options->coll, error);
}

int command_tune(int argc, char **argv)
{
    struct tune_options options;
    const struct job_command command = {.name = "weft tune",
                                        .default_ranks = COLL_DEFAULT_RANKS,
                                        .job = &options.coll.job,
                                        .options = &options,
                                        .resolve = resolve,
                                        .work = work};
    parse_options(&options, argc, argv);
    unsetenv("WEFT_TUNING"); /* perhaps the file that this is to make */
    if (!job_has_rank() && check_output(options.output) != 0)
        return STATUS_FAILURE;
    return job_run(&command, argv);
}
