/* SPDX-License-Identifier: MIT */
/*
 * Premultiplied sums: a launch multiplies this rank's input, then the sum is that of the products,
 * by whatever algorithm. So no algorithm knows of factors, and calls without one pay nothing for
 * them. The products of an all-reduce are made in its output, from where it goes on in place; the
 * others' in the staging block, in as many pieces on all ranks.
 */
#include "coll/coll.h"
#include "programs/coll/premultiply.h"

enum { MULTIPLIED_CHUNK_BYTES = 16 << 10 };

/* Elements [begin, begin + count) of every row, to `dst`, without what is between. */
static weft_result multiply(const struct weft__coll_call *call, char *dst, uint64_t num_rows,
                            uint64_t begin, uint64_t count)
{
    const uint64_t element_bytes = wp_dtype_bytes(call->dtype);
    const struct weft__coll_call any = {.coll = call->coll}; /* no blocks were chosen for this */
    const struct wp_premultiply_args args = {
        .src = call->send + begin * element_bytes,
        .dst = dst,
        .src_stride_bytes = weft__coll_row_bytes(call),
        .num_rows = (int64_t)num_rows,
        .num_elements = (int64_t)count,
        .chunk_elements = (int64_t)(MULTIPLIED_CHUNK_BYTES / element_bytes),
        .dtype = call->dtype,
        .factor = call->factor,
        .factor_at = call->factor_at,
    };
    if (count == 0)
        return WEFT_OK;
    return weft__exchange_launch(call->coll->exchange, call->stream, WP_PROGRAM_premultiply,
                                 weft__coll_tensor_grid(&any, WEFT__WORK_PULL_TENSOR), &args,
                                 sizeof args);
}

static weft_result sum_staged(const struct weft__coll_call *call, weft_algorithm algorithm,
                              uint64_t num_rows)
{
    const weft_coll *coll = call->coll;
    const uint64_t element_bytes = wp_dtype_bytes(call->dtype);
    const uint64_t most = coll->staging_bytes / num_rows / element_bytes;
    struct weft__coll_call piece = *call;
    piece.whole_count = call->count > most ? call->count : 0;
    piece.send = coll->staging;
    for (uint64_t begin = 0; begin == 0 || begin < call->count; begin += most) {
        const uint64_t rest = call->count - begin;
        piece.count = rest < most ? rest : most;
        if (call->recv != NULL) /* as it may be where only the root has an output */
            piece.recv = call->recv + begin * element_bytes;
        WEFT__TRY(multiply(call, coll->staging, num_rows, begin, piece.count));
        WEFT__TRY(weft__coll_run_by(&piece, algorithm));
    }
    return WEFT_OK;
}

weft_result weft__coll_run_premultiplied(const struct weft__coll_call *call,
                                         weft_algorithm algorithm)
{
    struct weft__coll_call in_place = *call;
    if (call->collective == WEFT_REDUCE_SCATTER)
        return sum_staged(call, algorithm, (uint64_t)call->coll->comm->num_ranks);
    if (call->collective == WEFT_REDUCE)
        return sum_staged(call, algorithm, 1);
    WEFT__TRY(multiply(call, call->recv, 1, 0, call->count));
    in_place.send = call->recv;
    return weft__coll_run_by(&in_place, algorithm);
}
