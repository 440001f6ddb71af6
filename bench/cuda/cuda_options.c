/* SPDX-License-Identifier: MIT */
#include "cuda_options.h"

#include <string.h>

#include "weft.h"

enum {
    KEY_GPUS = 256,
    KEY_MEASURE,
    KEY_TOKENS,
    KEY_ROWS,
    KEY_SMS,
    KEY_BLOCKS,
    KEY_WARPS,
    KEY_TRACE,
    KEY_TOPK,
    KEY_EXPERTS,
    KEY_ITERS,
    KEY_WARMUP,
    KEY_PART,
    KEY_SEED,
    KEY_JSON
};

static const struct argp_option options_table[] = {
    {.name = "tokens", .key = KEY_TOKENS, .arg = "LIST", .doc = "Tokens per rank (4096,128)"},
    {.name = "rows",
     .key = KEY_ROWS,
     .arg = "LIST",
     .doc = "Bytes per row, of two planes as A+B; the first of the list is also summed, as bf16 "
            "(14336,7392,7168+224)"},
    {.name = "topk", .key = KEY_TOPK, .arg = "N", .doc = "Experts that a token chooses (8)"},
    {.name = "experts", .key = KEY_EXPERTS, .arg = "N", .doc = "Experts in all (256)"},
    {.name = "iters", .key = KEY_ITERS, .arg = "N", .doc = "Iterations that count (20)"},
    {.name = "warmup", .key = KEY_WARMUP, .arg = "N", .doc = "Iterations before them (3)"},
    {.name = "seed", .key = KEY_SEED, .arg = "N", .doc = "Of the routing (1)"},
    {.name = "json", .key = KEY_JSON, .doc = "Print a JSON object per figure, not a table"},
    {.doc = "Only for limits:", .group = 1},
    {.name = "gpus", .key = KEY_GPUS, .arg = "N", .doc = "GPUs, one rank on each (all)"},
    {.name = "measure", .key = KEY_MEASURE, .arg = "WHAT", .doc = "all, push, pull or copy (all)"},
    {.name = "sms",
     .key = KEY_SMS,
     .arg = "LIST",
     .doc = "Multiprocessors used (4,8,10,12,16,24,32,64,132)"},
    {.name = "part-mib", .key = KEY_PART, .arg = "N", .doc = "Size of one large copy (64)"},
    {.doc = "Only for ep:", .group = 2},
    {.name = "blocks",
     .key = KEY_BLOCKS,
     .arg = "LIST",
     .doc =
         "Blocks per operation, 0: the library's choice; those after the first only for dispatch "
         "and combine of the first number of tokens (0,8,10,12,16,24)"},
    {.name = "warps",
     .key = KEY_WARPS,
     .arg = "N",
     .doc = "Warps per block, 0: the library's choice (0)"},
    {.name = "trace",
     .key = KEY_TRACE,
     .arg = "LIST",
     .doc = "Instead of the other measurements: every layer of MOETRACE files, whose tokens, top-k "
            "and "
            "experts it takes, with rows of the first of --rows and the first of --blocks"},
    {0}};

/* The next member of a list with so many already, which is cut up; NULL after the last. */
static char *next_of(struct argp_state *state, char **list, const char *separator, int32_t count,
                     int32_t max)
{
    char *member = strsep(list, separator);
    if (member != NULL && count == max)
        argp_error(state, "'%s' is one more than the %d that can be listed", member, max);
    return member;
}

static void parse_format(struct argp_state *state, char *text, struct row_format *format)
{
    char *member;
    format->num_planes = 0;
    format->text = strdup(text); /* lives as long as the process */
    while ((member = next_of(state, &text, "+", format->num_planes, MAX_PLANES)) != NULL) {
        const int32_t row_bytes =
            (int32_t)option_integer(state, "--rows", member, UNIT_BYTES, MAX_ROW_BYTES);
        if (row_bytes % UNIT_BYTES != 0)
            argp_error(state, "--rows %d: must be a multiple of %d", row_bytes, UNIT_BYTES);
        format->row_bytes[format->num_planes++] = row_bytes;
    }
    if (row_bytes_of(format) > MAX_ROW_BYTES)
        argp_error(state, "--rows %s: must be at most %d together", format->text, MAX_ROW_BYTES);
}

