/* SPDX-License-Identifier: MIT */
#include "coll_options.h"

#include <ctype.h>
#include <float.h>
#include <stdio.h>
#include <string.h>

#include "job.h"
#include "workload/options.h"

/* ---------------------------------------------------------------- options */

static const char documentation[] =
    "Runs one collective operation over a range of sizes, out of place and in place: times it, and "
    "checks its results against a computation that exchanges nothing. Starts its own ranks, unless "
    "it is itself a rank of a job."
    "\vThe exit status is 0 only if every call succeeded and every check passed, 1 otherwise, 2 "
    "for a wrong argument.";

static const char *const check_modes[] = {"full", "none", NULL};
const char *const coll_memory_names[] = {"heap", "other", NULL};

static void parse_bytes(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    coll_parse_sizes(&options->sizes, text, state);
    options->is_bytes_given = state != NULL; /* not the usual ones */
}

/* ---------------------------------------------------------------- as nccl-tests has it */

static void parse_min(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    coll_parse_size("minbytes", text, &options->range.min, state);
    options->is_range_given = 1;
}

static void parse_max(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    coll_parse_size("maxbytes", text, &options->range.max, state);
    options->is_range_given = 1;
}

static void parse_step(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    coll_parse_size("stepbytes", text, &options->range.step, state);
    options->is_range_given = 1;
}

static void parse_factor(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    options->range.factor = option_integer(state, "--stepfactor", text, 1, INT32_MAX);
    options->is_range_given = 1;
}

