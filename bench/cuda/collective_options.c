/* SPDX-License-Identifier: MIT */
#include "collective_options.h"

enum { MAX_ITERS = 10000 };
#define MAX_BYTES (INT64_C(1) << 34)

static void parse_algorithms(void *input, const char *text, struct argp_state *state)
{
    const struct option_row algorithms = {OPTION_CHOICES, "algos",
                                          .choices = collective_algorithm_names()};
    struct collective_options *options = input;
    option_list(state, &algorithms, text, &options->algorithms);
}

#define AT(member) OPTION_AT(struct collective_options, member)

static const struct option_row option_table[] = {
    {OPTION_CHOICES, "ops", "LIST", "The operations",
     "all_reduce,reduce_scatter,all_gather,all_to_all,broadcast", AT(ops),
     .choices = collective_names},
    {OPTION_SIZES, "bytes", "LIST", "Sizes as nccl-tests counts, with K, M or G",
     "1K,4K,16K,64K,256K,1M,8M,64M", AT(sizes), 0, MAX_BYTES},
    {OPTION_CHOICE, "dtype", "TYPE", "Type of elements", "bf16", AT(dtype), WEFT_INT32,
     .choices = dtype_names + 1},
    {OPTION_INTEGER, "iters", "N", "Iterations that count", "21", AT(num_iters), 1, MAX_ITERS},
    {OPTION_INTEGER, "warmup", "N", "Iterations before them", "3", AT(num_warmups), 0, MAX_ITERS},
    {OPTION_FLAG, "json", NULL, "Print a JSON object per figure, not a table", NULL, AT(form), 0,
     FORM_JSON},
    {OPTION_GROUP, .doc = "Only for coll"},
    {OPTION_OTHER, "algos", "LIST", "Those of them are used that serve the operation",
     "auto,oneshot,twoshot_packets,oneshot_pull,twoshot,push,relay", .parse = parse_algorithms},
    {OPTION_INTEGERS, "blocks", "LIST", "Blocks per operation, 0: the library's choice", "0",
     AT(num_blocks), 0, 1024},
    {OPTION_INTEGERS, "warps", "LIST", "Warps per block, 0: the library's choice", "0",
     AT(num_warps), 0, 32},
    {OPTION_SIZE, "packet-bytes", "N", "Bytes under way in packets, 0: the library's choice", "0",
     AT(packet_bytes), 0, MAX_BYTES},
    {0}};

void collective_options_parse(struct collective_options *options, const char *doc, int argc,
                              char **argv)
{
    const struct option_set set = {option_table, doc, NULL};
    *options = (struct collective_options){0};
    options_parse(&set, options, argc, argv);
}

uint64_t collective_options_max_bytes(const struct collective_options *options)
{
    int64_t most = 0;
    for (int32_t i = 0; i < options->sizes.count; i++)
        most = options->sizes.values[i] > most ? options->sizes.values[i] : most;
    return (uint64_t)most;
}
