/* SPDX-License-Identifier: MIT */
#include "ep_query.h"

#include <jansson.h>
#include <stdio.h>

#include "ep_ll.h"
#include "workload/output.h"

static weft_result query(weft_comm *comm, const struct ep_options *options, weft_ll_sizes *sizes)
{
    weft_ll_config config = ep_ll_config(options);
    weft_ll_job job = WEFT_INIT(weft_ll_job);
    config.num_experts = options->num_experts;
    job.num_ranks = options->job.num_ranks;
    job.num_nodes = options->job.num_nodes;
    return weft_ll_plan_sizes(comm, &job, &config, sizes);
}

static const char *layout_name(const struct ep_options *options)
{
    return options->ll_layout == WEFT_LL_BY_RANK ? "rank" : "expert";
}

static int print_json(const struct ep_options *options, const weft_ll_sizes *sizes)
{
    json_t *object = json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, "
        "s:I, "
        "s:i, "
        "s:i}",
        "ranks", options->job.num_ranks, "nodes", options->job.num_nodes, "tokens",
        options->num_tokens, "hidden", options->hidden, "topk", options->num_topk, "experts",
        options->num_experts, "dtype", options->dtype, "layout", layout_name(options), "route",
        ep_ll_route_names[options->ll_route], "carrier", ep_ll_carrier_names[sizes->carrier],
        "carrier_reason", sizes->carrier_reason, "answer", ep_ll_answer_names[options->ll_answer],
        "format", ep_row_format_names[options->row_format], "heap_bytes",
        (json_int_t)sizes->heap_bytes, "memory_bytes", (json_int_t)sizes->memory_bytes,
        "network_bytes", (json_int_t)sizes->network_bytes, "rows_bytes",
        (json_int_t)sizes->rows_bytes, "scales_bytes", (json_int_t)sizes->scales_bytes,
        "local_experts", sizes->num_local_experts, "expert_capacity", sizes->expert_capacity);
    if (!object)
        return -1;
    const int result = json_dumpf(object, stdout, JSON_COMPACT);
    json_decref(object);
    putchar('\n');
    return result;
}

static void print_line(uint64_t bytes, const char *what)
{
    printf("%15llu bytes  %s\n", (unsigned long long)bytes, what);
}

static void print_table(const struct ep_options *options, const weft_ll_sizes *sizes)
{
    printf("%d ranks, at most %d tokens per rank, hidden %d, %s, top-%d of %d experts, by %s, "
           "rows in %s\n",
           options->job.num_ranks, options->num_tokens, options->hidden, options->dtype,
           options->num_topk, options->num_experts, layout_name(options),
           options->row_format == EP_ROW_FORMAT_DTYPE ? options->dtype
                                                      : ep_row_format_names[options->row_format]);
    ep_ll_print_carrier(sizes);
    print_line(sizes->heap_bytes, "of each rank's heap");
    if (options->job.num_nodes > 1)
        print_line(sizes->network_bytes, "of memory of the network, on cpu also in the heap");
    print_line(sizes->memory_bytes, "beside it");
    if (options->ll_layout == WEFT_LL_BY_EXPERT) {
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
        printed = print_json(options, &sizes);
    else
        print_table(options, &sizes);
    return output_flush() != 0 || printed != 0 ? WEFT_ERROR_SYSTEM : WEFT_OK;
}
