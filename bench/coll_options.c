/* SPDX-License-Identifier: MIT */
#include "coll_options.h"

#include <stdio.h>

enum { MAX_ITERS = 10000 };

#define AT(member) OPTION_AT(struct coll_bench_options, member)

static const struct option_row option_table[] = {
    {OPTION_CHOICES, "op", "LIST", "Collectives", "all_reduce", AT(kinds), 0, 0, collective_names},
    {OPTION_SIZES, "bytes", "LIST", "Sizes", "1K,64K,1M,8M", AT(sizes), sizeof(float), 1 << 30},
    {OPTION_INTEGER, "iters", "N", "Iterations that count", "10", AT(num_iters), 1, MAX_ITERS},
    {OPTION_INTEGER, "warmup", "N", "Iterations before them", "3", AT(num_warmups), 0, MAX_ITERS},
    {0}};

static void check(void *input, struct argp_state *state)
{
    const struct coll_bench_options *options = input;
    for (int32_t i = 0; i < options->sizes.count; i++)
        if (options->sizes.values[i] % (int64_t)sizeof(float) != 0)
            argp_error(state, "--bytes %lld: must be a multiple of %zu",
                       (long long)options->sizes.values[i], sizeof(float));
}

void coll_bench_options_parse(struct coll_bench_options *options, const char *doc, int argc,
                              char **argv)
{
    const struct option_set set = {option_table, doc, check};
    options_parse(&set, options, argc, argv);
}

struct collective coll_bench_collective(weft_collective kind, uint64_t bytes, int32_t num_ranks)
{
    struct collective collective = {
        .kind = kind,
        .source = {.seed = 1, .dtype = WEFT_FP32, .content = ELEMENTS_WHOLE},
        .redop = WEFT_SUM,
        .num_ranks = num_ranks};
    collective.count = collective_count(&collective, bytes);
    return collective;
}

int32_t coll_bench_calls(uint64_t bytes)
{
    const uint64_t bytes_per_iteration = 2 << 20, min_calls = 4, max_calls = 100;
    const uint64_t calls = bytes_per_iteration / bytes;
    return (int32_t)(calls < min_calls ? min_calls : calls > max_calls ? max_calls : calls);
}

void coll_bench_print(const struct coll_bench_result *result)
{
    const struct collective *collective = result->collective;
    const uint64_t bytes = collective_bytes(collective);
    printf("{\"op\": \"%s\", \"library\": \"%s\", \"ranks\": %d, \"bytes\": %llu, "
           "\"calls\": %d, \"iters\": %d, \"us_min\": %.3f, \"us_median\": %.3f, \"us_max\": %.3f, "
           "\"errors\": %lld}\n",
           collective_names[collective->kind], result->library, collective->num_ranks,
           (unsigned long long)bytes, coll_bench_calls(bytes), result->options->num_iters,
           result->us.min, result->us.median, result->us.max, (long long)result->num_wrong);
    fflush(stdout);
}
