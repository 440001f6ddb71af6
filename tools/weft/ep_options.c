/* SPDX-License-Identifier: MIT */
#include "ep_options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
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
    "are "
    "ll_dispatch, ll_combine, and both as one sequence, ll_layer."
    "\vThe exit status is 0 only if every call succeeded and every check passed, 1 otherwise, 2 "
    "for a wrong argument.";

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
    char *end;
    long long row_bytes = strtoll(text + 6, &end, 10);
    if (!isdigit((unsigned char)text[6]) || *end || row_bytes < 1 || row_bytes > INT32_MAX)
        argp_error(state, "--dtype %s: N of bytes:N must be an integer from 1 to %d", text,
                   INT32_MAX);
    options->kind = WEFT_UINT8;
    options->row_bytes = (uint64_t)row_bytes;
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

static void finish_trace(struct ep_options *options, struct argp_state *state)
{
    char error[TRACE_ERROR_BYTES];
    if (options->skew >= 0)
        argp_error(state, "--skew %g: must be absent with --trace", options->skew);
    options->trace = trace_open(options->trace_path, error);
    if (!options->trace)
        argp_error(state, "--%s", error);
    else if (options->layer >= options->trace->num_layers)
        argp_error(state, "--layer %d: must be 0 to %d in %s", options->layer,
                   options->trace->num_layers - 1, options->trace_path);
}

const char *const ep_memory_names[] = {"heap", "other", NULL};
const char *const ep_row_format_names[] = {"dtype", "fp8", "ue8m0", "int8", NULL};

/* A type may stand for the word "dtype", if it is that of --dtype. */
static void parse_format(void *input, const char *text, struct argp_state *state)
{
    struct ep_options *options = input;
    static const char *const names[] = {"dtype", "fp8",  "ue8m0", "int8",
                                        "bf16",  "fp16", "fp32",  NULL};
    const int i = option_choice(state, "--format", text, names);
    const int is_type = i >= EP_NUM_ROW_FORMATS;
    options->format_kind = is_type ? (weft_dtype)(WEFT_BF16 + i - EP_NUM_ROW_FORMATS) : 0;
    options->row_format = is_type ? EP_ROW_FORMAT_DTYPE : (enum ep_row_format)i;
}

static void refuse_without_mode(const struct ep_options *options, struct argp_state *state)
{
    if (options->ll_layout != EP_NOT_GIVEN)
        argp_error(state, "--layout: needs --mode low-latency");
    if (options->ll_route != EP_NOT_GIVEN)
        argp_error(state, "--route: needs --mode low-latency");
    if (options->ll_carrier != EP_NOT_GIVEN)
        argp_error(state, "--carrier: needs --mode low-latency");
    if (options->ll_answer != EP_NOT_GIVEN)
        argp_error(state, "--answer: needs --mode low-latency");
    if (options->num_phases != EP_NOT_GIVEN)
        argp_error(state, "--phases %d: needs --mode low-latency", options->num_phases);
    if (options->masked.count > 0)
        argp_error(state, "--masked: needs --mode low-latency");
    if (options->ll_on_missing != EP_NOT_GIVEN)
        argp_error(state, "--on-missing: needs --mode low-latency");
    if (options->task == EP_TASK_QUERY)
        argp_error(state, "--query: needs --mode low-latency");
    if (options->start == EP_START_GRAPH)
        argp_error(state, "--graph: needs --mode low-latency");
}

static void finish_row_format(const struct ep_options *options, struct argp_state *state)
{
    const char *name = ep_row_format_names[options->row_format];
    if (ep_wire_dtype(options) == WEFT_LOG_10BIT && options->hidden % LOGARITHMIC_GROUP != 0)
        argp_error(state, "--wire log10: --hidden must be a multiple of %d, not %d",
                   LOGARITHMIC_GROUP, options->hidden);
    if (options->format_kind != WEFT_DTYPE_NONE && options->format_kind != options->kind)
        argp_error(state, "--format %s: must be dtype, fp8, ue8m0 or int8 with --dtype %s",
                   dtype_names[options->format_kind], options->dtype);
    if (options->row_format == EP_ROW_FORMAT_DTYPE)
        return;
    if (options->kind == WEFT_UINT8)
        argp_error(state, "--format %s: --dtype must be bf16, fp16 or fp32, not %s", name,
                   options->dtype);
    if (options->hidden % EP_LL_GROUP_ELEMENTS != 0)
        argp_error(state, "--format %s: --hidden must be a multiple of %d, not %d", name,
                   EP_LL_GROUP_ELEMENTS, options->hidden);
}

