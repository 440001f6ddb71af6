/* SPDX-License-Identifier: MIT */
/* weft_coll_send and weft_coll_recv, alone or in groups. */
#include <stdio.h>
#include <stdlib.h>

#include "api/objects.h"
#include "api/overlap.h"
#include "api/structs.h"
#include "coll/coll.h"

/* ---------------------------------------------------------------- the end of a group */

static weft_result check_overlaps(const struct weft__coll_group *group)
{
    struct weft__extent *extents = calloc((size_t)group->num_transfers, sizeof *extents);
    WEFT__CHECK_MEMORY(extents, "no memory for %d sends and receives", group->num_transfers);
    for (int32_t i = 0; i < group->num_transfers; i++) {
        const struct weft__coll_transfer *transfer = &group->transfers[i];
        const int is_sent = transfer->direction == WP_DIRECTION_SEND;
        extents[i] = weft__extent_of(is_sent ? "a send of the group" : "a recv of the group",
                                     is_sent ? WEFT__EXTENT_READ : WEFT__EXTENT_WRITTEN,
                                     transfer->memory, 1, transfer->bytes);
    }
    const weft_result result = weft__check_overlaps(extents, group->num_transfers);
    free(extents);
    return result;
}

static enum weft__call call_of(const struct weft__coll_group *group)
{
    if (group->num_transfers > 1)
        return WEFT__CALL_COLL_GROUP;
    return group->transfers[0].direction == WP_DIRECTION_SEND ? WEFT__CALL_COLL_SEND
                                                              : WEFT__CALL_COLL_RECV;
}

static void note(weft_coll *coll, const struct weft__coll_group *group)
{
    const int32_t rank = coll->comm->rank;
    enum weft__call_part part = WEFT__CALL_IS_WHOLE;
    for (int32_t i = 0; i < group->num_transfers; i++) {
        const struct weft__coll_transfer *transfer = &group->transfers[i];
        const int is_sent = transfer->direction == WP_DIRECTION_SEND;
        if (transfer->peer == rank)
            continue;
        weft__exchange_note_transfer(coll->exchange, group->stream, part,
                                     is_sent ? rank : transfer->peer,
                                     is_sent ? transfer->peer : rank);
        part = WEFT__CALL_IS_BESIDE;
    }
}

static weft_result check_and_launch(weft_coll *coll)
{
    const struct weft__coll_group *group = &coll->groups.group;
    if (group->result != WEFT_OK)
        return weft__error(group->result,
                           "nothing of the group is done, of which a call was refused: %s",
                           group->message);
    if (group->num_transfers == 0)
        return WEFT_OK;
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, group->stream, "stream"));
    WEFT__TRY(check_overlaps(group));
    weft__current_call = call_of(group);
    WEFT__TRY(weft__coll_groups_launch(coll));
    note(coll, group);
    return WEFT_OK;
}

/* Whatever comes of it, the next group is a new one. */
static weft_result end(weft_coll *coll)
{
    struct weft__coll_group *group = &coll->groups.group;
    const weft_result result = check_and_launch(coll);
    group->num_transfers = 0;
    group->stream = NULL;
    group->result = WEFT_OK;
    return result;
}

weft_result weft_coll_group_begin(weft_coll *coll)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COLL, coll, "coll"));
    coll->groups.group.num_begun++;
    return WEFT_OK;
}

weft_result weft_coll_group_end(weft_coll *coll)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COLL, coll, "coll"));
    if (coll->groups.group.num_begun == 0)
        return weft__invalid("coll has no group that has begun: call weft_coll_group_begin first");
    return --coll->groups.group.num_begun > 0 ? WEFT_OK : end(coll);
}

/* ---------------------------------------------------------------- sends and receives */

static weft_result check_stream(const struct weft__coll_group *group, const weft_stream *stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    if (group->stream == NULL || group->stream == stream)
        return WEFT_OK;
    return weft__invalid("stream is another one than that of the calls before in the group");
}

