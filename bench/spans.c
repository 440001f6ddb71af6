/* SPDX-License-Identifier: MIT */
#include "spans.h"

#include <stdlib.h>

#include "workload/clock.h"

weft_result spans_init(struct spans *spans, int32_t num_spans)
{
    spans->num_spans = num_spans;
    spans->starts = malloc(2 * (size_t)num_spans * sizeof(double));
    if (spans->starts == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    spans->ends = spans->starts + num_spans;
    return WEFT_OK;
}

void spans_destroy(struct spans *spans)
{
    free(spans->starts);
}

static void stamp(void *argument)
{
    *(double *)argument = clock_us();
}

weft_result spans_begin(struct spans *spans, int32_t i, weft_comm *comm, weft_stream *stream)
{
    const weft_result result = weft_comm_barrier(comm, stream);
    return result != WEFT_OK ? result : weft_stream_call(stream, stamp, &spans->starts[i]);
}

weft_result spans_end(struct spans *spans, int32_t i, weft_stream *stream)
{
    return weft_stream_call(stream, stamp, &spans->ends[i]);
}

static void merge(double *us, const double *all, int32_t num_spans, int32_t num_ranks)
{
    for (int32_t i = 0; i < num_spans; i++) {
        double start = all[i];
        double end = all[num_spans + i];
        for (int32_t rank = 1; rank < num_ranks; rank++) {
            const double *starts = all + (size_t)rank * 2 * (size_t)num_spans;
            const double *ends = starts + num_spans;
            start = starts[i] < start ? starts[i] : start;
            end = ends[i] > end ? ends[i] : end;
        }
        us[i] = end - start;
    }
}

weft_result spans_figures(const struct spans *spans, weft_comm *comm, struct figures *us)
{
    const size_t num_spans = (size_t)spans->num_spans;
    const size_t num_ranks = (size_t)weft_comm_num_ranks(comm);
    double *all = malloc((2 * num_ranks + 1) * num_spans * sizeof(double));
    if (all == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    const weft_result result =
        weft_comm_host_all_gather(comm, spans->starts, 2 * num_spans * sizeof(double), all);
    if (result == WEFT_OK) {
        double *durations = all + 2 * num_ranks * num_spans;
        merge(durations, all, spans->num_spans, (int32_t)num_ranks);
        *us = figures_of(durations, num_spans);
    }
    free(all);
    return result;
}
