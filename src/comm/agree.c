/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>

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
        mine = weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for what %d ranks say",
                           comm->num_ranks);
    *result = weft__comm_gather(comm, mine, send, bytes, all);
    if (*result == WEFT_OK)
        return all;
    free(all);
    return NULL;
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
        memory != NULL ? WEFT_OK
                       : weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %zu bytes", bytes);
    *result = weft__comm_agree(comm, mine, what);
    if (*result == WEFT_OK)
        return memory;
    free(memory);
    return NULL;
}
