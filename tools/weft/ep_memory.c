/* SPDX-License-Identifier: MIT */
#include "ep_memory.h"

#include <jansson.h>
#include <stdio.h>

#include "ep_report.h"
#include "workload/ep_ll.h"
#include "workload/output.h"

static const double gib = 1 << 30;
static const double told_from_bytes = 1 << 30;

/* Rows and answers of two results in the heap, x, out, and what combine sends: of rows by expert as
 * many as arrive, though there is room for more, which nobody touches. */
static double low_latency_bytes(const struct ep_options *options)
{
    const double tokens = options->layer.num_tokens, ranks = options->job.num_ranks;
    const double rows = 2 * ranks + 2 * options->layer.num_topk + 2;
    const double answered =
        options->layer.ll_layout == WEFT_LL_BY_RANK ? ranks : options->layer.num_topk;
    return tokens * (rows + answered) * (double)options->layer.row_bytes;
}

/* In doubles, which nothing overflows. */
static double layer_bytes(const struct ep_options *options)
{
    const double tokens = options->layer.num_tokens, ranks = options->job.num_ranks;
    const double row = (double)options->layer.row_bytes, choice = sizeof(int32_t) + sizeof(float);
    if (options->layer.mode == EP_MODE_LOW_LATENCY)
        return low_latency_bytes(options);
    const double own = tokens * (2 * row + options->layer.num_topk * choice + ranks);
    const double received =
        tokens * ranks * (row + options->layer.num_topk * choice + sizeof(int32_t));
    return own + received;
}

/* The routing of all tokens that are checked, and the host's copy of what one pass received and
 * returned. */
static double host_bytes(const struct ep_options *options)
{
    const double tokens = options->layer.num_tokens, ranks = options->job.num_ranks;
    const double row = (double)options->layer.row_bytes, choice = sizeof(int32_t) + sizeof(float);
    if (options->layer.check == EP_CHECK_NONE)
        return tokens * (row + options->layer.num_topk * choice);
    const double copies = options->layer.num_topk < ranks ? options->layer.num_topk : ranks;
    return tokens * (ranks * options->layer.num_topk * choice + (copies + 1) * row);
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

/* ---------------------------------------------------------------- --query */

static weft_result query(weft_comm *comm, const struct ep_options *options, weft_ll_sizes *sizes)
{
    weft_ll_config config = ep_ll_config(&options->layer);
    weft_ll_job job = WEFT_INIT(weft_ll_job);
    config.num_experts = options->layer.num_experts;
    job.num_ranks = options->job.num_ranks;
    job.num_nodes = options->job.num_nodes;
    return weft_ll_plan_sizes(comm, &job, &config, sizes);
}

static int print_json(weft_comm *comm, const struct ep_options *options, const weft_ll_sizes *sizes)
{
    json_t *object = json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, "
        "s:I, "
        "s:i, "
        "s:i}",
        "ranks", options->job.num_ranks, "nodes", options->job.num_nodes, "tokens",
        options->layer.num_tokens, "hidden", options->layer.hidden, "topk", options->layer.num_topk,
        "experts", options->layer.num_experts, "dtype", options->dtype, "layout",
        ep_ll_layout_names[options->layer.ll_layout], "route",
        ep_ll_route_names[options->layer.ll_route], "carrier", ep_ll_carrier_names[sizes->carrier],
        "carrier_reason", sizes->carrier_reason, "answer",
        ep_ll_answer_names[options->layer.ll_answer], "format",
        ep_row_format_names[options->layer.row_format], "heap_bytes", (json_int_t)sizes->heap_bytes,
        "memory_bytes", (json_int_t)sizes->memory_bytes, "network_bytes",
        (json_int_t)sizes->network_bytes, "rows_bytes", (json_int_t)sizes->rows_bytes,
        "scales_bytes", (json_int_t)sizes->scales_bytes, "local_experts", sizes->num_local_experts,
        "expert_capacity", sizes->expert_capacity);
    return job_print_json(object, weft_comm_machine(comm));
}

static void print_line(uint64_t bytes, const char *what)
{
    printf("%15llu bytes  %s\n", (unsigned long long)bytes, what);
}

static void print_table(const struct ep_options *options, const weft_ll_sizes *sizes)
{
    printf("%d ranks, at most %d tokens per rank, hidden %d, %s, top-%d of %d experts, by %s, "
           "rows in %s\n",
           options->job.num_ranks, options->layer.num_tokens, options->layer.hidden, options->dtype,
           options->layer.num_topk, options->layer.num_experts,
           ep_ll_layout_names[options->layer.ll_layout],
           options->layer.row_format == EP_ROW_FORMAT_DTYPE
               ? options->dtype
               : ep_row_format_names[options->layer.row_format]);
    ep_ll_print_carrier(sizes);
    print_line(sizes->heap_bytes, "of each rank's heap");
    if (options->job.num_nodes > 1)
        print_line(sizes->network_bytes, "of memory of the network, on cpu also in the heap");
    print_line(sizes->memory_bytes, "beside it");
    if (options->layer.ll_layout == WEFT_LL_BY_EXPERT) {
        print_line(sizes->rows_bytes + sizes->scales_bytes,
                   "of the caller's, for the rows by expert:");
        printf("%d local experts with room for %d rows each\n", sizes->num_local_experts,
               sizes->expert_capacity);
    }
}

weft_result ep_query(weft_comm *comm, const struct ep_options *options)
{
    weft_ll_sizes sizes = WEFT_INIT(weft_ll_sizes);
    const weft_result result = query(comm, options, &sizes);
    if (result != WEFT_OK || weft_comm_rank(comm) != 0)
        return result;
    int printed = 0;
    if (options->format == EP_FORMAT_JSON)
        printed = print_json(comm, options, &sizes);
    else
        print_table(options, &sizes);
    return output_flush() != 0 || printed != 0 ? WEFT_ERROR_SYSTEM : WEFT_OK;
}
