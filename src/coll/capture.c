/* SPDX-License-Identifier: MIT */
/*
 * Memory of operations that are recorded in graphs. A window for it is reserved when the operation
 * is recorded, with its place in the operation's arguments, and opened when the recording has
 * ended, before a graph runs.
 */
#include <stdlib.h>

#include "coll/coll.h"
#include "memory/registered.h"

/* A rank's record: the same on all ranks, but the number of windows. */
struct recorded {
    uint64_t num_operations;
    uint64_t digest; /* of their arguments */
    int32_t num_windows;
    int32_t unused;
};

struct weft_coll_record {
    weft_coll *coll;
    struct recorded recorded;
    int32_t *windows;   /* [num_windows] reserved for this capture */
    int32_t num_rounds; /* of opening, in which all ranks took part */
    int32_t num_open_rounds;
};

/* The one that an operation is recorded by, or NULL. */
static weft_coll_record *capture_of(const struct weft__coll_call *call)
{
    weft_coll_record *capture = call->coll->capture;
    return capture != NULL && call->stream->machine->stream_is_capturing(call->stream) ? capture
                                                                                       : NULL;
}

/* ---------------------------------------------------------------- recording */

weft_result weft__capture_begin(weft_coll *coll, weft_coll_record **out)
{
    if (coll->capture != NULL)
        return weft__invalid(
            "coll has a capture that has not ended: call weft_coll_record_end first");
    weft_coll_record *capture = calloc(1, sizeof *capture);
    int32_t *windows = calloc((size_t)coll->comm->windows->max_windows, sizeof *windows);
    if (capture == NULL || windows == NULL) {
        free(capture);
        free(windows);
        return weft__no_memory("no memory for a capture");
    }
    capture->coll = coll;
    capture->windows = windows;
    coll->capture = capture;
    *out = capture;
    return WEFT_OK;
}

static int find_recorded(const weft_coll_record *capture, const void *ptr, uint64_t bytes,
                         uint64_t *place)
{
    for (int32_t i = 0; i < capture->recorded.num_windows; i++) {
        if (weft__window_contains(capture->coll->comm, capture->windows[i], ptr, bytes, place))
            return 1;
    }
    return 0;
}

/* As one window holds the whole allocation, there are no more of them than allocations. */
static int record(weft_coll_record *capture, const void *ptr, uint64_t bytes, uint64_t *place)
{
    weft_comm *comm = capture->coll->comm;
    int32_t window;
    if (bytes == 0)
        return 0;
    if (find_recorded(capture, ptr, bytes, place))
        return 1;
    if (weft__window_reserve(comm, ptr, bytes, &window) != WEFT_OK) {
        weft__windows_tell(comm, weft__last_error());
        return 0;
    }
    capture->windows[capture->recorded.num_windows++] = window;
    return find_recorded(capture, ptr, bytes, place);
}

int weft__coll_find_place(const struct weft__coll_call *call, const void *ptr, uint64_t bytes,
                          uint64_t *place)
{
    if (weft__registered_find(call->coll->comm, ptr, bytes, place))
        return 1;
    weft_coll_record *capture = capture_of(call);
    return capture != NULL && record(capture, ptr, bytes, place);
}

void weft__coll_note(const struct weft__coll_call *call, enum wp_program program)
{
    static const uint64_t prime = UINT64_C(0x100000001b3);
    weft_coll_record *capture = capture_of(call);
    if (capture == NULL)
        return;
    const uint64_t values[] = {program,  call->collective,     call->dtype,
                               call->op, (uint64_t)call->root, call->count};
    struct recorded *recorded = &capture->recorded;
    recorded->num_operations++;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        recorded->digest = (recorded->digest ^ values[i]) * prime;
}

/* ---------------------------------------------------------------- the end */

static weft_result compare(const weft_comm *comm, const struct recorded *all)
{
    const struct recorded *own = &all[comm->rank];
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        const struct recorded *other = &all[rank];
        if (other->num_operations != own->num_operations)
            return weft__error(WEFT_ERROR_MISMATCH,
                               "ranks recorded different operations: %llu on this rank %d, %llu on "
                               "rank %d",
                               (unsigned long long)own->num_operations, comm->rank,
                               (unsigned long long)other->num_operations, rank);
        if (other->digest != own->digest)
            return weft__error(WEFT_ERROR_MISMATCH,
                               "ranks recorded different operations: the %llu of this rank %d "
                               "differ from those of rank %d in operation, count, dtype, op, root "
                               "or order",
                               (unsigned long long)own->num_operations, comm->rank, rank);
    }
    return WEFT_OK;
}

static int32_t window_of_round(const weft_coll_record *capture, int32_t round)
{
    return round < capture->recorded.num_windows ? capture->windows[round] : WEFT__WINDOW_NONE;
}

static weft_result open_windows(weft_coll_record *capture, const struct recorded *all)
{
    weft_comm *comm = capture->coll->comm;
    int32_t num_rounds = 0;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        num_rounds = all[rank].num_windows > num_rounds ? all[rank].num_windows : num_rounds;
    for (int32_t round = 0; round < num_rounds; round++) {
        struct weft__obstacle obstacle;
        WEFT__TRY(weft__window_open(comm, WEFT_OK, window_of_round(capture, round), &obstacle));
        if (obstacle.rank != WEFT__NOBODY)
            return weft__error(WEFT_ERROR_UNSUPPORTED,
                               "rank %d cannot map memory that was recorded, so that what was "
                               "recorded must not run: %s",
                               obstacle.rank, obstacle.reason);
        capture->num_open_rounds = ++capture->num_rounds;
    }
    return WEFT_OK;
}

weft_result weft__capture_end(weft_coll_record *capture)
{
    weft_comm *comm = capture->coll->comm;
    if (capture->coll->capture != capture)
        return weft__invalid("capture has ended already");
    capture->coll->capture = NULL;
    weft__comm_enter(comm, WEFT__CALL_CAPTURE_END);
    weft_result result;
    struct recorded *all =
        weft__comm_gather_new(comm, WEFT_OK, &capture->recorded, sizeof capture->recorded, &result);
    if (all == NULL)
        return result;
    result = compare(comm, all);
    if (result == WEFT_OK)
        result = open_windows(capture, all);
    free(all);
    return result;
}

static weft_result close_windows(weft_coll_record *capture)
{
    weft_comm *comm = capture->coll->comm;
    WEFT__TRY(weft__comm_all_gather(comm, NULL, 0, NULL));
    for (; capture->num_open_rounds > 0; capture->num_open_rounds--)
        WEFT__TRY(weft__window_close(comm, window_of_round(capture, capture->num_open_rounds - 1)));
    return WEFT_OK;
}

/* After a failure on all ranks (one called something else, or had no memory) they can call it
 * again. After a failure of the communicator nobody comes any more. */
int weft__capture_close(weft_coll_record *capture, weft_result *result)
{
    weft_comm *comm = capture->coll->comm;
    weft__comm_enter(comm, WEFT__CALL_CAPTURE_DESTROY);
    *result = close_windows(capture);
    return *result == WEFT_OK || atomic_load(&comm->status.result) != WEFT_OK;
}

void weft__capture_free(weft_coll_record *capture)
{
    weft_comm *comm = capture->coll->comm;
    if (capture->coll->capture == capture)
        capture->coll->capture = NULL;
    for (int32_t i = capture->num_rounds; i < capture->recorded.num_windows; i++)
        weft__window_release(comm, capture->windows[i]);
    free(capture->windows);
    free(capture);
}
