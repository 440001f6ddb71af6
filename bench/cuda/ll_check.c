/* SPDX-License-Identifier: MIT */
/* Whether low-latency operations do what the routing says. */
#include <stdlib.h>
#include <string.h>

#include "ll_batch.h"
#include "try.h"
#include "workload/of_ranks.h"

enum { POISON = 0xff, NUM_RESULTS = 2 };

/* Slots are weft's: what lies in them is replaced by rows of another tag. */
static int spoil_slots(struct ll_batch *batch)
{
    struct ll_call call = {batch, 2, {{.operation = LL_DISPATCH}, {.operation = LL_RELEASE}}};
    struct pattern other = batch->tokens;
    other.tag = MAX_RANKS;
    CUDA_TRY(pattern_fill(&other, batch->rank->cuda_stream));
    for (int i = 0; i < NUM_RESULTS; i++)
        TRY(ll_call_enqueue(&call));
    return 0;
}

int ll_batch_prepare_check(struct ll_batch *batch)
{
    cudaStream_t stream = batch->rank->cuda_stream;
    const size_t row_bytes = (size_t)batch->row_bytes;
    TRY(spoil_slots(batch));
    CUDA_TRY(pattern_fill(&batch->tokens, stream));
    CUDA_TRY(cudaMemsetAsync(batch->num_wrong, 0, sizeof(uint32_t), stream));
    CUDA_TRY(
        cudaMemsetAsync(batch->counts, POISON, (size_t)batch->num_runs * sizeof(int32_t), stream));
    if (batch->rows != NULL)
        CUDA_TRY(cudaMemsetAsync(batch->rows, POISON,
                                 (size_t)batch->num_places * (size_t)batch->narrow_bytes, stream));
    if (batch->scales != NULL)
        CUDA_TRY(cudaMemsetAsync(batch->scales, POISON,
                                 (size_t)batch->num_places * (size_t)batch->scales_bytes, stream));
    CUDA_TRY(cudaMemsetAsync(batch->sums.out, POISON, (size_t)batch->plan->num_tokens * row_bytes,
                             stream));
    return 0;
}

/* Elements of rows, or their scales: where those of run i are, i * run_bytes from `first` on. */
struct plane_seen {
    const char *first;
    size_t run_bytes, stride_bytes, row_bytes;
};
struct rows_seen {
    struct plane_seen elements, scales;
};

static struct plane_seen packed_plane(const struct ll_batch *batch, const char *first,
                                      int32_t row_bytes)
{
    const size_t rows_per_run = (size_t)(batch->num_places / batch->num_runs);
    return (struct plane_seen){first, rows_per_run * (size_t)row_bytes, (size_t)row_bytes,
                               (size_t)row_bytes};
}

static int find_rows(const struct ll_batch *batch, struct rows_seen *seen)
{
    weft_ll_slots slots = WEFT_INIT(weft_ll_slots);
    int32_t half;
    if (batch->layout == WEFT_LL_BY_EXPERT) {
        seen->elements = packed_plane(batch, batch->rows, batch->narrow_bytes);
        seen->scales = packed_plane(batch, batch->scales, batch->scales_bytes);
        return 0;
    }
    WEFT_TRY(weft_ll_query_slots(batch->ll, &slots));
    WEFT_TRY(weft_stream_synchronize(batch->rank->stream));
    CUDA_TRY(cudaMemcpy(&half, slots.half, sizeof half, cudaMemcpyDeviceToHost));
    seen->elements = (struct plane_seen){slots.x[half], slots.source_stride_bytes,
                                         slots.row_stride_bytes, (size_t)batch->narrow_bytes};
    seen->scales = (struct plane_seen){slots.scales[half], slots.source_stride_bytes,
                                       slots.row_stride_bytes, (size_t)batch->scales_bytes};
    return 0;
}

/* To rows without gaps, on the device or on the host. */
static int gather(const struct ll_batch *batch, const struct plane_seen *plane, char *dense)
{
    for (int32_t i = 0; i < batch->num_runs; i++) {
        const size_t num_rows = (size_t)batch->runs[i].num_rows;
        if (num_rows > 0)
            CUDA_TRY(cudaMemcpy2DAsync(dense, plane->row_bytes,
                                       plane->first + (size_t)i * plane->run_bytes,
                                       plane->stride_bytes, plane->row_bytes, num_rows,
                                       cudaMemcpyDefault, batch->rank->cuda_stream));
        dense += num_rows * plane->row_bytes;
    }
    return 0;
}

