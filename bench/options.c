/* SPDX-License-Identifier: MIT */
#include "options.h"

#include "weft.h"
#include "workload/options.h"

static const char *const measure_names[] = {
    [MEASURE_ROWS] = "rows", [MEASURE_LAYER] = "layer", [MEASURE_LATENCY] = "latency",
    [MEASURE_IDLE] = "idle", [MEASURE_RAIL] = "rail",   NULL};

enum { KEY_TOKENS = 256, KEY_HIDDEN, KEY_TOPK, KEY_EXPERTS, KEY_ITERS, KEY_WARMUP, KEY_SEED };

static const struct argp_option options_table[] = {
    {.name = "measure", .key = 'm', .arg = "WHAT", .doc = "rows, layer, latency, idle or rail"},
    {.name = "tokens", .key = KEY_TOKENS, .arg = "N", .doc = "Tokens per rank (512)"},
    {.name = "hidden", .key = KEY_HIDDEN, .arg = "N", .doc = "bf16 elements per row (7168)"},
    {.name = "topk", .key = KEY_TOPK, .arg = "N", .doc = "Experts that a token chooses (8)"},
    {.name = "experts", .key = KEY_EXPERTS, .arg = "N", .doc = "Experts in all (256)"},
    {.name = "iters", .key = KEY_ITERS, .arg = "N", .doc = "Iterations that count (10)"},
    {.name = "warmup", .key = KEY_WARMUP, .arg = "N", .doc = "Iterations before them (3)"},
    {.name = "seed", .key = KEY_SEED, .arg = "N", .doc = "Of tokens and routing (1)"},
    {0}};

enum { MAX_SIZE = 1 << 20 };

#define NUMBER(key, name, member, min, max)                                                        \
    OPTION_NUMBER(key, name, struct bench_options, member, min, max)

static const struct stored_option stored_options[] = {
    OPTION_CHOICE('m', "--measure", struct bench_options, measure, measure_names),
    NUMBER(KEY_TOKENS, "--tokens", num_tokens, 0, MAX_SIZE),
    NUMBER(KEY_HIDDEN, "--hidden", hidden, 1, MAX_SIZE),
    NUMBER(KEY_TOPK, "--topk", num_topk, 1, WEFT_MAX_TOPK),
    NUMBER(KEY_EXPERTS, "--experts", num_experts, 1, MAX_SIZE),
    NUMBER(KEY_ITERS, "--iters", num_iters, 1, MAX_SIZE),
    NUMBER(KEY_WARMUP, "--warmup", num_warmups, 0, MAX_SIZE),
    NUMBER(KEY_SEED, "--seed", seed, 0, INT64_MAX),
    {0}};

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    const struct bench_options *options = state->input;
    if (key != ARGP_KEY_END)
        return option_store(stored_options, key, text, state);
    if (options->num_topk > options->num_experts)
        argp_error(state, "--topk %d: must be 1..%d", options->num_topk, options->num_experts);
    return 0;
}

void bench_options_parse(struct bench_options *options, int argc, char **argv)
{
    static const struct argp argp = {
        .options = options_table, .parser = parse_option, .doc = "A benchmark of weft."};
    *options = (struct bench_options){.num_tokens = 512,
                                      .hidden = 7168,
                                      .num_topk = 8,
                                      .num_experts = 256,
                                      .num_iters = 10,
                                      .num_warmups = 3,
                                      .seed = 1};
    argp_parse(&argp, argc, argv, 0, NULL, options);
}