static void parse_formats(struct argp_state *state, char *text, struct cuda_options *options)
{
    char *member;
    options->num_formats = 0;
    while ((member = next_of(state, &text, ",", options->num_formats, MAX_LISTED)) != NULL)
        parse_format(state, member, &options->formats[options->num_formats++]);
}

static void parse_traces(struct argp_state *state, char *text, struct cuda_options *options)
{
    char *member;
    text = strdup(text); /* lives as long as the process */
    options->num_traces = 0;
    while ((member = next_of(state, &text, ",", options->num_traces, MAX_LISTED)) != NULL)
        options->traces[options->num_traces++] = member;
}

enum { MAX_TOKENS = 1 << 16, MAX_EXPERTS = 1 << 16, MAX_ITERS = 10000, MAX_SMS = 1024 };
static const char *const measure_names[] = {[MEASURE_ALL] = "all",
                                            [MEASURE_PUSH] = "push",
                                            [MEASURE_PULL] = "pull",
                                            [MEASURE_COPY] = "copy",
                                            NULL};

#define NUMBER(key, name, member, min, max)                                                        \
    OPTION_NUMBER(key, name, struct cuda_options, member, min, max)

static const struct stored_option stored_options[] = {
    NUMBER(KEY_GPUS, "--gpus", num_gpus, 1, MAX_RANKS),
    OPTION_CHOICE(KEY_MEASURE, "--measure", struct cuda_options, measure, measure_names),
    NUMBER(KEY_WARPS, "--warps", num_warps, 0, 32),
    NUMBER(KEY_TOPK, "--topk", num_topk, 1, WEFT_MAX_TOPK),
    NUMBER(KEY_EXPERTS, "--experts", num_experts, 1, MAX_EXPERTS),
    NUMBER(KEY_ITERS, "--iters", num_iters, 1, MAX_ITERS),
    NUMBER(KEY_WARMUP, "--warmup", num_warmups, 0, MAX_ITERS),
    NUMBER(KEY_PART, "--part-mib", part_mib, 1, 1024),
    NUMBER(KEY_SEED, "--seed", seed, 0, INT64_MAX),
    OPTION_FLAG(KEY_JSON, "--json", struct cuda_options, output),
    {0}};

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    static const struct option_members tokens = {.min = 1, .max = MAX_TOKENS};
    static const struct option_members sms = {.min = 1, .max = MAX_SMS}, blocks = {.max = MAX_SMS};
    struct cuda_options *options = state->input;
    switch (key) {
    case KEY_TOKENS:
        option_list(state, "--tokens", text, &tokens, &options->num_tokens);
        return 0;
    case KEY_ROWS:
        parse_formats(state, text, options);
        return 0;
    case KEY_SMS:
        option_list(state, "--sms", text, &sms, &options->num_sms);
        return 0;
    case KEY_BLOCKS:
        option_list(state, "--blocks", text, &blocks, &options->num_blocks);
        return 0;
    case KEY_TRACE:
        parse_traces(state, text, options);
        return 0;
    case ARGP_KEY_END:
        if (options->num_topk > options->num_experts)
            argp_error(state, "--topk %d: must be 1..%d", options->num_topk, options->num_experts);
        return 0;
    default:
        return option_store(stored_options, key, text, state);
    }
}

void cuda_options_parse(struct cuda_options *options, const char *doc, int argc, char **argv)
{
    const struct argp argp = {.options = options_table, .parser = parse_option, .doc = doc};
    *options = (struct cuda_options){
        .num_tokens = {2, {4096, 128}},
        .num_sms = {9, {4, 8, 10, 12, 16, 24, 32, 64, 132}},
        .num_blocks = {6, {0, 8, 10, 12, 16, 24}},
        .num_formats = 3,
        .formats = {{1, {14336}, "14336"}, {1, {7392}, "7392"}, {2, {7168, 224}, "7168+224"}},
        .num_topk = 8,
        .num_experts = 256,
        .num_iters = 20,
        .num_warmups = 3,
        .part_mib = 64,
        .seed = 1};
    argp_parse(&argp, argc, argv, 0, NULL, options);
}
