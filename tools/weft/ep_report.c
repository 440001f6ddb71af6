/* SPDX-License-Identifier: MIT */
#include "ep_report.h"

#include <jansson.h>
#include <stdio.h>

#include "ep_ll.h"
#include "job.h"
#include "report/plot_file.h"
#include "workload/output.h"

/* Rows move once in dispatch, once in combine, and both ways in a layer; layout and notify move no
 * rows. */
static struct ep_traffic traffic_of(const struct ep_report *report, enum ep_op op)
{
    uint64_t num_passes = 0;
    if (op == EP_DISPATCH || op == EP_COMBINE || op == EP_LL_DISPATCH || op == EP_LL_COMBINE)
        num_passes = 1;
    else if (op == EP_LL_LAYER)
        num_passes = 2;
    else if (op == EP_LAYER)
        num_passes = 1 + (uint64_t)ep_op_exists(EP_COMBINE, report->options);
    /* What dispatch sends may be shorter. */
    if (op == EP_DISPATCH || op == EP_LAYER || op == EP_LL_DISPATCH || op == EP_LL_LAYER) {
        const struct ep_options *options = report->options;
        const uint64_t sent = ep_ll_element_bytes(options) + ep_ll_scale_bytes(options);
        const uint64_t rows = report->traffic.bytes_logical / options->row_bytes;
        const uint64_t remote_rows = report->traffic.bytes_remote / options->row_bytes;
        const uint64_t bytes = sent + (num_passes - 1) * options->row_bytes;
        return (struct ep_traffic){rows * bytes, remote_rows * bytes};
    }
    return (struct ep_traffic){num_passes * report->traffic.bytes_logical,
                               num_passes * report->traffic.bytes_remote};
}

/* The normal mode has no such value. */
static const char *of_low_latency(const struct ep_options *options, const char *value)
{
    return options->mode == EP_MODE_NORMAL ? NULL : value;
}

static int32_t graph_calls(const struct ep_options *options)
{
    return options->start == EP_START_GRAPH ? EP_LL_GRAPH_CALLS : 0;
}

static int is_network(const struct ep_report *report)
{
    return report->options->job.num_nodes > 1;
}

static double gbps(uint64_t bytes, double us)
{
    return us > 0 ? (double)bytes / us / 1000 : 0;
}

/* NULL without memory. */
static json_t *as_json(const struct ep_report *report, enum ep_op op)
{
    const struct ep_options *options = report->options;
    const struct figures *us = &report->figures[op];
    const struct ep_tally *tally = &report->tallies[op];
    const struct ep_network *network = &report->network;
    struct ep_traffic traffic = traffic_of(report, op);
    return json_pack(
        "{s:s, s:s, s:s, s:s?, s:s?, s:s?, s:s?, s:s?, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, "
        "s:i, s:s, "
        "s:s?, "
        "s:i, "
        "s:f, "
        "s:I,"
        " s:i, s:i, s:s, s:i, s:i, s:I, s:s, s:I, s:i, s:i, s:f, s:f, s:f, s:I, s:I, s:f, s:f, "
        "s:s?,"
        " s:I,"
        " s:f, s:I, s:I, s:I, s:b}",
        "op", ep_op_names[op], "machine", job_machine_names[report->machine], "mode",
        ep_mode_names[options->mode], "layout",
        of_low_latency(options, ep_ll_layout_names[options->ll_layout]), "route",
        of_low_latency(options, ep_ll_route_names[options->ll_route]), "carrier",
        of_low_latency(options, ep_ll_carrier_names[report->ll_sizes.carrier]), "carrier_reason",
        of_low_latency(options, report->ll_sizes.carrier_reason), "answer",
        of_low_latency(options, ep_ll_answer_names[options->ll_answer]), "format",
        ep_row_format_names[options->row_format], "phases",
        options->mode == EP_MODE_NORMAL ? 1 : options->num_phases, "graph_calls",
        graph_calls(options), "ranks", options->job.num_ranks, "nodes", options->job.num_nodes,
        "tokens", options->num_tokens, "hidden", options->hidden, "topk", options->num_topk,
        "experts", options->num_experts, "dtype", options->dtype, "trace", options->trace_path,
        "trace_layer", options->layer, "skew", options->skew, "seed", (json_int_t)options->seed,
        "blocks", options->num_blocks, "warps", options->num_warps, "wire", ep_wire_name(options),
        "channels", options->num_channels, "staging_slots", options->num_staging_slots,
        "staging_slot_bytes", (json_int_t)options->staging_slot_bytes, "memory",
        ep_memory_names[options->memory], "staging_bytes", (json_int_t)options->staging_bytes,
        "warmup", options->num_warmup, "iters", options->num_iters, "us_min", us->min, "us_median",
        us->median, "us_max", us->max, "bytes_logical", (json_int_t)traffic.bytes_logical,
        "bytes_remote", (json_int_t)traffic.bytes_remote, "gbps_logical",
        gbps(traffic.bytes_logical, us->median), "gbps_remote",
        gbps(traffic.bytes_remote, us->median), "net_engine",
        is_network(report) ? network->engine : NULL, "net_bytes", (json_int_t)network->bytes[op],
        "net_gbps", gbps(network->of_rank[op], us->median), "forwarded_rows",
        (json_int_t)network->num_rows[op], "checked_rows", (json_int_t)tally->checked_rows,
        "errors", (json_int_t)tally->errors, "ok", tally->errors == 0);
}

static int print_json(const struct ep_report *report, enum ep_op op)
{
    json_t *object = as_json(report, op);
    if (!object)
        return -1;
    int result = json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    putchar('\n');
    return result;
}

