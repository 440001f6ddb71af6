/* SPDX-License-Identifier: MIT */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"

static const char *const measure_names[] = {[MEASURE_ROWS] = "rows",
                                            [MEASURE_LAYER] = "layer",
                                            [MEASURE_LATENCY] = "latency",
                                            [MEASURE_IDLE] = "idle"};

enum { KEY_TOKENS = 256, KEY_HIDDEN, KEY_TOPK, KEY_EXPERTS, KEY_ITERS, KEY_WARMUP, KEY_SEED };

static const struct argp_option options_table[] = {
    {.name = "measure", .key = 'm', .arg = "WHAT", .doc = "rows, layer, latency or idle"},
    {.name = "tokens", .key = KEY_TOKENS, .arg = "N", .doc = "Tokens per rank (512)"},
    {.name = "hidden", .key = KEY_HIDDEN, .arg = "N", .doc = "bf16 elements per row (7168)"},
    {.name = "topk", .key = KEY_TOPK, .arg = "N", .doc = "Experts that a token chooses (8)"},
    {.name = "experts", .key = KEY_EXPERTS, .arg = "N", .doc = "Experts in all (256)"},
    {.name = "iters", .key = KEY_ITERS, .arg = "N", .doc = "Iterations that count (10)"},
    {.name = "warmup", .key = KEY_WARMUP, .arg = "N", .doc = "Iterations before them (3)"},
    {.name = "seed", .key = KEY_SEED, .arg = "N", .doc = "Of tokens and routing (1)"},
    {0}};

static int32_t parse_number(struct argp_state *state, const char *text, int32_t max)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 0 || value > max)
        argp_error(state, "'%s' is not a number from 0 to %d", text, max);
    return (int32_t)value;
}

static enum bench_measure parse_measure(struct argp_state *state, const char *text)
{
    for (int i = MEASURE_ROWS; i <= MEASURE_IDLE; i++) {
        if (strcmp(text, measure_names[i]) == 0)
            return (enum bench_measure)i;
    }
    argp_error(state, "--measure %s: must be rows, layer, latency or idle", text);
    return MEASURE_ROWS;
}

static void check_options(struct argp_state *state, const struct bench_options *options)
{
    if (options->hidden < 1 || options->num_experts < 1 || options->num_iters < 1)
        argp_error(state, "--hidden, --experts and --iters must be 1 or more");
    if (options->num_topk < 1 || options->num_topk > options->num_experts)
        argp_error(state, "--topk %d: must be 1..%d", options->num_topk, options->num_experts);
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct bench_options *options = state->input;
    const int32_t max_size = 1 << 20;
    switch (key) {
    case 'm':
        options->measure = parse_measure(state, text);
        return 0;
    case KEY_TOKENS:
        options->num_tokens = parse_number(state, text, max_size);
        return 0;
    case KEY_HIDDEN:
        options->hidden = parse_number(state, text, max_size);
        return 0;
    case KEY_TOPK:
        options->num_topk = parse_number(state, text, WEFT_MAX_TOPK);
        return 0;
    case KEY_EXPERTS:
        options->num_experts = parse_number(state, text, max_size);
        return 0;
    case KEY_ITERS:
        options->num_iters = parse_number(state, text, max_size);
        return 0;
    case KEY_WARMUP:
        options->num_warmups = parse_number(state, text, max_size);
        return 0;
    case KEY_SEED:
        options->seed = (uint64_t)parse_number(state, text, INT_MAX);
        return 0;
    case ARGP_KEY_END:
        check_options(state, options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
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
