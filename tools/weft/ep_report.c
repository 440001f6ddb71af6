/* SPDX-License-Identifier: MIT */
#include "ep_report.h"

#include <jansson.h>
#include <stdio.h>

#include "job.h"
#include "report/plot_file.h"
#include "workload/output.h"

/* Rows move once in dispatch, once in combine, and both ways in a layer; layout and notify move no
 * rows. */
static struct ep_traffic traffic_of(const struct ep_report *report, enum ep_op op,
                                    const struct ep_traffic *dispatched)
{
    const struct ep_options *options = report->options;
    const int parts = ep_op_parts(op, &options->layer);
    const uint64_t rows = dispatched->bytes_logical / options->layer.row_bytes;
    const uint64_t remote_rows = dispatched->bytes_remote / options->layer.row_bytes;
    uint64_t bytes = 0;
    /* Dispatch may send shorter rows. */
    if (parts & EP_PART_DISPATCH)
        bytes += ep_ll_element_bytes(&options->layer) + ep_ll_scale_bytes(&options->layer);
    if (parts & EP_PART_COMBINE)
        bytes += options->layer.row_bytes;
    return (struct ep_traffic){rows * bytes, remote_rows * bytes};
}

void ep_ll_print_carrier(const weft_ll_sizes *sizes)
{
    printf("carrier: %s%s%s\n", ep_ll_carrier_names[sizes->carrier],
           sizes->carrier_reason[0] == '\0' ? "" : "; ", sizes->carrier_reason);
}

/* The normal mode has no such value. */
static const char *of_low_latency(const struct ep_options *options, const char *value)
{
    return options->layer.mode == EP_MODE_NORMAL ? NULL : value;
}

static int32_t graph_calls(const struct ep_options *options, enum ep_op op)
{
    const int32_t num_calls = ep_op_calls(op, &options->layer);
    return num_calls > 1 ? num_calls : 0;
}

static int is_network(const struct ep_report *report)
{
    return report->options->job.num_nodes > 1;
}

static double gbps(uint64_t bytes, double us)
{
    return us > 0 ? (double)bytes / us / 1000 : 0;
}

static void add_slowest(json_t *object, const struct ep_slowest *slowest)
{
    const int is_named = slowest->num_witnesses > 0;
    json_object_set_new(object, "slowest_rank",
                        is_named ? json_integer(slowest->rank.rank) : json_null());
    json_object_set_new(object, "slowest_late_us",
                        is_named ? json_real((double)slowest->rank.late_ns / 1e3) : json_null());
}

static void print_slowest(const struct ep_slowest *slowest)
{
    const weft_slowest *rank = &slowest->rank;
    if (slowest->num_witnesses == 0)
        printf("slowest rank: no rank is known to come late to most operations\n");
    else
        printf("slowest rank: %d, which came %.0f us late to %llu of %llu %s, by %d rank%s\n",
               rank->rank, (double)rank->late_ns / 1e3, (unsigned long long)rank->num_late,
               (unsigned long long)rank->num_operations, rank->call, slowest->num_witnesses,
               slowest->num_witnesses == 1 ? "" : "s");
}

