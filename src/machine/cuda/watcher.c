/* SPDX-License-Identifier: MIT */
/* A thread per communicator that carries news between the communicator's status and the board that
 * kernels look at. A kernel cannot call the host, so its failures are polled for. */

#include "comm/host/thread.h"
#include "machine/cuda/device.h"

enum {
    POLL_MS = 5, /* how late the others may hear of a failure, at some 200 wake-ups a second */
    /* A wait is over when it has not looked for this part of the deadline. Kernels that wait look
     * once a millisecond, but only while they run: processes that share a GPU take turns, and 16 of
     * them got no turn for more than 50 ms (H200, 2026-11-29). Who asks has waited for the whole
     * deadline, so that it meets no wait that ended before its own began. */
    LOOKS_PER_DEADLINE = 4
};

/* Called with the status's mutex held. */
static void post_news(const weft_comm *comm)
{
    const struct weft__status *status = &comm->status;
    struct weft__cuda_board *board = weft__cuda_of(comm)->board;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (weft__status_rank_is_gone(status, rank))
            __atomic_store_n(&board->rank_is_gone[rank], 1, __ATOMIC_RELEASE);
    }
    if (atomic_load(&status->result) != WEFT_OK)
        __atomic_store_n(&board->comm_has_failed, 1, __ATOMIC_RELEASE);
}

static int has_news(const weft_comm *comm)
{
    const struct weft__cuda_board *board = weft__cuda_of(comm)->board;
    return __atomic_load_n(&board->failure_is_told, __ATOMIC_ACQUIRE) != 0 &&
           atomic_load(&comm->status.result) == WEFT_OK;
}

/* The waits of kernels, for ranks that ask. */
struct long_wait {
    struct weft__wait_entry entry;
    int is_known; /* to the communicator */
    uint32_t num_looks;
    int64_t looked_ns;
};

static void forget_wait(weft_comm *comm, struct long_wait *known)
{
    if (known->is_known)
        weft__waits_end(&comm->waits, &known->entry, WEFT__WAIT_CAME);
    known->is_known = 0;
}

static void follow_wait(weft_comm *comm, const struct weft__cuda_long_wait *seen,
                        struct long_wait *known, int64_t now_ns)
{
    const uint32_t num_looks = __atomic_load_n(&seen->num_looks, __ATOMIC_RELAXED);
    const uint64_t wait = __atomic_load_n(&seen->wait, __ATOMIC_RELAXED);
    const int64_t longest_ns = comm->timeout_ms * WEFT__NS_PER_MS / LOOKS_PER_DEADLINE;
    if (num_looks == known->num_looks && now_ns - known->looked_ns < longest_ns)
        return;
    forget_wait(comm, known);
    if (num_looks == known->num_looks)
        return;
    known->num_looks = num_looks;
    known->looked_ns = now_ns;
    known->is_known = 1;
    known->entry.wait = (struct weft__wait){.rank = weft__cuda_wait_rank(wait),
                                            .exchange = weft__cuda_wait_exchange(wait)};
    weft__waits_begin(&comm->waits, &known->entry);
}

static void follow_waits(weft_comm *comm, struct long_wait *known)
{
    const struct weft__cuda_board *board = weft__cuda_of(comm)->board;
    const int64_t now_ns = weft__now_ns();
    for (int i = 0; i < WEFT__CUDA_NUM_LONG_WAITS; i++)
        follow_wait(comm, &board->long_waits[i], &known[i], now_ns);
}

static void forget_waits(weft_comm *comm, struct long_wait *known)
{
    for (int i = 0; i < WEFT__CUDA_NUM_LONG_WAITS; i++)
        forget_wait(comm, &known[i]);
}

static void *watch(void *argument)
{
    weft_comm *comm = argument;
    struct weft__cuda *cuda = weft__cuda_of(comm);
    struct weft__status *status = &comm->status;
    struct long_wait waits[WEFT__CUDA_NUM_LONG_WAITS] = {0};
    pthread_mutex_lock(&status->mutex);
    while (cuda->watcher_runs) {
        post_news(comm);
        follow_waits(comm, waits);
        if (has_news(comm)) {
            pthread_mutex_unlock(&status->mutex);
            weft__cuda_collect_failure(comm);
            pthread_mutex_lock(&status->mutex);
            continue;
        }
        const struct timespec until = weft__timespec(weft__now_ns() + POLL_MS * WEFT__NS_PER_MS);
        pthread_cond_timedwait(&status->changed, &status->mutex, &until);
    }
    pthread_mutex_unlock(&status->mutex);
    forget_waits(comm, waits);
    return NULL;
}

weft_result weft__cuda_watcher_start(weft_comm *comm)
{
    struct weft__cuda *cuda = weft__cuda_of(comm);
    cuda->watcher_runs = 1;
    const weft_result result = weft__thread_start(&cuda->watcher, watch, comm);
    if (result != WEFT_OK)
        cuda->watcher_runs = 0;
    return result;
}

void weft__cuda_watcher_stop(weft_comm *comm)
{
    struct weft__cuda *cuda = weft__cuda_of(comm);
    if (cuda == NULL || !cuda->watcher_runs)
        return;
    pthread_mutex_lock(&comm->status.mutex);
    cuda->watcher_runs = 0;
    pthread_cond_broadcast(&comm->status.changed);
    pthread_mutex_unlock(&comm->status.mutex);
    pthread_join(cuda->watcher, NULL);
}

void weft__cuda_collect_failure(weft_comm *comm)
{
    struct weft__cuda *cuda = weft__cuda_of(comm);
    if (!has_news(comm))
        return;
    pthread_mutex_lock(&cuda->mutex);
    const uint32_t failed = cuda->board->failed_program;
    const struct weft__cuda_kernel kernel =
        cuda->kernels[failed & ((UINT32_C(1) << WEFT__CUDA_CALL_BIT) - 1)];
    const struct weft__record end = {.ended_ns = weft__now_ns(),
                                     .last_rank = cuda->board->failure.site.rank,
                                     .state = WEFT__RECORD_FAILED,
                                     .call_idx = (int32_t)(failed >> WEFT__CUDA_CALL_BIT)};
    struct weft__record record;
    const int is_known = weft__records_read(comm->records, cuda->board->failed_record, &record) &&
                         record.state == WEFT__RECORD_FAILED;
    if (!cuda->failure_is_counted && !is_known) /* two threads may collect it */
        weft__records_end(comm->records, cuda->board->failed_record, &end);
    cuda->failure_is_counted = 1;
    pthread_mutex_unlock(&cuda->mutex);
    (void)kernel.on_failure(comm, (enum weft__call)(failed >> WEFT__CUDA_CALL_BIT),
                            &cuda->board->failure);
}
