/* SPDX-License-Identifier: MIT */
#include "net/progress.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/error.h"
#include "comm/thread.h"
#include "net/line.h"

enum {
    NUM_EMPTY_ROUNDS = 20, /* before it sleeps: spinning would starve the others of few cores */
    DEFAULT_SLEEP_MS =
        100, /* at most: what can be set in memory alone, as by a GPU, wakes nobody */
    FAILED_CLOSE_MS =
        200,       /* when nobody waits for what was sent, and some do not take it any more */
    END_MS = 1000, /* to take what was posted; it can take longer only if a peer is stuck */
    DEVICE_NAP_NS = 50000, /* a device cannot wake the thread */
    NUM_TAKEN_PER_ROUND = 64
};

struct peer_state {
    weft_result result;
    enum { NOT_TOLD, TOLD } news; /* of its failure, to on_failure */
    enum { NO_ORDER, TO_BE_FAILED } order;
    char message[WEFT__NET_REASON_BYTES];
};

struct weft__progress {
    struct weft__net *net;
    struct weft__progress_options options;
    struct weft__line own, device;
    pthread_t thread;
    int event_fd;
    _Atomic int should_stop, has_orders;
    _Atomic uint64_t num_rounds;
    _Atomic uint64_t num_bytes, num_messages; /* sent */

    pthread_mutex_t mutex;    /* of what follows */
    struct peer_state *peers; /* [num_ranks] */
    weft_result result;       /* of what was posted, the first failure */
    char message[WEFT__ERROR_BYTES];
};

/* ---------------------------------------------------------------- the thread: work */

