/* SPDX-License-Identifier: MIT */
#include "tune.h"

#include <math.h>
#include <time.h>

#include "coll_measure.h"
#include "coll_report.h"
#include "job.h"
#include "workload/elements.h"
#include "workload/try.h"
#include "workload/version.h"

/* us[num_points]: the slower of the forms that were measured. An algorithm that does not carry so
 * much is none for this size. */
static weft_result measure_place(const struct coll_run *run, enum coll_place place, int num_points,
                                 double *us, struct progress *progress)
{
    const struct option_steps *sizes = &run->options->sizes;
    const struct collective largest = coll_run_at(run, sizes->max);
    uint64_t bytes = sizes->min;
    /* Contents go by the index: those of smaller sizes are parts of this. */
    weft_result result = coll_run_fill(run, &largest, place);
    for (int i = 0; i < num_points && result == WEFT_OK; i++) {
        const struct collective collective = coll_run_at(run, bytes);
        struct figures figures = {.median = (double)INFINITY};
        result = coll_measure(run, &collective, place, &figures);
        if (result == WEFT_ERROR_UNSUPPORTED)
            result = WEFT_OK;
        us[i] = fmax(us[i], figures.median);
        option_steps_next(sizes, &bytes);
        progress_step(progress);
    }
    return result;
}

/* A table has one choice for both forms: the one whose slower form is fastest. */
static weft_result measure_points(const struct coll_run *run, struct tune_curve *curve,
                                  struct progress *progress)
{
    const struct coll_options *options = run->options;
    double us[TUNE_MAX_SIZES] = {0};
    weft_result result = measure_place(run, COLL_OUT_OF_PLACE, curve->num_points, us, progress);
    if (result == WEFT_OK && collective_has_in_place(curve->op))
        result = measure_place(run, COLL_IN_PLACE, curve->num_points, us, progress);
    for (int i = 0; i < curve->num_points && result == WEFT_OK; i++) {
        if (us[i] >= curve->points[i].us)
            continue;
        curve->points[i].us = us[i];
        curve->points[i].best =
            (struct tune_variant){options->algorithm, options->num_blocks, options->num_warps};
    }
    return result;
}

/* On a weft_coll of its own. */
static weft_result measure_variant(weft_comm *comm, const struct tune_options *options,
                                   const struct tune_variant *variant, struct tune_curve *curve,
                                   struct progress *progress)
{
    struct coll_options coll = options->coll;
    struct coll_run run;
    coll.op = curve->op;
    coll.algorithm = variant->algorithm;
    coll.num_blocks = variant->num_blocks;
    coll.num_warps = variant->num_warps;
    weft_result result = coll_run_open(&run, comm, &coll);
    if (result == WEFT_OK)
        result = measure_points(&run, curve, progress);
    /* Its memory goes back to the heap: nobody may still be reading it. */
    if (result == WEFT_OK)
        result = weft_comm_host_barrier(comm);
    coll_run_close(&run);
    return result;
}

static weft_result measure_algorithm(weft_comm *comm, const struct tune_options *options,
                                     weft_algorithm algorithm, struct tune_curve *curve,
                                     struct progress *progress)
{
    weft_result result = WEFT_OK;
    for (int b = 0; b < options->blocks.count; b++) {
        for (int w = 0; w < options->warps.count && result == WEFT_OK; w++) {
            const struct tune_variant variant = {algorithm, (int32_t)options->blocks.values[b],
                                                 (int32_t)options->warps.values[w]};
            result = measure_variant(comm, options, &variant, curve, progress);
        }
    }
    return result;
}

static void place_points(const struct coll_options *options, struct tune_curve *curve)
{
    struct coll_options of_op = *options;
    of_op.op = curve->op;
    const struct coll_run run = {.options = &of_op};
    uint64_t bytes = options->sizes.min;
    curve->num_points = 0;
    do {
        const struct collective collective = coll_run_at(&run, bytes);
        curve->points[curve->num_points++] = (struct tune_point){
            .bytes = collective_algorithm_bytes(&collective), .us = (double)INFINITY};
    } while (option_steps_next(&options->sizes, &bytes));
}

