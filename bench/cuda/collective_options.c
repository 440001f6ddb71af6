/* SPDX-License-Identifier: MIT */
#include "collective_options.h"

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

enum { MAX_ITERS = 10000 };
static const int64_t max_bytes = INT64_C(1) << 34;

static const struct stored_option stored_options[] = {
    OPTION_CHOICE(KEY_DTYPE, "--dtype", struct collective_options, dtype, dtype_names),
    OPTION_NUMBER(KEY_ITERS, "--iters", struct collective_options, num_iters, 1, MAX_ITERS),
    OPTION_NUMBER(KEY_WARMUP, "--warmup", struct collective_options, num_warmups, 0, MAX_ITERS),
    OPTION_FLAG(KEY_JSON, "--json", struct collective_options, form),
    {0}};

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    const struct option_members ops = {.choices = collective_names};
    const struct option_members algorithms = {.choices = collective_algorithm_names()};
    const struct option_members sizes = {.max = max_bytes, .unit = OPTION_BYTES};
    const struct option_members blocks = {.max = 1024}, warps = {.max = 32};
    struct collective_options *options = state->input;
    switch (key) {
    case KEY_OPS:
        option_list(state, "--ops", text, &ops, &options->ops);
        return 0;
    case KEY_ALGOS:
        option_list(state, "--algos", text, &algorithms, &options->algorithms);
        return 0;
    case KEY_BYTES:
        option_list(state, "--bytes", text, &sizes, &options->sizes);
        return 0;
    case KEY_BLOCKS:
        option_list(state, "--blocks", text, &blocks, &options->num_blocks);
        return 0;
    case KEY_WARPS:
        option_list(state, "--warps", text, &warps, &options->num_warps);
        return 0;
    case KEY_PACKET_BYTES:
        options->packet_bytes = (uint64_t)option_size(state, "--packet-bytes", text, 0, max_bytes);
        return 0;
    case KEY_MATRIX:
        options->form = FORM_MATRIX;
        return 0;
    default:
        return option_store(stored_options, key, text, state);
    }
}

void collective_options_parse(struct collective_options *options, const char *doc, int argc,
                              char **argv)
{
    const int64_t KIB = 1 << 10, MIB = 1 << 20;
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
    int64_t most = 0;
    for (int32_t i = 0; i < options->sizes.count; i++)
        most = options->sizes.values[i] > most ? options->sizes.values[i] : most;
    return (uint64_t)most;
}