/* That a peer has failed is told for itself, and that one has left harms nobody unless the request says so. */
static void tell_of_request(struct weft__progress *progress, const struct weft__under_way *request,
                            weft_result result, const char *message)
{
    if (progress->options.on_failure == NULL)
        return;
    if (result != WEFT_ERROR_RANK_FAILED)
        progress->options.on_failure(progress->options.context, -1, result, message);
    else if (request->loss == WEFT__WORK_MUST_NOT_BE_LOST)
        progress->options.on_failure(progress->options.context, request->peer, result, message);
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

static int take_work(struct weft__progress *progress, struct weft__line *line)
{
    struct weft__work_queue *queue = line->queue;
    int num_taken = 0;
    const struct weft__work_slot *work;
    while (num_taken < NUM_TAKEN_PER_ROUND && (work = weft__line_next_work(line)) != NULL) {
        uint64_t number = atomic_load_explicit(&queue->num_taken, memory_order_relaxed);
        /* Its request may still be that of an operation a lap ago. */
        if (number - atomic_load_explicit(&queue->num_completed, memory_order_relaxed) >=
            line->num_slots)
            break;
        count(progress, work); /* first: whoever has heard of it finds it counted */
        struct weft__under_way *under_way = weft__line_under_way_of(line, number);
        *under_way = weft__line_describe(work);
        weft_result result = weft__work_start(progress->net, work, &under_way->request);
        if (result != WEFT_OK)
            note_failure(progress, under_way, result, weft__last_error());
        /* Release: who posts may write the slot again. */
        atomic_store_explicit(&queue->num_taken, number + 1, memory_order_release);
        num_taken++;
    }
    return num_taken;
}

static void note_loss(struct weft__progress *progress, const struct weft__under_way *request)
{
    char message[WEFT__NET_REASON_BYTES];
    snprintf(message, sizeof(message),
             "rank %d has left, or failed, before what it was sent was done", request->peer);
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

static int has_work(const struct weft__progress *progress)
{
    return weft__line_next_work(&progress->own) != NULL ||
           weft__line_next_work(&progress->device) != NULL;
}

static int take_all_work(struct weft__progress *progress)
{
    return take_work(progress, &progress->own) + take_work(progress, &progress->device);
}

static int complete_all_work(struct weft__progress *progress)
{
    return complete_work(progress, &progress->own) + complete_work(progress, &progress->device);
}

/* ---------------------------------------------------------------- the thread: peers */

static void fail_as_ordered(struct weft__progress *progress)
{
    if (!atomic_exchange(&progress->has_orders, 0))
        return;
    pthread_mutex_lock(&progress->mutex);
    for (int32_t peer = 0; peer < progress->options.num_ranks; peer++)
        if (progress->peers[peer].order == TO_BE_FAILED) {
            progress->peers[peer].order = NO_ORDER;
            weft__net_fail_peer(progress->net, peer, "%s", progress->peers[peer].message);
        }
    pthread_mutex_unlock(&progress->mutex);
}

static int has_failed(const struct weft__progress *progress)
{
    const struct weft__status *status = progress->options.status;
    return status != NULL && atomic_load_explicit(&status->result, memory_order_acquire) != WEFT_OK;
}

/* Else what was sent to them would never be done: that a peer is stopped, the engine does not notice. */
static void fail_as_known(struct weft__progress *progress)
{
    const struct weft__status *status = progress->options.status;
    if (!has_failed(progress))
        return;
    for (int32_t peer = 0; peer < progress->options.num_ranks; peer++)
        if (atomic_load(&status->rank_states[peer]) == WEFT__RANK_DEAD)
            weft__net_fail_peer(progress->net, peer, "%s", status->message);
}

static void tell_failures(struct weft__progress *progress)
{
    for (int32_t peer = weft__net_failed_peer(progress->net);
         peer >= 0 && peer < progress->options.num_ranks; peer++) {
        struct peer_state *state = &progress->peers[peer];
        if (state->news == TOLD || weft__net_peer_error(progress->net, peer) == WEFT_OK)
            continue;
        pthread_mutex_lock(&progress->mutex);
        state->news = TOLD;
        state->result = WEFT_ERROR_RANK_FAILED;
        snprintf(state->message, sizeof(state->message), "%s", weft__last_error());
        pthread_mutex_unlock(&progress->mutex);
        if (progress->options.on_failure != NULL)
            progress->options.on_failure(progress->options.context, peer, state->result,
                                         state->message);
    }
}

/* ---------------------------------------------------------------- the thread: its loop */

static struct timespec longest_sleep(const struct weft__progress *progress)
{
    const int64_t ns = progress->device.queue != NULL
                           ? DEVICE_NAP_NS
                           : (int64_t)progress->options.sleep_ms * WEFT__NS_PER_MS;
    const int64_t ns_per_s = 1000 * WEFT__NS_PER_MS;
    return (struct timespec){.tv_sec = ns / ns_per_s, .tv_nsec = ns % ns_per_s};
}

static void sleep_until_woken(struct weft__progress *progress)
{
    struct weft__work_queue *queue = progress->own.queue;
    uint64_t num_wakes;
    atomic_store(&queue->is_asleep, 1);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with that of ring */
    if (!has_work(progress) && !atomic_load(&progress->should_stop) &&
        !atomic_load(&progress->has_orders) && weft__net_arm(progress->net) == WEFT__NET_ARMED) {
        struct pollfd set[] = {{.fd = weft__net_fd(progress->net), .events = POLLIN},
                               {.fd = progress->event_fd, .events = POLLIN}};
        const struct timespec longest = longest_sleep(progress);
        ppoll(set, 2, &longest, NULL);
        if (set[1].revents != 0)
            (void)!read(progress->event_fd, &num_wakes, sizeof(num_wakes));
    }
    atomic_store(&queue->is_asleep, 0);
}

static int run_once(struct weft__progress *progress)
{
    int num_events = take_all_work(progress);
    fail_as_ordered(progress);
    fail_as_known(progress);
    num_events += weft__net_progress(progress->net);
    /* In this order: who waits for a request to complete sees that its peer has failed. */
    tell_failures(progress);
    num_events += complete_all_work(progress);
    atomic_fetch_add_explicit(&progress->num_rounds, 1, memory_order_relaxed);
    return num_events;
}

/* What is not done when the net is closed has failed. */
static void end(struct weft__progress *progress)
{
    const int64_t deadline_ns = weft__now_ns() + END_MS * WEFT__NS_PER_MS;
    while (has_work(progress) && weft__now_ns() < deadline_ns) {
        take_all_work(progress);
        weft__net_progress(progress->net);
        complete_all_work(progress);
    }
    if (has_failed(progress))
        weft__net_set_close_ms(progress->net, FAILED_CLOSE_MS);
    weft__net_close(progress->net);
    complete_all_work(progress);
}

static void *run(void *argument)
{
    struct weft__progress *progress = argument;
    int num_empty = 0;
    while (!atomic_load(&progress->should_stop)) {
        if (run_once(progress) > 0)
            num_empty = 0;
        else if (++num_empty >= NUM_EMPTY_ROUNDS) {
            sleep_until_woken(progress);
            num_empty = 0;
        }
    }
    end(progress);
    return NULL;
}

/* ---------------------------------------------------------------- starting and stopping */

static void free_progress(struct weft__progress *progress)
{
    if (progress->event_fd >= 0)
        close(progress->event_fd);
    pthread_mutex_destroy(&progress->mutex);
    free(progress->own.queue);
    free(progress->own.under_way);
    free(progress->device.under_way);
    free(progress->peers);
    free(progress);
}

static weft_result allocate(const struct weft__progress_options *options,
                            struct weft__progress **allocated)
{
    struct weft__progress *progress = calloc(1, sizeof(*progress));
    if (progress == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a progress thread");
    const size_t queue_bytes =
        sizeof(*progress->own.queue) + options->num_slots * sizeof(struct weft__work_slot);
    progress->options = *options;
    progress->net = options->net;
    if (progress->options.sleep_ms == 0)
        progress->options.sleep_ms = DEFAULT_SLEEP_MS;
    pthread_mutex_init(&progress->mutex, NULL);
    progress->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    progress->own = (struct weft__line){
        .queue = aligned_alloc(WEFT__WORK_LINE_BYTES, queue_bytes),
        .num_slots = options->num_slots,
        .under_way = calloc(options->num_slots, sizeof(*progress->own.under_way)),
    };
    progress->device = (struct weft__line){
        .queue = options->device_queue,
        .num_slots = options->num_device_slots,
        .under_way = calloc(options->num_device_slots + 1, sizeof(*progress->device.under_way)),
    };
    progress->peers = calloc((size_t)options->num_ranks, sizeof(*progress->peers));
    *allocated = progress;
    if (progress->event_fd < 0)
        return weft__system_error("eventfd");
    if (progress->own.queue == NULL || progress->own.under_way == NULL ||
        progress->device.under_way == NULL || progress->peers == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a queue of %u slots",
                           options->num_slots);
    memset(progress->own.queue, 0, queue_bytes);
    return WEFT_OK;
}

weft_result weft__progress_start(const struct weft__progress_options *options,
                                 struct weft__progress **started)
{
    struct weft__progress *progress = NULL;
    if (options->num_slots == 0 || (options->num_slots & (options->num_slots - 1)) != 0)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "num_slots is %u; it must be a power of two", options->num_slots);
    weft_result result = allocate(options, &progress);
    if (result == WEFT_OK)
        result = weft__thread_start(&progress->thread, run, progress);
    if (result == WEFT_OK)
        *started = progress;
    else if (progress != NULL)
        free_progress(progress);
    return result;
}

static void wake(struct weft__progress *progress)
{
    const uint64_t one = 1;
    (void)!write(progress->event_fd, &one, sizeof(one));
}

void weft__progress_stop(struct weft__progress *progress)
{
    atomic_store(&progress->should_stop, 1);
    wake(progress);
    pthread_join(progress->thread, NULL);
    free_progress(progress);
}

/* ---------------------------------------------------------------- other threads */

/* After the store that the thread looks at before it sleeps. */
static void ring(struct weft__progress *progress)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&progress->own.queue->is_asleep, memory_order_relaxed))
        wake(progress);
}

