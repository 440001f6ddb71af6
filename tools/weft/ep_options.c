/* SPDX-License-Identifier: MIT */
#include "ep_options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "weft.h"
#include "workload/options.h"

enum { MAX_RANKS = 1024, MAX_TOKENS = 1 << 20, MAX_EXPERTS = 1 << 16, MAX_SKEW = 100 };
enum { MAX_CHANNELS = 64, MAX_STAGING_SLOTS = 1 << 16, MAX_STAGING_SLOT_BYTES = 1 << 30 };
enum { DEFAULT_TOKENS = 512, DEFAULT_HIDDEN = 7168, DEFAULT_TOPK = 8, DEFAULT_EXPERTS = 256 };

enum key {
    KEY_RANKS = 256,
    KEY_MACHINE,
    KEY_NODES,
    KEY_TOKENS,
    KEY_HIDDEN,
    KEY_TOPK,
    KEY_EXPERTS,
    KEY_DTYPE,
    KEY_TRACE,
    KEY_LAYER,
    KEY_SKEW,
    KEY_SEED,
    KEY_ITERS,
    KEY_WARMUP,
    KEY_BLOCKS,
    KEY_WARPS,
    KEY_CHANNELS,
    KEY_STAGING_SLOTS,
    KEY_STAGING_SLOT_BYTES,
    KEY_WIRE,
    KEY_CHECK,
    KEY_JSON,
    KEY_TIMEOUT
};