/* NULL without memory. */
static json_t *describe(const struct ep_report *report, enum ep_op op)
{
    const struct ep_options *options = report->options;
    const struct figures *us = &report->figures[op];
    const struct ep_tally tally = ep_tally_of(report->tallies, op);
    const struct ep_network *network = &report->network;
    const struct ep_traffic traffic = traffic_of(report, op, &report->traffic.most);
    const struct ep_traffic mean = traffic_of(report, op, &report->traffic.mean);
    return json_pack(
        "{s:s, s:s, s:s, s:s?, s:s?, s:s?, s:s?, s:s?, s:s, s:b, s:i, s:i, s:i, s:i, s:i, s:i, "
        "s:i, "
        "s:i, s:s, "
        "s:s?, "
        "s:i, "
        "s:f, "
        "s:I,"
        " s:i, s:i, s:s, s:i, s:i, s:I, s:s, s:I, s:i, s:i, s:f, s:f, s:f, s:I, s:I, s:I, s:I, "
        "s:f, s:f, "
        "s:s?,"
        " s:I,"
        " s:f, s:I, s:I, s:I, s:b}",
        "op", ep_op_names[op], "machine", job_machine_names[report->machine], "mode",
        ep_mode_names[options->layer.mode], "layout",
        of_low_latency(options, ep_ll_layout_names[options->layer.ll_layout]), "route",
        of_low_latency(options, ep_ll_route_names[options->layer.ll_route]), "carrier",
        of_low_latency(options, ep_ll_carrier_names[report->ll_sizes.carrier]), "carrier_reason",
        of_low_latency(options, report->ll_sizes.carrier_reason), "answer",
        of_low_latency(options, ep_ll_answer_names[options->layer.ll_answer]), "format",
        ep_row_format_names[options->layer.row_format], "rows_only",
        options->layer.carried == EP_CARRY_ROWS, "phases",
        options->layer.mode == EP_MODE_NORMAL ? 1 : options->layer.num_phases, "graph_calls",
        graph_calls(options, op), "ranks", options->job.num_ranks, "nodes", options->job.num_nodes,
        "tokens", options->layer.num_tokens, "hidden", options->layer.hidden, "topk",
        options->layer.num_topk, "experts", options->layer.num_experts, "dtype", options->dtype,
        "trace", options->trace_path, "trace_layer", options->layer.trace_layer, "skew",
        options->layer.skew, "seed", (json_int_t)options->layer.seed, "blocks",
        options->layer.num_blocks, "warps", options->layer.num_warps, "wire", ep_wire_name(options),
        "channels", options->layer.num_channels, "staging_slots", options->layer.num_staging_slots,
        "staging_slot_bytes", (json_int_t)options->layer.staging_slot_bytes, "memory",
        ep_memory_names[options->layer.memory], "staging_bytes",
        (json_int_t)options->layer.staging_bytes, "warmup", options->num_warmup, "iters",
        options->num_iters, "us_min", us->min, "us_median", us->median, "us_max", us->max,
        "bytes_logical", (json_int_t)traffic.bytes_logical, "bytes_remote",
        (json_int_t)traffic.bytes_remote, "mean_bytes_logical", (json_int_t)mean.bytes_logical,
        "mean_bytes_remote", (json_int_t)mean.bytes_remote, "gbps_logical",
        gbps(traffic.bytes_logical, us->median), "gbps_remote",
        gbps(traffic.bytes_remote, us->median), "net_engine",
        is_network(report) ? network->engine : NULL, "net_bytes", (json_int_t)network->bytes[op],
        "net_gbps", gbps(network->of_rank[op], us->median), "forwarded_rows",
        (json_int_t)network->num_rows[op], "checked_rows", (json_int_t)tally.checked_rows, "errors",
        (json_int_t)tally.errors, "ok", tally.errors == 0);
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
    if (options->layer.mode == EP_MODE_NORMAL)
        printf(", sums in %s", ep_wire_name(options));
    if (options->layer.num_channels > 0)
        printf(", channels: %d", options->layer.num_channels);
    if (options->layer.num_staging_slots > 0)
        printf(", staging slots: %d", options->layer.num_staging_slots);
    if (options->layer.staging_slot_bytes > 0)
        printf(", of bytes: %llu", (unsigned long long)options->layer.staging_slot_bytes);
    putchar('\n');
}

