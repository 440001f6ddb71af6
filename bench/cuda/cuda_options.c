/* SPDX-License-Identifier: MIT */
#include "cuda_options.h"

#include <string.h>

#include "weft.h"

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

static void parse_formats(void *input, const char *text, struct argp_state *state)
{
    struct cuda_options *options = input;
    char *rest = strdup(text), *member; /* lives as long as the process */
    options->num_formats = 0;
    while ((member = next_of(state, &rest, ",", options->num_formats, MAX_LISTED)) != NULL)
        parse_format(state, member, &options->formats[options->num_formats++]);
}

enum { MAX_TOKENS = 1 << 16, MAX_EXPERTS = 1 << 16, MAX_ITERS = 10000, MAX_SMS = 1024 };

#define AT(member) OPTION_AT(struct cuda_options, member)

static const struct option_row option_table[] = {
    {OPTION_INTEGERS, "tokens", "LIST", "Tokens per rank", "4096,128", AT(num_tokens), 1,
     MAX_TOKENS},
    {OPTION_OTHER, "rows", "LIST",
     "Bytes per row, of two planes as A+B; the first of the list is also summed, as bf16",
     "14336,7392,7168+224", .parse = parse_formats},
    {OPTION_INTEGER, "topk", "N", "Experts that a token chooses", "8", AT(num_topk), 1,
     WEFT_MAX_TOPK},
    {OPTION_INTEGER, "experts", "N", "Experts in all", "256", AT(num_experts), 1, MAX_EXPERTS},
    {OPTION_INTEGER, "iters", "N", "Iterations that count", "20", AT(num_iters), 1, MAX_ITERS},
    {OPTION_INTEGER, "warmup", "N", "Iterations before them", "3", AT(num_warmups), 0, MAX_ITERS},
    {OPTION_INTEGER, "seed", "N", "Of the routing", "1", AT(seed), 0, INT64_MAX},
    {OPTION_GROUP, .doc = "Only for limits"},
    {OPTION_INTEGER, "gpus", "N", "GPUs, one rank on each (all)", NULL, AT(num_gpus), 1, MAX_RANKS},
    {OPTION_INTEGERS, "sms", "LIST", "Multiprocessors used", "4,8,10,12,16,24,32,64,132",
     AT(num_sms), 1, MAX_SMS},
    {0}};

static void check(void *input, struct argp_state *state)
{
    const struct cuda_options *options = input;
    if (options->num_topk > options->num_experts)
        argp_error(state, "--topk %d: must be 1..%d", options->num_topk, options->num_experts);
}

void cuda_options_parse(struct cuda_options *options, const char *doc, int argc, char **argv)
{
    const struct option_set set = {option_table, doc, check};
    *options = (struct cuda_options){0};
    options_parse(&set, options, argc, argv);
}
