/* SPDX-License-Identifier: MIT */
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/host/error.h"
#include "comm/host/thread.h"
#include "comm/rendezvous/fd_exchange.h"
#include "comm/rendezvous/link.h"
#include "comm/rendezvous/observe.h"

void weft__comm_destroy(weft_comm *comm)
{
    comm->hooks->stop(comm);
    /* The link's monitor rings the bell, which is in the heap, by way of the status. */
    if (comm->link != NULL)
        weft__link_close(comm->link);
    weft__comm_end_records(comm); /* a file system that hangs does not keep the others waiting */
    if (comm->heap != NULL)
        weft__heap_destroy(comm->heap);
    comm->hooks->detach(comm);
    if (comm->socket_fd >= 0)
        close(comm->socket_fd);
    free(comm->identities);
    free(comm->fd_marks);
    free(comm->shrunk);
    weft__topology_destroy(&comm->topology);
    weft__status_destroy(&comm->status);
    weft__waits_destroy(&comm->waits);
    weft__standing_destroy(&comm->standing);
    weft__comm_free_records(comm);
    pthread_mutex_destroy(&comm->masked_mutex);
    free(comm);
}

/* ---------------------------------------------------------------- exchanges */

static weft_result exchange_alone(weft_comm *comm, struct weft__share *share)
{
    WEFT__TRY(weft__status_check(&comm->status));
    if (share->result != WEFT_OK)
        share->failed_rank = comm->rank;
    else if (share->bytes > 0)
        memcpy(share->recv, share->send, share->bytes);
    return share->result;
}

weft_result weft__comm_exchange(weft_comm *comm, struct weft__share *share)
{
    atomic_fetch_add_explicit(&comm->num_gathers, 1, memory_order_release);
    if (comm->link == NULL)
        return exchange_alone(comm, share);
    const weft_result result = weft__link_all_gather(comm->link, share);
    (void)atomic_load_explicit(&comm->num_messages_taken, memory_order_acquire);
    return result;
}

weft_result weft__comm_exchange_fd(weft_comm *comm, int fd, int *fds)
{
    const struct weft__fd_exchange exchange = {.socket_fd = comm->socket_fd,
                                               .rank = comm->rank,
                                               .num_ranks = comm->num_ranks,
                                               .timeout_ms = comm->timeout_ms,
                                               .key = comm->key,
                                               .round = ++comm->num_fd_exchanges,
                                               .table = comm->identities,
                                               .status = &comm->status,
                                               .marks = comm->fd_marks};
    const weft_result result = weft__fd_exchange(&exchange, fd, fds);
    if (result == WEFT_ERROR_SYSTEM) { /* the other ranks wait for this one */
        weft__status_fail(&comm->status, result, comm->rank, "%s", weft__last_error());
        weft__comm_tell_failure(comm);
    }
    return result;
}

void weft__comm_abort(weft_comm *comm)
{
    weft__status_fail(&comm->status, WEFT_ERROR_ABORTED, comm->rank,
                      "rank %d called weft_comm_abort", comm->rank);
    weft__comm_tell_failure(comm);
}

void weft__comm_tell_failure(weft_comm *comm)
{
    if (comm->link != NULL)
        weft__link_tell_failure(comm->link);
}

void weft__comm_share_failure(weft_comm *comm)
{
    const int64_t timeout_ms =
        comm->timeout_ms < WEFT__INQUIRY_MS ? comm->timeout_ms : WEFT__INQUIRY_MS;
    if (comm->link == NULL)
        return;
    weft__link_tell_failure(comm->link);
    weft__status_await_told(&comm->status, timeout_ms * WEFT__NS_PER_MS);
}

enum weft__ask_result weft__comm_ask(weft_comm *comm, int32_t rank, const struct weft__wait *wait,
                                     int64_t deadline_ns, struct weft__wait_list *waits)
{
    const struct weft__question question = {.asked = rank, .wait = *wait};
    if (comm->link == NULL)
        return WEFT__ASK_IMPOSSIBLE;
    enum weft__ask_result result = weft__link_ask(comm->link, &question, deadline_ns, waits);
    if (result == WEFT__ASK_LOST) /* the rendezvous has the answer */
        result = weft__link_ask(comm->link, &question, deadline_ns, waits);
    return result;
}

void weft__comm_report(weft_comm *comm, struct weft__report *report)
{
    const struct weft__last_call last = weft__standing_last_call(&comm->standing);
    weft_heap_info heap = {.used_bytes = 0};
    snprintf(report->machine, sizeof(report->machine), "%s", comm->hooks->name);
    report->device = -1;
    /* Until the link is closed, which ends the monitor, the heap and the device stay. */
    if (atomic_load_explicit(&comm->is_complete, memory_order_acquire)) {
        weft__heap_query(comm->heap, &heap);
        report->device = comm->hooks->device_of(comm);
    }
    report->heap_used_bytes = heap.used_bytes;
    report->heap_bytes = heap.committed_bytes;
    report->call = last.call;
    report->count = last.count;
    report->held_ms = last.held_ms;
    /* Pairs with the release of weft__status_fail. */
    report->result = atomic_load_explicit(&comm->status.result, memory_order_acquire);
    if (report->result != WEFT_OK)
        snprintf(report->error, sizeof(report->error), "%s", comm->status.message);
}

weft_result weft__comm_look(const weft_comm *comm, struct weft__observed_rank **ranks,
                            int32_t *num_ranks)
{
    return comm->link != NULL ? weft__observe(&comm->point, WEFT__INQUIRY_MS, ranks, num_ranks)
                              : WEFT_ERROR_UNSUPPORTED;
}

int32_t weft__comm_rank_of_rendezvous(const weft_comm *comm)
{
    return comm->link != NULL ? weft__link_rank_of_server(comm->link) : WEFT__NOBODY;
}
