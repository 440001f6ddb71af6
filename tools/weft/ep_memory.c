/* SPDX-License-Identifier: MIT */
#include "ep_memory.h"

#include <stdio.h>

static const double gib = 1 << 30;
static const double told_from_bytes = 1 << 30;

/* Rows and answers of two results in the heap, x, out, and what combine sends: of rows by expert as
 * many as arrive, though there is room for more, which nobody touches. */
static double low_latency_bytes(const struct ep_options *options)
{
    const double tokens = options->num_tokens, ranks = options->job.num_ranks;
    const double rows = 2 * ranks + 2 * options->num_topk + 2;
    const double answered = options->ll_layout == WEFT_LL_BY_RANK ? ranks : options->num_topk;
    return tokens * (rows + answered) * (double)options->row_bytes;
}

/* In doubles, which nothing overflows. */
static double layer_bytes(const struct ep_options *options)
{
    const double tokens = options->num_tokens, ranks = options->job.num_ranks;
    const double row = (double)options->row_bytes, choice = sizeof(int32_t) + sizeof(float);
    if (options->mode == EP_MODE_LOW_LATENCY)
        return low_latency_bytes(options);
    const double own = tokens * (2 * row + options->num_topk * choice + ranks);
    const double received = tokens * ranks * (row + options->num_topk * choice + sizeof(int32_t));
    return own + received;
}

/* The routing of all tokens that are checked, and the host's copy of what one pass received and returned. */
static double host_bytes(const struct ep_options *options)
{
    const double tokens = options->num_tokens, ranks = options->job.num_ranks;
    const double row = (double)options->row_bytes, choice = sizeof(int32_t) + sizeof(float);
    if (options->check == EP_CHECK_NONE)
        return tokens * (row + options->num_topk * choice);
    const double copies = options->num_topk < ranks ? options->num_topk : ranks;
    return tokens * (ranks * options->num_topk * choice + (copies + 1) * row);
}

/* The host's memory, also if the layer runs on GPUs. */
static double available_bytes(void)
{
    weft_device_info host = WEFT_INIT(weft_device_info);
    return weft_device_query(WEFT_MACHINE_CPU, 0, &host) == WEFT_OK ? (double)host.available_bytes
                                                                    : (double)UINT64_MAX;
}

int ep_memory_check(const char *command, const struct ep_options *options, weft_machine machine)
{
    const double of_layer = machine == WEFT_MACHINE_CPU ? layer_bytes(options) : 0;
    const double bytes = options->job.num_ranks * (of_layer + host_bytes(options));
    const double available = available_bytes();
    if (bytes < told_from_bytes && bytes <= available)
        return 0;
    fprintf(stderr, "%s: %d ranks need about %.1f GiB of memory; %.1f GiB are left here\n", command,
            options->job.num_ranks, bytes / gib, available / gib);
    if (bytes <= available)
        return 0;
    fprintf(stderr, "%s: fewer --tokens or --ranks, or smaller rows (--hidden), would fit\n",
            command);
    return -1;
}
