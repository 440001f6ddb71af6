/* SPDX-License-Identifier: MIT */
#include "ep_options.h"

#include <stdio.h>
#include <string.h>

#include "job.h"
#include "weft.h"
#include "workload/ep_oracle.h"
#include "workload/logarithmic.h"
#include "workload/options.h"

enum { MAX_RANKS = 1024, MAX_TOKENS = 1 << 20, MAX_EXPERTS = 1 << 16, MAX_SKEW = 100 };
#define MAX_STAGING_BYTES (INT64_C(1) << 46)
enum { DEFAULT_TOKENS = 512, DEFAULT_HIDDEN = 7168, DEFAULT_TOPK = 8, DEFAULT_EXPERTS = 256 };
enum { DEFAULT_LL_TOKENS = 128, MAX_LL_TOKENS = UINT16_MAX, MAX_PHASES = 2 };

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
const char *const ep_ll_layout_names[] = {"rank", "expert", NULL}; /* by weft_ll_layout */
static const char *const wires[] = {"dtype", "fp32",  "bf16",
                                    "fp16",  "log10", NULL}; /* of wire_dtypes */
static const char *const check_modes[] = {"full", "sample", "none", NULL};

static void parse_dtype(void *input, const char *text, struct argp_state *state)
{
    struct ep_options *options = input;
    static const char *const names[] = {"bf16", "fp16", "fp32", "bytes:N", NULL};
    if (strncmp(text, "bytes:", 6) != 0) {
        const int i = option_choice(state, "--dtype", text, names);
        options->kind = (weft_dtype)(WEFT_BF16 + i);
        snprintf(options->dtype, sizeof options->dtype, "%s", names[i]);
        return;
    }
    snprintf(options->dtype, sizeof options->dtype, "%s", text);
    options->kind = WEFT_UINT8;
    options->row_bytes =
        (uint64_t)option_integer(state, "--dtype, N of bytes:N", text + 6, 1, INT32_MAX);
}

static void finish_row(struct ep_options *options, struct argp_state *state)
{
    if (options->kind == WEFT_UINT8) {
        if (options->hidden != EP_NOT_GIVEN && (uint64_t)options->hidden != options->row_bytes)
            argp_error(state, "--hidden %d: must be absent or %llu with --dtype %s",
                       options->hidden, (unsigned long long)options->row_bytes, options->dtype);
        options->hidden = (int32_t)options->row_bytes;
    }
    if (options->hidden == EP_NOT_GIVEN)
        options->hidden = DEFAULT_HIDDEN;
    uint64_t element_bytes = dtype_bytes(options->kind);
    options->row_bytes = (uint64_t)options->hidden * element_bytes;
    if (options->row_bytes > INT32_MAX)
        argp_error(state, "--hidden %d: must be 1 to %llu with --dtype %s", options->hidden,
                   (unsigned long long)(INT32_MAX / element_bytes), options->dtype);
}

static void must_be_multiple(const struct ep_options *options, int32_t of, const char *option,
                             const char *value, struct argp_state *state)
{
    if (options->hidden % of != 0)
        argp_error(state, "--%s %s: --hidden must be a multiple of %d, not %d", option, value, of,
                   options->hidden);
}

static void finish_row_format(struct ep_options *options, struct argp_state *state)
{
    const char *format = ep_row_format_names[options->row_format];
    if (options->row_format >= EP_NUM_ROW_FORMATS) {
        if (strcmp(format, options->dtype) != 0)
            argp_error(state, "--format %s: must be dtype, fp8, ue8m0 or int8 with --dtype %s",
                       format, options->dtype);
        options->row_format = EP_ROW_FORMAT_DTYPE;
    }
    if (ep_wire_dtype(options) == WEFT_LOG_10BIT)
        must_be_multiple(options, LOGARITHMIC_GROUP, "wire", "log10", state);
    if (options->row_format != EP_ROW_FORMAT_DTYPE)
        must_be_multiple(options, EP_LL_GROUP_ELEMENTS, "format", format, state);
}

static void finish_trace(struct ep_options *options, struct argp_state *state)
{
    char error[TRACE_ERROR_BYTES];
    options->trace = trace_open(options->trace_path, error);
    if (!options->trace)
        argp_error(state, "--%s", error);
    else if (options->layer >= options->trace->num_layers)
        argp_error(state, "--layer %d: must be 0 to %d in %s", options->layer,
                   options->trace->num_layers - 1, options->trace_path);
}