static const struct argp_option option_table[] = {
    {0, 0, 0, 0, "The job:", 1},
    {"ranks", KEY_RANKS, "R", 0, "Ranks (8). Inside a launcher: absent or equal to the job's", 0},
    {"nodes", KEY_NODES, "D", 0, "Virtual nodes of R/D consecutive ranks (1)", 0},
    {"machine", KEY_MACHINE, "MACHINE", 0,
     "cpu, cuda, or auto: WEFT_MACHINE, else cuda where it can be used (auto)", 0},
    {"timeout-ms", KEY_TIMEOUT, "MS", 0, "Deadline of every wait for another rank (30000)", 0},
    {0, 0, 0, 0, "The layer:", 2},
    {"tokens", KEY_TOKENS, "N", 0, "Tokens per rank (512)", 0},
    {"hidden", KEY_HIDDEN, "H", 0, "Elements per token (7168)", 0},
    {"topk", KEY_TOPK, "K", 0, "Experts that a token chooses (8)", 0},
    {"experts", KEY_EXPERTS, "E", 0, "Experts (256)", 0},
    {"dtype", KEY_DTYPE, "TYPE", 0,
     "bf16, fp16, fp32, or bytes:N for rows of N opaque bytes, which are dispatched and not "
     "combined (bf16)",
     0},
    {0, 0, 0, 0, "Its routing:", 3},
    {"skew", KEY_SKEW, "X", 0,
     "Spread of the experts' popularity in the gate that routes: 0 none, 0.5 to 0.75 as in real "
     "models (0)",
     0},
    {"seed", KEY_SEED, "S", 0, "Of tokens, gate and sampling (1)", 0},
    {"trace", KEY_TRACE, "FILE", 0,
     "Take routing, tokens, top-k and experts from a MOETRACE file; rank r of R gets the tokens "
     "T*r/R to T*(r+1)/R",
     0},
    {"layer", KEY_LAYER, "L", 0, "Layer of the trace (0)", 0},
    {0, 0, 0, 0, "The run:", 4},
    {"iters", KEY_ITERS, "I", 0, "Timed iterations (20)", 0},
    {"warmup", KEY_WARMUP, "I", 0, "Iterations before them (3)", 0},
    {"blocks", KEY_BLOCKS, "B", 0,
     "Blocks per operation; 0: the library's choice (cpu: 1, cuda: 0)", 0},
    {"warps", KEY_WARPS, "W", 0, "Warps per block; 0: the library's choice (cpu: 1, cuda: 0)", 0},
    {"channels", KEY_CHANNELS, "C", 0,
     "Between nodes: rings to each other node; 0: the library's choice (0)", 0},
    {"staging-slots", KEY_STAGING_SLOTS, "S", 0, "Slots of a ring; 0: the library's choice (0)", 0},
    {"staging-slot-bytes", KEY_STAGING_SLOT_BYTES, "BYTES", 0,
     "Of a slot, at least a row with its header; K, M and G are powers of 1024; 0: the "
     "library's choice (0)",
     0},
    {"wire", KEY_WIRE, "TYPE", 0,
     "dtype or fp32: what combine rounds a node's sum of rows to before it crosses the network "
     "(dtype)",
     0},
    {"check", KEY_CHECK, "MODE", 0,
     "full: every row; sample: all counts, and 64 rows of each rank and operation; none (sample)",
     0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object per line and operation", 0},
    {0}};

static const char documentation[] =
    "Runs one mixture-of-experts layer: times layout, notify, dispatch, combine, and all of them "
    "as one sequence, then checks results against a computation that exchanges nothing. Starts "
    "its own ranks, unless it is itself a rank of a job."
    "\vThe exit status is 0 only if every call succeeded and every check passed, 1 otherwise, 2 "
    "for a wrong argument.";

static void parse_dtype(struct ep_options *options, const char *text, struct argp_state *state)
{
    static const char *const names[] = {"bf16", "fp16", "fp32", "bytes:N", NULL};
    snprintf(options->dtype, sizeof options->dtype, "%s", text);
    if (strncmp(text, "bytes:", 6) != 0) {
        options->kind = (weft_dtype)(WEFT_BF16 + option_choice(state, "--dtype", text, names));
        return;
    }
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

static void finish(struct ep_options *options, struct argp_state *state)
{
    finish_row(options, state);
    if (options->trace_path)
        finish_trace(options, state);
    else if (options->layer != EP_NOT_GIVEN)
        argp_error(state, "--layer %d: needs --trace", options->layer);
    if (options->layer == EP_NOT_GIVEN)
        options->layer = 0;
    if (options->skew < 0)
        options->skew = 0;
}

#define NUMBER(key, name, member, min, max)                                                        \
    OPTION_NUMBER(key, name, struct ep_options, member, min, max)
#define CHOICE(key, name, member, choices)                                                         \
    OPTION_CHOICE(key, name, struct ep_options, member, choices)

static const char *const wires[] = {"dtype", "fp32", NULL};
static const char *const check_modes[] = {"full", "sample", "none", NULL};

static const struct stored_option stored_options[] = {
    NUMBER(KEY_RANKS, "--ranks", num_ranks, 1, MAX_RANKS),
    NUMBER(KEY_NODES, "--nodes", num_nodes, 1, MAX_RANKS),
    CHOICE(KEY_MACHINE, "--machine", machine, job_machine_names),
    NUMBER(KEY_TIMEOUT, "--timeout-ms", timeout_ms, 1, MAX_TIMEOUT_MS),
    NUMBER(KEY_TOKENS, "--tokens", num_tokens, 0, MAX_TOKENS),
    NUMBER(KEY_HIDDEN, "--hidden", hidden, 1, INT32_MAX),
    NUMBER(KEY_TOPK, "--topk", num_topk, 1, WEFT_MAX_TOPK),
    NUMBER(KEY_EXPERTS, "--experts", num_experts, 1, MAX_EXPERTS),
    NUMBER(KEY_SEED, "--seed", seed, 0, INT64_MAX),
    NUMBER(KEY_LAYER, "--layer", layer, 0, INT32_MAX),
    NUMBER(KEY_ITERS, "--iters", num_iters, 1, MAX_ITERS),
    NUMBER(KEY_WARMUP, "--warmup", num_warmup, 0, MAX_ITERS),
    NUMBER(KEY_BLOCKS, "--blocks", num_blocks, 0, MAX_BLOCKS),
    NUMBER(KEY_WARPS, "--warps", num_warps, 0, MAX_WARPS),
    NUMBER(KEY_CHANNELS, "--channels", num_channels, 0, MAX_CHANNELS),
    NUMBER(KEY_STAGING_SLOTS, "--staging-slots", num_staging_slots, 0, MAX_STAGING_SLOTS),
    CHOICE(KEY_WIRE, "--wire", wire, wires),
    CHOICE(KEY_CHECK, "--check", check, check_modes),
    OPTION_FLAG(KEY_JSON, "--json", struct ep_options, format),
    {0}};

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct ep_options *options = state->input;
    switch (key) {
    case KEY_DTYPE:
        parse_dtype(options, text, state);
        return 0;
    case KEY_TRACE:
        options->trace_path = text;
        return 0;
    case KEY_STAGING_SLOT_BYTES:
        options->staging_slot_bytes =
            (uint64_t)option_size(state, "--staging-slot-bytes", text, 0, MAX_STAGING_SLOT_BYTES);
        return 0;
    case KEY_SKEW:
        options->skew = option_number(state, "--skew", text, 0, MAX_SKEW);
        return 0;
    case ARGP_KEY_END:
        finish(options, state);
        return 0;
    default:
        return option_store(stored_options, key, text, state);
    }
}

void ep_options_parse(struct ep_options *options, int argc, char **argv)
{
    static const struct argp argp = {
        .options = option_table, .parser = parse_option, .doc = documentation};
    *options = (struct ep_options){
        .num_ranks = EP_NOT_GIVEN,
        .num_nodes = EP_NOT_GIVEN,
        .num_tokens = EP_NOT_GIVEN,
        .num_topk = EP_NOT_GIVEN,
        .num_experts = EP_NOT_GIVEN,
        .hidden = EP_NOT_GIVEN,
        .layer = EP_NOT_GIVEN,
        .kind = WEFT_BF16,
        .dtype = "bf16",
        .num_iters = 20,
        .num_warmup = 3,
        .num_blocks = EP_NOT_GIVEN,
        .num_warps = EP_NOT_GIVEN,
        .seed = 1,
        .skew = EP_NOT_GIVEN,
        .check = EP_CHECK_SAMPLE,
        .format = EP_FORMAT_TABLE,
    };
    argp_parse(&argp, argc, argv, 0, NULL, options);
}

const char *ep_wire_name(const struct ep_options *options)
{
    return options->wire == EP_WIRE_FP32 ? "fp32" : options->dtype;
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
        options->num_tokens = DEFAULT_TOKENS;
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
    if (must_be("--nodes", &options->num_nodes, num_nodes, "the nodes of this job", error) != 0)
        return -1;
    return options->trace ? resolve_trace(options, error) : resolve_gate(options, error);
}
