/* SPDX-License-Identifier: MIT */
/* What driving a net is, whoever does it. */
#include <stdio.h>

#include "comm/error.h"
#include "net/progress_internal.h"

enum { NUM_TAKEN_PER_ROUND = 64 };

static struct weft__net_request *request_of(const struct weft__work_line *line, uint64_t number)
{
    return &line->requests[number % line->num_slots];
}

/* ---------------------------------------------------------------- work */

/* Of a request. */
static void note_failure(struct weft__progress *progress, weft_result result, const char *message)
{
    pthread_mutex_lock(&progress->mutex);
    if (progress->result == WEFT_OK) {
        progress->result = result;
        snprintf(progress->message, sizeof(progress->message), "%s", message);
    }
    pthread_mutex_unlock(&progress->mutex);
}

static weft_result start_work(struct weft__progress *progress, const struct weft__work_slot *work,
                              struct weft__net_request *request)
{
    const struct weft__net_put put = {.peer = work->peer,
                                      .source = work->source,
                                      .target = work->target,
                                      .num_bytes = work->num_bytes,
                                      .word = work->word,
                                      .add = work->add};
    const struct weft__net_get get = {.peer = work->peer,
                                      .source = work->source,
                                      .target = work->target,
                                      .num_bytes = work->num_bytes};
    const struct weft__net_fetch_add fetch_add = {
        .peer = work->peer, .word = work->word, .add = work->add, .target = work->target};
    *request = (struct weft__net_request){.num_left = 0};
    switch (work->operation) {
    case WEFT__WORK_PUT:
        return weft__net_put(progress->net, &put, request);
    case WEFT__WORK_PUT_SIGNAL:
        return weft__net_put_signal(progress->net, &put, request);
    case WEFT__WORK_SIGNAL:
        return weft__net_signal(progress->net, work->peer, work->word, work->add);
    case WEFT__WORK_FLUSH:
        return weft__net_flush(progress->net, work->peer, request);
    case WEFT__WORK_GET:
        return weft__net_get(progress->net, &get, request);
    case WEFT__WORK_FETCH_ADD:
        return weft__net_fetch_add(progress->net, &fetch_add, request);
    default:
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "operation is %u", work->operation);
    }
}

static void count(struct weft__progress *progress, const struct weft__work_slot *work)
{
    const int is_put =
        work->operation == WEFT__WORK_PUT || work->operation == WEFT__WORK_PUT_SIGNAL;
    if (!is_put && work->operation != WEFT__WORK_SIGNAL)
        return;
    atomic_fetch_add_explicit(&progress->num_messages, 1, memory_order_relaxed);
    if (is_put)
        atomic_fetch_add_explicit(&progress->num_bytes, work->num_bytes, memory_order_relaxed);
}

static const struct weft__work_slot *next_work(const struct weft__work_line *line)
{
    const struct weft__work_queue *queue = line->queue;
    if (queue == NULL)
        return NULL;
    uint64_t number = atomic_load_explicit(&queue->num_taken, memory_order_relaxed);
    const struct weft__work_slot *work = &queue->slots[number % line->num_slots];
    return atomic_load_explicit(&work->ready, memory_order_acquire) == number + 1 ? work : NULL;
}

static int take_work(struct weft__progress *progress, struct weft__work_line *line)
{
    struct weft__work_queue *queue = line->queue;
    int num_taken = 0;
    const struct weft__work_slot *work;
    while (num_taken < NUM_TAKEN_PER_ROUND && (work = next_work(line)) != NULL) {
        uint64_t number = atomic_load_explicit(&queue->num_taken, memory_order_relaxed);
        /* Its request may still be that of an operation a lap ago. */
        if (number - atomic_load_explicit(&queue->num_completed, memory_order_relaxed) >=
            line->num_slots)
            break;
        weft_result result = start_work(progress, work, request_of(line, number));
        if (result == WEFT_OK)
            count(progress, work);
        else
            note_failure(progress, result, weft__last_error());
        /* Release: who posts may write the slot again. */
        atomic_store_explicit(&queue->num_taken, number + 1, memory_order_release);
        num_taken++;
    }
    return num_taken;
}

