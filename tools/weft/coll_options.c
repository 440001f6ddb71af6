/* SPDX-License-Identifier: MIT */
#include "coll_options.h"

#include <ctype.h>
#include <float.h>
#include <stdio.h>
#include <string.h>

#include "job.h"
#include "workload/options.h"

enum { ALL_REDOPS = WEFT_PREMUL_SUM + 1 };

static const char documentation[] =
    "Runs one collective operation over a range of sizes, out of place and in place: times it, and "
    "checks its results against a computation that exchanges nothing. Starts its own ranks, unless "
    "it is itself a rank of a job."
    "\vThe exit status is 0 only if every call succeeded and every check passed, 1 otherwise, 2 "
    "for a wrong argument.";

const char *const coll_memory_names[] = {"heap", "other", NULL};
const char *const coll_calls_names[] = {"own", "group", NULL};
static const char *const check_modes[] = {"full", "none", NULL};
/* The library's names, filled when options are parsed; types and reductions end with "all". */
static const char *algorithm_names[NUM_ALGORITHMS + 1];
static const char *dtype_choices[NUM_DTYPES + 2], *redop_choices[NUM_REDUCE_OPS + 3];

static void complete_names(void)
{
    memcpy(algorithm_names, collective_algorithm_names(), sizeof algorithm_names);
    memcpy(dtype_choices, dtype_names + WEFT_INT32, NUM_DTYPES * sizeof *dtype_choices);
    dtype_choices[NUM_DTYPES] = "all";
    for (int i = 0; reduce_op_names[i] != NULL; i++)
        redop_choices[i] = reduce_op_names[i];
    redop_choices[ALL_REDOPS] = "all";
}

/* nccl-tests has a number of iterations to check; here 0 checks none, and more checks all. */
static void parse_check(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    if (isdigit((unsigned char)*text))
        options->check = option_integer(state, "--check", text, 0, MAX_ITERS) > 0 ? COLL_CHECK_FULL
                                                                                  : COLL_CHECK_NONE;
    else
        options->check = (enum coll_check_mode)option_choice(state, "--check", text, check_modes);
}

/* One for all ranks, or one for each. */
static void parse_factors(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    options->num_factors = 0;
    do {
        char number[64];
        const size_t length = strcspn(text, ",");
        snprintf(number, sizeof number, "%.*s", (int)length, text);
        if (options->num_factors == COLL_MAX_JOB_RANKS)
            argp_error(state, "--factor: must be at most %d, separated by commas",
                       COLL_MAX_JOB_RANKS);
        options->factors[options->num_factors++] =
            (float)option_number(state, "--factor", number, -FLT_MAX, FLT_MAX);
        text += length;
    } while (*text++ == ',');
}

/* Sizes as nccl-tests has them, by -b, -e, -f and -i. With a factor of 2 or more, step does not
 * count. */
static void finish_sizes(struct coll_options *options, struct argp_state *state)
{
    const int64_t usual_max = 32 << 20, usual_step = 1 << 20;
    const struct coll_size_range *range = &options->range;
    if (range->min < 0 && range->max < 0 && range->step < 0 && range->factor == 0)
        return;
    const int64_t min = range->min < 0 ? usual_max : range->min;
    const int64_t max = range->max < 0 ? usual_max : range->max;
    const int64_t step = range->step < 0 ? usual_step : range->step;
    const int is_multiplied = range->factor > 1;
    if (max < min)
        argp_error(state, "--minbytes %lld: must be at most --maxbytes, %lld", (long long)min,
                   (long long)max);
    if (min < max && (is_multiplied ? min : step) == 0)
        argp_error(state, is_multiplied ? "--minbytes 0: must be 1 or more with --stepfactor"
                                        : "--stepbytes 0: must be 1 or more");
    options->sizes = (struct option_steps){(uint64_t)min, (uint64_t)max,
                                           is_multiplied ? (uint64_t)range->factor : 1,
                                           is_multiplied ? 0 : (uint64_t)(step > 0 ? step : 1)};
}

/* -g and -t of nccl-tests are ranks of one process; here they are ranks, unless a launcher has
 * started them. */
