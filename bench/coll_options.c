/* SPDX-License-Identifier: MIT */
#include "coll_options.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 256, KEY_ITERS, KEY_WARMUP };

static const struct argp_option options_table[] = {
    {.name = "bytes", .key = KEY_BYTES, .arg = "LIST", .doc = "Sizes (1024,65536,1048576,8388608)"},
    {.name = "iters", .key = KEY_ITERS, .arg = "N", .doc = "Iterations that count (10)"},
    {.name = "warmup", .key = KEY_WARMUP, .arg = "N", .doc = "Iterations before them (3)"},
    {0}};

static int32_t parse_number(struct argp_state *state, const char *text, int32_t min, int32_t max)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < min || value > max)
        argp_error(state, "'%s' is not a number from %d to %d", text, min, max);
    return (int32_t)value;
}

static void parse_sizes(struct argp_state *state, char *text, struct coll_bench_options *options)
{
    const int32_t element_bytes = (int32_t)sizeof(float), max_bytes = 1 << 30;
    char *member;
    options->num_sizes = 0;
    while ((member = strsep(&text, ",")) != NULL) {
        if (options->num_sizes == MAX_SIZES)
            argp_error(state, "'%s' is one more than the %d that can be listed", member, MAX_SIZES);
        const int32_t bytes = parse_number(state, member, element_bytes, max_bytes);
        if (bytes % element_bytes != 0)
            argp_error(state, "--bytes %d: must be a multiple of %d", bytes, element_bytes);
        options->sizes[options->num_sizes++] = (uint64_t)bytes;
    }
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct coll_bench_options *options = state->input;
    const int32_t max_iters = 10000;
    switch (key) {
    case KEY_BYTES:
        parse_sizes(state, text, options);
        return 0;
    case KEY_ITERS:
        options->num_iters = parse_number(state, text, 1, max_iters);
        return 0;
    case KEY_WARMUP:
        options->num_warmups = parse_number(state, text, 0, max_iters);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void coll_bench_options_parse(struct coll_bench_options *options, const char *doc, int argc,
                              char **argv)
{
    const struct argp argp = {.options = options_table, .parser = parse_option, .doc = doc};
    *options = (struct coll_bench_options){.num_sizes = 4,
                                           .sizes = {1 << 10, 64 << 10, 1 << 20, 8 << 20},
                                           .num_iters = 10,
                                           .num_warmups = 3};
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