static void finish(void *input, struct argp_state *state)
{
    struct ep_options *options = input;
    finish_row(options, state);
    finish_row_format(options, state);
    if (options->mode == EP_MODE_LOW_LATENCY && options->num_tokens > MAX_LL_TOKENS)
        argp_error(state, "--tokens %d: must be 0 to %d with --mode low-latency",
                   options->num_tokens, MAX_LL_TOKENS);
    if (options->masked.count > 0)
        options->ll_on_missing = WEFT_LL_MASK;
    if (options->trace_path)
        finish_trace(options, state);
}

#define AT(member) OPTION_AT(struct ep_options, member)

static const struct option_row option_table[] = {
    {OPTION_GROUP, .doc = "The job"},
    {OPTION_INTEGER, "ranks", "R", "Ranks; inside a launcher absent, or as many as the job has",
     NULL, AT(job.num_ranks), 1, MAX_RANKS, .without = "8"},
    {OPTION_INTEGER, "nodes", "D",
     "Virtual nodes of R/D consecutive ranks, which reach other nodes by the network alone", NULL,
     AT(job.num_nodes), 1, MAX_RANKS, .without = "1; inside a launcher those of the job"},
    {JOB_MACHINE(AT(job.machine))},
    {JOB_TIMEOUT(AT(job.timeout_ms))},
    {OPTION_GROUP, .doc = "The layer"},
    {OPTION_INTEGER, "tokens", "N", "Tokens per rank", NULL, AT(num_tokens), 0, MAX_TOKENS,
     .without = "512; 128 with --mode low-latency, which takes up to 65535"},
    {OPTION_INTEGER, "hidden", "H", "Elements per token", NULL, AT(hidden), 1, INT32_MAX,
     .without = "7168"},
    {OPTION_INTEGER, "topk", "K", "Experts that a token chooses, at most all of them", NULL,
     AT(num_topk), 1, WEFT_MAX_TOPK, .without = "8, or all experts if these are fewer"},
    {OPTION_INTEGER, "experts", "E", "Experts; rank r of R has those from E*r/R up to E*(r+1)/R",
     NULL, AT(num_experts), 1, MAX_EXPERTS, .without = "256"},
    {OPTION_OTHER, "dtype", "TYPE",
     "Type of elements: bf16, fp16, fp32; or bytes:N for rows of N opaque bytes, which are "
     "dispatched and not combined",
     "bf16", .parse = parse_dtype},
    {OPTION_CHOICE, "mode", NULL,
     "Low latency dispatches and combines few tokens, in one launch each", "normal", AT(mode),
     .choices = ep_mode_names,
     .rules = {{"low-latency", .needs = "dtype", .with = "bf16,fp16,fp32"}}},
    {OPTION_CHOICE, "format", NULL,
     "Carry rows to the experts as they are (dtype, or the word of --dtype), or quantised: fp8 or "
     "int8 with a float scale for each 128 elements, ue8m0 is fp8 with scales of one byte; "
     "--hidden must be a multiple of 128 then",
     "dtype", AT(row_format), .choices = ep_row_format_names,
     .rules = {{"fp8,ue8m0,int8", .needs = "dtype", .with = "bf16,fp16,fp32"}}},
    {OPTION_CHOICE, "wire", NULL,
     "Round to this type on the way of combine: between nodes a node's sum of rows, with low "
     "latency the answers; log10 is 10-bit logarithms, of rows of a multiple of 128 elements",
     "dtype", AT(wire), .choices = wires},
    {OPTION_GROUP, .doc = "Low latency", .rules = {{.needs = "mode", .with = "low-latency"}}},
    {OPTION_CHOICE, "layout", NULL,
     "Deliver rows packed by expert; or by rank, each once, as they come", "expert", AT(ll_layout),
     .choices = ep_ll_layout_names},
    {OPTION_CHOICE, "route", NULL,
     "Between nodes send rows straight to each rank and back; or once to a rank of the node, which "
     "relays them, and sums what comes back",
     "straight", AT(ll_route), .choices = ep_ll_route_names,
     .rules = {{"relayed", .excludes = "on-missing", .with = "mask"},
               {"relayed", .excludes = "masked"}}},
    {OPTION_CHOICE, "carrier", NULL,
     "Let signals behind the rows tell that they have come; or let packets tell it themselves, "
     "which is best for few tokens; or packets while ranks are told where each row goes, for more "
     "tokens; auto is signals on CPUs, and the best on GPUs",
     "auto", AT(ll_carrier), .choices = ep_ll_carrier_names},
    {OPTION_CHOICE, "answer", NULL,
     "Answer each token with the sum of its experts' rows; or with each of these rows; or leave "
     "the "
     "sum in its slot, where the owner of the token reads it; or with the sum by weights that "
     "combine is given, on one node",
     "sums", AT(ll_answer), .choices = ep_ll_answer_names,
     .rules = {{"rows,late-sums", .excludes = "layout", .with = "rank"}}},
    {OPTION_INTEGER, "phases", "N", "Launch an operation once; or twice, to send and to receive",
     "1", AT(num_phases), 1, MAX_PHASES},
    {OPTION_INTEGERS, "masked", "LIST", "Ranks that are masked by all others, and mask these", NULL,
     AT(masked), 0, MAX_RANKS - 1, .without = "none"},
    {OPTION_CHOICE, "on-missing", NULL,
     "If a rank is missing, the communicator fails, or the others mask it; mask with --masked",
     "fail", AT(ll_on_missing), .choices = ep_ll_on_missing_names,
     .rules = {{"fail", .excludes = "masked"}}},
    {OPTION_FLAG, "graph", NULL,
     "Time graphs of 20 operations, on cuda; each ll_dispatch with a release of what came", NULL,
     AT(start)},
    {OPTION_FLAG, "query", NULL,
     "Run nothing, start no rank, and print the memory that each rank would have", NULL, AT(task)},
    {OPTION_GROUP, .doc = "Rings between nodes, and other memory than the heap",
     .rules = {{.excludes = "mode", .with = "low-latency"}}},
    {JOB_CHANNELS("Rings to each other node", AT(num_channels))},
    {JOB_STAGING_SLOTS("Slots of a ring", AT(num_staging_slots))},
    {JOB_STAGING_SLOT_BYTES("Bytes of a slot, at least those of a row and its header",
                            AT(staging_slot_bytes))},
    {OPTION_CHOICE, "memory", NULL,
     "Place outputs of dispatch and inputs of combine in the heap, or in other memory of the "
     "machine, from where they are staged",
     "heap", AT(memory), .choices = ep_memory_names,
     .rules = {{"other", .needs = "staging-bytes"}}},
    {OPTION_SIZE, "staging-bytes", "BYTES",
     "Heap memory of a rank through which rows go that are in other memory; 0: none", "0",
     AT(staging_bytes), 0, MAX_STAGING_BYTES},
    {OPTION_GROUP, .doc = "The routing"},
    {OPTION_REAL, "skew", "X",
     "Spread of the experts' popularity in the gate that routes: 0 is none, 0.5 to 0.75 is as in "
     "trained models",
     "0", AT(skew), 0, MAX_SKEW, .rules = {{.excludes = "trace"}}},
    {OPTION_INTEGER, "seed", "S", "Seed of tokens, gate and sampling", "1", AT(seed), 0, INT64_MAX},
    {OPTION_TEXT, "trace", "FILE",
     "Take routing, tokens, top-k and experts from a MOETRACE file; rank r of R gets the tokens "
     "T*r/R to T*(r+1)/R",
     NULL, AT(trace_path)},
    {OPTION_INTEGER, "layer", "L", "Layer of the trace", "0", AT(layer), 0, INT32_MAX,
     .rules = {{.needs = "trace"}}},
    {OPTION_GROUP, .doc = "The run"},
    {JOB_ITERS(AT(num_iters))},
    {JOB_WARMUP("3", AT(num_warmup))},
    {OPTION_INTEGER, "blocks", "B", "Blocks per operation; 0: the library's choice", NULL,
     AT(num_blocks), 0, MAX_BLOCKS, .without = "1 on cpu, 0 on cuda"},
    {OPTION_INTEGER, "warps", "W", "Warps per block; 0: the library's choice", NULL, AT(num_warps),
     0, MAX_WARPS, .without = "1 on cpu, 0 on cuda"},
    {OPTION_CHOICE, "check", NULL,
     "Compare every row; or all counts, and 64 rows of each rank and operation; or nothing",
     "sample", AT(check), .choices = check_modes},
    {OPTION_FLAG, "json", NULL, "Print one JSON object per line and operation", NULL, AT(format)},
    {PROGRESS_QUIET(AT(progress))},
    {OPTION_TEXT, "plot", "FILE", "Draw the steps of the layer into FILE, as SVG", NULL, AT(plot)},
    {0}};

