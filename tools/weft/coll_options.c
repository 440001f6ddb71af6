/* SPDX-License-Identifier: MIT */
#include "coll_options.h"

#include <stdio.h>
#include <string.h>

#include "job.h"
#include "workload/options.h"

enum key {
    KEY_RANKS = 256,
    KEY_MACHINE,
    KEY_TIMEOUT,
    KEY_OP,
    KEY_ALGO,
    KEY_BYTES,
    KEY_DTYPE,
    KEY_REDOP,
    KEY_ROOT,
    KEY_PACKET_BYTES,
    KEY_MEMORY,
    KEY_GRAPH,
    KEY_SEED,
    KEY_ITERS,
    KEY_WARMUP,
    KEY_BLOCKS,
    KEY_WARPS,
    KEY_CHECK,
    KEY_JSON
};

static const struct argp_option option_table[] = {
    {0, 0, 0, 0, "The job:", 1},
    {"ranks", KEY_RANKS, "R", 0, "Ranks (4). Inside a launcher: absent or equal to the job's", 0},
    {"machine", KEY_MACHINE, "MACHINE", 0,
     "cpu, cuda, or auto: WEFT_MACHINE, else cuda where it can be used (auto)", 0},
    {"timeout-ms", KEY_TIMEOUT, "MS", 0, "Deadline of every wait for another rank (30000)", 0},
    {0, 0, 0, 0, "The operation:", 2},
    {"op", KEY_OP, "OP", 0,
     "all_reduce, reduce_scatter, all_gather, all_to_all or broadcast (all_reduce)", 0},
    {"bytes", KEY_BYTES, "SIZES", 0,
     "MIN:MAX:xFACTOR, MIN:MAX:+STEP, or one size, with K, M or G for powers of 1024 (1K:4M:x4). "
     "As "
     "nccl-tests counts: the larger of input and output",
     0},
    {"dtype", KEY_DTYPE, "TYPE", 0,
     "int32, int64, bf16, fp16, fp32, fp64, uint8 or fp8_e4m3 (bf16)", 0},
    {"redop", KEY_REDOP, "OP", 0, "sum, prod, max, min or avg (sum)", 0},
    {"root", KEY_ROOT, "RANK", 0, "Of broadcast (0)", 0},
    {0, 0, 0, 0, "How it is done:", 3},
    {"algo", KEY_ALGO, "NAME", 0,
     "auto, oneshot, twoshot_packets, oneshot_pull, twoshot or push, as weft.h tells (auto)", 0},
    {"packet-bytes", KEY_PACKET_BYTES, "N", 0,
     "Bytes under way in packets; 0: the library's choice (0)", 0},
    {"memory", KEY_MEMORY, "KIND", 0,
     "Of inputs and outputs: in the heap, or other of the machine (heap)", 0},
    {"graph", KEY_GRAPH, NULL, 0,
     "Launched in graphs of 20 calls, times per call; machine cpu has none", 0},
    {"blocks", KEY_BLOCKS, "B", 0, "Blocks per operation; 0: the library's choice (0)", 0},
    {"warps", KEY_WARPS, "W", 0, "Warps per block; 0: the library's choice (0)", 0},
    {0, 0, 0, 0, "The run:", 4},
    {"iters", KEY_ITERS, "I", 0, "Timed iterations, of a call or a graph each (20)", 0},
    {"warmup", KEY_WARMUP, "I", 0, "Iterations before them (5)", 0},
    {"seed", KEY_SEED, "S", 0, "Of the inputs (1)", 0},
    {"check", KEY_CHECK, "MODE", 0, "full: every element of one more call or graph; none (full)",
     0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object per line, size and place", 0},
    {0}};

static const char documentation[] =
    "Runs one collective operation over a range of sizes, out of place and in place: times it, and "
    "checks its results against a computation that exchanges nothing. Starts its own ranks, unless "
    "it is itself a rank of a job."
    "\vThe exit status is 0 only if every call succeeded and every check passed, 1 otherwise, 2 "
    "for a wrong argument.";

const char *const coll_memory_names[] = {"heap", "other", NULL};

void coll_options_parse_sizes(struct coll_options *options, const char *text,
                              struct argp_state *state)
{
    if (coll_sizes_read(&options->sizes, text) != 0)
        argp_error(state,
                   "--bytes %s: must be a size up to 1024G, MIN:MAX:xFACTOR with FACTOR 2 or more, "
                   "or MIN:MAX:+STEP with STEP 1 or more",
                   text);
}

static void finish(const struct coll_options *options, struct argp_state *state)
{
    if (!collective_is_served(options->op, options->algorithm))
        argp_error(state, "--algo %s: does not serve --op %s",
                   weft_algorithm_name(options->algorithm), collective_names[options->op]);
    if (options->redop != WEFT_SUM && !collective_reduces(options->op))
        argp_error(state, "--redop %s: must be absent with --op %s, which does not reduce",
                   reduce_op_names[options->redop], collective_names[options->op]);
    if (options->root != 0 && options->op != WEFT_BROADCAST)
        argp_error(state, "--root %d: must be absent with --op %s", options->root,
                   collective_names[options->op]);
}

#define NUMBER(key, name, member, min, max)                                                        \
    OPTION_NUMBER(key, name, struct coll_options, member, min, max)
#define CHOICE(key, name, member, choices)                                                         \
    OPTION_CHOICE(key, name, struct coll_options, member, choices)

static const char *const check_modes[] = {"full", "none", NULL};

static const struct stored_option stored_options[] = {
    NUMBER(KEY_RANKS, "--ranks", num_ranks, 1, WEFT_COLL_MAX_RANKS),
    CHOICE(KEY_MACHINE, "--machine", machine, job_machine_names),
    NUMBER(KEY_TIMEOUT, "--timeout-ms", timeout_ms, 1, MAX_TIMEOUT_MS),
    CHOICE(KEY_OP, "--op", op, collective_names),
    CHOICE(KEY_DTYPE, "--dtype", dtype, dtype_names),
    CHOICE(KEY_REDOP, "--redop", redop, reduce_op_names),
    NUMBER(KEY_ROOT, "--root", root, 0, WEFT_COLL_MAX_RANKS - 1),
    NUMBER(KEY_PACKET_BYTES, "--packet-bytes", packet_bytes, 0, INT64_C(1) << 32),
    CHOICE(KEY_MEMORY, "--memory", memory, coll_memory_names),
    OPTION_FLAG(KEY_GRAPH, "--graph", struct coll_options, launch),
    NUMBER(KEY_BLOCKS, "--blocks", num_blocks, 0, MAX_BLOCKS),
    NUMBER(KEY_WARPS, "--warps", num_warps, 0, MAX_WARPS),
    NUMBER(KEY_ITERS, "--iters", num_iters, 1, MAX_ITERS),
    NUMBER(KEY_WARMUP, "--warmup", num_warmup, 0, MAX_ITERS),
    NUMBER(KEY_SEED, "--seed", seed, 0, INT64_MAX),
    CHOICE(KEY_CHECK, "--check", check, check_modes),
    OPTION_FLAG(KEY_JSON, "--json", struct coll_options, format),
    {0}};

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct coll_options *options = state->input;
    switch (key) {
    case KEY_MACHINE:
        if (strcmp(text, "sim") == 0)
            argp_error(state, "--machine sim: must be cpu, cuda or auto; weft sim --op all_reduce, "
                              "and so on, checks collectives on the sim machine");
        return option_store(stored_options, key, text, state);
    case KEY_ALGO:
        options->algorithm =
            (weft_algorithm)option_choice(state, "--algo", text, collective_algorithm_names());
        return 0;
    case KEY_BYTES:
        coll_options_parse_sizes(options, text, state);
        return 0;
    case ARGP_KEY_END:
        finish(options, state);
        return 0;
    default:
        return option_store(stored_options, key, text, state);
    }
}

struct coll_options coll_options_default(void)
{
    return (struct coll_options){
        .dtype = WEFT_BF16,
        .sizes = {.min = 1 << 10, .max = 4 << 20, .factor = 4},
        .seed = 1,
        .num_iters = 20,
        .num_warmup = 5,
    };
}

void coll_options_parse(struct coll_options *options, int argc, char **argv)
{
    static const struct argp argp = {
        .options = option_table, .parser = parse_option, .doc = documentation};
    *options = coll_options_default();
    argp_parse(&argp, argc, argv, 0, NULL, options);
}

int coll_options_resolve(struct coll_options *options, int32_t num_ranks,
                         char error[COLL_ERROR_BYTES])
{
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
    options->num_ranks = num_ranks;
    return 0;
}
