/* SPDX-License-Identifier: MIT */
/* The rounds of driving a net, whoever does it. */
#include <stdio.h>

#include "comm/host/error.h"
#include "net/progress_internal.h"

enum { NUM_TAKEN_PER_ROUND = 64 };

/* ---------------------------------------------------------------- work */

/* That a peer has failed is told for itself, and that one has left harms nobody unless the request
 * says so. */
static void tell_of_request(struct weft__progress *progress, const struct weft__under_way *request,
                            weft_result result, const char *message)
{
    if (progress->options.on_failure == NULL)
        return;
    if (result != WEFT_ERROR_RANK_FAILED)
        progress->options.on_failure(progress->options.context, -1, result, message);
    else if (request->loss == WP_ACCESS_MUST_NOT_BE_LOST)
        progress->options.on_failure(progress->options.context, request->rank, result, message);
}

static void note_failure(struct weft__progress *progress, const struct weft__under_way *request,
                         weft_result result, const char *reason)
{
    char message[WEFT__ERROR_BYTES]; /* the reason may be the thread's last error */
    snprintf(message, sizeof(message), "%s", reason);
    pthread_mutex_lock(&progress->mutex);
    const int is_first = progress->result == WEFT_OK;
    if (is_first) {
        progress->result = result;
        snprintf(progress->message, sizeof(progress->message), "%s", message);
    }
    pthread_mutex_unlock(&progress->mutex);
    if (is_first || result == WEFT_ERROR_RANK_FAILED)
        tell_of_request(progress, request, result, message);
}

static void count(struct weft__progress *progress, const struct wp_access *work)
{
    if (work->operation == WP_ACCESS_PUT || work->operation == WP_ACCESS_PUT_SIGNAL ||
        work->operation == WP_ACCESS_SIGNAL)
        atomic_fetch_add_explicit(&progress->num_puts, 1, memory_order_relaxed);
}

/* NULL: it is not there, or its request may still be that of an operation a lap ago. */
static const struct wp_access *find_work(const struct weft__line *line, uint64_t number)
{
    const uint64_t num_completed =
        atomic_load_explicit(&line->queue->num_completed, memory_order_relaxed);
    return number - num_completed < line->num_slots ? weft__line_work(line, number) : NULL;
}

/* A flush of all that the host posts is behind what launches have posted to the NIC. */
static int waits_for_nic(const struct weft__progress *progress, const struct wp_access *work)
{
    return work->operation == WP_ACCESS_FLUSH && work->rank == WEFT__NET_ALL_PEERS &&
           !weft__progress_nic_is_idle(progress);
}

/* First of all: whoever has heard of it finds it counted. */
static struct weft__under_way *note_work(struct weft__progress *progress, struct weft__line *line,
                                         uint64_t number, const struct wp_access *work)
{
    struct weft__under_way *under_way = weft__line_under_way_of(line, number);
    *under_way = weft__line_describe(work);
    count(progress, work);
    return under_way;
}

/* One, or two that share a message, whose request is then that of the first. Returns how many. */
static int take_next(struct weft__progress *progress, struct weft__line *line)
{
    struct weft__work_queue *queue = line->queue;
    const uint64_t number = atomic_load_explicit(&queue->num_taken, memory_order_relaxed);
    const struct wp_access *work = find_work(line, number);
    if (work == NULL || waits_for_nic(progress, work))
        return 0;
    const struct wp_access *other = find_work(line, number + 1);
    /* A credit by itself is as much work as the slot of rows behind it, but for the copies. */
    const int is_pair = other != NULL && weft__net_can_share(progress->net, work, other);
    struct weft__under_way *under_way = note_work(progress, line, number, work);
    if (is_pair)
        note_work(progress, line, number + 1, other);
    /* An access that nobody waits for is not noted as under way: a peer that takes nothing holds up
     * nobody else. */
    struct weft__net_request *request = wp_access_is_awaited(work) ? &under_way->request : NULL;
    const weft_result result = is_pair ? weft__net_post_both(progress->net, work, other, request)
                                       : weft__net_post(progress->net, work, request);
    if (result != WEFT_OK)
        note_failure(progress, under_way, result, weft__last_error());
    const int num_taken = is_pair ? 2 : 1;
    /* Release: who posts may write the slots again. */
    atomic_store_explicit(&queue->num_taken, number + (uint64_t)num_taken, memory_order_release);
    return num_taken;
}

