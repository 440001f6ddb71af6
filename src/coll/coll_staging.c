/* SPDX-License-Identifier: MIT */
/*
 * Direct operations on memory that peers cannot access: through a staging block of the heap, by
 * copies before and after. What does not fit goes piece by piece; then all ranks must do so, since
 * each piece is an operation. Whether others stage is no concern of a rank otherwise: it tells them
 * where its data is.
 */
#include "coll/coll.h"
#include "programs/copy.h"

enum { COPIED_CHUNK_BYTES = 16 << 10 };

uint64_t weft__coll_staging_place(const weft_coll *coll)
{
    uint64_t offset = 0;
    (void)weft__heap_contains(coll->comm->heap, coll->staging, coll->staging_bytes, &offset);
    return offset;
}

/* ------------------------------------------------------------------ copies */

void weft__coll_add_copy(struct wp_copy_args *copies, char *dst, const char *src, uint64_t bytes)
{
    if (bytes > 0)
        copies->rows[copies->num_rows++] = (struct wp_copied_row){src, dst, bytes, NULL, 0};
}

/* In the order of the operations, as they use the staging block too. */
weft_result weft__coll_launch_copies(const struct weft__coll_call *call,
                                     struct wp_copy_args *copies)
{
    weft_coll *coll = call->coll;
    const struct weft__work work = {.kind = WEFT__WORK_PUSH_TENSOR,
                                    .row_bytes = COPIED_CHUNK_BYTES};
    copies->chunk_bytes = COPIED_CHUNK_BYTES;
    if (copies->num_rows == 0)
        return WEFT_OK;
    return weft__exchange_launch(coll->exchange, call->stream, WP_PROGRAM_copy,
                                 weft__coll_grid(call, &work), copies, sizeof *copies);
}

/* ------------------------------------------------------------------ rows of equal length */

/* Where the arrays are that peers access. */
struct accessed_arrays {
    struct weft__coll_places places;
    enum { IN_STAGED = 1, OUT_STAGED = 2 } staged; /* bits */
};

static int32_t num_rows_in(const struct weft__coll_call *call)
{
    return call->collective == WEFT_REDUCE_SCATTER ? call->coll->comm->num_ranks : 1;
}

static int has_output(const struct weft__coll_call *call)
{
    return call->collective != WEFT_REDUCE || call->coll->comm->rank == call->root;
}

/* 1 if ranks write to the outputs of others. */
static int writes_outputs(weft_algorithm algorithm)
{
    return algorithm == WEFT_ALGORITHM_TWOSHOT || algorithm == WEFT_ALGORITHM_RELAY;
}

static struct accessed_arrays find_arrays(const struct weft__coll_call *call,
                                          weft_algorithm algorithm)
{
    const uint64_t row_bytes = weft__coll_row_bytes(call);
    const uint64_t in_bytes = row_bytes * (uint64_t)num_rows_in(call);
    struct accessed_arrays arrays = {0};
    int staged = 0;
    /* In one shot, others read the input while this rank writes its output. */
    const int is_overwritten = algorithm == WEFT_ALGORITHM_ONESHOT_PULL &&
                               call->collective == WEFT_ALL_REDUCE && call->send == call->recv;
    if (algorithm != WEFT_ALGORITHM_RELAY &&
        (is_overwritten ||
         !weft__coll_find_place(call, call->send, in_bytes, &arrays.places.input)))
        staged |= IN_STAGED;
    if (writes_outputs(algorithm) && has_output(call) &&
        !weft__coll_find_place(call, call->recv, row_bytes, &arrays.places.output))
        staged |= OUT_STAGED;
    arrays.staged = staged;
    return arrays;
}

/* Elements [begin, begin + piece->count) of every row of the call; what is staged keeps its layout
 * of rows, and the place of the staged input is that of the staged output. */
static weft_result run_piece(const struct weft__coll_call *call,
                             const struct accessed_arrays *arrays, weft_algorithm algorithm,
                             uint64_t begin, uint64_t count)
{
    const uint64_t element_bytes = wp_dtype_bytes(call->dtype);
    const uint64_t piece_bytes = count * element_bytes;
    char *staging = call->coll->staging;
    struct weft__coll_call piece = *call;
    struct wp_copy_args before = {0}, after = {0};
    piece.count = count;
    piece.whole_count = count < call->count ? call->count : call->whole_count;
    piece.send = begin > 0 ? call->send + begin * element_bytes : call->send;
    piece.recv = has_output(call) ? call->recv + begin * element_bytes : NULL;
    struct weft__coll_places places = {.input = arrays->places.input + begin * element_bytes,
                                       .output = arrays->places.output + begin * element_bytes,
                                       .out = piece.recv};
    if (arrays->staged & IN_STAGED) {
        places.input = weft__coll_staging_place(call->coll);
        for (int32_t row = 0; row < num_rows_in(call); row++)
            weft__coll_add_copy(&before, staging + (uint64_t)row * piece_bytes,
                                call->send + ((uint64_t)row * call->count + begin) * element_bytes,
                                piece_bytes);
    }
    if (arrays->staged & OUT_STAGED) {
        places.output = weft__coll_staging_place(call->coll);
        places.out = staging;
        weft__coll_add_copy(&after, call->recv + begin * element_bytes, staging, piece_bytes);
    }
    WEFT__TRY(weft__coll_launch_copies(call, &before));
    WEFT__TRY(algorithm == WEFT_ALGORITHM_RELAY
                  ? weft__coll_relay(&piece, &places)
                  : weft__coll_direct_reduce(&piece, &places, algorithm));
    return weft__coll_launch_copies(call, &after);
}

