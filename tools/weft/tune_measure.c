/* SPDX-License-Identifier: MIT */
#include "tune_measure.h"

#include <math.h>

#include "coll_measure.h"

/* An algorithm that does not carry so much is none for this size. */
static weft_result measure_point(const struct coll_run *run, uint64_t bytes,
                                 struct tune_point *point)
{
    const struct coll_options *options = run->options;
    const struct collective collective = coll_run_at(run, bytes);
    struct figures us;
    const weft_result result = coll_measure(run, &collective, COLL_OUT_OF_PLACE, &us);
    if (result == WEFT_ERROR_UNSUPPORTED)
        return WEFT_OK;
    if (result == WEFT_OK && us.median < point->us) {
        point->us = us.median;
        point->best =
            (struct tune_variant){options->algorithm, options->num_blocks, options->num_warps};
    }
    return result;
}

static weft_result measure_points(const struct coll_run *run, struct tune_curve *curve)
{
    const struct coll_sizes *sizes = &run->options->sizes;
    const struct collective largest = coll_run_at(run, sizes->max);
    uint64_t bytes = sizes->min;
    /* Contents go by the index: those of smaller sizes are parts of this. */
    weft_result result = coll_run_fill(run, &largest, COLL_OUT_OF_PLACE);
    for (int i = 0; i < curve->num_points && result == WEFT_OK; i++) {
        result = measure_point(run, bytes, &curve->points[i]);
        coll_sizes_next(sizes, &bytes);
    }
    return result;
}

/* On a weft_coll of its own. */
static weft_result measure_variant(weft_comm *comm, const struct tune_options *options,
                                   const struct tune_variant *variant, struct tune_curve *curve)
{
    struct coll_options coll = options->coll;
    struct coll_run run;
    coll.op = curve->op;
    coll.algorithm = variant->algorithm;
    coll.num_blocks = variant->num_blocks;
    coll.num_warps = variant->num_warps;
    weft_result result = coll_run_open(&run, comm, &coll);
    if (result == WEFT_OK)
        result = measure_points(&run, curve);
    /* Its memory goes back to the heap: nobody may still be reading it. */
    if (result == WEFT_OK)
        result = weft_host_barrier(comm);
    coll_run_close(&run);
    return result;
}

static weft_result measure_algorithm(weft_comm *comm, const struct tune_options *options,
                                     weft_algorithm algorithm, struct tune_curve *curve)
{
    weft_result result = WEFT_OK;
    for (int b = 0; b < options->blocks.count; b++) {
        for (int w = 0; w < options->warps.count && result == WEFT_OK; w++) {
            const struct tune_variant variant = {algorithm, (int32_t)options->blocks.values[b],
                                                 (int32_t)options->warps.values[w]};
            result = measure_variant(comm, options, &variant, curve);
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
    } while (coll_sizes_next(&options->sizes, &bytes));
}

weft_result tune_measure(weft_comm *comm, const struct tune_options *options,
                         struct tune_curve *curve)
{
    weft_result result = WEFT_OK;
    place_points(&options->coll, curve);
    for (int i = 0; i < WEFT_NUM_ALGORITHMS && result == WEFT_OK; i++) {
        const weft_algorithm algorithm = (weft_algorithm)i;
        if (algorithm != WEFT_ALGORITHM_AUTO && collective_is_served(curve->op, algorithm))
            result = measure_algorithm(comm, options, algorithm, curve);
    }
    return result;
}