void ep_options_parse(struct ep_options *options, int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, finish};
    *options = (struct ep_options){
        .num_tokens = EP_NOT_GIVEN,
        .num_topk = EP_NOT_GIVEN,
        .num_experts = EP_NOT_GIVEN,
        .hidden = EP_NOT_GIVEN,
        .num_blocks = EP_NOT_GIVEN,
        .num_warps = EP_NOT_GIVEN,
    };
    options_parse(&set, options, argc, argv);
}

static int is_masked(const struct ep_options *options, int32_t rank)
{
    for (int32_t i = 0; i < options->masked.count; i++)
        if (options->masked.values[i] == rank)
            return 1;
    return 0;
}

int ep_ll_are_cut(const struct ep_options *options, int32_t a, int32_t b)
{
    return a != b && (is_masked(options, a) || is_masked(options, b));
}

uint64_t ep_ll_element_bytes(const struct ep_options *options)
{
    return options->row_format == EP_ROW_FORMAT_DTYPE ? options->row_bytes
                                                      : (uint64_t)options->hidden;
}

uint64_t ep_ll_scale_bytes(const struct ep_options *options)
{
    const uint64_t num_groups = (uint64_t)options->hidden / EP_LL_GROUP_ELEMENTS;
    if (options->row_format == EP_ROW_FORMAT_DTYPE)
        return 0;
    return options->row_format == EP_ROW_FORMAT_UE8M0 ? num_groups : num_groups * sizeof(float);
}

