/* SPDX-License-Identifier: MIT */
/* Whether low-latency operations do what the routing says. */
#include <stdlib.h>

#include "ll_batch.h"
#include "try.h"

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
        CUDA_TRY(
            cudaMemsetAsync(batch->rows, POISON, (size_t)batch->num_places * row_bytes, stream));
    CUDA_TRY(cudaMemsetAsync(batch->sums.out, POISON, (size_t)batch->plan->num_tokens * row_bytes,
                             stream));
    return 0;
}

struct rows_seen { /* where the rows of run i begin: at x + i * run_bytes */
    const char *x;
    size_t run_bytes, stride_bytes;
};

static int find_rows(const struct ll_batch *batch, struct rows_seen *seen)
{
    weft_ll_slots slots = WEFT_INIT(weft_ll_slots);
    int32_t half;
    if (batch->layout == WEFT_LL_BY_EXPERT) {
        const size_t row_bytes = (size_t)batch->row_bytes;
        const size_t rows_per_run = (size_t)(batch->num_places / batch->num_runs);
        *seen = (struct rows_seen){batch->rows, rows_per_run * row_bytes, row_bytes};
        return 0;
    }
    WEFT_TRY(weft_ll_query_slots(batch->ll, &slots));
    WEFT_TRY(weft_stream_synchronize(batch->rank->stream));
    CUDA_TRY(cudaMemcpy(&half, slots.half, sizeof half, cudaMemcpyDeviceToHost));
    *seen = (struct rows_seen){slots.x[half], slots.source_stride_bytes, slots.row_stride_bytes};
    return 0;
}

static int check_rows(struct ll_batch *batch)
{
    const size_t row_bytes = (size_t)batch->row_bytes;
    cudaStream_t stream = batch->rank->cuda_stream;
    char *dense = batch->received.planes[0];
    struct rows_seen seen;
    TRY(find_rows(batch, &seen));
    for (int32_t i = 0; i < batch->num_runs; i++) {
        const size_t num_rows = (size_t)batch->runs[i].num_rows;
        if (num_rows > 0)
            CUDA_TRY(cudaMemcpy2DAsync(dense, row_bytes, seen.x + (size_t)i * seen.run_bytes,
                                       seen.stride_bytes, row_bytes, num_rows,
                                       cudaMemcpyDeviceToDevice, stream));
        dense += num_rows * row_bytes;
    }
    CUDA_TRY(pattern_check(&batch->received, stream));
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
    int64_t num_wrong_here = 0, num_wrong_at[MAX_RANKS];
    uint32_t num_wrong_units;
    if (checked & LL_CHECK_ROWS)
        TRY(check_rows(batch));
    if (checked & LL_CHECK_SUMS)
        CUDA_TRY(pattern_check_sums(&batch->sums, batch->tables.sent, batch->num_wrong, stream));
    TRY(gpu_rank_wait((void *)batch->rank));
    CUDA_TRY(cudaMemcpy(&num_wrong_units, batch->num_wrong, sizeof num_wrong_units,
                        cudaMemcpyDeviceToHost));
    num_wrong_here += num_wrong_units;
    if (checked & LL_CHECK_ROWS)
        TRY(check_counts(batch, &num_wrong_here));
    WEFT_TRY(weft_host_all_gather(batch->rank->comm, &num_wrong_here, sizeof num_wrong_here,
                                  num_wrong_at));
    for (int32_t rank = 0; rank < batch->rank->num_ranks; rank++)
        *num_wrong += num_wrong_at[rank];
    return 0;
}