/* What came must be what weft_rows_quantise makes: [rows] of elements, then [rows] of scales. */
static int quantise_expected(struct ll_batch *batch, char *narrow)
{
    const struct pattern *wide = &batch->received;
    weft_rows_args args = WEFT_INIT(weft_rows_args);
    args.src = wide->planes[0];
    args.dst = narrow;
    args.scales = narrow + (int64_t)wide->num_rows * batch->narrow_bytes;
    args.num_rows = wide->num_rows;
    args.hidden = batch->row_bytes / (int64_t)sizeof(uint16_t);
    args.quantisation.group_elements = LL_GROUP_ELEMENTS;
    args.dtype = WEFT_BF16;
    args.quantisation.dtype = batch->narrow_dtype;
    CUDA_TRY(pattern_fill(wide, batch->rank->cuda_stream));
    WEFT_TRY(weft_rows_quantise(batch->rank->comm, &args, batch->rank->stream));
    return gpu_rank_wait((void *)batch->rank);
}

static int fetch_expected(struct ll_batch *batch, char *expected, size_t bytes)
{
    struct device_memory memory = {0};
    char *narrow;
    int result = device_alloc(&memory, bytes, (void **)&narrow);
    if (result == 0)
        result = quantise_expected(batch, narrow);
    if (result == 0 && cudaMemcpy(expected, narrow, bytes, cudaMemcpyDeviceToHost) != cudaSuccess)
        result = -1;
    device_free_all(&memory);
    return result;
}

static int64_t count_differing(const char *a, const char *b, size_t num_rows, size_t row_bytes)
{
    int64_t num_differing = 0;
    for (size_t offset = 0; offset < num_rows * row_bytes; offset += row_bytes)
        num_differing += memcmp(a + offset, b + offset, row_bytes) != 0;
    return num_differing;
}

static int check_quantised(struct ll_batch *batch, const struct rows_seen *seen, int64_t *num_wrong)
{
    const size_t num_rows = (size_t)batch->received.num_rows;
    const size_t elements_bytes = num_rows * seen->elements.row_bytes;
    const size_t bytes = elements_bytes + num_rows * seen->scales.row_bytes;
    char *found = malloc(bytes + 1), *expected = malloc(bytes + 1);
    int result = found == NULL || expected == NULL ? -1 : 0;
    if (result != 0)
        perror("malloc");
    if (result == 0)
        result = gather(batch, &seen->elements, found);
    if (result == 0)
        result = gather(batch, &seen->scales, found + elements_bytes);
    if (result == 0)
        result = fetch_expected(batch, expected, bytes);
    if (result == 0)
        *num_wrong += count_differing(found, expected, num_rows, seen->elements.row_bytes) +
                      count_differing(found + elements_bytes, expected + elements_bytes, num_rows,
                                      seen->scales.row_bytes);
    free(found);
    free(expected);
    return result;
}

static int check_rows(struct ll_batch *batch, int64_t *num_wrong)
{
    struct rows_seen seen;
    TRY(find_rows(batch, &seen));
    if (batch->narrow_dtype != WEFT_DTYPE_NONE)
        return check_quantised(batch, &seen, num_wrong);
    TRY(gather(batch, &seen.elements, batch->received.planes[0]));
    CUDA_TRY(pattern_check(&batch->received, batch->rank->cuda_stream));
    return 0;
}

static int check_counts(const struct ll_batch *batch, int64_t *num_wrong)
{
    const size_t num_counts = (size_t)batch->num_runs;
    int32_t *counts = malloc(num_counts * sizeof *counts);
    if (counts == NULL) {
        perror("malloc");
        return -1;
    }
    const cudaError_t error =
        cudaMemcpy(counts, batch->counts, num_counts * sizeof *counts, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < num_counts && error == cudaSuccess; i++)
        *num_wrong += counts[i] != batch->runs[i].num_rows;
    free(counts);
    CUDA_TRY(error);
    return 0;
}

int ll_batch_check(struct ll_batch *batch, int checked, int64_t *num_wrong)
{
    cudaStream_t stream = batch->rank->cuda_stream;
    int64_t num_wrong_here = 0;
    uint32_t num_wrong_units;
    if (checked & LL_CHECK_ROWS)
        TRY(check_rows(batch, &num_wrong_here));
    if (checked & LL_CHECK_SUMS)
        CUDA_TRY(pattern_check_sums(&batch->sums, batch->tables.sent, batch->num_wrong, stream));
    TRY(gpu_rank_wait((void *)batch->rank));
    CUDA_TRY(cudaMemcpy(&num_wrong_units, batch->num_wrong, sizeof num_wrong_units,
                        cudaMemcpyDeviceToHost));
    num_wrong_here += num_wrong_units;
    if (checked & LL_CHECK_ROWS)
        TRY(check_counts(batch, &num_wrong_here));
    WEFT_TRY(sum_of_ranks(batch->rank->comm, &num_wrong_here, 1));
    *num_wrong += num_wrong_here;
    return 0;
}
