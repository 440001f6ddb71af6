/* SPDX-License-Identifier: MIT */
#include "ep_options.h"

#include <stdio.h>
#include <string.h>

#include "job.h"
#include "weft.h"
#include "workload/elements.h"
#include "workload/ep_oracle.h"
#include "workload/options.h"

enum { MAX_RANKS = 1024, MAX_TOKENS = 1 << 20, MAX_EXPERTS = 1 << 16, MAX_SKEW = 100 };
#define MAX_STAGING_BYTES (INT64_C(1) << 46)
enum { DEFAULT_HIDDEN = 7168 };
enum { MAX_LL_TOKENS = UINT16_MAX, MAX_PHASES = 2 };

static const char documentation[] =
    "Runs one mixture-of-experts layer: times layout, notify, dispatch, combine, and all of them "
    "as one sequence, then checks results against a computation that exchanges nothing. Starts "
    "its own ranks, unless it is itself a rank of a job. With --mode low-latency the operations "
    "are ll_dispatch, ll_combine, and both as one sequence, ll_layer."
    "\vThe exit status is 0 only if every call succeeded and every check passed, 1 otherwise, 2 "
    "for a wrong argument.";

const char *const ep_memory_names[] = {"heap", "other", NULL};
const char *const ep_row_format_names[] = {"dtype", "fp8",  "ue8m0", "int8",
                                           "bf16",  "fp16", "fp32",  NULL};
const char *const ep_ll_on_missing_names[] = {"fail", "mask", NULL};   /* by weft_ll_on_missing */
const char *const ep_ll_route_names[] = {"straight", "relayed", NULL}; /* by weft_ll_route */
const char *const ep_ll_carrier_names[] = {"auto", "signals", "packets", "told",
                                           NULL}; /* by weft_ll_carrier */
const char *const ep_ll_answer_names[] = {"sums", "rows", "slots", "late-sums",
                                          NULL}; /* by weft_ll_answer */
const char *const ep_mode_names[] = {"normal", "low-latency", NULL};
const char *const ep_ll_layout_names[] = {"rank", "expert", NULL};          /* by weft_ll_layout */
static const char *const wires[] = {"dtype", "fp32", "bf16", "fp16", NULL}; /* of wire_dtypes */
static const char *const check_modes[] = {"full", "sample", "none", NULL};

static void parse_planes(struct ep_options *options, const char *text, struct argp_state *state)
{
    char number[24];
    options->layer.num_planes = 0;
    options->layer.row_bytes = 0;
    do {
        const size_t length = strcspn(text, "+");
        snprintf(number, sizeof number, "%.*s", (int)length, text);
        if (options->layer.num_planes == EP_MAX_PLANES)
            argp_error(state, "--dtype %s: must be of %d planes at most", options->dtype,
                       EP_MAX_PLANES);
        options->layer.plane_bytes[options->layer.num_planes] =
            (uint64_t)option_integer(state, "--dtype, N of bytes:N", number, 1, INT32_MAX);
        options->layer.row_bytes += options->layer.plane_bytes[options->layer.num_planes++];
        text += length;
    } while (*text++ == '+');
    if (options->layer.row_bytes > INT32_MAX)
        argp_error(state, "--dtype %s: must be at most %d bytes", options->dtype, INT32_MAX);
}

static void parse_dtype(void *input, const char *text, struct argp_state *state)
{
    struct ep_options *options = input;
    static const char *const names[] = {"bf16", "fp16", "fp32", "bytes:N", NULL};
    const int is_bytes = strncmp(text, "bytes:", 6) == 0;
    const int i = is_bytes ? 0 : option_choice(state, "--dtype", text, names);
    snprintf(options->dtype, sizeof options->dtype, "%s", is_bytes ? text : names[i]);
    options->layer.kind = is_bytes ? WEFT_UINT8 : (weft_dtype)(WEFT_BF16 + i);
    if (is_bytes)
        parse_planes(options, text + 6, state);
}