static void refuse_with_low_latency(const struct ep_options *options, struct argp_state *state)
{
    const struct {
        const char *name;
        int is_given;
    } of_normal_mode[] = {{"channels", options->num_channels != 0},
                          {"memory other", options->memory != EP_MEMORY_HEAP},
                          {"staging-bytes", options->staging_bytes != 0},
                          {"staging-slot-bytes", options->staging_slot_bytes != 0},
                          {"staging-slots", options->num_staging_slots != 0}};
    for (size_t i = 0; i < sizeof of_normal_mode / sizeof of_normal_mode[0]; i++)
        if (of_normal_mode[i].is_given)
            argp_error(state, "--%s: must be absent with --mode low-latency",
                       of_normal_mode[i].name);
}

static void finish_masks(struct ep_options *options, struct argp_state *state)
{
    if (options->ll_on_missing == WEFT_LL_FAIL && options->masked.count > 0)
        argp_error(state, "--on-missing %s: must be absent with --masked",
                   ep_ll_on_missing_names[WEFT_LL_FAIL]);
    if (options->ll_on_missing == EP_NOT_GIVEN)
        options->ll_on_missing = options->masked.count > 0 ? WEFT_LL_MASK : WEFT_LL_FAIL;
    if (options->ll_route == WEFT_LL_RELAYED && options->ll_on_missing == WEFT_LL_MASK)
        argp_error(state, "--route %s: must be absent with --on-missing %s and with --masked",
                   ep_ll_route_names[WEFT_LL_RELAYED], ep_ll_on_missing_names[WEFT_LL_MASK]);
}

static void finish_mode(struct ep_options *options, struct argp_state *state)
{
    if (options->mode == EP_MODE_NORMAL) {
        refuse_without_mode(options, state);
        return;
    }
    refuse_with_low_latency(options, state);
    if (options->kind == WEFT_UINT8)
        argp_error(state, "--dtype %s: must be bf16, fp16 or fp32 with --mode low-latency",
                   options->dtype);
    if (options->num_tokens > MAX_LL_TOKENS)
        argp_error(state, "--tokens %d: must be 0 to %d with --mode low-latency",
                   options->num_tokens, MAX_LL_TOKENS);
    if (options->ll_layout == EP_NOT_GIVEN)
        options->ll_layout = WEFT_LL_BY_EXPERT;
    if (options->ll_route == EP_NOT_GIVEN)
        options->ll_route = WEFT_LL_STRAIGHT;
    if (options->ll_carrier == EP_NOT_GIVEN)
        options->ll_carrier = WEFT_LL_AUTO;
    if (options->ll_answer == EP_NOT_GIVEN)
        options->ll_answer = EP_LL_ANSWER_SUMS;
    if (options->ll_layout == WEFT_LL_BY_RANK &&
        (options->ll_answer == EP_LL_ANSWER_ROWS || options->ll_answer == EP_LL_ANSWER_LATE_SUMS))
        argp_error(state, "--answer %s: must be %s or %s with --layout rank",
                   ep_ll_answer_names[options->ll_answer], ep_ll_answer_names[EP_LL_ANSWER_SUMS],
                   ep_ll_answer_names[EP_LL_ANSWER_SLOTS]);
    finish_masks(options, state);
    if (options->num_phases == EP_NOT_GIVEN)
        options->num_phases = 1;
}

static void finish(void *input, struct argp_state *state)
{
    struct ep_options *options = input;
    finish_row(options, state);
    finish_row_format(options, state);
    finish_mode(options, state);
    if (options->trace_path)
        finish_trace(options, state);
    else if (options->layer != EP_NOT_GIVEN)
        argp_error(state, "--layer %d: needs --trace", options->layer);
    if (options->layer == EP_NOT_GIVEN)
        options->layer = 0;
    if (options->skew < 0)
        options->skew = 0;
}

static const char *const modes[] = {"normal", "low-latency", NULL};
static const char *const ll_layouts[] = {"rank", "expert", NULL};      /* by weft_ll_layout */
const char *const ep_ll_on_missing_names[] = {"fail", "mask", NULL};   /* by weft_ll_on_missing */
const char *const ep_ll_route_names[] = {"straight", "relayed", NULL}; /* by weft_ll_route */
const char *const ep_ll_carrier_names[] = {"auto", "signals", "packets", "told",
                                           NULL}; /* by weft_ll_carrier */
