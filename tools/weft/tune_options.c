/* SPDX-License-Identifier: MIT */
#include "tune_options.h"

#include <stdio.h>
#include <string.h>

#include "options.h"

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
    "Times every algorithm of the collective operations over a range of sizes, and writes a table "
    "of the fastest, for WEFT_TUNING. Starts its own ranks, unless it is itself a rank of a job."
    "\vThe exit status is 0 only if every call succeeded and the table was written, 1 otherwise, "
    "2 for a wrong argument.";

/* The next item of a comma-separated list, copied to `item`; 0 behind the last. */
static int next_item(const char **list, char item[32])
{
    if (*list == NULL)
        return 0;
    const size_t length = strcspn(*list, ",");
    snprintf(item, 32, "%.*s", (int)length, *list);
    *list = (*list)[length] == ',' ? *list + length + 1 : NULL;
    return 1;
}

static void parse_ops(struct tune_options *options, const char *text, struct argp_state *state)
{
    char item[32];
    memset(options->is_wanted, 0, sizeof options->is_wanted);
    while (next_item(&text, item))
        options->is_wanted[option_choice(state, "--ops", item, collective_names)] = 1;
}

struct values_option {
    const char *name;
    int32_t max;
};

static void parse_values(struct tune_values *values, const struct values_option *option,
                         const char *text, struct argp_state *state)
{
    char item[32];
    values->count = 0;
    while (next_item(&text, item)) {
        if (values->count == TUNE_MAX_VALUES)
            argp_error(state, "%s: must be at most %d numbers", option->name, TUNE_MAX_VALUES);
        values->values[values->count++] =
            (int32_t)option_integer(state, option->name, item, 0, option->max);
    }
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
    OPTION_CHOICE(KEY_MACHINE, "--machine", struct tune_options, coll.machine, machine_names),
    NUMBER(KEY_TIMEOUT, "--timeout-ms", coll.timeout_ms, 1, MAX_TIMEOUT_MS),
    NUMBER(KEY_ITERS, "--iters", coll.num_iters, 1, MAX_ITERS),
    NUMBER(KEY_WARMUP, "--warmup", coll.num_warmup, 0, MAX_ITERS),
    {0}};

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    static const struct values_option blocks = {"--blocks", MAX_BLOCKS};
    static const struct values_option warps = {"--warps", MAX_WARPS};
    struct tune_options *options = state->input;
    switch (key) {
    case KEY_OPS:
        parse_ops(options, text, state);
        return 0;
    case KEY_BYTES:
        coll_options_parse_sizes(&options->coll, text, state);
        return 0;
    case KEY_BLOCKS:
        parse_values(&options->blocks, &blocks, text, state);
        return 0;
    case KEY_WARPS:
        parse_values(&options->warps, &warps, text, state);
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
