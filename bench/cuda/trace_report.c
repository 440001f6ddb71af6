/* SPDX-License-Identifier: MIT */
#include "trace_report.h"

#include <stdio.h>

static const char *const operation_names[] = {
    [TRACE_DISPATCH] = "dispatch", [TRACE_COMBINE] = "combine"};

/* ---------------------------------------------------------------- loads */

static void add_rank(struct trace_load *load, int32_t num_rows, int32_t num_counted,
                     int32_t num_ranks)
{
    load->busiest = num_rows > load->busiest ? num_rows : load->busiest;
    load->mean += (double)num_counted / num_ranks;
}

struct trace_loads trace_loads_of(const struct plan *plan)
{
    struct trace_loads loads = {0};
    for (int32_t rank = 0; rank < plan->num_ranks; rank++) {
        const int32_t num_recv = plan->num_recv[rank];
        int32_t num_from_others = 0, num_to_others = 0;
        for (int32_t other = 0; other < plan->num_ranks; other++) {
            if (other == rank)
                continue;
            num_from_others += routing_count(plan, other, rank);
            num_to_others += routing_count(plan, rank, other);
        }
        add_rank(&loads.recv, num_recv, num_recv, plan->num_ranks);
        add_rank(&loads.link, num_to_others > num_from_others ? num_to_others : num_from_others,
                 num_from_others, plan->num_ranks);
    }
    return loads;
}

/* 1 where nothing moves. */
static double imbalance(const struct trace_load *load)
{
    return load->mean > 0 ? load->busiest / load->mean : 1;
}

/* ---------------------------------------------------------------- figures */

static double gb_per_s(const struct trace_report *report, const struct trace_figure *figure,
                       const struct trace_load *load)
{
    return (double)load->busiest * report->row_bytes[figure->operation] / figure->us.median * 1e-3;
}

static double recv_gb_per_s(const struct trace_report *report, const struct trace_figure *figure)
{
    return gb_per_s(report, figure, &figure->loads.recv);
}

double trace_link_gb_per_s(const struct trace_report *report, const struct trace_figure *figure)
{
    return gb_per_s(report, figure, &figure->loads.link);
}

static double recv_imbalance(const struct trace_report *report, const struct trace_figure *figure)
{
    (void)report;
    return imbalance(&figure->loads.recv);
}

static double link_imbalance(const struct trace_report *report, const struct trace_figure *figure)
{
    (void)report;
    return imbalance(&figure->loads.link);
}

static double vs_uniform(const struct trace_report *report, const struct trace_figure *figure)
{
    (void)report;
    return figure->vs_uniform;
}

/* What both a layer and the median of all layers have. */
typedef double trace_column(const struct trace_report *, const struct trace_figure *);
static const struct {
    const char *name, *heading;
    trace_column *value;
} columns[] = {{"gb_per_s", "GB/s", recv_gb_per_s},
               {"nvlink_gb_per_s", "NVLink", trace_link_gb_per_s},
               {"imbalance", "imbalance", recv_imbalance},
               {"nvlink_imbalance", "of NVLink", link_imbalance},
               {"vs_uniform", "/uniform", vs_uniform}};
enum { NUM_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* ---------------------------------------------------------------- output */

static void print_table(const struct trace_report *report, const struct trace_figure *figure,
                        const char *layer, const double *values)
{
    if (figure->layer == TRACE_UNIFORM && figure->operation == TRACE_DISPATCH) {
        printf("%s, %d tokens per rank\n%-10s %8s %10s %6s", report->name, report->plan->num_tokens,
               "operation", "layer", "us", "wrong");
        for (int i = 0; i < NUM_COLUMNS; i++)
            printf(" %10s", columns[i].heading);
        printf("\n");
    }
    printf("%-10s %8s %10.2f %6lld", operation_names[figure->operation], layer, figure->us.median,
           (long long)figure->num_wrong);
    for (int i = 0; i < NUM_COLUMNS; i++)
        printf(" %10.2f", values[i]);
    printf("\n");
}

static void print_json(const struct trace_report *report, const struct trace_figure *figure,
                       const char *layer, const double *values)
{
    const struct plan *plan = report->plan;
    char blocks[24] = "";
    if (report->num_blocks != 0)
        snprintf(blocks, sizeof blocks, ", %d SMs", report->num_blocks);
    printf("{\"name\": \"weft_trace_%s_us\", \"value\": %.3f, \"unit\": \"us\", "
           "\"configuration\": \"cuda, %d ranks, %s, layer %s, tokens per rank %d, rows of %s "
           "bytes, top-%d of %d experts, stream%s\", \"trace\": \"%s\", \"layer\": \"%s\", "
           "\"num_ranks\": %d, \"num_tokens\": %d, \"bytes\": \"%s\", \"kernel\": \"stream\", "
           "\"num_sms\": %d, \"us_min\": %.3f, \"us_max\": %.3f, \"wrong\": %lld",
           operation_names[figure->operation], figure->us.median, plan->num_ranks, report->name,
           layer, plan->num_tokens, report->rows, plan->num_topk, plan->num_experts, blocks,
           report->name, layer, plan->num_ranks, plan->num_tokens, report->rows, report->num_blocks,
           figure->us.min, figure->us.max, (long long)figure->num_wrong);
    if (figure->loads.recv.busiest > 0)
        printf(", \"busiest_rows\": %d, \"mean_rows\": %.1f, \"nvlink_busiest_rows\": %d, "
               "\"nvlink_mean_rows\": %.1f",
               figure->loads.recv.busiest, figure->loads.recv.mean, figure->loads.link.busiest,
               figure->loads.link.mean);
    for (int i = 0; i < NUM_COLUMNS; i++)
        printf(", \"%s\": %.3f", columns[i].name, values[i]);
    printf("}\n");
}

static void print_line(const struct trace_report *report, const struct trace_figure *figure,
                       const char *layer, const double *values)
{
    if (report->output == OUTPUT_JSON)
        print_json(report, figure, layer, values);
    else
        print_table(report, figure, layer, values);
    fflush(stdout); /* what is measured stays, also when the program is ended */
}

void trace_report_layer(const struct trace_report *report, const struct trace_figure *figure)
{
    char layer[16] = "uniform";
    double values[NUM_COLUMNS];
    if (figure->layer != TRACE_UNIFORM)
        snprintf(layer, sizeof layer, "%d", figure->layer);
    for (int i = 0; i < NUM_COLUMNS; i++)
        values[i] = columns[i].value(report, figure);
    print_line(report, figure, layer, values);
}

void trace_report_medians(const struct trace_report *report, const struct trace_figure *layers,
                          int32_t num_layers, double *samples)
{
    struct trace_figure medians = {.operation = layers[0].operation};
    double values[NUM_COLUMNS];
    for (int i = 0; i < NUM_COLUMNS; i++) {
        for (int32_t layer = 0; layer < num_layers; layer++)
            samples[layer] = columns[i].value(report, &layers[layer]);
        values[i] = figures_of(samples, (size_t)num_layers).median;
    }
    for (int32_t layer = 0; layer < num_layers; layer++) {
        samples[layer] = layers[layer].us.median;
        medians.num_wrong += layers[layer].num_wrong;
    }
    medians.us = figures_of(samples, (size_t)num_layers);
    print_line(report, &medians, "median", values);
}