static void finish_sizes(struct coll_options *options, struct argp_state *state)
{
    if (options->is_range_given && options->is_bytes_given)
        argp_error(state, "--bytes: must be absent with nccl-tests' -b, -e, -f and -i");
    if (options->is_range_given)
        coll_sizes_of_range(&options->range, &options->sizes, state);
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
    if (options->num_ranks != 0)
        argp_error(state, "--ranks %d: must be absent with nccl-tests' -g and -t",
                   options->num_ranks);
    if (num_ranks > COLL_MAX_JOB_RANKS)
        argp_error(state, "-g %d -t %d: must be at most %d ranks together", num_gpus, num_threads,
                   COLL_MAX_JOB_RANKS);
    if (num_ranks > 1 || !job_has_rank())
        options->num_ranks = num_ranks;
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

static void parse_graph(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    if (option_integer(state, "--cudagraph", text, 0, MAX_ITERS) > 0)
        options->launch = COLL_LAUNCH_GRAPHS;
}

/* ---------------------------------------------------------------- others */

static void parse_machine(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    if (strcmp(text, "sim") == 0)
        argp_error(state, "--machine sim: must be cpu, cuda or auto; weft sim --op all_reduce, "
                          "and so on, checks collectives on the sim machine");
    options->machine = (weft_machine)option_choice(state, "--machine", text, job_machine_names);
}

/* nccl-tests has a program for each operation, and --op is the reduction there. */
static void parse_op(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    for (int i = 0; reduce_op_names[i] != NULL; i++)
        if (strcmp(text, reduce_op_names[i]) == 0)
            argp_error(state, "--op %s: must be an operation, as all_reduce; there is --redop %s",
                       text, text);
    options->op = (weft_collective)option_choice(state, "--op", text, collective_names);
}

static void parse_algorithm(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    options->algorithm =
        (weft_algorithm)option_choice(state, "--algo", text, collective_algorithm_names());
}

static struct coll_kinds kinds_of(struct argp_state *state, const char *option, const char *text,
                                  const char *const *names, struct coll_kinds all)
{
    if (strcmp(text, "all") == 0)
        return all;
    const int32_t kind = all.first + option_choice(state, option, text, names);
    return (struct coll_kinds){kind, kind};
}

static void parse_dtypes(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    options->dtypes = kinds_of(state, "--dtype", text, dtype_names + WEFT_INT32,
                               (struct coll_kinds){WEFT_INT32, NUM_DTYPES});
    options->dtype = (weft_dtype)options->dtypes.first;
}

/* "all" leaves out premultiplied sums, which need factors. */
static void parse_redops(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    options->redops =
        kinds_of(state, "--redop", text, reduce_op_names, (struct coll_kinds){WEFT_SUM, WEFT_AVG});
    options->redop = (weft_reduce_op)options->redops.first;
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

static void check_reduction(const struct coll_options *options, struct argp_state *state)
{
    const int is_premultiplied = options->redop == WEFT_PREMUL_SUM;
    if (is_premultiplied && options->num_factors == 0)
        argp_error(state,
                   "--redop premul_sum: must come with --factor F, or with F,F,... of ranks");
    if (!is_premultiplied && options->num_factors > 0)
        argp_error(state, "--factor: must be absent with --redop %s, be with premul_sum",
                   reduce_op_names[options->redop]);
    if (is_premultiplied && options->dtypes.first != options->dtypes.last)
        argp_error(state, "--dtype all: must be bf16, fp16 or fp32 with --redop premul_sum");
    if (is_premultiplied && options->dtype != WEFT_BF16 && options->dtype != WEFT_FP16 &&
        options->dtype != WEFT_FP32)
        argp_error(state, "--dtype %s: must be bf16, fp16 or fp32 with --redop premul_sum",
                   dtype_names[options->dtype]);
    const int is_one = options->dtypes.first == options->dtypes.last &&
                       options->redops.first == options->redops.last;
    if (is_one && collective_reduces(options->op) &&
        !reduce_op_takes(options->redop, options->dtype))
        argp_error(state, "--dtype %s: must be of floating point with --redop %s",
                   dtype_names[options->dtype], reduce_op_names[options->redop]);
}

static void check_kinds(const struct coll_options *options, struct argp_state *state)
{
    const int are_many_types = options->dtypes.first != options->dtypes.last;
    const int are_many_sums = options->redops.first != options->redops.last;
    if (options->task == COLL_TASK_EXPLAIN && (are_many_types || are_many_sums))
        argp_error(state, "--%s all: must be one with --explain",
                   are_many_types ? "dtype" : "redop");
    if (are_many_sums && !collective_reduces(options->op))
        argp_error(state, "--redop all: must be absent with --op %s, which does not reduce",
                   collective_names[options->op]);
}

static void finish(void *input, struct argp_state *state)
{
    struct coll_options *options = input;
    finish_sizes(options, state);
    finish_ranks(options, state);
    check_kinds(options, state);
    if (!collective_is_served(options->op, options->algorithm) &&
        !collective_is_served_between_nodes(options->op, options->algorithm))
        argp_error(state, "--algo %s: does not serve --op %s",
                   weft_coll_algorithm_name(options->algorithm), collective_names[options->op]);
    if (options->calls == COLL_CALLS_GROUP && collective_reduces(options->op))
        argp_error(state, "--calls group: must be absent with --op %s, which reduces",
                   collective_names[options->op]);
    if (options->calls == COLL_CALLS_GROUP && options->algorithm != WEFT_ALGORITHM_AUTO)
        argp_error(state, "--algo %s: must be absent with --calls group, which has no algorithms",
                   weft_coll_algorithm_name(options->algorithm));
    if (options->calls == COLL_CALLS_GROUP && options->task == COLL_TASK_EXPLAIN)
        argp_error(state, "--calls group: must be absent with --explain, which is of algorithms");
    if (options->redop != WEFT_SUM && !collective_reduces(options->op))
        argp_error(state, "--redop %s: must be absent with --op %s, which does not reduce",
                   reduce_op_names[options->redop], collective_names[options->op]);
    if (options->root != 0 && !collective_has_root(options->op))
        argp_error(state, "--root %d: must be absent with --op %s", options->root,
                   collective_names[options->op]);
    check_reduction(options, state);
}

const char *const coll_calls_names[] = {"own", "group", NULL};
#define AT(member) OPTION_AT(struct coll_options, member)

static const struct option_row option_table[] = {
    {OPTION_GROUP, .doc = "The job:"},
    {OPTION_INTEGER, "ranks", "R", "Ranks (4). Inside a launcher: absent or equal to the job's",
     NULL, AT(num_ranks), 1, COLL_MAX_JOB_RANKS},
    {OPTION_INTEGER, "ngpus", "G",
     "As nccl-tests has it: G ranks, or G times T; 1 inside a launcher", NULL, AT(num_gpus), 1,
     COLL_MAX_JOB_RANKS, .letter = 'g'},
    {OPTION_INTEGER, "nthreads", "T", "The same", NULL, AT(num_threads), 1, COLL_MAX_JOB_RANKS,
     .letter = 't'},
    {OPTION_INTEGER, "nodes", "D", "Virtual nodes of R/D consecutive ranks (1)", NULL,
     AT(num_nodes), 1, INT32_MAX},
    {OPTION_OTHER, "machine", "MACHINE",
     "cpu, cuda, or auto: WEFT_MACHINE, else cuda where it can be used (auto)", NULL,
     .parse = parse_machine},
    {OPTION_INTEGER, "timeout-ms", "MS", "Deadline of every wait for another rank (30000)", NULL,
     AT(timeout_ms), 1, MAX_TIMEOUT_MS},
    {OPTION_GROUP, .doc = "The operation:"},
    {OPTION_OTHER, "op", "OP",
     "all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, gather or scatter",
     "all_reduce", .parse = parse_op},
    {OPTION_OTHER, "bytes", "SIZES",
     "As nccl-tests counts, the larger of input and output: MIN:MAX:xFACTOR, MIN:MAX:+STEP, or one "
     "size, with K, M or G for powers of 1024",
     "1K:4M:x4", .parse = parse_bytes},
    {OPTION_OTHER, "minbytes", "MIN",
     "With the next three, sizes as nccl-tests takes them, in place of --bytes; without it 32M",
     .parse = parse_min, .letter = 'b'},
    {OPTION_OTHER, "maxbytes", "MAX", "Without it 32M", .parse = parse_max, .letter = 'e'},
    {OPTION_OTHER, "stepfactor", "FACTOR", "From size to size; without it --stepbytes counts",
     .parse = parse_factor, .letter = 'f'},
    {OPTION_OTHER, "stepbytes", "STEP", "Without it 1M", .parse = parse_step, .letter = 'i'},
    {OPTION_OTHER, "dtype", "TYPE",
     "int32, int64, bf16, fp16, fp32, fp64, uint8, fp8_e4m3, or all of them", "bf16",
     .parse = parse_dtypes, .letter = 'd', .also = "datatype"},
    {OPTION_OTHER, "redop", "OP",
     "sum, prod, max, min, avg, or all of these; or premul_sum (as nccl-tests' -o)", "sum",
     .parse = parse_redops, .letter = 'o'},
    {OPTION_OTHER, "factor", "F[,F...]",
     "Of premul_sum: what each rank's input is multiplied by, one for all ranks or one for each",
     NULL, .parse = parse_factors},
    {OPTION_INTEGER, "root", "RANK", "Of broadcast, reduce, gather and scatter", "0", AT(root), 0,
     COLL_MAX_JOB_RANKS - 1, .letter = 'r'},
    {OPTION_GROUP, .doc = "How it is done:"},
    {OPTION_OTHER, "algo", "NAME",
     "auto, oneshot, twoshot_packets, oneshot_pull, twoshot, push, multicast, twoshot_push, relay "
     "or ring, as weft.h tells; over several nodes auto, rails or tree",
     "auto", .parse = parse_algorithm},
    {OPTION_CHOICE, "calls", "KIND",
     "own: of the operation; group: sends and receives, of operations that do not reduce", "own",
     AT(calls), .choices = coll_calls_names},
    {OPTION_INTEGER, "packet-bytes", "N", "Bytes under way in packets; 0: the library's choice",
     "0", AT(packet_bytes), 0, INT64_C(1) << 32},
    {OPTION_SIZE, "fifo-bytes", "BYTES", "For what goes in pieces; 0: the library's choice", "0",
     AT(fifo_bytes), 0, INT64_C(1) << 32},
    {OPTION_CHOICE, "memory", "KIND", "Of inputs and outputs: in the heap, or other of the machine",
     "heap", AT(memory), .choices = coll_memory_names},
    {OPTION_FLAG, "graph", NULL,
     "Launched in graphs of 20 calls, times per call; machine cpu has none", NULL, AT(launch)},
    {OPTION_INTEGER, "blocks", "B", "Blocks per operation; 0: the library's choice", "0",
     AT(num_blocks), 0, MAX_BLOCKS},
    {OPTION_INTEGER, "warps", "W", "Warps per block; 0: the library's choice", "0", AT(num_warps),
     0, MAX_WARPS},
    {OPTION_INTEGER, "channels", "C",
     "Between nodes rings to each other node, of multicast blocks; 0: the library's choice", "0",
     AT(num_channels), 0, MAX_CHANNELS},
    {OPTION_INTEGER, "staging-slots", "S",
     "Of a ring between nodes, or of a queue of multicast; 0: the library's choice", "0",
     AT(num_slots), 0, MAX_STAGING_SLOTS},
    {OPTION_SIZE, "staging-slot-bytes", "BYTES",
     "Of a slot; K, M and G are powers of 1024; 0: the library's choice", "0", AT(slot_bytes), 0,
     MAX_STAGING_SLOT_BYTES},
    {OPTION_GROUP, .doc = "The run:"},
    {OPTION_INTEGER, "iters", "I", "Timed iterations, of a call or a graph each", "20",
     AT(num_iters), 1, MAX_ITERS, .letter = 'n'},
    {OPTION_INTEGER, "warmup", "I", "Iterations before them", "5", AT(num_warmup), 0, MAX_ITERS,
     .letter = 'w', .also = "warmup_iters"},
    {OPTION_INTEGER, "seed", "S", "Of the inputs", "1", AT(seed), 0, INT64_MAX},
    {OPTION_OTHER, "check", "MODE",
     "full, or a number: every element of one more call or graph; none, or 0", "full",
     .parse = parse_check, .letter = 'c'},
    {OPTION_FLAG, "explain", NULL,
     "Run nothing: tell for each size which algorithm is chosen, why, how long it is expected to "
     "take, and how long others are",
     NULL, AT(task)},
    {OPTION_FLAG, "json", NULL,
     "Print one JSON object per line, size and place; with --explain, per size", NULL, AT(format)},
    {OPTION_OTHER, "cudagraph", "N", "As nccl-tests has it: --graph, or with 0 nothing",
     .parse = parse_graph, .letter = 'G'},
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
    *options = (struct coll_options){.range = {.min = 32 << 20, .max = 32 << 20, .step = 1 << 20}};
    options_parse(&set, options, argc, argv);
}

int coll_options_resolve(struct coll_options *options, int32_t num_ranks,
                         char error[COLL_ERROR_BYTES])
{
    if (options->num_nodes > 0 && num_ranks % options->num_nodes != 0) {
        snprintf(error, COLL_ERROR_BYTES, "--nodes %d: must divide the number of ranks, %d",
                 options->num_nodes, num_ranks);
        return -1;
    }
    if (options->root >= num_ranks) {
        snprintf(error, COLL_ERROR_BYTES, "--root %d: must be 0 to %d", options->root,
                 num_ranks - 1);
        return -1;
    }
    if (options->num_factors > 1 && options->num_factors != num_ranks) {
        snprintf(error, COLL_ERROR_BYTES,
                 "--factor: must be one for all ranks or %d, one for each, not %d", num_ranks,
                 options->num_factors);
        return -1;
    }
    for (; options->num_factors > 0 && options->num_factors < num_ranks; options->num_factors++)
        options->factors[options->num_factors] = options->factors[0];
    options->num_ranks = num_ranks;
    return 0;
}