static void finish_row(struct ep_options *options, struct argp_state *state)
{
    if (options->layer.kind == WEFT_UINT8) {
        if (options->layer.hidden != EP_NOT_GIVEN &&
            (uint64_t)options->layer.hidden != options->layer.row_bytes)
            argp_error(state, "--hidden %d: must be absent or %llu with --dtype %s",
                       options->layer.hidden, (unsigned long long)options->layer.row_bytes,
                       options->dtype);
        options->layer.hidden = (int32_t)options->layer.row_bytes;
        return;
    }
    if (options->layer.hidden == EP_NOT_GIVEN)
        options->layer.hidden = DEFAULT_HIDDEN;
    uint64_t element_bytes = dtype_bytes(options->layer.kind);
    options->layer.num_planes = 1;
    options->layer.plane_bytes[0] = options->layer.row_bytes =
        (uint64_t)options->layer.hidden * element_bytes;
    if (options->layer.row_bytes > INT32_MAX)
        argp_error(state, "--hidden %d: must be 1 to %llu with --dtype %s", options->layer.hidden,
                   (unsigned long long)(INT32_MAX / element_bytes), options->dtype);
}

static void finish_row_format(struct ep_options *options, struct argp_state *state)
{
    const char *format = ep_row_format_names[options->layer.row_format];
    if (options->layer.row_format >= EP_NUM_ROW_FORMATS) {
        if (strcmp(format, options->dtype) != 0)
            argp_error(state, "--format %s: must be dtype, fp8, ue8m0 or int8 with --dtype %s",
                       format, options->dtype);
        options->layer.row_format = EP_ROW_FORMAT_DTYPE;
    }
    if (options->layer.row_format != EP_ROW_FORMAT_DTYPE &&
        options->layer.hidden % EP_LL_GROUP_ELEMENTS != 0)
        argp_error(state, "--format %s: --hidden must be a multiple of %d, not %d", format,
                   EP_LL_GROUP_ELEMENTS, options->layer.hidden);
}

static void finish_trace(struct ep_options *options, struct argp_state *state)
{
    char error[TRACE_ERROR_BYTES];
    options->trace = trace_open(options->trace_path, error);
    if (!options->trace)
        argp_error(state, "--%s", error);
    options->layer.trace = options->trace;
    for (int32_t i = 0; options->trace && i < options->trace_layers.count; i++)
        if (options->trace_layers.values[i] >= options->trace->num_layers)
            argp_error(state, "--layer %lld: must be 0 to %d in %s",
                       (long long)options->trace_layers.values[i], options->trace->num_layers - 1,
                       options->trace_path);
}

static void finish_ops(const struct ep_options *options, struct argp_state *state)
{
    for (int32_t i = 0; i < options->layer.ops.count; i++) {
        const enum ep_op op = (enum ep_op)options->layer.ops.values[i];
        if (ep_op_parts(op, &options->layer) == 0)
            argp_error(state, "--ops %s: there is none with --mode %s, --dtype %s and --answer %s",
                       ep_op_names[op], ep_mode_names[options->layer.mode], options->dtype,
                       ep_ll_answer_names[options->layer.ll_answer]);
    }
}

static void finish(void *input, struct argp_state *state)
{
    struct ep_options *options = input;
    finish_row(options, state);
    finish_row_format(options, state);
    finish_ops(options, state);
    for (int32_t i = 0; i < options->tokens.count && options->layer.mode == EP_MODE_LOW_LATENCY;
         i++)
        if (options->tokens.values[i] > MAX_LL_TOKENS)
            argp_error(state, "--tokens %lld: must be 0 to %d with --mode low-latency",
                       (long long)options->tokens.values[i], MAX_LL_TOKENS);
    if (options->layer.masked.count > 0)
        options->layer.ll_on_missing = WEFT_LL_MASK;
    if (options->trace_path)
        finish_trace(options, state);
}

#define AT(member) OPTION_AT(struct ep_options, member)

