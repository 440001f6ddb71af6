/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

/* A rank that has failed hears so in its own words, unless something else is the matter. */
static weft_result exchange(weft_comm *comm, struct weft__share *share, const char *own_message)
{
    share->step = comm->step;
    share->failed_rank = WEFT__NOBODY;
    comm->step.step++;
    const weft_result result = weft__comm_exchange(comm, share);
    return share->result != WEFT_OK && share->failed_rank != WEFT__NOBODY
               ? weft__error(share->result, "%s", own_message)
               : result;
}

weft_result weft__comm_gather(weft_comm *comm, weft_result mine, const void *send, size_t bytes,
                              void *recv)
{
    char message[WEFT__ERROR_BYTES] = "", reason[WEFT__MAX_TEXT_BYTES] = "";
    if (mine != WEFT_OK) {
        snprintf(message, sizeof(message), "%s", weft__last_error());
        snprintf(reason, sizeof(reason), "rank %d: %.400s", comm->rank, message);
    }
    struct weft__share share = {
        .result = mine, .reason = reason, .send = send, .bytes = bytes, .recv = recv};
    return exchange(comm, &share, message);
}

weft_result weft__comm_all_gather(weft_comm *comm, const void *send, size_t bytes, void *recv)
{
    return weft__comm_gather(comm, WEFT_OK, send, bytes, recv);
}

void *weft__comm_gather_new(weft_comm *comm, weft_result mine, const void *send, size_t bytes,
                            weft_result *result)
{
    void *all = calloc((size_t)comm->num_ranks, bytes);
    if (all == NULL && mine == WEFT_OK)
        mine = weft__no_memory("no memory for what %d ranks say", comm->num_ranks);
    *result = weft__comm_gather(comm, mine, send, bytes, all);
    if (*result == WEFT_OK)
        return all;
    free(all);
    return NULL;
}

static int64_t value_of(const void *all, size_t bytes, int32_t rank, const struct weft__term *term)
{
    int64_t value;
    memcpy(&value, (const char *)all + (size_t)rank * bytes + term->offset, sizeof value);
    return value;
}

static const char *print_term(const struct weft__term *term, int64_t value, char number[24])
{
    if (term->text_of != NULL)
        return term->text_of(value);
    snprintf(number, 24, "%" PRId64, value);
    return number;
}

weft_result weft__comm_compare(const weft_comm *comm, const void *all, size_t bytes,
                               const struct weft__term *terms, int num_terms)
{
    char first_number[24], number[24];
    for (int i = 0; i < num_terms; i++) {
        const int64_t first = value_of(all, bytes, 0, &terms[i]);
        for (int32_t rank = 1; rank < comm->num_ranks; rank++) {
            const int64_t other = value_of(all, bytes, rank, &terms[i]);
            if (other != first)
                return weft__error(WEFT_ERROR_MISMATCH,
                                   "ranks disagree on %s: %s on rank 0 and %s on rank %d",
                                   terms[i].name, print_term(&terms[i], first, first_number),
                                   print_term(&terms[i], other, number), rank);
        }
    }
    return WEFT_OK;
}

weft_result weft__comm_agree(weft_comm *comm, weft_result mine, const char *what)
{
    char message[WEFT__ERROR_BYTES] = "", reason[WEFT__MAX_TEXT_BYTES] = "";
    if (mine != WEFT_OK) {
        snprintf(message, sizeof(message), "%s", weft__last_error());
        snprintf(reason, sizeof(reason), "rank %d cannot %s: %.400s", comm->rank, what, message);
    }
    struct weft__share share = {.result = mine, .reason = reason};
    return exchange(comm, &share, message);
}

void *weft__comm_calloc(weft_comm *comm, size_t bytes, const char *what, weft_result *result)
{
    void *memory = calloc(1, bytes);
    const weft_result mine =
        memory != NULL ? WEFT_OK : weft__no_memory("no memory for %zu bytes", bytes);
    *result = weft__comm_agree(comm, mine, what);
    if (*result == WEFT_OK)
        return memory;
    free(memory);
    return NULL;
}
