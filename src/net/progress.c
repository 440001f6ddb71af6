/* SPDX-License-Identifier: MIT */
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/host/descriptor.h"
#include "comm/host/error.h"
#include "comm/host/thread.h"
#include "net/progress_internal.h"

enum {
    NUM_EMPTY_ROUNDS = 20, /* before it sleeps, on a core of its own; elsewhere one */
    DEFAULT_SLEEP_MS =
        100, /* at most: what can be set in memory alone, as by a GPU, wakes nobody */
    DEFAULT_POST_TIMEOUT_MS = 60000,
    FAILED_CLOSE_MS =
        200,       /* when nobody waits for what was sent, and some do not take it any more */
    END_MS = 1000, /* to take what was posted; it can take longer only if a peer is stuck */
    END_SLEEP_NS = 10000000,
    NAP_NS = 500000,      /* the net rests for one or two, when who drove it has gone to work */
    DEVICE_NAP_NS = 50000 /* a device cannot wake the thread */
};

/* ---------------------------------------------------------------- the thread */

static struct timespec longest_sleep(const struct weft__progress *progress)
{
    const int64_t ns = progress->device.queue != NULL
                           ? DEVICE_NAP_NS
                           : (int64_t)progress->options.sleep_ms * WEFT__NS_PER_MS;
    const int64_t ns_per_s = 1000 * WEFT__NS_PER_MS;
    return (struct timespec){.tv_sec = ns / ns_per_s, .tv_nsec = ns % ns_per_s};
}

static int is_needed(const struct weft__progress *progress)
{
    return weft__progress_has_work(progress) || atomic_load(&progress->should_stop);
}

/* Until somebody wakes it; FOR_THE_NET also until something comes. Returns whether somebody has. */
enum sleep { FOR_THE_NET, FOR_CALLS };
static int sleep_until_woken(struct weft__progress *progress, enum sleep what,
                             const struct timespec *longest)
{
    uint64_t num_wakes;
    struct pollfd set[] = {{.fd = progress->event_fd, .events = POLLIN},
                           {.fd = weft__net_fd(progress->net), .events = POLLIN}};
    ppoll(set, what == FOR_THE_NET ? 2 : 1, longest, NULL);
    return set[0].revents != 0 && read(progress->event_fd, &num_wakes, sizeof(num_wakes)) > 0;
}

/* Others drive the net: the thread only looks whether they still do. */
static void nap(struct weft__progress *progress)
{
    const struct timespec longest = {.tv_nsec = NAP_NS};
    atomic_store(&progress->thread_state, WEFT__THREAD_NAPS);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with those of progress_ring and hand_back */
    while (!is_needed(progress) && atomic_exchange(&progress->is_driven, 0))
        if (sleep_until_woken(progress, FOR_CALLS, &longest))
            break;
    atomic_store(&progress->thread_state, WEFT__THREAD_AWAKE);
}

/* Nobody drives between this and the arming, and who does afterwards wakes the thread. */
static void sleep_armed(struct weft__progress *progress)
{
    const struct timespec longest = longest_sleep(progress);
    pthread_mutex_lock(&progress->rounds);
    atomic_store(&progress->thread_state, WEFT__THREAD_SLEEPS);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with that of progress_ring */
    const int is_armed = !is_needed(progress) && !atomic_load(&progress->is_driven) &&
                         weft__net_arm(progress->net) == WEFT__NET_ARMED;
    pthread_mutex_unlock(&progress->rounds);
    if (is_armed)
        sleep_until_woken(progress, FOR_THE_NET, &longest);
    atomic_store(&progress->thread_state, WEFT__THREAD_AWAKE);
}

static int run_once(struct weft__progress *progress)
{
    pthread_mutex_lock(&progress->rounds);
    const int num_events = weft__progress_round(progress);
    pthread_mutex_unlock(&progress->rounds);
    return num_events;
}

void weft__progress_run(struct weft__progress *progress)
{
    (void)run_once(progress);
}

static int take_last(struct weft__progress *progress)
{
    int num_events = weft__progress_take(progress);
    num_events += weft__net_progress(progress->net);
    num_events += weft__progress_step_nic(progress);
    num_events += weft__progress_complete(progress);
    return num_events;
}