static int plot(const struct ep_report *report)
{
    struct figure_list figures = {0};
    for (int op = 0; op < EP_NUM_OPS; op++) {
        json_t *object = ep_op_exists(op, report->options) ? as_json(report, op) : NULL;
        if (object != NULL)
            figures_add(&figures, object);
        json_decref(object);
    }
    const int result = plot_file_write(report->options->plot, &figures, "weft ep");
    figures_free(&figures);
    return result;
}

static void print_count(int32_t count, const char *thing)
{
    if (count == 0)
        printf("the library's choice of %ss", thing);
    else
        printf("%d %s%s", count, thing, count == 1 ? "" : "s");
}

static void print_network(const struct ep_report *report)
{
    const struct ep_options *options = report->options;
    printf("network %s", report->network.engine);
    if (options->mode == EP_MODE_NORMAL)
        printf(", sums in %s", ep_wire_name(options));
    if (options->num_channels > 0)
        printf(", channels: %d", options->num_channels);
    if (options->num_staging_slots > 0)
        printf(", staging slots: %d", options->num_staging_slots);
    if (options->staging_slot_bytes > 0)
        printf(", of bytes: %llu", (unsigned long long)options->staging_slot_bytes);
    putchar('\n');
}

static void print_heading(const struct ep_report *report)
{
    const struct ep_options *options = report->options;
    printf("machine %s, %d ranks on %d node%s, %d tokens per rank, hidden %d, %s, top-%d of %d "
           "experts\n",
           job_machine_names[report->machine], options->job.num_ranks, options->job.num_nodes,
           options->job.num_nodes == 1 ? "" : "s", options->num_tokens, options->hidden,
           options->dtype, options->num_topk, options->num_experts);
    if (options->trace)
        printf("routing: layer %d of %s\n", options->layer, options->trace_path);
    else
        printf("routing: gate, skew %g, seed %llu\n", options->skew,
               (unsigned long long)options->seed);
    if (options->staging_bytes > 0)
        printf("received rows in %s memory, staging block of %llu bytes\n",
               ep_memory_names[options->memory], (unsigned long long)options->staging_bytes);
    if (options->mode == EP_MODE_NORMAL && options->row_format != EP_ROW_FORMAT_DTYPE)
        printf("rows are quantised on their way: %s\n", ep_row_format_names[options->row_format]);
    if (options->mode == EP_MODE_LOW_LATENCY) {
        printf("low latency, by %s, rows in %s, %d phase%s, %s\n",
               ep_ll_layout_names[options->ll_layout],
               options->row_format == EP_ROW_FORMAT_DTYPE
                   ? options->dtype
                   : ep_row_format_names[options->row_format],
               options->num_phases, options->num_phases == 1 ? "" : "s",
               options->start == EP_START_GRAPH ? "in graphs of 20 operations" : "in the stream");
        ep_ll_print_carrier(&report->ll_sizes);
    }
    printf("%d iterations after %d, ", options->num_iters, options->num_warmup);
    print_count(options->num_blocks, "block");
    printf(" of ");
    print_count(options->num_warps, "warp");
    printf(
        "; times are the slowest rank's\n"
        "logical: GB/s of all rows that arrive at the rank with most of them; remote: without its "
        "own\n");
    if (is_network(report))
        print_network(report);
    printf("\n%-11s %11s %11s %11s %8s %8s ", "", "min", "median", "max", "logical", "remote");
    if (is_network(report))
        printf("%8s %12s %9s ", "network", "network", "forwarded");
    printf(" check\n%-11s %11s %11s %11s %8s %8s ", "operation", "us", "us", "us", "GB/s", "GB/s");
    if (is_network(report))
        printf("%8s %12s %9s", "GB/s", "bytes", "rows");
    printf("\n");
}

static void print_network_row(const struct ep_report *report, enum ep_op op)
{
    const struct ep_network *network = &report->network;
    if (op == EP_LAYOUT)
        printf("%8s %12s %9s ", "-", "-", "-");
    else
        printf("%8.3f %12llu %9lld ", gbps(network->of_rank[op], report->figures[op].median),
               (unsigned long long)network->bytes[op], (long long)network->num_rows[op]);
}

static void print_row(const struct ep_report *report, enum ep_op op)
{
    const struct figures *us = &report->figures[op];
    const struct ep_tally *tally = &report->tallies[op];
    struct ep_traffic traffic = traffic_of(report, op);
    printf("%-11s %11.1f %11.1f %11.1f ", ep_op_names[op], us->min, us->median, us->max);
    if (op == EP_LAYOUT || op == EP_NOTIFY)
        printf("%8s %8s ", "-", "-");
    else
        printf("%8.3f %8.3f ", gbps(traffic.bytes_logical, us->median),
               gbps(traffic.bytes_remote, us->median));
    if (is_network(report))
        print_network_row(report, op);
    putchar(' ');
    if (report->options->check == EP_CHECK_NONE)
        printf("none\n");
    else if (tally->errors == 0)
        printf("ok, %lld compared\n", (long long)tally->checked_rows);
    else
        printf("FAILED, %lld of %lld differ\n", (long long)tally->errors,
               (long long)tally->checked_rows);
}

int ep_report_print(const struct ep_report *report)
{
    int result = 0, is_json = report->options->format == EP_FORMAT_JSON;
    if (!is_json)
        print_heading(report);
    for (int op = 0; op < EP_NUM_OPS; op++) {
        if (!ep_op_exists(op, report->options))
            continue;
        if (is_json)
            result |= print_json(report, op);
        else
            print_row(report, op);
    }
    if (report->options->plot != NULL)
        result |= plot(report);
    return output_flush() != 0 || result != 0 ? -1 : 0;
}