static void finish_ranks(struct coll_options *options, struct argp_state *state)
{
    const int32_t num_gpus = options->num_gpus > 0 ? options->num_gpus : 1;
    const int32_t num_threads = options->num_threads > 0 ? options->num_threads : 1;
    const int32_t num_ranks = num_gpus * num_threads;
    if (options->num_gpus == 0 && options->num_threads == 0)
        return;
    if (num_ranks > COLL_MAX_JOB_RANKS)
        argp_error(state, "-g %d -t %d: must be at most %d ranks together", num_gpus, num_threads,
                   COLL_MAX_JOB_RANKS);
    if (num_ranks > 1 || !job_has_rank())
        options->job.num_ranks = num_ranks;
}

/* "all" leaves out premultiplied sums, which need factors. */
static void finish_kinds(struct coll_options *options)
{
    struct coll_kinds *dtypes = &options->dtypes, *redops = &options->redops;
    *dtypes = dtypes->first > NUM_DTYPES ? (struct coll_kinds){WEFT_INT32, NUM_DTYPES}
                                         : (struct coll_kinds){dtypes->first, dtypes->first};
    *redops = redops->first == ALL_REDOPS ? (struct coll_kinds){WEFT_SUM, WEFT_AVG}
                                          : (struct coll_kinds){redops->first, redops->first};
    options->dtype = (weft_dtype)dtypes->first;
    options->redop = (weft_reduce_op)redops->first;
}

static void finish(void *input, struct argp_state *state)
{
    struct coll_options *options = input;
    finish_sizes(options, state);
    finish_ranks(options, state);
    finish_kinds(options);
    if (options->num_cuda_graph_launches > 0)
        options->launch = COLL_LAUNCH_GRAPHS;
    uint64_t bytes = options->sizes.min;
    if (options->plot != NULL && !option_steps_next(&options->sizes, &bytes))
        argp_error(state, "--plot %s: needs two sizes or more", options->plot);
    if (!collective_is_served(options->op, options->algorithm) &&
        !collective_is_served_between_nodes(options->op, options->algorithm))
        argp_error(state, "--algo %s: does not serve --op %s",
                   weft_coll_algorithm_name(options->algorithm), collective_names[options->op]);
}

#define AT(member)      OPTION_AT(struct coll_options, member)
#define OPS_THAT_REDUCE "all_reduce,reduce_scatter,reduce"
#define MAX_BYTES       (INT64_C(1) << 40)

