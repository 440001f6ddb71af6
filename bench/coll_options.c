/* SPDX-License-Identifier: MIT */
#include "coll_options.h"

#include <stdio.h>

enum { KEY_BYTES = 256, KEY_ITERS, KEY_WARMUP };

static const struct argp_option options_table[] = {
    {.name = "bytes", .key = KEY_BYTES, .arg = "LIST", .doc = "Sizes (1024,65536,1048576,8388608)"},
    {.name = "iters", .key = KEY_ITERS, .arg = "N", .doc = "Iterations that count (10)"},
    {.name = "warmup", .key = KEY_WARMUP, .arg = "N", .doc = "Iterations before them (3)"},
    {0}};

enum { MAX_ITERS = 10000 };

static const struct stored_option stored_options[] = {
    OPTION_NUMBER(KEY_ITERS, "--iters", struct coll_bench_options, num_iters, 1, MAX_ITERS),
    OPTION_NUMBER(KEY_WARMUP, "--warmup", struct coll_bench_options, num_warmups, 0, MAX_ITERS),
    {0}};

static void parse_sizes(struct coll_bench_options *options, const char *text,
                        struct argp_state *state)
{
    const struct option_members sizes = {
        .min = sizeof(float), .max = 1 << 30, .unit = OPTION_BYTES};
    option_list(state, "--bytes", text, &sizes, &options->sizes);
    for (int32_t i = 0; i < options->sizes.count; i++)
        if (options->sizes.values[i] % (int64_t)sizeof(float) != 0)
            argp_error(state, "--bytes %lld: must be a multiple of %zu",
                       (long long)options->sizes.values[i], sizeof(float));
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    if (key != KEY_BYTES)
        return option_store(stored_options, key, text, state);
    parse_sizes(state->input, text, state);
    return 0;
}

void coll_bench_options_parse(struct coll_bench_options *options, const char *doc, int argc,
                              char **argv)
{
    const struct argp argp = {.options = options_table, .parser = parse_option, .doc = doc};
    *options = (struct coll_bench_options){
        .sizes = {4, {1 << 10, 64 << 10, 1 << 20, 8 << 20}}, .num_iters = 10, .num_warmups = 3};
    argp_parse(&argp, argc, argv, 0, NULL, options);
}

struct collective coll_bench_all_reduce(uint64_t bytes, int32_t num_ranks)
{
    return (struct collective){.kind = WEFT_ALL_REDUCE,
                               .source = {.seed = 1, .dtype = WEFT_FP32, .content = ELEMENTS_WHOLE},
                               .redop = WEFT_SUM,
                               .num_ranks = num_ranks,
                               .count = bytes / sizeof(float)};
}

int32_t coll_bench_calls(uint64_t bytes)
{
    const uint64_t bytes_per_iteration = 2 << 20, min_calls = 4, max_calls = 100;
    const uint64_t calls = bytes_per_iteration / bytes;
    return (int32_t)(calls < min_calls ? min_calls : calls > max_calls ? max_calls : calls);
}

void coll_bench_print(const struct coll_bench_result *result)
{
    printf("{\"op\": \"all_reduce\", \"library\": \"%s\", \"ranks\": %d, \"bytes\": %llu, "
           "\"calls\": %d, \"iters\": %d, \"us_min\": %.3f, \"us_median\": %.3f, \"us_max\": %.3f, "
           "\"errors\": %llu}\n",
           result->library, result->num_ranks, (unsigned long long)result->bytes,
           coll_bench_calls(result->bytes), result->options->num_iters, result->us.min,
           result->us.median, result->us.max, (unsigned long long)result->num_wrong);
}
