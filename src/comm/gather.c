/* SPDX-License-Identifier: MIT */
#include "comm/gather.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static enum weft__wire_result start(struct weft__gather *gather,
                                    const struct weft__contribution *first)
{
    const struct weft__gather_header *header = &first->header;
    *gather = (struct weft__gather){
        .sequence = header->sequence,
        .blob_bytes = header->blob_bytes,
        .first_rank = first->rank,
        .differing_rank = -1,
        .deadline_ns = INT64_MAX,
        .message = weft__message_create(WEFT__FRAME_GATHERED, header, sizeof(*header), NULL,
                                        (size_t)first->num_ranks * header->blob_bytes)};
    return gather->message != NULL ? WEFT__WIRE_OK : WEFT__WIRE_GARBAGE;
}

enum weft__wire_result weft__gather_add(struct weft__gather *gather,
                                        const struct weft__contribution *contribution)
{
    const struct weft__gather_header *header = &contribution->header;
    if (gather->message == NULL && start(gather, contribution) != WEFT__WIRE_OK)
        return WEFT__WIRE_GARBAGE;
    if (header->blob_bytes == gather->blob_bytes) {
        size_t offset = sizeof(*header) + (size_t)contribution->rank * header->blob_bytes;
        memcpy(gather->message->body + offset, contribution->blob, header->blob_bytes);
    } else if (gather->differing_rank < 0) {
        gather->differing_rank = contribution->rank;
        gather->differing_bytes = header->blob_bytes;
    }
    if (contribution->deadline_ns < gather->deadline_ns)
        gather->deadline_ns = contribution->deadline_ns;
    gather->num_in++;
    return WEFT__WIRE_OK;
}

struct weft__message *weft__gather_result(const struct weft__gather *gather)
{
    if (gather->differing_rank < 0) {
        gather->message->num_references++;
        return gather->message;
    }
    const struct weft__gather_header header = {.sequence = gather->sequence,
                                               .result = WEFT_ERROR_MISMATCH};
    char text[WEFT__MAX_TEXT_BYTES] = "";
    snprintf(text, sizeof(text),
             "ranks disagree: bytes is %" PRIu64 " on rank %d and %" PRIu64 " on rank %d",
             gather->blob_bytes, gather->first_rank, gather->differing_bytes,
             gather->differing_rank);
    return weft__message_create(WEFT__FRAME_GATHERED, &header, sizeof(header), text, sizeof(text));
}

void weft__gather_drop(struct weft__gather *gather)
{
    if (gather->message != NULL)
        weft__message_release(gather->message);
    *gather = (struct weft__gather){.message = NULL};
}