weft_result weft__progress_post(struct weft__progress *progress,
                                const struct weft__work_request *request, uint64_t *number)
{
    struct weft__work_queue *queue = progress->own.queue;
    if (atomic_load(&progress->should_stop))
        return weft__error(WEFT_ERROR_ABORTED, "the network is being closed");
    const uint64_t own = atomic_fetch_add_explicit(&queue->num_reserved, 1, memory_order_relaxed);
    struct weft__work_slot *work = &queue->slots[own % progress->options.num_slots];
    /* The thread takes what is there, whatever peers do, as long as what was taken completes; and the
     * failure of a peer completes it. */
    while (own - atomic_load_explicit(&queue->num_taken, memory_order_acquire) >=
           progress->options.num_slots)
        sched_yield();
    work->source = request->source;
    work->target = request->target;
    work->num_bytes = request->num_bytes;
    work->operation = request->operation;
    work->loss = request->loss;
    work->peer = request->peer;
    work->word = request->word;
    work->add = request->add;
    atomic_store_explicit(&work->ready, own + 1, memory_order_release);
    ring(progress);
    if (number != NULL)
        *number = own;
    return WEFT_OK;
}

weft_result weft__progress_await(struct weft__progress *progress, uint64_t number,
                                 int64_t deadline_ns)
{
    struct weft__work_queue *queue = progress->own.queue;
    while (atomic_load_explicit(&queue->num_completed, memory_order_acquire) <= number) {
        uint32_t prepared = weft__doorbell_prepare(&queue->completed, WEFT__ANY_WORD);
        int64_t left_ns = deadline_ns - weft__now_ns();
        if (atomic_load_explicit(&queue->num_completed, memory_order_acquire) > number ||
            left_ns <= 0)
            weft__doorbell_cancel(&queue->completed);
        else
            weft__doorbell_sleep(&queue->completed, prepared, left_ns);
        if (left_ns <= 0)
            return weft__error(WEFT_ERROR_TIMEOUT, "what was sent is not done in time");
    }
    return WEFT_OK;
}

