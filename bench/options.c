/* SPDX-License-Identifier: MIT */
#include "options.h"

#include "weft.h"
#include "workload/options.h"

static const char *const measure_names[] = {[MEASURE_ROWS] = "rows",
                                            [MEASURE_LAYER] = "layer",
                                            [MEASURE_LATENCY] = "latency",
                                            [MEASURE_DECODE] = "decode",
                                            [MEASURE_IDLE] = "idle",
                                            [MEASURE_RAIL] = "rail",
                                            NULL};

enum { MAX_SIZE = 1 << 20 };

#define AT(member) OPTION_AT(struct bench_options, member)

static const struct option_row option_table[] = {
    {OPTION_CHOICE, "measure", "WHAT", "Measurement", "rows", AT(measure),
     .choices = measure_names},
    {OPTION_INTEGER, "tokens", "N", "Tokens per rank", "512", AT(num_tokens), 0, MAX_SIZE},
    {OPTION_INTEGER, "hidden", "N", "bf16 elements per row", "7168", AT(hidden), 1, MAX_SIZE},
    {OPTION_INTEGER, "topk", "N", "Experts that a token chooses", "8", AT(num_topk), 1,
     WEFT_MAX_TOPK},
    {OPTION_INTEGER, "experts", "N", "Experts in all", "256", AT(num_experts), 1, MAX_SIZE},
    {OPTION_INTEGER, "iters", "N", "Iterations that count", "10", AT(num_iters), 1, MAX_SIZE},
    {OPTION_INTEGER, "warmup", "N", "Iterations before them", "3", AT(num_warmups), 0, MAX_SIZE},
    {OPTION_INTEGER, "seed", "N", "Of tokens and routing", "1", AT(seed), 0, INT64_MAX},
    {0}};

static void check(void *input, struct argp_state *state)
{
    const struct bench_options *options = input;
    if (options->num_topk > options->num_experts)
        argp_error(state, "--topk %d: must be 1..%d", options->num_topk, options->num_experts);
}

struct ep_layer_options bench_layer_options(const struct bench_options *options)
{
    const size_t row_bytes = (size_t)options->hidden * sizeof(uint16_t);
    return (struct ep_layer_options){.program = "bench",
                                     .num_tokens = options->num_tokens,
                                     .num_topk = options->num_topk,
                                     .num_experts = options->num_experts,
                                     .hidden = options->hidden,
                                     .kind = WEFT_BF16,
                                     .row_bytes = row_bytes,
                                     .num_planes = 1,
                                     .plane_bytes = {row_bytes},
                                     .seed = options->seed,
                                     .num_phases = 1,
                                     .check = EP_CHECK_FULL};
}

void bench_options_parse(struct bench_options *options, int argc, char **argv)
{
    static const struct option_set set = {option_table, "A benchmark of weft.", check};
    *options = (struct bench_options){0};
    options_parse(&set, options, argc, argv);
}