static const struct option_row option_table[] = {
    {OPTION_GROUP, .doc = "The job"},
    {OPTION_INTEGER, "ranks", "R",
     "Number of ranks; inside a launcher leave it out, or give the job's", NULL, AT(job.num_ranks),
     1, COLL_MAX_JOB_RANKS, .without = "4",
     .rules = {{.excludes = "ngpus"}, {.excludes = "nthreads"}}},
    {OPTION_INTEGER, "ngpus", "G",
     "Start G ranks, or G times T with --nthreads, as nccl-tests does; inside a launcher "
     "each process is one rank",
     NULL, AT(num_gpus), 1, COLL_MAX_JOB_RANKS, .letter = 'g'},
    {OPTION_INTEGER, "nthreads", "T", "The factor T above", NULL, AT(num_threads), 1,
     COLL_MAX_JOB_RANKS, .letter = 't', .without = "1"},
    {OPTION_INTEGER, "nodes", "D", "Number of virtual nodes of R/D consecutive ranks", NULL,
     AT(job.num_nodes), 1, INT32_MAX, .without = "1; inside a launcher those of the job"},
    {JOB_MACHINE(AT(job.machine))},
    {JOB_TIMEOUT(AT(job.timeout_ms))},
    {OPTION_GROUP, .doc = "The operation"},
    {OPTION_CHOICE, "op", "OP", "The operation", "all_reduce", AT(op), .choices = collective_names,
     .hint = "reductions are those of --redop"},
    {OPTION_STEPS, "bytes", "SIZES",
     "Sizes of the larger of input and output, as in nccl-tests: MIN:MAX:xFACTOR, "
     "MIN:MAX:+STEP, or one size, with K, M or G for powers of 1024; rounded down to "
     "whole elements of each rank",
     "1K:4M:x4", AT(sizes)},
    {OPTION_SIZE, "minbytes", "MIN",
     "Least size; this option and the next three replace --bytes, as in nccl-tests", NULL,
     AT(range.min), 0, MAX_BYTES, .letter = 'b', .without = "32M",
     .rules = {{.excludes = "bytes"}}},
    {OPTION_SIZE, "maxbytes", "MAX", "Largest size", NULL, AT(range.max), 0, MAX_BYTES,
     .letter = 'e', .without = "32M", .rules = {{.excludes = "bytes"}}},
    {OPTION_INTEGER, "stepfactor", "FACTOR",
     "Factor from size to size; without it sizes grow by --stepbytes", NULL, AT(range.factor), 1,
     INT32_MAX, .letter = 'f', .rules = {{.excludes = "bytes"}}},
    {OPTION_SIZE, "stepbytes", "STEP", "Step from size to size", NULL, AT(range.step), 0, MAX_BYTES,
     .letter = 'i', .without = "1M", .rules = {{.excludes = "bytes"}}},
    {OPTION_CHOICE, "dtype", "TYPE", "Type of elements, or all of them, one after the other",
     "bf16", AT(dtypes.first), WEFT_INT32, .choices = dtype_choices, .letter = 'd',
     .also = "datatype", .rules = {{"all", .excludes = "explain"}}},
    {OPTION_CHOICE, "redop", "OP", "Reduction; all is all but premul_sum, one after the other",
     "sum", AT(redops.first), .choices = redop_choices, .letter = 'o',
     .rules = {{"prod,max,min,avg,premul_sum,all", .needs = "op", .with = OPS_THAT_REDUCE},
               {"premul_sum", .needs = "factor"},
               {"premul_sum", .needs = "dtype", .with = "bf16,fp16,fp32"},
               {"avg", .needs = "dtype", .with = "bf16,fp16,fp32,fp64,fp8_e4m3,all"},
               {"all", .excludes = "explain"}}},
    {OPTION_OTHER, "factor", "F[,F...]",
     "Factor of each rank's input, one for all ranks or one for each", NULL, .parse = parse_factors,
     .rules = {{.needs = "redop", .with = "premul_sum"}}},
    {OPTION_INTEGER, "root", "RANK", "Rank that has the input, or gets the output", "0", AT(root),
     0, COLL_MAX_JOB_RANKS - 1, .letter = 'r',
     .rules = {{.needs = "op", .with = "broadcast,reduce,gather,scatter"}}},
    {OPTION_GROUP, .doc = "The algorithm"},
    {OPTION_CHOICE, "algo", "NAME",
     "Algorithm, as in weft.h; over several nodes auto, rails or tree", "auto", AT(algorithm),
     .choices = algorithm_names},
    {OPTION_CHOICE, "calls", NULL,
     "Call the operation itself; or send and receive in a group, which has no algorithms", "own",
     AT(calls), .choices = coll_calls_names,
     .rules = {{"group", .excludes = "op", .with = OPS_THAT_REDUCE},
               {"group", .excludes = "explain"},
               {"group", .excludes = "algo"}}},
    {OPTION_SIZE, "packet-bytes", "BYTES", "Bytes under way in packets; 0: the library's choice",
     "0", AT(packet_bytes), 0, INT64_C(1) << 32},
    {OPTION_CHOICE, "memory", NULL,
     "Place inputs and outputs in the heap, or in other memory of the machine", "heap", AT(memory),
     .choices = coll_memory_names},
    {OPTION_FLAG, "graph", NULL, "Launch in graphs of 20 calls, on cuda only; times are per call",
     NULL, AT(launch)},
    {OPTION_INTEGER, "cudagraph", "N",
     "As in nccl-tests: 0 launches no graphs, other numbers are --graph", "0",
     AT(num_cuda_graph_launches), 0, MAX_ITERS, .letter = 'G'},
    {OPTION_INTEGER, "blocks", "B", "Blocks per operation; 0: the library's choice", "0",
     AT(num_blocks), 0, MAX_BLOCKS},
    {OPTION_INTEGER, "warps", "W", "Warps per block; 0: the library's choice", "0", AT(num_warps),
     0, MAX_WARPS},
    {JOB_CHANNELS("Rings to the next node", AT(num_channels))},
    {JOB_STAGING_SLOTS("Slots of a ring", AT(num_slots))},
    {JOB_STAGING_SLOT_BYTES("Bytes of a slot, more than its header of 64", AT(slot_bytes))},
    {OPTION_GROUP, .doc = "The run"},
    {JOB_ITERS(AT(num_iters)), .letter = 'n'},
    {JOB_WARMUP("5", AT(num_warmup)), .letter = 'w', .also = "warmup_iters"},
    {OPTION_INTEGER, "seed", "S", "Seed of the inputs", "1", AT(seed), 0, INT64_MAX},
    {OPTION_OTHER, "check", "MODE",
     "Check every element of one more call or graph (full, or a number), or nothing (none, or 0)",
     "full", .parse = parse_check, .letter = 'c'},
    {OPTION_FLAG, "explain", NULL,
     "Run nothing: print for each size the algorithm, why it was chosen, its expected "
     "time, and the expected times of others",
     NULL, AT(task)},
    {OPTION_FLAG, "json", NULL,
     "Print one JSON object per line, size and place; with --explain, per size", NULL, AT(format)},
    {OPTION_TEXT, "plot", "FILE",
     "Draw time and bandwidth against size into FILE, as SVG; for two sizes or more", NULL,
     AT(plot), .rules = {{.excludes = "explain"}}},
    {PROGRESS_QUIET(AT(progress))},
    {OPTION_REFUSED, "agg_iters", "N", "there is --graph, which launches 20 calls at once", "1",
     .letter = 'm'},
    {OPTION_REFUSED, "run_cycles", "N", "there is --iters", "1", .letter = 'N'},
    {OPTION_REFUSED, "parallel_init", "0/1", "ranks are processes, which begin together", "0",
     .letter = 'p'},
    {OPTION_REFUSED, "blocking", "0/1", "the host waits once for each iteration", "0",
     .letter = 'z'},
    {OPTION_REFUSED, "stream_null", "0/1", "streams are weft's own", "0", .letter = 'y'},
    {OPTION_REFUSED, "timeout", "S", "there is --timeout-ms", "0", .letter = 'T'},
    {OPTION_REFUSED, "report_cputime", "0/1", "there is --graph, which leaves the host out", "0",
     .letter = 'C'},
    {OPTION_REFUSED, "average", "0/1/2/3", "--json has the least, median and greatest time", "1",
     .letter = 'a'},
    {OPTION_REFUSED, "local_register", "0/1", "there is --memory heap or other", "0",
     .letter = 'R'},
    {OPTION_REFUSED, "output_file", "FILE", "there is --json, on standard output", NULL,
     .letter = 'J'},
    {0}};

void coll_options_parse(struct coll_options *options, int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, finish};
    *options = (struct coll_options){.range = {.min = -1, .max = -1, .step = -1}};
    complete_names();
    options_parse(&set, options, argc, argv);
}

int coll_options_resolve(struct coll_options *options, char error[JOB_ERROR_BYTES])
{
    const int32_t num_ranks = options->job.num_ranks;
    if (options->root >= num_ranks) {
        snprintf(error, JOB_ERROR_BYTES, "--root %d: must be 0 to %d", options->root,
                 num_ranks - 1);
        return -1;
    }
    if (options->num_factors > 1 && options->num_factors != num_ranks) {
        snprintf(error, JOB_ERROR_BYTES,
                 "--factor: must be one for all ranks or %d, one for each, not %d", num_ranks,
                 options->num_factors);
        return -1;
    }
    for (; options->num_factors > 0 && options->num_factors < num_ranks; options->num_factors++)
        options->factors[options->num_factors] = options->factors[0];
    return 0;
}