const char *const ep_ll_answer_names[] = {"sums", "rows", "late-sums", "slots", NULL};
static const char *const wires[] = {"dtype", "fp32",  "bf16",
                                    "fp16",  "log10", NULL}; /* of wire_dtypes */
static const char *const check_modes[] = {"full", "sample", "none", NULL};

#define AT(member) OPTION_AT(struct ep_options, member)

static const struct option_row option_table[] = {
    {OPTION_GROUP, .doc = "The job:"},
    {OPTION_INTEGER, "ranks", "R", "Ranks (8). Inside a launcher: absent or equal to the job's",
     NULL, AT(num_ranks), 1, MAX_RANKS},
    {OPTION_INTEGER, "nodes", "D", "Virtual nodes of R/D consecutive ranks (1)", NULL,
     AT(num_nodes), 1, MAX_RANKS},
    {OPTION_CHOICE, "machine", "MACHINE",
     "cpu, cuda, or auto: WEFT_MACHINE, else cuda where it can be used (auto)", NULL, AT(machine),
     .choices = job_machine_names},
    {OPTION_INTEGER, "timeout-ms", "MS", "Deadline of every wait for another rank (30000)", NULL,
     AT(timeout_ms), 1, MAX_TIMEOUT_MS},
    {OPTION_GROUP, .doc = "The layer:"},
    {OPTION_INTEGER, "tokens", "N", "Tokens per rank (512; 128 with --mode low-latency)", NULL,
     AT(num_tokens), 0, MAX_TOKENS},
    {OPTION_INTEGER, "hidden", "H", "Elements per token (7168)", NULL, AT(hidden), 1, INT32_MAX},
    {OPTION_INTEGER, "topk", "K", "Experts that a token chooses (8)", NULL, AT(num_topk), 1,
     WEFT_MAX_TOPK},
    {OPTION_INTEGER, "experts", "E", "Experts (256)", NULL, AT(num_experts), 1, MAX_EXPERTS},
    {OPTION_OTHER, "dtype", "TYPE",
     "bf16, fp16, fp32, or bytes:N for rows of N opaque bytes, which are dispatched and not "
     "combined",
     "bf16", .parse = parse_dtype},
    {OPTION_CHOICE, "mode", "MODE",
     "normal, or low-latency: dispatch and combine of few tokens, in one launch each", "normal",
     AT(mode), .choices = modes},
    {OPTION_CHOICE, "layout", "LAYOUT",
     "Of low latency: rank, rows as they come, or expert, packed by expert (expert)", NULL,
     AT(ll_layout), .choices = ll_layouts},
    {OPTION_CHOICE, "route", "ROUTE",
     "Of low latency between nodes: rows go straight to each rank and back, or once to a rank of "
     "the node, and are relayed and summed there (straight)",
     NULL, AT(ll_route), .choices = ep_ll_route_names},
    {OPTION_CHOICE, "carrier", "CARRIER",
     "Of low latency, how rows come: signals tell of them, or packets by themselves, which are "
     "best for few tokens, or, where ranks are told of each token, for more; auto: the best on "
     "GPUs, "
     "elsewhere signals (auto)",
     NULL, AT(ll_carrier), .choices = ep_ll_carrier_names},
    {OPTION_CHOICE, "answer", "KIND",
     "What a rank sends back of a token in low latency: the sum of its experts' rows; by expert "
     "each of these rows, or the sum with weights that combine is given; or, in slots, nothing: "
     "the sum stays where the row came to, and its owner reads it there (sums)",
     NULL, AT(ll_answer), .choices = ep_ll_answer_names},
    {OPTION_OTHER, "format", "FORMAT",
     "What rows travel as to the experts: dtype (or its word), fp8 or int8 with float scales of "
     "128 elements, or "
     "ue8m0: fp8 with such scales",
     "dtype", .parse = parse_format},
    {OPTION_INTEGER, "phases", "N",
     "Of low latency: 1 launch for an operation, or 2, to send and to receive (1)", NULL,
     AT(num_phases), 1, MAX_PHASES},
    {OPTION_INTEGERS, "masked", "LIST",
     "Of low latency: ranks that are masked by all others, and mask these (none)", NULL, AT(masked),
     0, MAX_RANKS - 1},
    {OPTION_CHOICE, "on-missing", "WHAT",
     "Of low latency, if a rank is missing: fail, or mask it (fail; mask with --masked)", NULL,
     AT(ll_on_missing), .choices = ep_ll_on_missing_names},
    {OPTION_GROUP, .doc = "Its routing:"},
    {OPTION_REAL, "skew", "X",
     "Spread of the experts' popularity in the gate that routes: 0 none, 0.5 to 0.75 as in real "
     "models (0)",
     NULL, AT(skew), 0, MAX_SKEW},
    {OPTION_INTEGER, "seed", "S", "Of tokens, gate and sampling", "1", AT(seed), 0, INT64_MAX},
    {OPTION_TEXT, "trace", "FILE",
     "Take routing, tokens, top-k and experts from a MOETRACE file; rank r of R gets the tokens "
     "T*r/R to T*(r+1)/R",
     NULL, AT(trace_path)},
    {OPTION_INTEGER, "layer", "L", "Layer of the trace (0)", NULL, AT(layer), 0, INT32_MAX},
    {OPTION_GROUP, .doc = "The run:"},
    {OPTION_INTEGER, "iters", "I", "Timed iterations", "20", AT(num_iters), 1, MAX_ITERS},
    {OPTION_INTEGER, "warmup", "I", "Iterations before them", "3", AT(num_warmup), 0, MAX_ITERS},
    {OPTION_INTEGER, "blocks", "B",
     "Blocks per operation; 0: the library's choice (cpu: 1, cuda: 0)", NULL, AT(num_blocks), 0,
     MAX_BLOCKS},
    {OPTION_INTEGER, "warps", "W", "Warps per block; 0: the library's choice (cpu: 1, cuda: 0)",
     NULL, AT(num_warps), 0, MAX_WARPS},
    {OPTION_INTEGER, "channels", "C",
     "Between nodes: rings to each other node; 0: the library's choice", "0", AT(num_channels), 0,
     MAX_CHANNELS},
    {OPTION_INTEGER, "staging-slots", "S", "Slots of a ring; 0: the library's choice", "0",
     AT(num_staging_slots), 0, MAX_STAGING_SLOTS},
    {OPTION_SIZE, "staging-slot-bytes", "BYTES",
     "Of a slot, at least a row with its header; K, M and G are powers of 1024; 0: the library's "
     "choice",
     "0", AT(staging_slot_bytes), 0, MAX_STAGING_SLOT_BYTES},
    {OPTION_CHOICE, "wire", "TYPE",
     "What combine rounds to on the way: between nodes a node's sum of rows, on one node the rows "
     "if that makes them shorter (needs --staging-bytes), of low latency answers: dtype, fp32, "
     "bf16, fp16 or log10: 10-bit logarithms",
     "dtype", AT(wire), .choices = wires},
    {OPTION_CHOICE, "memory", "KIND",
     "Of outputs of dispatch and inputs of combine: in the heap, or other of the machine (needs "
     "--staging-bytes)",
     "heap", AT(memory), .choices = ep_memory_names},
    {OPTION_SIZE, "staging-bytes", "BYTES",
     "Heap memory of a rank through which rows go that are in other memory; 0: none", "0",
     AT(staging_bytes), 0, MAX_STAGING_BYTES},
    {OPTION_CHOICE, "check", "MODE",
     "full: every row; sample: all counts, and 64 rows of each rank and operation; none", "sample",
     AT(check), .choices = check_modes},
    {OPTION_FLAG, "graph", NULL,
     "Of low latency: time graphs of 20 operations; of ll_dispatch each with a release", NULL,
     AT(start)},
    {OPTION_FLAG, "query", NULL,
     "Of low latency: run nothing, only print the memory that it would have", NULL, AT(task)},
    {OPTION_FLAG, "json", NULL, "Print one JSON object per line and operation", NULL, AT(format)},
    {0}};

