/* SPDX-License-Identifier: MIT */
#include "tune_options.h"

#include "job.h"
#include "workload/options.h"

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
    {OPTION_INTEGER, "ranks", "R", "Ranks; inside a launcher absent, or as many as the job has",
     NULL, AT(coll.job.num_ranks), 1, WEFT_COLL_MAX_RANKS, .without = "4"},
    {JOB_MACHINE(AT(coll.job.machine))},
    {JOB_TIMEOUT(AT(coll.job.timeout_ms))},
    {OPTION_GROUP, .doc = "What is tried"},
    {OPTION_CHOICES, "ops", "LIST", "The operations, separated by commas",
     "all_reduce,reduce_scatter,all_gather,all_to_all,broadcast,reduce,gather,scatter", AT(ops),
     .choices = collective_names},
    {OPTION_STEPS, "bytes", "SIZES", "As weft coll has them, at most 25 sizes", "1K:64M:x4",
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
    {OPTION_TEXT, "output", "FILE", "File of the table, which is written once all is measured",
     NULL, AT(output), .without = "standard output"},
    {0}};

void tune_options_parse(struct tune_options *options, int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, check_sizes};
    *options = (struct tune_options){.coll = {.dtype = WEFT_BF16, .seed = 1}};
    options_parse(&set, options, argc, argv);
}