static weft_result check(const weft_coll *coll, const struct weft__coll_transfer *transfer,
                         int64_t count)
{
    const int is_sent = transfer->direction == WP_DIRECTION_SEND;
    WEFT__TRY(weft__check_range(transfer->peer, 0, coll->comm->num_ranks - 1, "peer"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_DTYPE, (int32_t)transfer->dtype, WEFT_INT32,
                               WEFT_FP8_E4M3, "dtype"));
    WEFT__TRY(weft__check_range(
        count, 0, (int64_t)((uint64_t)WEFT_COLL_MAX_BYTES / wp_dtype_bytes(transfer->dtype)),
        "count"));
    WEFT__TRY(weft__check_array(transfer->memory, count, is_sent ? "send" : "recv"));
    if (count == 0)
        return WEFT_OK;
    return weft__machine_of(coll->comm)
        ->check_pointer(coll->comm, transfer->memory, is_sent ? "send" : "recv");
}

static weft_result make_room(struct weft__coll_group *group)
{
    enum { FEW = 16 };
    if (group->num_transfers < group->max_transfers)
        return WEFT_OK;
    const int32_t max_transfers = group->max_transfers == 0 ? FEW : 2 * group->max_transfers;
    struct weft__coll_transfer *transfers =
        realloc(group->transfers, (size_t)max_transfers * sizeof *transfers);
    WEFT__CHECK_MEMORY(transfers, "no memory for %d sends and receives", max_transfers);
    group->transfers = transfers;
    group->max_transfers = max_transfers;
    return WEFT_OK;
}

static weft_result add(weft_coll *coll, struct weft__coll_transfer transfer, int64_t count,
                       weft_stream *stream)
{
    struct weft__coll_group *group = &coll->groups.group;
    WEFT__TRY(check_stream(group, stream));
    WEFT__TRY(check(coll, &transfer, count));
    WEFT__TRY(make_room(group));
    transfer.bytes = (uint64_t)count * wp_dtype_bytes(transfer.dtype);
    group->transfers[group->num_transfers++] = transfer;
    group->stream = stream;
    return WEFT_OK;
}

/* A refused call fails its group: peers would wait for what was left out in silence. */
static weft_result take(weft_coll *coll, weft_result result)
{
    struct weft__coll_group *group = &coll->groups.group;
    if (group->num_begun == 0 && result == WEFT_OK)
        return end(coll);
    if (group->num_begun > 0 && result != WEFT_OK && group->result == WEFT_OK) {
        group->result = result;
        snprintf(group->message, sizeof group->message, "%s", weft__last_error());
    }
    return result;
}

static weft_result read_send(weft_coll *coll, const weft_coll_send_args *given, weft_stream *stream)
{
    weft_coll_send_args args;
    WEFT__TRY(WEFT__READ(weft_coll_send_args, &args, given, "args"));
    return add(coll,
               (struct weft__coll_transfer){.direction = WP_DIRECTION_SEND,
                                            .peer = args.peer,
                                            .memory = (char *)(uintptr_t)args.send,
                                            .dtype = args.dtype},
               args.count, stream);
}

static weft_result read_recv(weft_coll *coll, const weft_coll_recv_args *given, weft_stream *stream)
{
    weft_coll_recv_args args;
    WEFT__TRY(WEFT__READ(weft_coll_recv_args, &args, given, "args"));
    return add(coll,
               (struct weft__coll_transfer){.direction = WP_DIRECTION_RECEIVE,
                                            .peer = args.peer,
                                            .memory = args.recv,
                                            .dtype = args.dtype},
               args.count, stream);
}

weft_result weft_coll_send(weft_coll *coll, const weft_coll_send_args *args, weft_stream *stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COLL, coll, "coll"));
    return take(coll, read_send(coll, args, stream));
}

weft_result weft_coll_recv(weft_coll *coll, const weft_coll_recv_args *args, weft_stream *stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COLL, coll, "coll"));
    return take(coll, read_recv(coll, args, stream));
}