/* Trees have sums of their own, which a table must not choose. */
static int is_tried(weft_collective op, weft_algorithm algorithm)
{
    return algorithm != WEFT_ALGORITHM_AUTO &&
           elements_order_of(algorithm) == REDUCED_IN_RANK_ORDER &&
           collective_is_served(op, algorithm);
}

weft_result tune_measure(weft_comm *comm, const struct tune_options *options,
                         struct tune_curve *curve, struct progress *progress)
{
    place_points(&options->coll, curve);
    for (int i = 0; i < NUM_ALGORITHMS; i++)
        if (is_tried(curve->op, (weft_algorithm)i))
            TRY(measure_algorithm(comm, options, (weft_algorithm)i, curve, progress));
    return WEFT_OK;
}

int64_t tune_num_steps(const struct tune_options *options, weft_collective op)
{
    struct tune_curve curve = {.op = op};
    int64_t num_algorithms = 0;
    place_points(&options->coll, &curve);
    for (int i = 0; i < NUM_ALGORITHMS; i++)
        num_algorithms += is_tried(op, (weft_algorithm)i);
    return num_algorithms * options->blocks.count * options->warps.count * curve.num_points *
           (collective_has_in_place(op) ? 2 : 1);
}

/* ---------------------------------------------------------------- the table */

static int is_same(const struct tune_variant *a, const struct tune_variant *b)
{
    return a->algorithm == b->algorithm && a->num_blocks == b->num_blocks &&
           a->num_warps == b->num_warps;
}

static void print_row(const struct tune_table *table, weft_collective op, const char *max_bytes,
                      const struct tune_variant *variant)
{
    fprintf(table->file, "%s %d %s %s %s %d %d\n", job_machine_names[table->machine],
            table->num_ranks, collective_names[op], max_bytes,
            weft_coll_algorithm_name(variant->algorithm), variant->num_blocks, variant->num_warps);
}

/* A row reaches to the middle, on a logarithmic scale, between its last point and the next one. */
void tune_table_add(const struct tune_table *table, const struct tune_curve *curve)
{
    for (int i = 0; i < curve->num_points; i++) {
        const struct tune_point *point = &curve->points[i], *next = point + 1;
        char max_bytes[COLL_SIZE_CHARS] = "inf";
        if (i + 1 < curve->num_points) {
            if (is_same(&point->best, &next->best))
                continue;
            coll_size_text((uint64_t)sqrt((double)point->bytes * (double)next->bytes), max_bytes);
        }
        print_row(table, curve->op, max_bytes, &point->best);
    }
}

static void print_device(const struct tune_table *table)
{
    weft_device_info device = WEFT_INIT(weft_device_info);
    if (weft_device_query(table->machine, 0, &device) == WEFT_OK)
        fprintf(table->file, " (%s)", device.name);
}

void tune_table_begin(const struct tune_table *table, const struct tune_options *options)
{
    char version[VERSION_CHARS];
    const time_t now = time(NULL);
    struct tm utc;
    char date[32] = "";
    if (gmtime_r(&now, &utc))
        strftime(date, sizeof date, "%Y-%m-%d", &utc);
    version_text(version);
    fprintf(table->file, "# weft tune %s, %s: machine %s", version, date,
            job_machine_names[table->machine]);
    print_device(table);
    fprintf(table->file,
            ", %d ranks, median of %d iterations%s, the slower of out of place and in place\n"
            "# machine ranks collective max_bytes algorithm blocks warps\n",
            table->num_ranks, options->coll.num_iters,
            options->coll.launch == COLL_LAUNCH_GRAPHS ? " in graphs" : "");
}
