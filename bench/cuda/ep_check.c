/* SPDX-License-Identifier: MIT */
#include "ep_check.h"

#include "try.h"
#include "workload/of_ranks.h"

enum { POISON = 0xff };

static int poison_rows(const struct ep_batch *batch, const struct pattern *rows)
{
    for (int32_t plane = 0; plane < rows->num_planes; plane++)
        CUDA_TRY(cudaMemsetAsync(rows->planes[plane], POISON,
                                 (size_t)rows->num_rows * (size_t)rows->row_bytes[plane],
                                 batch->rank->cuda_stream));
    return 0;
}

int ep_check_prepare(struct ep_batch *batch, int parts)
{
    cudaStream_t stream = batch->rank->cuda_stream;
    const size_t sums_bytes =
        (size_t)batch->sums.num_tokens * (size_t)batch->sums.planes[0].row_bytes;
    CUDA_TRY(cudaMemsetAsync(batch->num_wrong, 0, sizeof(uint32_t), stream));
    TRY(poison_rows(batch, &batch->received));
    CUDA_TRY(cudaMemsetAsync(batch->sums.out, POISON, sums_bytes, stream));
    CUDA_TRY(pattern_fill(&batch->answers, stream));
    TRY(ep_batch_forget(batch));
    if (parts & PART_LAYOUT)
        return 0;
    return ep_batch_run(batch, parts & PART_NOTIFY ? PART_LAYOUT : PART_LAYOUT | PART_NOTIFY);
}

/* The handle's own, which are there without a wait for counts. */
static int check_counts(const struct ep_batch *batch, int64_t *num_wrong)
{
    const struct plan *plan = batch->plan;
    int32_t num_recv, num_recv_per_rank[MAX_RANKS];
    weft_ep_device_counts counts = WEFT_INIT(weft_ep_device_counts);
    WEFT_TRY(weft_ep_query_device_counts(batch->handle, &counts));
    CUDA_TRY(
        cudaMemcpy(&num_recv, counts.num_recv_tokens, sizeof(num_recv), cudaMemcpyDeviceToHost));
    CUDA_TRY(cudaMemcpy(num_recv_per_rank, counts.num_recv_per_rank,
                        (size_t)plan->num_ranks * sizeof(int32_t), cudaMemcpyDeviceToHost));
    *num_wrong += num_recv != plan->num_recv[batch->rank->rank];
    for (int32_t rank = 0; rank < plan->num_ranks; rank++)
        *num_wrong += num_recv_per_rank[rank] != routing_count(plan, rank, batch->rank->rank);
    return 0;
}

static int check_rows(const struct ep_batch *batch, int parts, int64_t *num_wrong)
{
    uint32_t num_wrong_units;
    if (parts & PART_DISPATCH)
        CUDA_TRY(pattern_check(&batch->received, batch->rank->cuda_stream));
    if (parts & PART_COMBINE)
        CUDA_TRY(pattern_check_sums(&batch->sums, batch->tables.sent, batch->num_wrong,
                                    batch->rank->cuda_stream));
    WEFT_TRY(weft_stream_synchronize(batch->rank->stream));
    WEFT_TRY(weft_comm_status(batch->rank->comm, NULL)); /* also of what was captured */
    CUDA_TRY(cudaMemcpy(&num_wrong_units, batch->num_wrong, sizeof(num_wrong_units),
                        cudaMemcpyDeviceToHost));
    *num_wrong += num_wrong_units;
    return 0;
}

int ep_check(struct ep_batch *batch, int parts, int64_t *num_wrong)
{
    int64_t num_wrong_here = 0;
    if ((parts & PART_LAYOUT) && !(parts & PART_NOTIFY))
        TRY(ep_batch_run(batch, PART_NOTIFY)); /* tells what layout has done */
    TRY(check_rows(batch, parts, &num_wrong_here));
    TRY(check_counts(batch, &num_wrong_here));
    WEFT_TRY(sum_of_ranks(batch->rank->comm, &num_wrong_here, 1));
    *num_wrong += num_wrong_here;
    return 0;
}
