/* SPDX-License-Identifier: MIT */
#include "coll_options.h"

#include <ctype.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "workload/options.h"

/* ---------------------------------------------------------------- sizes */

#define MAX_SIZE (UINT64_C(1) << 40)

/* The size at *text, which is moved behind it: 0, or -1. */
static int read_size(const char **text, uint64_t *bytes)
{
    static const char units[] = "KMG";
    char *end;
    if (!isdigit((unsigned char)**text))
        return -1;
    const unsigned long long number = strtoull(*text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    const unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    *text = unit ? end + 1 : end;
    *bytes = (uint64_t)number << shift;
    return number > MAX_SIZE >> shift ? -1 : 0;
}

/* A step to the same size would never end. */
static int read_step(const char *text, struct coll_sizes *sizes)
{
    const char kind = *text;
    uint64_t value;
    if (kind != 'x' && kind != '+')
        return -1;
    text++;
    if (read_size(&text, &value) != 0 || *text)
        return -1;
    sizes->factor = kind == 'x' ? value : 1;
    sizes->increment = kind == 'x' ? 0 : value;
    return sizes->min * (sizes->factor - 1) + sizes->increment == 0 || sizes->factor == 0 ? -1 : 0;
}

static int skip_colon(const char **text)
{
    return *(*text)++ == ':' ? 0 : -1;
}

static int read_sizes(struct coll_sizes *sizes, const char *text)
{
    if (read_size(&text, &sizes->min) != 0)
        return -1;
    if (*text == '\0') {
        *sizes = (struct coll_sizes){sizes->min, sizes->min, 1, 1};
        return 0;
    }
    if (skip_colon(&text) != 0 || read_size(&text, &sizes->max) != 0 || skip_colon(&text) != 0)
        return -1;
    return sizes->max < sizes->min ? -1 : read_step(text, sizes);
}

int coll_sizes_next(const struct coll_sizes *sizes, uint64_t *bytes)
{
    if (*bytes > sizes->max / sizes->factor)
        return 0;
    *bytes = *bytes * sizes->factor + sizes->increment; /* at most 2^41 */
    return *bytes <= sizes->max;
}

/* ---------------------------------------------------------------- options */

static const char documentation[] =
    "Runs one collective operation over a range of sizes, out of place and in place: times it, and "
    "checks its results against a computation that exchanges nothing. Starts its own ranks, unless "
    "it is itself a rank of a job."
    "\vThe exit status is 0 only if every call succeeded and every check passed, 1 otherwise, 2 "
    "for a wrong argument.";

const char *const coll_memory_names[] = {"heap", "other", NULL};

void coll_parse_sizes(struct coll_sizes *sizes, const char *text, struct argp_state *state)
{
    if (read_sizes(sizes, text) != 0)
        argp_error(state,
                   "--bytes %s: must be a size up to 1024G, MIN:MAX:xFACTOR with FACTOR 2 or more, "
                   "or MIN:MAX:+STEP with STEP 1 or more",
                   text);
}

static void parse_bytes(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    coll_parse_sizes(&options->sizes, text, state);
}

static void parse_machine(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    if (strcmp(text, "sim") == 0)
        argp_error(state, "--machine sim: must be cpu, cuda or auto; weft sim --op all_reduce, "
                          "and so on, checks collectives on the sim machine");
    options->machine = (weft_machine)option_choice(state, "--machine", text, job_machine_names);
}

static void parse_algorithm(void *input, const char *text, struct argp_state *state)
{
    struct coll_options *options = input;
    options->algorithm =
        (weft_algorithm)option_choice(state, "--algo", text, collective_algorithm_names());
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

static void check_factors(const struct coll_options *options, struct argp_state *state)
{
    const int is_premultiplied = options->redop == WEFT_PREMUL_SUM;
    if (is_premultiplied && options->num_factors == 0)
        argp_error(state,
                   "--redop premul_sum: must come with --factor F, or with F,F,... of ranks");
    if (!is_premultiplied && options->num_factors > 0)
        argp_error(state, "--factor: must be absent with --redop %s, be with premul_sum",
                   reduce_op_names[options->redop]);
    if (is_premultiplied && options->dtype != WEFT_BF16 && options->dtype != WEFT_FP16 &&
        options->dtype != WEFT_FP32)
        argp_error(state, "--dtype %s: must be bf16, fp16 or fp32 with --redop premul_sum",
                   dtype_names[options->dtype]);
}

static void finish(void *input, struct argp_state *state)
{
    const struct coll_options *options = input;
    if (options->algorithm != WEFT_ALGORITHM_RAILS && /* which does all, between nodes */
        !collective_is_served(options->op, options->algorithm))
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
    check_factors(options, state);
}

const char *const coll_calls_names[] = {"own", "group", NULL};
static const char *const check_modes[] = {"full", "none", NULL};

#define AT(member) OPTION_AT(struct coll_options, member)

static const struct option_row option_table[] = {
    {OPTION_GROUP, .doc = "The job:"},
    {OPTION_INTEGER, "ranks", "R", "Ranks (4). Inside a launcher: absent or equal to the job's",
     NULL, AT(num_ranks), 1, COLL_MAX_JOB_RANKS},
    {OPTION_INTEGER, "nodes", "D", "Virtual nodes of R/D consecutive ranks (1)", NULL,
     AT(num_nodes), 1, INT32_MAX},
    {OPTION_OTHER, "machine", "MACHINE",
     "cpu, cuda, or auto: WEFT_MACHINE, else cuda where it can be used (auto)", NULL,
     .parse = parse_machine},
    {OPTION_INTEGER, "timeout-ms", "MS", "Deadline of every wait for another rank (30000)", NULL,
     AT(timeout_ms), 1, MAX_TIMEOUT_MS},
    {OPTION_GROUP, .doc = "The operation:"},
    {OPTION_CHOICE, "op", "OP",
     "all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, gather or scatter",
     "all_reduce", AT(op), .choices = collective_names},
    {OPTION_OTHER, "bytes", "SIZES",
     "As nccl-tests counts, the larger of input and output: MIN:MAX:xFACTOR, MIN:MAX:+STEP, or one "
     "size, with K, M or G for powers of 1024",
     "1K:4M:x4", .parse = parse_bytes},
    {OPTION_CHOICE, "dtype", "TYPE", "int32, int64, bf16, fp16, fp32, fp64, uint8 or fp8_e4m3",
     "bf16", AT(dtype), WEFT_INT32, .choices = dtype_names + 1},
    {OPTION_CHOICE, "redop", "OP", "sum, prod, max, min, avg or premul_sum", "sum", AT(redop),
     .choices = reduce_op_names},
    {OPTION_OTHER, "factor", "F[,F...]",
     "Of premul_sum: what each rank's input is multiplied by, one for all ranks or one for each",
     NULL, .parse = parse_factors},
    {OPTION_INTEGER, "root", "RANK", "Of broadcast, reduce, gather and scatter", "0", AT(root), 0,
     COLL_MAX_JOB_RANKS - 1},
    {OPTION_GROUP, .doc = "How it is done:"},
    {OPTION_OTHER, "algo", "NAME",
     "auto, oneshot, twoshot_packets, oneshot_pull, twoshot, push, multicast, twoshot_push, relay, "
     "ring or tree, as weft.h tells; over several nodes auto, rails or tree",
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
     AT(num_iters), 1, MAX_ITERS},
    {OPTION_INTEGER, "warmup", "I", "Iterations before them", "5", AT(num_warmup), 0, MAX_ITERS},
    {OPTION_INTEGER, "seed", "S", "Of the inputs", "1", AT(seed), 0, INT64_MAX},
    {OPTION_CHOICE, "check", "MODE", "full: every element of one more call or graph; none", "full",
     AT(check), .choices = check_modes},
    {OPTION_FLAG, "explain", NULL,
     "Run nothing: tell for each size which algorithm is chosen, why, how long it is expected to "
     "take, and how long others are",
     NULL, AT(task)},
    {OPTION_FLAG, "json", NULL,
     "Print one JSON object per line, size and place; with --explain, per size", NULL, AT(format)},
    {0}};

void coll_options_parse(struct coll_options *options, int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, finish};
    *options = (struct coll_options){0};
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
    if (options->num_ranks != 0 && options->num_ranks != num_ranks) {
        snprintf(error, COLL_ERROR_BYTES, "--ranks %d: must be absent or %d, the ranks of this job",
                 options->num_ranks, num_ranks);
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