/* How many of the next ones are there, up to `most`. */
static uint64_t count_work(const struct weft__line *line, uint64_t most)
{
    const uint64_t first = atomic_load_explicit(&line->queue->num_taken, memory_order_relaxed);
    uint64_t num_there = 0;
    while (num_there < most && find_work(line, first + num_there) != NULL)
        num_there++;
    return num_there;
}

static int take_work(struct weft__progress *progress, struct weft__line *line, uint64_t most)
{
    int num_taken = 0, num_now = 1;
    while ((uint64_t)num_taken < most && num_now > 0) {
        num_now = take_next(progress, line);
        num_taken += num_now;
    }
    return num_taken;
}

static void note_loss(struct weft__progress *progress, const struct weft__under_way *request)
{
    char message[WEFT__NET_REASON_BYTES];
    /* A request to all peers that fails is blamed on a peer that has failed. */
    const int32_t peer =
        request->rank != WEFT__NET_ALL_PEERS ? request->rank : weft__net_failed_peer(progress->net);
    if (peer >= 0)
        snprintf(message, sizeof(message),
                 "rank %d has left, or failed, before what it was sent was done", peer);
    else
        snprintf(message, sizeof(message), "a rank has left before what it was sent was done");
    note_failure(progress, request, (weft_result)request->request.result, message);
}

static int complete_work(struct weft__progress *progress, struct weft__line *line)
{
    struct weft__work_queue *queue = line->queue;
    int is_awaited = 0;
    if (queue == NULL)
        return 0;
    uint64_t first = atomic_load_explicit(&queue->num_completed, memory_order_relaxed);
    uint64_t end = atomic_load_explicit(&queue->num_taken, memory_order_relaxed), number = first;
    while (number < end && weft__net_is_done(&weft__line_under_way_of(line, number)->request)) {
        const struct weft__under_way *under_way = weft__line_under_way_of(line, number);
        if (under_way->request.result != WEFT_OK)
            note_loss(progress, under_way);
        is_awaited |= under_way->news == WEFT__SOMEBODY_WAITS;
        number++;
    }
    if (number == first)
        return 0;
    atomic_store_explicit(&queue->num_completed, number, memory_order_release);
    if (line == &progress->own)
        weft__doorbell_ring(&queue->completed, WEFT__ANY_WORD);
    if (is_awaited && progress->options.bell != NULL)
        weft__doorbell_ring_words(progress->options.bell, WEFT__ANY_WORD, WEFT__ANY_WORD + 1);
    return 1;
}

/* Else who moves the NIC on takes it afterwards. */
static int can_be_taken(const struct weft__progress *progress, const struct wp_access *work)
{
    return work != NULL && !waits_for_nic(progress, work);
}

int weft__progress_has_work(const struct weft__progress *progress)
{
    return can_be_taken(progress, weft__line_next_work(&progress->own)) ||
           can_be_taken(progress, weft__line_next_work(&progress->device)) ||
           (progress->options.nic != NULL && weft__nic_adapter_is_rung(progress->options.nic));
}

/* Takes from a device what is there: at most as much as its queue has slots. */
static int take_work_of_device(struct weft__progress *progress)
{
    const struct weft__line *line = &progress->device;
    return line->queue != NULL ? take_work(progress, &progress->device, line->num_slots) : 0;
}