weft_result weft__progress_error(struct weft__progress *progress)
{
    pthread_mutex_lock(&progress->mutex);
    weft_result result = progress->result;
    if (result != WEFT_OK)
        weft__error(result, "%s", progress->message);
    pthread_mutex_unlock(&progress->mutex);
    return result;
}

weft_result weft__progress_peer_error(struct weft__progress *progress, int32_t peer)
{
    pthread_mutex_lock(&progress->mutex);
    weft_result result = progress->peers[peer].result;
    if (result != WEFT_OK)
        weft__error(result, "%s", progress->peers[peer].message);
    pthread_mutex_unlock(&progress->mutex);
    return result;
}

void weft__progress_fail_peer(struct weft__progress *progress, int32_t peer, const char *why)
{
    pthread_mutex_lock(&progress->mutex);
    struct peer_state *state = &progress->peers[peer];
    if (state->result == WEFT_OK && state->order == NO_ORDER) {
        snprintf(state->message, sizeof(state->message), "%s", why);
        state->order = TO_BE_FAILED;
    }
    pthread_mutex_unlock(&progress->mutex);
    atomic_store(&progress->has_orders, 1);
    ring(progress);
}

struct weft__work_queue *weft__progress_queue(struct weft__progress *progress)
{
    return progress->own.queue;
}

struct weft__progress_counts weft__progress_counts(const struct weft__progress *progress)
{
    return (struct weft__progress_counts){
        .num_bytes = atomic_load_explicit(&progress->num_bytes, memory_order_relaxed),
        .num_messages = atomic_load_explicit(&progress->num_messages, memory_order_relaxed)};
}

uint64_t weft__progress_num_rounds(const struct weft__progress *progress)
{
    return atomic_load_explicit(&progress->num_rounds, memory_order_relaxed);
}