void ep_options_parse(struct ep_options *options, int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, finish};
    *options = (struct ep_options){
        .num_ranks = EP_NOT_GIVEN,
        .num_nodes = EP_NOT_GIVEN,
        .num_tokens = EP_NOT_GIVEN,
        .num_topk = EP_NOT_GIVEN,
        .num_experts = EP_NOT_GIVEN,
        .hidden = EP_NOT_GIVEN,
        .layer = EP_NOT_GIVEN,
        .num_blocks = EP_NOT_GIVEN,
        .num_warps = EP_NOT_GIVEN,
        .skew = EP_NOT_GIVEN,
        .ll_layout = EP_NOT_GIVEN,
        .ll_route = EP_NOT_GIVEN,
        .ll_carrier = EP_NOT_GIVEN,
        .ll_on_missing = EP_NOT_GIVEN,
        .ll_answer = EP_NOT_GIVEN,
        .num_phases = EP_NOT_GIVEN,
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

weft_ll_answer ep_ll_answer(const struct ep_options *options)
{
    static const weft_ll_answer answers[] = {[EP_LL_ANSWER_SUMS] = WEFT_LL_ANSWER_SUMS,
                                             [EP_LL_ANSWER_ROWS] = WEFT_LL_ANSWER_ROWS,
                                             [EP_LL_ANSWER_LATE_SUMS] =
                                                 WEFT_LL_ANSWER_SUMS_WEIGHED_LATE,
                                             [EP_LL_ANSWER_SLOTS] = WEFT_LL_ANSWER_IN_SLOTS};
    return answers[options->ll_answer];
}

weft_dtype ep_wire_dtype(const struct ep_options *options)
{
    return wire_dtypes[options->wire];
}

static int must_be(const char *option, int32_t *value, int32_t required, const char *reason,
                   char error[EP_ERROR_BYTES])
{
    if (*value != EP_NOT_GIVEN && *value != required) {
        snprintf(error, EP_ERROR_BYTES, "%s %d: must be absent or %d, %s", option, *value, required,
                 reason);
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

static int resolve_trace(struct ep_options *options, char error[EP_ERROR_BYTES])
{
    const char *reason = "as in the trace";
    const struct trace *trace = options->trace;
    int64_t num_ranks = options->num_ranks;
    int32_t max_share = (int32_t)((trace->num_tokens + num_ranks - 1) / num_ranks);
    if (must_be("--tokens", &options->num_tokens, max_share,
                "the largest share of a rank in the trace", error) != 0 ||
        must_be("--topk", &options->num_topk, trace->num_topk, reason, error) != 0 ||
        must_be("--experts", &options->num_experts, trace->num_experts, reason, error) != 0)
        return -1;
    return 0;
}

static int resolve_gate(struct ep_options *options, char error[EP_ERROR_BYTES])
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
        snprintf(error, EP_ERROR_BYTES, "--topk %d: must be 1 to %d, the number of experts",
                 options->num_topk, options->num_experts);
        return -1;
    }
    return 0;
}

/* Combine reads rows as they travel if there is one node and that makes them shorter: then all are staged. */
static int are_narrowed(const struct ep_options *options)
{
    if (options->num_nodes > 1 || options->kind == WEFT_UINT8) /* no combine */
        return 0;
    return wire_is_narrower(ep_wire_dtype(options), options->kind);
}

static int check_staging(const struct ep_options *options, char error[EP_ERROR_BYTES])
{
    if (options->mode == EP_MODE_LOW_LATENCY || options->staging_bytes > 0)
        return 0;
    if (options->memory == EP_MEMORY_OTHER)
        snprintf(error, EP_ERROR_BYTES, "--memory other: needs --staging-bytes");
    else if (are_narrowed(options))
        snprintf(error, EP_ERROR_BYTES,
                 "--wire %s: needs --staging-bytes on one node, with rows of %s",
                 ep_wire_name(options), options->dtype);
    else
        return 0;
    return -1;
}

int ep_options_resolve(struct ep_options *options, int32_t num_ranks, int32_t num_nodes,
                       char error[EP_ERROR_BYTES])
{
    int is_uneven = options->num_nodes > 0 && num_ranks % options->num_nodes != 0;
    if (must_be("--ranks", &options->num_ranks, num_ranks, "the ranks of this job", error) != 0)
        return -1;
    if (is_uneven) {
        snprintf(error, EP_ERROR_BYTES, "--nodes %d: must divide the number of ranks, %d",
                 options->num_nodes, num_ranks);
        return -1;
    }
    if (must_be("--nodes", &options->num_nodes, num_nodes, "the nodes of this job", error) != 0 ||
        check_staging(options, error) != 0)
        return -1;
    for (int32_t i = 0; i < options->masked.count; i++)
        if (options->masked.values[i] >= num_ranks) {
            snprintf(error, EP_ERROR_BYTES, "--masked %lld: must be below the number of ranks, %d",
                     (long long)options->masked.values[i], num_ranks);
            return -1;
        }
    return options->trace ? resolve_trace(options, error) : resolve_gate(options, error);
}
