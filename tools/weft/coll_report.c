/* SPDX-License-Identifier: MIT */
#include "coll_report.h"

#include <jansson.h>
#include <stdio.h>

#include "coll_measure.h"
#include "job.h"
#include "report/plot_file.h"
#include "workload/output.h"

void coll_size_text(uint64_t bytes, char text[COLL_SIZE_CHARS])
{
    static const char *const units[] = {"", "K", "M", "G"};
    int unit = 0;
    while (unit < 3 && bytes > 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, COLL_SIZE_CHARS, "%llu%s", (unsigned long long)bytes, units[unit]);
}

static double gbps(uint64_t bytes, double us)
{
    return us > 0 ? (double)bytes / us / 1000 : 0;
}

static double algbw_of(const struct coll_line *line, enum coll_place place)
{
    return gbps(collective_bytes(&line->collective), line->outcomes[place].us.median);
}

static double busbw_of(const struct coll_line *line, enum coll_place place)
{
    return algbw_of(line, place) * collective_bus_factor(&line->collective);
}

/* NULL where the operation has none. */
static const char *redop_of(const struct coll_options *options)
{
    return collective_reduces(options->op) ? reduce_op_names[options->redop] : NULL;
}

/* ---------------------------------------------------------------- JSON */

static json_t *root_of(const struct coll_options *options)
{
    return collective_has_root(options->op) ? json_integer(options->root) : json_null();
}

/* By rank, of premultiplied sums. */
static json_t *factors_of(const struct coll_options *options)
{
    json_t *factors = options->num_factors > 0 ? json_array() : json_null();
    for (int32_t rank = 0; rank < options->num_factors; rank++)
        json_array_append_new(factors, json_real((double)options->factors[rank]));
    return factors;
}

/* 0: no graphs. */
static int32_t graph_calls(const struct coll_options *options)
{
    return options->launch == COLL_LAUNCH_GRAPHS ? COLL_GRAPH_CALLS : 0;
}

static const char *way_of(const struct coll_options *options, weft_algorithm algorithm)
{
    return options->calls == COLL_CALLS_OWN ? weft_coll_algorithm_name(algorithm)
                                            : coll_calls_names[options->calls];
}

static json_t *describe(const struct coll_line *line, enum coll_place place)
{
    const struct coll_options *options = line->options;
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:s, s:s?, s:o, s:o, s:b, s:s, s:i, s:I, s:i, s:i, "
        "s:I, "
        "s:i, s:i}",
        "op", collective_names[options->op], "algo", way_of(options, line->algorithm), "asked",
        way_of(options, options->algorithm), "machine", job_machine_names[line->machine], "ranks",
        options->job.num_ranks, "bytes", (json_int_t)collective_bytes(&line->collective), "count",
        (json_int_t)line->collective.count, "dtype", dtype_names[options->dtype], "redop",
        redop_of(options), "factors", factors_of(options), "root", root_of(options), "in_place",
        place == COLL_IN_PLACE, "memory", coll_memory_names[options->memory], "graph_calls",
        graph_calls(options), "packet_bytes", (json_int_t)options->packet_bytes, "blocks",
        options->num_blocks, "warps", options->num_warps, "seed", (json_int_t)options->seed,
        "warmup", options->num_warmup, "iters", options->num_iters);
}

static json_t *measured(const struct coll_line *line, enum coll_place place)
{
    const struct coll_outcome *outcome = &line->outcomes[place];
    const uint64_t num_wrong = outcome->tally.num_wrong;
    const int is_checked = line->options->check != COLL_CHECK_NONE;
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:o, s:o}", "us_min", outcome->us.min,
                     "us_median", outcome->us.median, "us_max", outcome->us.max, "algbw",
                     algbw_of(line, place), "busbw", busbw_of(line, place), "checked",
                     (json_int_t)outcome->tally.num_checked, "errors",
                     is_checked ? json_integer((json_int_t)num_wrong) : json_null(), "ok",
                     is_checked ? json_boolean(num_wrong == 0) : json_null());
}

/* A line that cannot be made shows as an error of the stream. */
static void report_place(const struct coll_line *line, enum coll_place place,
                         struct figure_list *plotted)
{
    json_t *object = describe(line, place);
    json_t *figures = measured(line, place);
    json_object_update(object, figures);
    json_decref(figures);
    if (line->options->plot != NULL)
        figures_add(plotted, object);
    if (line->options->format == COLL_FORMAT_JSON)
        job_print_json(object, line->machine);
    else
        json_decref(object);
}

/* ---------------------------------------------------------------- text */

static void print_count(const char *thing, int32_t count)
{
    if (count == 0)
        printf(", %s as the library chooses", thing);
    else
        printf(", %d %s", count, thing);
}