const char *ep_wire_name(const struct ep_options *options)
{
    return ep_wire_dtype(options) == WEFT_DTYPE_NONE ? options->dtype : wires[options->wire];
}

weft_dtype ep_wire_dtype(const struct ep_options *options)
{
    return wire_dtypes[options->wire];
}

static int must_be(const char *option, int32_t *value, int32_t required, const char *reason,
                   char error[JOB_ERROR_BYTES])
{
    if (*value != EP_NOT_GIVEN && *value != required) {
        snprintf(error, JOB_ERROR_BYTES, "%s %d: must be absent or %d, %s", option, *value,
                 required, reason);
        return -1;
    }
    *value = required;
    return 0;
}

void ep_options_resolve_grid(struct ep_options *options, weft_machine machine)
{
    const int32_t usual = machine == WEFT_MACHINE_CPU ? 1 : 0;
    if (options->num_blocks == EP_NOT_GIVEN)
        options->num_blocks = usual;
    if (options->num_warps == EP_NOT_GIVEN)
        options->num_warps = usual;
}

static int resolve_trace(struct ep_options *options, char error[JOB_ERROR_BYTES])
{
    const char *reason = "as in the trace";
    const struct trace *trace = options->trace;
    int64_t num_ranks = options->job.num_ranks;
    int32_t max_share = (int32_t)((trace->num_tokens + num_ranks - 1) / num_ranks);
    if (must_be("--tokens", &options->num_tokens, max_share,
                "the largest share of a rank in the trace", error) != 0 ||
        must_be("--topk", &options->num_topk, trace->num_topk, reason, error) != 0 ||
        must_be("--experts", &options->num_experts, trace->num_experts, reason, error) != 0)
        return -1;
    return 0;
}

static int resolve_gate(struct ep_options *options, char error[JOB_ERROR_BYTES])
{
    if (options->num_tokens == EP_NOT_GIVEN)
        options->num_tokens =
            options->mode == EP_MODE_LOW_LATENCY ? DEFAULT_LL_TOKENS : DEFAULT_TOKENS;
    if (options->num_experts == EP_NOT_GIVEN)
        options->num_experts = DEFAULT_EXPERTS;
    if (options->num_topk == EP_NOT_GIVEN)
        options->num_topk =
            options->num_experts < DEFAULT_TOPK ? options->num_experts : DEFAULT_TOPK;
    if (options->num_topk > options->num_experts) {
        snprintf(error, JOB_ERROR_BYTES, "--topk %d: must be 1 to %d, the number of experts",
                 options->num_topk, options->num_experts);
        return -1;
    }
    return 0;
}

int ep_options_resolve(struct ep_options *options, char error[JOB_ERROR_BYTES])
{
    for (int32_t i = 0; i < options->masked.count; i++)
        if (options->masked.values[i] >= options->job.num_ranks) {
            snprintf(error, JOB_ERROR_BYTES, "--masked %lld: must be below the number of ranks, %d",
                     (long long)options->masked.values[i], options->job.num_ranks);
            return -1;
        }
    return options->trace ? resolve_trace(options, error) : resolve_gate(options, error);
}