static void print_heading(const struct ep_report *report)
{
    const struct ep_options *options = report->options;
    printf("machine %s, %d ranks on %d node%s, %d tokens per rank, hidden %d, %s, top-%d of %d "
           "experts\n",
           job_machine_names[report->machine], options->job.num_ranks, options->job.num_nodes,
           options->job.num_nodes == 1 ? "" : "s", options->layer.num_tokens, options->layer.hidden,
           options->dtype, options->layer.num_topk, options->layer.num_experts);
    if (options->trace)
        printf("routing: layer %d of %s\n", options->layer.trace_layer, options->trace_path);
    else
        printf("routing: gate, skew %g, seed %llu\n", options->layer.skew,
               (unsigned long long)options->layer.seed);
    if (options->layer.staging_bytes > 0)
        printf("received rows in %s memory, staging block of %llu bytes\n",
               ep_memory_names[options->layer.memory],
               (unsigned long long)options->layer.staging_bytes);
    if (options->layer.mode == EP_MODE_NORMAL && options->layer.row_format != EP_ROW_FORMAT_DTYPE)
        printf("rows are quantised on their way: %s\n",
               ep_row_format_names[options->layer.row_format]);
    if (options->layer.mode == EP_MODE_LOW_LATENCY) {
        printf("low latency, by %s, rows in %s, %d phase%s\n",
               ep_ll_layout_names[options->layer.ll_layout],
               options->layer.row_format == EP_ROW_FORMAT_DTYPE
                   ? options->dtype
                   : ep_row_format_names[options->layer.row_format],
               options->layer.num_phases, options->layer.num_phases == 1 ? "" : "s");
        ep_ll_print_carrier(&report->ll_sizes);
    }
    printf("%d iterations after %d, %s, ", options->num_iters, options->num_warmup,
           options->layer.start == EP_START_GRAPH ? "in graphs of 20 operations" : "in the stream");
    print_count(options->layer.num_blocks, "block");
    printf(" of ");
    print_count(options->layer.num_warps, "warp");
    printf(
        "; times are the slowest rank's\n"
        "logical: GB/s of all rows that arrive at the rank with most of them; remote: without its "
        "own\n");
    if (is_network(report))
        print_network(report);
    printf("\n%-19s %11s %11s %11s %8s %8s ", "", "min", "median", "max", "logical", "remote");
    if (is_network(report))
        printf("%8s %12s %9s ", "network", "network", "forwarded");
    printf(" check\n%-19s %11s %11s %11s %8s %8s ", "operation", "us", "us", "us", "GB/s", "GB/s");
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
    const struct ep_tally tally = ep_tally_of(report->tallies, op);
    const struct ep_traffic traffic = traffic_of(report, op, &report->traffic.most);
    printf("%-19s %11.1f %11.1f %11.1f ", ep_op_names[op], us->min, us->median, us->max);
    if (!(ep_op_parts(op, &report->options->layer) & (EP_PART_DISPATCH | EP_PART_COMBINE)))
        printf("%8s %8s ", "-", "-");
    else
        printf("%8.3f %8.3f ", gbps(traffic.bytes_logical, us->median),
               gbps(traffic.bytes_remote, us->median));
    if (is_network(report))
        print_network_row(report, op);
    putchar(' ');
    if (report->options->layer.check == EP_CHECK_NONE)
        printf("none\n");
    else if (tally.errors == 0)
        printf("ok, %lld compared\n", (long long)tally.checked_rows);
    else
        printf("FAILED, %lld of %lld differ\n", (long long)tally.errors,
               (long long)tally.checked_rows);
}

static int report_op(const struct ep_report *report, enum ep_op op, struct figure_list *plotted)
{
    json_t *object = describe(report, op);
    add_slowest(object, &report->slowest);
    if (report->options->plot != NULL)
        figures_add(plotted, object);
    if (report->options->format == EP_FORMAT_JSON)
        return job_print_json(object, report->machine);
    json_decref(object);
    print_row(report, op);
    return 0;
}

int ep_report_print(const struct ep_report *report, struct figure_list *plotted)
{
    int result = 0;
    if (report->options->format == EP_FORMAT_TABLE)
        print_heading(report);
    for (int op = 0; op < EP_NUM_OPS; op++)
        if (ep_op_is_timed(op, &report->options->layer))
            result |= report_op(report, op, plotted);
    if (report->options->format == EP_FORMAT_TABLE)
        print_slowest(&report->slowest);
    return output_flush() != 0 || result != 0 ? -1 : 0;
}

int ep_report_end(const struct ep_options *options, const struct figure_list *plotted)
{
    return options->plot != NULL ? plot_file_write(options->plot, plotted, "weft ep") : 0;
}