static int complete_work(struct weft__progress *progress, struct weft__work_line *line)
{
    struct weft__work_queue *queue = line->queue;
    if (queue == NULL)
        return 0;
    uint64_t first = atomic_load_explicit(&queue->num_completed, memory_order_relaxed);
    uint64_t end = atomic_load_explicit(&queue->num_taken, memory_order_relaxed), number = first;
    while (number < end && weft__net_is_done(request_of(line, number))) {
        weft_result result = (weft_result)request_of(line, number)->result;
        if (result != WEFT_OK)
            note_failure(progress, result, "a peer failed before what was sent to it was done");
        number++;
    }
    if (number == first)
        return 0;
    atomic_store_explicit(&queue->num_completed, number, memory_order_release);
    if (line == &progress->own)
        weft__doorbell_ring(&queue->completed, WEFT__ANY_WORD);
    return 1;
}

int weft__progress_has_work(const struct weft__progress *progress)
{
    return next_work(&progress->own) != NULL || next_work(&progress->device) != NULL;
}

static int take_all_work(struct weft__progress *progress)
{
    return take_work(progress, &progress->own) + take_work(progress, &progress->device);
}

/* ---------------------------------------------------------------- failures */

static void fail_as_ordered(struct weft__progress *progress)
{
    if (!atomic_exchange(&progress->has_orders, 0))
        return;
    pthread_mutex_lock(&progress->mutex);
    for (int32_t peer = 0; peer < progress->options.num_ranks; peer++)
        if (progress->peers[peer].order == WEFT__TO_BE_FAILED) {
            progress->peers[peer].order = WEFT__NO_ORDER;
            weft__net_fail_peer(progress->net, peer, "%s", progress->peers[peer].message);
        }
    pthread_mutex_unlock(&progress->mutex);
}

static int has_comm_failed(const struct weft__progress *progress)
{
    const struct weft__status *status = progress->options.status;
    return status != NULL && atomic_load_explicit(&status->result, memory_order_acquire) != WEFT_OK;
}

/* Else what was sent to them would never be done: that a peer is stopped, the engine does not notice. */
static void fail_as_known(struct weft__progress *progress)
{
    const struct weft__status *status = progress->options.status;
    if (!has_comm_failed(progress))
        return;
    for (int32_t peer = 0; peer < progress->options.num_ranks; peer++)
        if (atomic_load(&status->rank_states[peer]) == WEFT__RANK_DEAD)
            weft__net_fail_peer(progress->net, peer, "%s", status->message);
}

int weft__progress_has_failed(const struct weft__progress *progress)
{
    return has_comm_failed(progress) || progress->result != WEFT_OK ||
           weft__net_failed_peer(progress->net) >= 0;
}

/* That a peer has failed is told for itself, and that one has left harms nobody. */
void weft__progress_tell_request_failure(struct weft__progress *progress)
{
    if (progress->result == WEFT_OK || progress->news == WEFT__TOLD)
        return;
    progress->news = WEFT__TOLD;
    if (progress->result != WEFT_ERROR_RANK_FAILED && progress->options.on_failure != NULL)
        progress->options.on_failure(progress->options.context, -1, progress->result,
                                     progress->message);
}

void weft__progress_tell_peer_failures(struct weft__progress *progress)
{
    for (int32_t peer = weft__net_failed_peer(progress->net);
         peer >= 0 && peer < progress->options.num_ranks; peer++) {
        struct weft__peer_state *state = &progress->peers[peer];
        if (state->news == WEFT__TOLD || weft__net_peer_error(progress->net, peer) == WEFT_OK)
            continue;
        pthread_mutex_lock(&progress->mutex);
        state->news = WEFT__TOLD;
        state->result = WEFT_ERROR_RANK_FAILED;
        snprintf(state->message, sizeof(state->message), "%s", weft__last_error());
        pthread_mutex_unlock(&progress->mutex);
        if (progress->options.on_failure != NULL)
            progress->options.on_failure(progress->options.context, peer, state->result,
                                         state->message);
    }
}

/* ---------------------------------------------------------------- rounds */

int weft__progress_advance(struct weft__progress *progress)
{
    int num_events = take_all_work(progress);
    fail_as_ordered(progress);
    fail_as_known(progress);
    num_events += weft__net_progress(progress->net);
    atomic_fetch_add_explicit(&progress->num_rounds, 1, memory_order_relaxed);
    return num_events;
}

int weft__progress_complete(struct weft__progress *progress)
{
    return complete_work(progress, &progress->own) + complete_work(progress, &progress->device);
}
