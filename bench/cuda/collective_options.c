/* SPDX-License-Identifier: MIT */
#include "collective_options.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_OPS = 256,
    KEY_ALGOS,
    KEY_BYTES,
    KEY_DTYPE,
    KEY_BLOCKS,
    KEY_WARPS,
    KEY_PACKET_BYTES,
    KEY_ITERS,
    KEY_WARMUP,
    KEY_MATRIX,
    KEY_JSON
};

static const struct argp_option options_table[] = {
    {.name = "ops",
     .key = KEY_OPS,
     .arg = "LIST",
     .doc = "all_reduce, reduce_scatter, all_gather, all_to_all, broadcast (all of them)"},
    {.name = "bytes",
     .key = KEY_BYTES,
     .arg = "LIST",
     .doc = "Sizes as nccl-tests counts, with K, M or G (1K,4K,16K,64K,256K,1M,8M,64M)"},
    {.name = "dtype", .key = KEY_DTYPE, .arg = "TYPE", .doc = "bf16, fp32, ... (bf16)"},
    {.name = "iters", .key = KEY_ITERS, .arg = "N", .doc = "Iterations that count (21)"},
    {.name = "warmup", .key = KEY_WARMUP, .arg = "N", .doc = "Iterations before them (3)"},
    {.name = "json", .key = KEY_JSON, .doc = "Print a JSON object per figure, not a table"},
    {.doc = "Only for coll:", .group = 1},
    {.name = "algos",
     .key = KEY_ALGOS,
     .arg = "LIST",
     .doc = "auto, oneshot, ..., of which those are used that serve the operation (all of them)"},
    {.name = "blocks",
     .key = KEY_BLOCKS,
     .arg = "LIST",
     .doc = "Blocks per operation, 0: the library's choice (0)"},
    {.name = "warps",
     .key = KEY_WARPS,
     .arg = "LIST",
     .doc = "Warps per block, 0: the library's choice (0)"},
    {.name = "packet-bytes",
     .key = KEY_PACKET_BYTES,
     .arg = "N",
     .doc = "Bytes under way in packets, 0: the library's choice (0)"},
    {.name = "matrix",
     .key = KEY_MATRIX,
     .doc = "Print only what calls take in graphs: a line per size, a column per algorithm, blocks "
            "and warps, and the best of them"},
    {0}};

static uint64_t parse_number(struct argp_state *state, const char *text, uint64_t max)
{
    static const char units[] = "KMG";
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    const unsigned shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;
    if (errno != 0 || end == text || *text == '-' || end[unit != NULL] != '\0' ||
        value > max >> shift)
        argp_error(state, "'%s' is not a number from 0 to %llu", text, (unsigned long long)max);
    return (uint64_t)value << shift;
}

static uint64_t parse_name(struct argp_state *state, const char *text, const char *const *names)
{
    uint64_t i = 0;
    while (names[i] != NULL && strcmp(text, names[i]) != 0)
        i++;
    if (names[i] == NULL)
        argp_error(state, "'%s' is not known: `weft coll --help' tells the names", text);
    return i;
}

/* Of names if there are any, else of numbers up to max. */
static void parse_list(struct argp_state *state, char *text, const char *const *names, uint64_t max,
                       struct value_list *list)
{
    char *member;
    list->num_values = 0;
    while ((member = strsep(&text, ",")) != NULL) {
        if (list->num_values == MAX_LISTED_VALUES)
            argp_error(state, "'%s' is one more than the %d that can be listed", member,
                       MAX_LISTED_VALUES);
        list->values[list->num_values++] =
            names != NULL ? parse_name(state, member, names) : parse_number(state, member, max);
    }
}

static void parse_algorithms(struct argp_state *state, char *text, struct value_list *list)
{
    const char *names[WEFT_NUM_ALGORITHMS + 1] = {NULL};
    for (int i = 0; i < WEFT_NUM_ALGORITHMS; i++)
        names[i] = weft_algorithm_name((weft_algorithm)i);
    parse_list(state, text, names, 0, list);
}

static error_t parse_run(int key, char *text, struct argp_state *state)
{
    struct collective_options *options = state->input;
    const uint64_t max_iters = 10000;
    switch (key) {
    case KEY_ITERS:
        options->num_iters = (int32_t)parse_number(state, text, max_iters);
        if (options->num_iters == 0)
            argp_error(state, "--iters 0: must be 1 or more");
        return 0;
    case KEY_WARMUP:
        options->num_warmups = (int32_t)parse_number(state, text, max_iters);
        return 0;
    case KEY_MATRIX:
        options->form = FORM_MATRIX;
        return 0;
    case KEY_JSON:
        options->form = FORM_JSON;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct collective_options *options = state->input;
    const uint64_t max_blocks = 1024, max_warps = 32, max_bytes = UINT64_C(1) << 34;
    switch (key) {
    case KEY_OPS:
        parse_list(state, text, collective_names, 0, &options->ops);
        return 0;
    case KEY_ALGOS:
        parse_algorithms(state, text, &options->algorithms);
        return 0;
    case KEY_BYTES:
        parse_list(state, text, NULL, max_bytes, &options->sizes);
        return 0;
    case KEY_DTYPE:
        options->dtype = (weft_dtype)parse_name(state, text, dtype_names);
        return 0;
    case KEY_BLOCKS:
        parse_list(state, text, NULL, max_blocks, &options->num_blocks);
        return 0;
    case KEY_WARPS:
        parse_list(state, text, NULL, max_warps, &options->num_warps);
        return 0;
    case KEY_PACKET_BYTES:
        options->packet_bytes = parse_number(state, text, max_bytes);
        return 0;
    default:
        return parse_run(key, text, state);
    }
}

void collective_options_parse(struct collective_options *options, const char *doc, int argc,
                              char **argv)
{
    const uint64_t KIB = 1 << 10, MIB = 1 << 20;
    const struct argp argp = {.options = options_table, .parser = parse_option, .doc = doc};
    *options = (struct collective_options){
        .ops = {WEFT_NUM_COLLECTIVES, {0, 1, 2, 3, 4}},
        .algorithms = {WEFT_NUM_ALGORITHMS, {0, 1, 2, 3, 4, 5}},
        .sizes = {8, {KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 8 * MIB, 64 * MIB}},
        .num_blocks = {1, {0}},
        .num_warps = {1, {0}},
        .dtype = WEFT_BF16,
        .num_iters = 21,
        .num_warmups = 3};
    argp_parse(&argp, argc, argv, 0, NULL, options);
}

uint64_t collective_options_max_bytes(const struct collective_options *options)
{
    uint64_t most = 0;
    for (int32_t i = 0; i < options->sizes.num_values; i++)
        most = options->sizes.values[i] > most ? options->sizes.values[i] : most;
    return most;
}
