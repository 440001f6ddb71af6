/* SPDX-License-Identifier: MIT */
#include "tune_options.h"

#include <string.h>

#include "job.h"
#include "workload/options.h"

enum key {
    KEY_RANKS = 256,
    KEY_MACHINE,
    KEY_TIMEOUT,
    KEY_OPS,
    KEY_BYTES,
    KEY_BLOCKS,
    KEY_WARPS,
    KEY_ITERS,
    KEY_WARMUP,
    KEY_OUTPUT
};

static const struct argp_option option_table[] = {
    {0, 0, 0, 0, "The job:", 1},
    {"ranks", KEY_RANKS, "R", 0, "Ranks (4). Inside a launcher: absent or equal to the job's", 0},
    {"machine", KEY_MACHINE, "MACHINE", 0,
     "cpu, cuda, or auto: WEFT_MACHINE, else cuda where it can be used (auto)", 0},
    {"timeout-ms", KEY_TIMEOUT, "MS", 0, "Deadline of every wait for another rank (30000)", 0},
    {0, 0, 0, 0, "What is tried:", 2},
    {"ops", KEY_OPS, "LIST", 0,
     "Of all_reduce, reduce_scatter, all_gather, all_to_all, broadcast (all of them)", 0},
    {"bytes", KEY_BYTES, "SIZES", 0, "As weft coll has them (1K:64M:x4)", 0},
    {"blocks", KEY_BLOCKS, "LIST", 0,
     "Blocks per operation; 0: the machine's choice (0, on cuda also 16,32,64 if each rank has a "
     "device)",
     0},
    {"warps", KEY_WARPS, "LIST", 0,
     "Warps per block; 0: the machine's choice (0, on cuda also 16, as of blocks)", 0},
    {0, 0, 0, 0, "The run:", 3},
    {"iters", KEY_ITERS, "I", 0, "Timed iterations (20)", 0},
    {"warmup", KEY_WARMUP, "I", 0, "Iterations before them (5)", 0},
    {"output", KEY_OUTPUT, "FILE", 0, "Of the table (standard output)", 0},
    {0}};

static const char documentation[] =
    "Times every algorithm of the collective operations over a range of sizes, out of place and in "
    "place, and writes a table of those whose slower form is fastest, for WEFT_TUNING. Starts its "
    "own ranks, unless it is itself a rank of a job."
    "\vThe exit status is 0 only if every call succeeded and the table was written, 1 otherwise, "
    "2 for a wrong argument.";

static void parse_ops(struct tune_options *options, const char *text, struct argp_state *state)
{
    const struct option_members ops = {.choices = collective_names};
    struct option_list list;
    memset(options->is_wanted, 0, sizeof options->is_wanted);
    option_list(state, "--ops", text, &ops, &list);
    for (int32_t i = 0; i < list.count; i++)
        options->is_wanted[list.values[i]] = 1;
}

/* So many rows of every operation are a table that the library takes. */
static void check_sizes(const struct coll_sizes *sizes, struct argp_state *state)
{
    uint64_t bytes = sizes->min;
    int num_sizes = 1;
    while (num_sizes <= TUNE_MAX_SIZES && coll_sizes_next(sizes, &bytes))
        num_sizes++;
    if (num_sizes > TUNE_MAX_SIZES)
        argp_error(state, "--bytes: must be at most %d sizes", TUNE_MAX_SIZES);
}

#define NUMBER(key, name, member, min, max)                                                        \
    OPTION_NUMBER(key, name, struct tune_options, member, min, max)

static const struct stored_option stored_options[] = {
    NUMBER(KEY_RANKS, "--ranks", coll.num_ranks, 1, WEFT_COLL_MAX_RANKS),
    OPTION_CHOICE(KEY_MACHINE, "--machine", struct tune_options, coll.machine, job_machine_names),
    NUMBER(KEY_TIMEOUT, "--timeout-ms", coll.timeout_ms, 1, MAX_TIMEOUT_MS),
    NUMBER(KEY_ITERS, "--iters", coll.num_iters, 1, MAX_ITERS),
    NUMBER(KEY_WARMUP, "--warmup", coll.num_warmup, 0, MAX_ITERS),
    {0}};

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    static const struct option_members blocks = {.max = MAX_BLOCKS}, warps = {.max = MAX_WARPS};
    struct tune_options *options = state->input;
    switch (key) {
    case KEY_OPS:
        parse_ops(options, text, state);
        return 0;
    case KEY_BYTES:
        coll_options_parse_sizes(&options->coll, text, state);
        return 0;
    case KEY_BLOCKS:
        option_list(state, "--blocks", text, &blocks, &options->blocks);
        return 0;
    case KEY_WARPS:
        option_list(state, "--warps", text, &warps, &options->warps);
        return 0;
    case KEY_OUTPUT:
        options->output = text;
        return 0;
    case ARGP_KEY_END:
        check_sizes(&options->coll.sizes, state);
        return 0;
    default:
        return option_store(stored_options, key, text, state);
    }
}

void tune_options_parse(struct tune_options *options, int argc, char **argv)
{
    static const struct argp argp = {
        .options = option_table, .parser = parse_option, .doc = documentation};
    *options = (struct tune_options){.coll = coll_options_default()};
    options->coll.sizes.max = 64 << 20;
    for (int i = 0; i < WEFT_NUM_COLLECTIVES; i++)
        options->is_wanted[i] = 1;
    argp_parse(&argp, argc, argv, 0, NULL, options);
}