weft_result weft__coll_rows_anywhere(const struct weft__coll_call *call, weft_algorithm algorithm)
{
    const struct accessed_arrays arrays = find_arrays(call, algorithm);
    const uint64_t most =
        call->coll->staging_bytes / (uint64_t)num_rows_in(call) / wp_dtype_bytes(call->dtype);
    if (arrays.staged == 0 || call->count <= most)
        return run_piece(call, &arrays, algorithm, 0, call->count);
    for (uint64_t begin = 0; begin < call->count; begin += most) {
        const uint64_t rest = call->count - begin;
        WEFT__TRY(run_piece(call, &arrays, algorithm, begin, rest < most ? rest : most));
    }
    return WEFT_OK;
}

/* ------------------------------------------------------------------ pushed rows */

/* From the output's first byte to its last. */
static uint64_t extent(const struct weft__coll_call *call, const struct wp_exchanged_rows *rows)
{
    uint64_t end = 0;
    for (int32_t rank = 0; rank < call->coll->comm->num_ranks; rank++) {
        const struct wp_span *row = &rows->received[rank];
        if (row->bytes > 0 && row->begin + row->bytes > end)
            end = row->begin + row->bytes;
    }
    return end;
}

static uint64_t received_bytes(const struct weft__coll_call *call,
                               const struct wp_exchanged_rows *rows)
{
    uint64_t bytes = 0;
    for (int32_t rank = 0; rank < call->coll->comm->num_ranks; rank++)
        bytes += rows->received[rank].bytes;
    return bytes;
}

/* That come to the rank that gets the most. */
static uint64_t most_received_bytes(const struct weft__coll_call *call,
                                    const struct wp_exchanged_rows *rows)
{
    return call->collective == WEFT_GATHER
               ? (uint64_t)call->coll->comm->num_ranks * weft__coll_row_bytes(call)
               : received_bytes(call, rows);
}

/* 1 if rows go to the output itself; *place is where that is. A rank that gets nothing in a gather
 * does not know where the root's output is. If the rows do not fit the staging block, it assumes
 * memory like that of its input; the ranks compare this. */
static int find_output(const struct weft__coll_call *call, const struct wp_exchanged_rows *rows,
                       uint64_t *place)
{
    const uint64_t out_bytes = extent(call, rows);
    if (out_bytes > 0)
        return weft__coll_find_place(call, call->recv, out_bytes, place);
    return most_received_bytes(call, rows) <= call->coll->staging_bytes ||
           weft__coll_find_place(call, call->send, weft__coll_row_bytes(call), place);
}

static struct wp_span part_of(const struct wp_span *row, uint64_t begin, uint64_t bytes)
{
    const struct wp_span span = wp_span_of_row(row->bytes, begin, bytes);
    return (struct wp_span){row->begin + (span.bytes > 0 ? span.begin : 0), span.bytes};
}

/* Bytes [begin, begin + bytes) of every row; they are staged one after the other. */
static weft_result push_piece(const struct weft__coll_call *call,
                              const struct wp_exchanged_rows *rows, uint64_t begin, uint64_t bytes)
{
    const struct weft__coll_places places = {.output = weft__coll_staging_place(call->coll),
                                             .out = call->coll->staging};
    struct wp_exchanged_rows piece = {0};
    struct wp_copy_args after = {0};
    uint64_t staged_bytes = 0;
    for (int32_t rank = 0; rank < call->coll->comm->num_ranks; rank++) {
        const struct wp_span received = part_of(&rows->received[rank], begin, bytes);
        piece.sent[rank] = part_of(&rows->sent[rank], begin, bytes);
        piece.received[rank] = (struct wp_span){staged_bytes, received.bytes};
        if (received.bytes > 0) /* else there may be no recv */
            weft__coll_add_copy(&after, call->recv + received.begin,
                                call->coll->staging + staged_bytes, received.bytes);
        staged_bytes += received.bytes;
    }
    WEFT__TRY(weft__coll_direct_push(call, &places, &piece));
    return weft__coll_launch_copies(call, &after);
}

weft_result weft__coll_push_anywhere(const struct weft__coll_call *call,
                                     const struct wp_exchanged_rows *rows)
{
    const weft_coll *coll = call->coll;
    struct weft__coll_places places = {.out = call->recv};
    if (find_output(call, rows, &places.output))
        return weft__coll_direct_push(call, &places, rows);
    if (most_received_bytes(call, rows) <= coll->staging_bytes)
        return push_piece(call, rows, 0, UINT64_MAX);
    if (call->count == 0 &&
        coll->comm->num_ranks > 1) /* rows of any length: others' pieces are unknown */
        return weft__error(
            WEFT_ERROR_UNSUPPORTED,
            "recv is neither in the heap nor registered (weft_memory_register) and gets "
            "%llu bytes: allowed are at most %llu (staging_bytes)",
            (unsigned long long)received_bytes(call, rows),
            (unsigned long long)coll->staging_bytes);
    struct weft__coll_call piece = *call;
    piece.whole_count = call->count;
    const uint64_t longest = call->count > 0
                                 ? weft__coll_row_bytes(call)
                                 : weft__coll_longest_row(rows->received, coll->comm->num_ranks);
    const uint64_t most = coll->staging_bytes / (uint64_t)coll->comm->num_ranks / 16 * 16;
    for (uint64_t begin = 0; begin < longest; begin += most)
        WEFT__TRY(push_piece(&piece, rows, begin, most));
    return WEFT_OK;
}