/* Work that is not done when the net is closed has failed. */
static void end(struct weft__progress *progress)
{
    const int64_t deadline_ns = weft__now_ns() + END_MS * WEFT__NS_PER_MS;
    const struct weft__status *status = progress->options.status;
    pthread_mutex_lock(&progress->rounds);
    while ((weft__progress_has_work(progress) || !weft__progress_nic_is_idle(progress)) &&
           weft__now_ns() < deadline_ns) {
        const struct timespec longest = {.tv_nsec = END_SLEEP_NS};
        if (take_last(progress) == 0 && weft__net_arm(progress->net) == WEFT__NET_ARMED)
            sleep_until_woken(progress, FOR_THE_NET, &longest);
    }
    if (status != NULL && atomic_load(&status->result) != WEFT_OK)
        weft__net_set_close_ms(progress->net, FAILED_CLOSE_MS);
    weft__net_close(progress->net);
    weft__progress_complete(progress);
    pthread_mutex_unlock(&progress->rounds);
}

static void *run(void *argument)
{
    struct weft__progress *progress = argument;
    const int has_core = progress->options.cores >= WEFT__TWO_CORES_FOR_EACH_RANK;
    const int most_empty = has_core ? NUM_EMPTY_ROUNDS : 1;
    int num_empty = 0;
    while (!atomic_load(&progress->should_stop)) {
        if (atomic_load(&progress->is_driven))
            nap(progress);
        if (run_once(progress) > 0)
            num_empty = 0;
        else if (++num_empty >= most_empty) {
            sleep_armed(progress);
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
    pthread_mutex_destroy(&progress->rounds);
    free(progress->own.queue);
    free(progress->own.under_way);
    free(progress->device.under_way);
    free(progress->news);
    free(progress);
}

static weft_result allocate(const struct weft__progress_options *options,
                            struct weft__progress **allocated)
{
    struct weft__progress *progress = calloc(1, sizeof(*progress));
    WEFT__CHECK_MEMORY(progress, "no memory for a progress thread");
    const size_t queue_bytes =
        sizeof(*progress->own.queue) + options->num_slots * sizeof(struct wp_access);
    progress->options = *options;
    progress->net = options->net;
    if (progress->options.post_timeout_ms == 0)
        progress->options.post_timeout_ms = DEFAULT_POST_TIMEOUT_MS;
    if (progress->options.sleep_ms == 0)
        progress->options.sleep_ms = DEFAULT_SLEEP_MS;
    pthread_mutex_init(&progress->mutex, NULL);
    pthread_mutex_init(&progress->rounds, NULL);
    progress->event_fd = weft__descriptor_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    progress->own = (struct weft__line){
        .queue = aligned_alloc(WP_ACCESS_BYTES, queue_bytes),
        .num_slots = options->num_slots,
        .under_way = calloc(options->num_slots, sizeof(*progress->own.under_way)),
    };
    progress->device = (struct weft__line){
        .queue = options->device_queue,
        .num_slots = options->num_device_slots,
        .under_way = calloc(options->num_device_slots + 1, sizeof(*progress->device.under_way)),
    };
    progress->news = calloc((size_t)options->num_ranks, sizeof(*progress->news));
    *allocated = progress;
    if (progress->event_fd < 0)
        return weft__system_error("eventfd");
    if (progress->own.queue == NULL || progress->own.under_way == NULL ||
        progress->device.under_way == NULL || progress->news == NULL)
        return weft__no_memory("no memory for a queue of %u slots", options->num_slots);
    memset(progress->own.queue, 0, queue_bytes);
    return WEFT_OK;
}

weft_result weft__progress_start(const struct weft__progress_options *options,
                                 struct weft__progress **started)
{
    struct weft__progress *progress = NULL;
    if (options->num_slots == 0 || (options->num_slots & (options->num_slots - 1)) != 0)
        return weft__invalid("num_slots is %u; it must be a power of two", options->num_slots);
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

/* Wakes the thread, once, if it is in one of the states. */
static void wake_from(struct weft__progress *progress, uint32_t state)
{
    if (atomic_load_explicit(&progress->thread_state, memory_order_relaxed) == state &&
        atomic_compare_exchange_strong(&progress->thread_state, &state, WEFT__THREAD_AWAKE))
        wake(progress);
}

/* After the store that the thread looks at before it sleeps. */
void weft__progress_ring(struct weft__progress *progress, enum weft__work_poster poster)
{
    atomic_thread_fence(memory_order_seq_cst);
    wake_from(progress, WEFT__THREAD_SLEEPS);
    if (poster == WEFT__POSTER_WAITS)
        wake_from(progress, WEFT__THREAD_NAPS);
}

static weft_result fail_post(struct weft__progress *progress)
{
    char message[128];
    snprintf(message, sizeof message, "the network has taken nothing of %u requests within %u ms",
             progress->options.num_slots, progress->options.post_timeout_ms);
    if (progress->options.on_failure != NULL)
        progress->options.on_failure(progress->options.context, -1, WEFT_ERROR_TIMEOUT, message);
    return weft__error(WEFT_ERROR_TIMEOUT, "%s", message);
}

/* The number of a slot that is free, so that nobody waits behind one that is given up. The thread
 * takes what is there, whatever peers do, as long as what was taken completes; and the failure of a
 * peer completes it. */
static weft_result reserve(struct weft__progress *progress, uint64_t *number)
{
    struct weft__work_queue *queue = progress->own.queue;
    int64_t deadline_ns = 0;
    *number = atomic_load_explicit(&queue->num_reserved, memory_order_relaxed);
    for (;;) {
        if (*number - atomic_load_explicit(&queue->num_taken, memory_order_acquire) <
            progress->options.num_slots) {
            if (atomic_compare_exchange_weak_explicit(&queue->num_reserved, number, *number + 1,
                                                      memory_order_relaxed, memory_order_relaxed))
                return WEFT_OK;
            continue;
        }
        if (deadline_ns == 0)
            deadline_ns =
                weft__now_ns() + (int64_t)progress->options.post_timeout_ms * WEFT__NS_PER_MS;
        else if (weft__now_ns() >= deadline_ns)
            return fail_post(progress);
        wake_from(progress, WEFT__THREAD_NAPS);
        sched_yield();
        *number = atomic_load_explicit(&queue->num_reserved, memory_order_relaxed);
    }
}

/* The slot's word `ready` comes last. */
static void write_slot(struct wp_access *slot, const struct wp_access *access, uint64_t number)
{
    memcpy(slot, access, offsetof(struct wp_access, ready));
    __atomic_store_n(&slot->ready, number + 1, __ATOMIC_RELEASE);
}

weft_result weft__progress_post(struct weft__progress *progress, const struct wp_access *access,
                                enum weft__work_poster poster, uint64_t *number)
{
    struct weft__work_queue *queue = progress->own.queue;
    uint64_t own;
    if (atomic_load(&progress->should_stop))
        return weft__error(WEFT_ERROR_ABORTED, "the network is being closed");
    WEFT__TRY(reserve(progress, &own));
    write_slot(&queue->slots[own % progress->options.num_slots], access, own);
    weft__progress_ring(progress, poster);
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

void weft__progress_drive(struct weft__progress *progress)
{
    if (pthread_mutex_trylock(&progress->rounds) != 0)
        return;
    atomic_store(&progress->is_driven, 1);
    wake_from(progress, WEFT__THREAD_SLEEPS); /* what it has armed, progress disarms */
    weft__progress_round(progress);
    pthread_mutex_unlock(&progress->rounds);
}

void weft__progress_drive_posted(struct weft__progress *progress)
{
    if (atomic_load_explicit(&progress->thread_state, memory_order_relaxed) == WEFT__THREAD_NAPS &&
        weft__progress_has_work(progress))
        weft__progress_drive(progress);
}

weft_result weft__progress_act(struct weft__progress *progress,
                               weft_result (*act)(struct weft__net *net, void *context),
                               void *context)
{
    pthread_mutex_lock(&progress->rounds);
    const weft_result result = act(progress->net, context);
    pthread_mutex_unlock(&progress->rounds);
    return result;
}

void weft__progress_hand_back(struct weft__progress *progress)
{
    atomic_store(&progress->is_driven, 0);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with that of nap */
    wake_from(progress, WEFT__THREAD_NAPS);
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

struct weft__work_queue *weft__progress_queue(struct weft__progress *progress)
{
    return progress->own.queue;
}

uint64_t weft__progress_num_puts(const struct weft__progress *progress)
{
    return atomic_load_explicit(&progress->num_puts, memory_order_relaxed);
}

uint64_t weft__progress_num_rounds(const struct weft__progress *progress)
{
    return atomic_load_explicit(&progress->num_rounds, memory_order_relaxed);
}
