/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/gather.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int weighs_more(const struct weft__gather_fault *standing,
                       const struct weft__gather_fault *fault)
{
    return fault->kind > standing->kind ||
           (fault->kind == WEFT__GATHER_RANK_FAILED && standing->kind == fault->kind &&
            fault->rank < standing->rank);
}

static void note(struct weft__gather *gather, struct weft__gather_fault fault, const char *format,
                 ...) __attribute__((format(printf, 3, 4)));
static void note(struct weft__gather *gather, struct weft__gather_fault fault, const char *format,
                 ...)
{
    va_list arguments;
    if (!weighs_more(&gather->fault, &fault))
        return;
    va_start(arguments, format);
    vsnprintf(fault.text, sizeof(fault.text), format, arguments);
    va_end(arguments);
    gather->fault = fault;
}

static void start(struct weft__gather *gather, const struct weft__contribution *first)
{
    *gather = (struct weft__gather){.sequence = first->header.sequence,
                                    .first_rank = first->rank,
                                    .first_step = first->header.step,
                                    .deadline_ns = INT64_MAX,
                                    .fault = {.rank = WEFT__NOBODY}};
}

/* ---------------------------------------------------------------- what does not fit */

static void check_call(struct weft__gather *gather, const struct weft__contribution *contribution)
{
    const struct weft__call_step first = gather->first_step, step = contribution->header.step;
    const struct weft__gather_fault fault = {
        .kind = WEFT__GATHER_CALLS_DIFFER, .rank = WEFT__NOBODY, .result = WEFT_ERROR_MISMATCH};
    if (weft__call_step_is_same(first, step))
        return;
    if (first.call != step.call)
        note(gather, fault,
             "ranks disagree on what to call: rank %d called %s and rank %d called %s",
             gather->first_rank, weft__call_name(first.call), contribution->rank,
             weft__call_name(step.call));
    else
        note(
            gather, fault,
            "ranks disagree: rank %d is in exchange %d of %s and rank %d in exchange %d of another",
            gather->first_rank, first.step, weft__call_name(first.call), contribution->rank,
            step.step);
}

static void add_failure(struct weft__gather *gather, const struct weft__contribution *contribution)
{
    const struct weft__gather_fault fault = {.kind = WEFT__GATHER_RANK_FAILED,
                                             .rank = contribution->rank,
                                             .result = (weft_result)contribution->header.result};
    const uint64_t num_bytes = contribution->header.blob_bytes;
    note(gather, fault, "%.*s",
         (int)(num_bytes < WEFT__MAX_TEXT_BYTES ? num_bytes : WEFT__MAX_TEXT_BYTES),
         (const char *)contribution->blob);
}

/* ---------------------------------------------------------------- blobs */

static void make_room(struct weft__gather *gather, const struct weft__contribution *first)
{
    const struct weft__gather_header header = {
        .sequence = gather->sequence, .failed_rank = WEFT__NOBODY, .step = gather->first_step};
    const struct weft__gather_fault fault = {
        .kind = WEFT__GATHER_RANK_FAILED, .rank = WEFT__NOBODY, .result = WEFT_ERROR_OUT_OF_MEMORY};
    gather->blob_rank = first->rank;
    gather->blob_bytes = first->header.blob_bytes;
    gather->message = weft__message_create(WEFT__FRAME_GATHERED, &header, sizeof(header), NULL,
                                           (size_t)first->num_ranks * first->header.blob_bytes);
    if (gather->message == NULL)
        note(gather, fault, "%s: the rendezvous has no memory for %" PRIu64 " bytes of %d ranks",
             weft__call_name(gather->first_step.call), first->header.blob_bytes, first->num_ranks);
}

static void add_blob(struct weft__gather *gather, const struct weft__contribution *contribution)
{
    const struct weft__gather_header *header = &contribution->header;
    const struct weft__gather_fault fault = {
        .kind = WEFT__GATHER_BYTES_DIFFER, .rank = WEFT__NOBODY, .result = WEFT_ERROR_MISMATCH};
    if (gather->message == NULL)
        make_room(gather, contribution);
    if (gather->message == NULL)
        return;
    if (header->blob_bytes != gather->blob_bytes)
        note(gather, fault,
             "%s: ranks disagree on bytes: %" PRIu64 " on rank %d and %" PRIu64 " on rank %d",
             weft__call_name(gather->first_step.call), gather->blob_bytes, gather->blob_rank,
             header->blob_bytes, contribution->rank);
    else
        memcpy(gather->message->body + sizeof(*header) +
                   (size_t)contribution->rank * header->blob_bytes,
               contribution->blob, header->blob_bytes);
}

void weft__gather_add(struct weft__gather *gather, const struct weft__contribution *contribution)
{
    if (gather->num_in == 0)
        start(gather, contribution);
    check_call(gather, contribution);
    if (contribution->header.result != WEFT_OK)
        add_failure(gather, contribution);
    else if (gather->fault.kind <= WEFT__GATHER_BYTES_DIFFER)
        add_blob(gather, contribution);
    if (contribution->deadline_ns < gather->deadline_ns)
        gather->deadline_ns = contribution->deadline_ns;
    gather->num_in++;
}

struct weft__message *weft__gather_result(const struct weft__gather *gather)
{
    const struct weft__gather_fault *fault = &gather->fault;
    if (fault->kind == WEFT__GATHER_FAULTLESS) {
        gather->message->num_references++;
        return gather->message;
    }
    const struct weft__gather_header header = {.sequence = gather->sequence,
                                               .result = fault->result,
                                               .failed_rank = fault->rank,
                                               .step = gather->first_step};
    return weft__message_create(WEFT__FRAME_GATHERED, &header, sizeof(header), fault->text,
                                sizeof(fault->text));
}

void weft__gather_drop(struct weft__gather *gather)
{
    if (gather->message != NULL)
        weft__message_release(gather->message);
    *gather = (struct weft__gather){.message = NULL};
}