/* The first few. */
static void print_factors(const struct coll_options *options)
{
    enum { MAX_PRINTED = 8 };
    const int32_t num_factors = options->num_factors;
    for (int32_t rank = 0; rank < num_factors && rank < MAX_PRINTED; rank++)
        printf("%s%.9g", rank == 0 ? ", factors " : " ", (double)options->factors[rank]);
    if (num_factors > MAX_PRINTED)
        printf(" and so on");
}

static void print_text_heading(const struct coll_options *options, weft_machine machine)
{
    static const char *const place_columns = "    time   algbw   busbw #wrong ";
    static const char *const place_units = "    (us)  (GB/s)  (GB/s)        ";
    printf("# %s, machine %s, %d ranks, memory %s, algorithm %s", collective_names[options->op],
           job_machine_names[machine], options->job.num_ranks, coll_memory_names[options->memory],
           way_of(options, options->algorithm));
    print_count("blocks", options->num_blocks);
    print_count("warps", options->num_warps);
    if (options->launch == COLL_LAUNCH_GRAPHS)
        printf(", graphs of %d calls", COLL_GRAPH_CALLS);
    print_factors(options);
    printf("\n# median of %d iterations after %d of the slowest rank's time, seed %llu\n#\n",
           options->num_iters, options->num_warmup, (unsigned long long)options->seed);
    printf("# %10s %12s %8s %10s %4s %20s%13s%20s\n", "", "", "", "", "", "out of place", "",
           "in place");
    printf("# %10s %12s %8s %10s %4s %s%s algo\n", "size", "count", "type", "redop", "root",
           place_columns, place_columns);
    printf("# %10s %12s %8s %10s %4s %s%s\n", "(B)", "(elements)", "", "", "", place_units,
           place_units);
}

static void print_place(const struct coll_line *line, enum coll_place place)
{
    const struct coll_outcome *outcome = &line->outcomes[place];
    if (place == COLL_IN_PLACE && !collective_has_in_place(line->collective.kind)) {
        printf("%8s %7s %7s %6s ", "N/A", "N/A", "N/A", "N/A");
        return;
    }
    printf("%8.2f %7.3f %7.3f ", outcome->us.median, algbw_of(line, place), busbw_of(line, place));
    if (line->options->check == COLL_CHECK_NONE)
        printf("%6s ", "N/A");
    else
        printf("%6llu ", (unsigned long long)outcome->tally.num_wrong);
}

static void print_text(const struct coll_line *line)
{
    const struct coll_options *options = line->options;
    const char *redop = redop_of(options);
    char root[16] = "-1";
    if (collective_has_root(options->op))
        snprintf(root, sizeof root, "%d", options->root);
    printf("  %10llu %12llu %8s %10s %4s ", (unsigned long long)collective_bytes(&line->collective),
           (unsigned long long)line->collective.count, dtype_names[options->dtype],
           redop ? redop : "none", root);
    print_place(line, COLL_OUT_OF_PLACE);
    print_place(line, COLL_IN_PLACE);
    printf(" %s\n", way_of(options, line->algorithm));
}

/* ---------------------------------------------------------------- both */

weft_result coll_report_heading(const struct coll_options *options, weft_comm *comm)
{
    if (options->format != COLL_FORMAT_TABLE)
        return WEFT_OK;
    const weft_result result = job_print_ranks(comm);
    if (result == WEFT_OK && weft_comm_rank(comm) == 0)
        print_text_heading(options, weft_comm_machine(comm));
    return result;
}

void coll_report_line(const struct coll_line *line, struct figure_list *plotted)
{
    if (line->options->format == COLL_FORMAT_TABLE)
        print_text(line);
    report_place(line, COLL_OUT_OF_PLACE, plotted);
    if (collective_has_in_place(line->collective.kind))
        report_place(line, COLL_IN_PLACE, plotted);
    output_flush(); /* what is measured stays, also when the rest fails */
}

void coll_totals_add(struct coll_totals *totals, const struct coll_line *line)
{
    const int num_places = collective_has_in_place(line->collective.kind) ? COLL_NUM_PLACES : 1;
    for (int place = 0; place < num_places; place++) {
        totals->num_wrong += line->outcomes[place].tally.num_wrong;
        totals->busbw_sum += busbw_of(line, place);
        totals->num_busbw++;
    }
}

int coll_report_end(const struct coll_options *options, const struct coll_totals *totals)
{
    if (options->format == COLL_FORMAT_TABLE) {
        if (options->check != COLL_CHECK_NONE)
            printf("# Out of bounds values : %llu %s\n", (unsigned long long)totals->num_wrong,
                   totals->num_wrong == 0 ? "OK" : "FAILED");
        printf("# Avg bus bandwidth    : %g\n#\n",
               totals->num_busbw > 0 ? totals->busbw_sum / totals->num_busbw : 0);
    }
    int result = output_flush();
    if (options->plot != NULL && plot_file_write(options->plot, &totals->plotted, "weft coll") != 0)
        result = -1;
    return result;
}
