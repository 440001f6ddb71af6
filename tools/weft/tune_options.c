/* SPDX-License-Identifier: MIT */
#include "tune_options.h"

#include <string.h>

#include "job.h"
#include "workload/options.h"

static const char documentation[] =
    "Times every algorithm of the collective operations over a range of sizes, out of place and in "
    "place, and writes a table of those whose slower form is fastest, for WEFT_TUNING. Starts its "
    "own ranks, unless it is itself a rank of a job."
    "\vThe exit status is 0 only if every call succeeded and the table was written, 1 otherwise, "
    "2 for a wrong argument.";

static void parse_bytes(void *input, const char *text, struct argp_state *state)
{
    struct tune_options *options = input;
    coll_parse_sizes(&options->coll.sizes, text, state);
}

/* So many rows of every operation are a table that the library takes. */
static void check_sizes(void *input, struct argp_state *state)
{
    const struct tune_options *options = input;
    const struct coll_sizes *sizes = &options->coll.sizes;
    uint64_t bytes = sizes->min;
    int num_sizes = 1;
    while (num_sizes <= TUNE_MAX_SIZES && coll_sizes_next(sizes, &bytes))
        num_sizes++;
    if (num_sizes > TUNE_MAX_SIZES)
        argp_error(state, "--bytes: must be at most %d sizes", TUNE_MAX_SIZES);
}

#define AT(member) OPTION_AT(struct tune_options, member)

static const struct option_row option_table[] = {
    {OPTION_GROUP, .doc = "The job:"},
    {OPTION_INTEGER, "ranks", "R", "Ranks (4). Inside a launcher: absent or equal to the job's",
     NULL, AT(coll.num_ranks), 1, WEFT_COLL_MAX_RANKS},
    {OPTION_CHOICE, "machine", "MACHINE",
     "cpu, cuda, or auto: WEFT_MACHINE, else cuda where it can be used (auto)", NULL,
     AT(coll.machine), .choices = job_machine_names},
    {OPTION_INTEGER, "timeout-ms", "MS", "Deadline of every wait for another rank (30000)", NULL,
     AT(coll.timeout_ms), 1, MAX_TIMEOUT_MS},
    {OPTION_GROUP, .doc = "What is tried:"},
    {OPTION_CHOICES, "ops", "LIST", "The operations",
     "all_reduce,reduce_scatter,all_gather,all_to_all,broadcast,reduce,gather,scatter", AT(ops),
     .choices = collective_names},
    {OPTION_OTHER, "bytes", "SIZES", "As weft coll has them", "1K:64M:x4", .parse = parse_bytes},
    {OPTION_INTEGERS, "blocks", "LIST",
     "Blocks per operation; 0: the machine's choice (0, on cuda also 16,32,64 if each rank has a "
     "device)",
     NULL, AT(blocks), 0, MAX_BLOCKS},
    {OPTION_INTEGERS, "warps", "LIST",
     "Warps per block; 0: the machine's choice (0, on cuda also 16, as of blocks)", NULL, AT(warps),
     0, MAX_WARPS},
    {OPTION_GROUP, .doc = "The run:"},
    {OPTION_INTEGER, "iters", "I", "Timed iterations", "20", AT(coll.num_iters), 1, MAX_ITERS},
    {OPTION_INTEGER, "warmup", "I", "Iterations before them", "5", AT(coll.num_warmup), 0,
     MAX_ITERS},
    {OPTION_TEXT, "output", "FILE", "Of the table (standard output)", NULL, AT(output)},
    {0}};

void tune_options_parse(struct tune_options *options, int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, check_sizes};
    *options = (struct tune_options){.coll = {.dtype = WEFT_BF16, .seed = 1}};
    options_parse(&set, options, argc, argv);
}