/* Posts of launches are taken before those of the host when they have ended: so a flush of
 * the host waits for all of it. Nothing rings when a device posts; it is that flush that wakes a
 * thread which naps. */
int weft__progress_take(struct weft__progress *progress)
{
    const uint64_t num_own = count_work(&progress->own, NUM_TAKEN_PER_ROUND);
    const int num_taken = take_work_of_device(progress);
    return num_taken + take_work(progress, &progress->own, num_own);
}

int weft__progress_complete(struct weft__progress *progress)
{
    return complete_work(progress, &progress->own) + complete_work(progress, &progress->device);
}

/* ---------------------------------------------------------------- peers */

/* Else what was sent to them would never be done: that a peer is stopped, the engine does not
 * notice. */
static void fail_as_known(struct weft__progress *progress)
{
    const struct weft__status *status = progress->options.status;
    if (status == NULL)
        return;
    const int32_t num_dead = atomic_load(&status->num_dead);
    if (num_dead == progress->num_known_dead)
        return;
    const int has_failed = atomic_load(&status->result) != WEFT_OK;
    for (int32_t peer = 0; peer < progress->options.num_ranks; peer++) {
        if (atomic_load(&status->rank_states[peer]) != WEFT__RANK_DEAD)
            continue;
        if (has_failed)
            weft__net_fail_peer(progress->net, peer, "%s", status->message);
        else
            weft__net_fail_peer(progress->net, peer, "rank %d has died", peer);
    }
    progress->num_known_dead = num_dead;
}

static void tell_failures(struct weft__progress *progress)
{
    for (int32_t peer = weft__net_failed_peer(progress->net);
         peer >= 0 && peer < progress->options.num_ranks; peer++) {
        char message[WEFT__NET_REASON_BYTES];
        if (progress->news[peer] == WEFT__TOLD ||
            weft__net_peer_error(progress->net, peer) == WEFT_OK)
            continue;
        progress->news[peer] = WEFT__TOLD;
        snprintf(message, sizeof(message), "%s", weft__last_error());
        if (progress->options.on_peer_failure != NULL)
            progress->options.on_peer_failure(progress->options.context, peer, message);
    }
}

/* ---------------------------------------------------------------- the NIC */

int weft__progress_nic_is_idle(const struct weft__progress *progress)
{
    return progress->options.nic == NULL || weft__nic_adapter_is_idle(progress->options.nic);
}

/* Before the net ends the connection, which the peer would tell in its own words. */
static void lose_peer(struct weft__progress *progress, const struct weft__nic_failure *failure)
{
    progress->news[failure->peer] = WEFT__TOLD;
    if (progress->options.on_peer_failure != NULL)
        progress->options.on_peer_failure(progress->options.context, failure->peer,
                                          failure->message);
    weft__net_fail_peer(progress->net, failure->peer, "%s", failure->message);
}

int weft__progress_step_nic(struct weft__progress *progress)
{
    struct weft__nic_failure failure;
    if (progress->options.nic == NULL)
        return 0;
    const int num_events = weft__nic_adapter_step(progress->options.nic);
    while (weft__nic_adapter_next_failure(progress->options.nic, &failure)) {
        if (failure.kind == WEFT__NIC_PEER_IS_LOST)
            lose_peer(progress, &failure);
        else if (progress->options.on_failure != NULL)
            progress->options.on_failure(progress->options.context, failure.peer, failure.result,
                                         failure.message);
    }
    return num_events;
}

int weft__progress_round(struct weft__progress *progress)
{
    int num_events = weft__progress_take(progress);
    fail_as_known(progress);
    num_events += weft__net_progress(progress->net);
    /* In this order: who waits for a request to complete sees that its peer has failed. */
    tell_failures(progress);
    num_events += weft__progress_step_nic(progress);
    num_events += weft__progress_complete(progress);
    atomic_fetch_add_explicit(&progress->num_rounds, 1, memory_order_relaxed);
    return num_events;
}