static const struct option_row option_table[] = {
    {OPTION_GROUP, .doc = "The job"},
    {OPTION_INTEGER, "ranks", "R",
     "Number of ranks; inside a launcher leave it out, or give the job's", NULL, AT(job.num_ranks),
     1, MAX_RANKS, .without = "8"},
    {OPTION_INTEGER, "nodes", "D",
     "Number of virtual nodes of R/D consecutive ranks, which reach other nodes by the "
     "network alone",
     NULL, AT(job.num_nodes), 1, MAX_RANKS, .without = "1; inside a launcher those of the job"},
    {JOB_MACHINE(AT(job.machine))},
    {JOB_TIMEOUT(AT(job.timeout_ms))},
    {OPTION_GROUP, .doc = "The layer"},
    {OPTION_INTEGERS, "tokens", "LIST", "Tokens per rank; one run for each number", NULL,
     AT(tokens), 0, MAX_TOKENS,
     .without = "512; 128 with --mode low-latency, which takes up to 65535"},
    {OPTION_INTEGER, "hidden", "H", "Elements per token", NULL, AT(layer.hidden), 1, INT32_MAX,
     .without = "7168"},
    {OPTION_INTEGER, "topk", "K", "Experts that a token chooses, at most all of them", NULL,
     AT(layer.num_topk), 1, WEFT_MAX_TOPK, .without = "8, or all experts if these are fewer"},
    {OPTION_INTEGER, "experts", "E",
     "Number of experts; rank r of R has those from E*r/R up to E*(r+1)/R", NULL,
     AT(layer.num_experts), 1, MAX_EXPERTS, .without = "256"},
    {OPTION_OTHER, "dtype", "TYPE",
     "Type of elements: bf16, fp16, fp32; or bytes:N for rows of N opaque bytes, "
     "bytes:N+M for two planes; bytes are only dispatched",
     "bf16", .parse = parse_dtype},
    {OPTION_CHOICE, "mode", NULL,
     "Low latency dispatches and combines few tokens, in one launch each", "normal", AT(layer.mode),
     .choices = ep_mode_names,
     .rules = {{"low-latency", .needs = "dtype", .with = "bf16,fp16,fp32"}}},
    {OPTION_CHOICE, "format", NULL,
     "Type of rows on the way to the experts: dtype is that of --dtype; fp8 and int8 have "
     "a float scale for each 128 elements, ue8m0 is fp8 with scales of one byte; for "
     "these three --hidden must be a multiple of 128",
     "dtype", AT(layer.row_format), .choices = ep_row_format_names,
     .rules = {{"fp8,ue8m0,int8", .needs = "dtype", .with = "bf16,fp16,fp32"}}},
    {OPTION_CHOICE, "wire", NULL,
     "Type to which combine rounds what it sends: a node's sum of rows to other nodes, or "
     "with low latency the sums or rows to their owners",
     "dtype", AT(layer.wire), .choices = wires},
    {OPTION_GROUP, .doc = "Low latency", .rules = {{.needs = "mode", .with = "low-latency"}}},
    {OPTION_CHOICE, "layout", NULL,
     "Deliver rows packed by expert; or each row once, by source rank", "expert",
     AT(layer.ll_layout), .choices = ep_ll_layout_names},
    {OPTION_CHOICE, "route", NULL,
     "Between nodes send rows straight to each rank; or once to a rank of the node, which "
     "forwards them, and sums the rows that come back (relayed)",
     "straight", AT(layer.ll_route), .choices = ep_ll_route_names,
     .rules = {{"relayed", .excludes = "on-missing", .with = "mask"},
               {"relayed", .excludes = "masked"}}},
    {OPTION_CHOICE, "carrier", NULL,
     "How a rank learns that rows have come: by signals behind them; by packets, for few "
     "tokens; by packets with metadata (told), for more tokens; auto is signals on CPUs, "
     "and the fastest on GPUs",
     "auto", AT(layer.ll_carrier), .choices = ep_ll_carrier_names},
    {OPTION_CHOICE, "answer", NULL,
     "Return for each token the sum of its experts' rows; or each of these rows; or "
     "nothing, since the owner of the token reads the sum in its slot; or the sum by "
     "weights that combine gets, on one node (late-sums)",
     "sums", AT(layer.ll_answer), .choices = ep_ll_answer_names,
     .rules = {{"rows,late-sums", .excludes = "layout", .with = "rank"}}},
    {OPTION_INTEGER, "phases", "N", "Launches of an operation: one; or two, to send and to receive",
     "1", AT(layer.num_phases), 1, MAX_PHASES},
    {OPTION_INTEGERS, "masked", "LIST", "Ranks that mask all others, and that all others mask",
     NULL, AT(layer.masked), 0, MAX_RANKS - 1, .without = "none"},
    {OPTION_CHOICE, "on-missing", NULL,
     "If a rank is missing, fail the communicator, or mask the rank; --masked implies mask", "fail",
     AT(layer.ll_on_missing), .choices = ep_ll_on_missing_names,
     .rules = {{"fail", .excludes = "masked"}}},
    {OPTION_FLAG, "query", NULL,
     "Run nothing, start no rank, and print the memory that each rank would have", NULL, AT(task)},
    {OPTION_GROUP, .doc = "Rows, rings between nodes, and other memory than the heap",
     .rules = {{.excludes = "mode", .with = "low-latency"}}},
    {OPTION_FLAG, "rows-only", NULL,
     "Dispatch rows alone, without the ids, weights and sources of their tokens", NULL,
     AT(layer.carried)},
    {JOB_CHANNELS("Rings to each other node", AT(layer.num_channels))},
    {JOB_STAGING_SLOTS("Slots of a ring", AT(layer.num_staging_slots))},
    {JOB_STAGING_SLOT_BYTES("Bytes of a slot, at least those of a row and its header",
                            AT(layer.staging_slot_bytes))},
    {OPTION_CHOICE, "memory", NULL,
     "Place outputs of dispatch and inputs of combine in the heap, or in other memory, "
     "which needs a staging block",
     "heap", AT(layer.memory), .choices = ep_memory_names,
     .rules = {{"other", .needs = "staging-bytes"}}},
    {OPTION_SIZE, "staging-bytes", "BYTES",
     "Size of the staging block of a rank, for rows in other memory; 0: none", "0",
     AT(layer.staging_bytes), 0, MAX_STAGING_BYTES},
    {OPTION_GROUP, .doc = "The routing"},
    {OPTION_REAL, "skew", "X",
     "Spread of the experts' popularity in the gate: 0 is none; trained models have 0.5 "
     "to 0.75",
     "0", AT(layer.skew), 0, MAX_SKEW, .rules = {{.excludes = "trace"}}},
    {OPTION_INTEGER, "seed", "S", "Seed of tokens, gate and sampling", "1", AT(layer.seed), 0,
     INT64_MAX},
    {OPTION_TEXT, "trace", "FILE",
     "Take routing, tokens, top-k and experts from a MOETRACE file; rank r of R gets the tokens "
     "T*r/R to T*(r+1)/R",
     NULL, AT(trace_path)},
    {OPTION_INTEGERS, "layer", "LIST", "Layers of the trace; one run for each", "0",
     AT(trace_layers), 0, INT32_MAX, .rules = {{.needs = "trace"}}},
    {OPTION_GROUP, .doc = "The run"},
    {JOB_ITERS(AT(num_iters))},
    {JOB_WARMUP("3", AT(num_warmup))},
    {OPTION_CHOICES, "ops", "LIST",
     "Time these operations. dispatch_counted is layout, notify, a wait of the host for "
     "the counts, and dispatch; dispatch_capacity is the same without the wait; "
     "dispatch_combine is the layer without layout and notify; ll_dispatch_release also "
     "releases the result",
     NULL, AT(layer.ops), .choices = ep_op_names,
     .without = "layout, notify, dispatch, combine, layer; with low latency ll_dispatch, "
                "ll_combine, ll_layer"},
    {OPTION_FLAG, "graph", NULL,
     "Time graphs of 20 operations, on cuda, except operations in which the host waits; a "
     "release follows each ll_dispatch",
     NULL, AT(layer.start)},
    {OPTION_INTEGER, "blocks", "B", "Blocks per operation; 0: the library's choice", NULL,
     AT(layer.num_blocks), 0, MAX_BLOCKS, .without = "1 on cpu, 0 on cuda"},
    {OPTION_INTEGER, "warps", "W", "Warps per block; 0: the library's choice", NULL,
     AT(layer.num_warps), 0, MAX_WARPS, .without = "1 on cpu, 0 on cuda"},
    {OPTION_CHOICE, "check", NULL,
     "Compare every row; or all counts, and 64 rows of each rank and operation; or nothing",
     "sample", AT(layer.check), .choices = check_modes},
    {OPTION_FLAG, "json", NULL, "Print one JSON object per line and operation", NULL, AT(format)},
    {PROGRESS_QUIET(AT(layer.progress))},
    {OPTION_TEXT, "plot", "FILE", "Draw the steps of the layer into FILE, as SVG", NULL, AT(plot)},
    {0}};

void ep_options_parse(struct ep_options *options, int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, finish};
    *options = (struct ep_options){.layer = {.program = "weft ep",
                                             .num_topk = EP_NOT_GIVEN,
                                             .num_experts = EP_NOT_GIVEN,
                                             .hidden = EP_NOT_GIVEN,
                                             .num_blocks = EP_NOT_GIVEN,
                                             .num_warps = EP_NOT_GIVEN}};
    options_parse(&set, options, argc, argv);
}

const char *ep_wire_name(const struct ep_options *options)
{
    return ep_wire_dtype(&options->layer) == WEFT_DTYPE_NONE ? options->dtype
                                                             : wires[options->layer.wire];
}
