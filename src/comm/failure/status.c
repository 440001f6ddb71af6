/* SPDX-License-Identifier: MIT */
#include "comm/failure/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/host/error.h"
#include "comm/host/thread.h"

weft_result weft__status_init(struct weft__status *status, int32_t num_ranks)
{
    *status = (struct weft__status){.num_ranks = num_ranks, .failed_rank = -1};
    status->rank_states = calloc((size_t)num_ranks, sizeof(*status->rank_states));
    WEFT__CHECK_MEMORY(status->rank_states, "no memory for the states of %d ranks", num_ranks);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&status->mutex, NULL);
    pthread_cond_init(&status->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return WEFT_OK;
}

void weft__status_destroy(struct weft__status *status)
{
    if (status->rank_states == NULL)
        return;
    pthread_cond_destroy(&status->changed);
    pthread_mutex_destroy(&status->mutex);
    free(status->rank_states);
    status->rank_states = NULL;
}

/* The thread of the link, which may report a failure, runs already. */
void weft__status_know_ranks(struct weft__status *status, const struct weft__identity *identities)
{
    pthread_mutex_lock(&status->mutex);
    status->identities = identities;
    pthread_mutex_unlock(&status->mutex);
}

/* Called with the mutex held, which keeps the bell mapped. */
static void wake_sleepers(struct weft__status *status)
{
    pthread_cond_broadcast(&status->changed);
    if (status->own_bell != NULL)
        weft__doorbell_ring(status->own_bell, WEFT__ANY_WORD);
}

/* Adds the failed rank's process and host, unless the message names the host. */
static void add_host(struct weft__status *status)
{
    const size_t length = strlen(status->message);
    if (status->identities == NULL || status->failed_rank < 0 ||
        status->failed_rank >= status->num_ranks)
        return;
    const struct weft__identity *failed = &status->identities[status->failed_rank];
    if (failed->pid == 0 || strstr(status->message, failed->host) != NULL)
        return;
    snprintf(status->message + length, sizeof(status->message) - length,
             "; rank %d is process %d on %s", status->failed_rank, failed->pid, failed->host);
}

weft_result weft__status_fail(struct weft__status *status, weft_result result, int32_t failed_rank,
                              const char *format, ...)
{
    pthread_mutex_lock(&status->mutex);
    int32_t standing = atomic_load_explicit(&status->result, memory_order_relaxed);
    if (standing == WEFT_OK) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(status->message, sizeof(status->message), format, arguments);
        va_end(arguments);
        status->failed_rank = failed_rank;
        add_host(status);
        standing = result;
        /* Pairs with the acquire of whoever polls result, then reads message and failed_rank. */
        atomic_store_explicit(&status->result, result, memory_order_release);
        wake_sleepers(status);
    }
    pthread_mutex_unlock(&status->mutex);
    return (weft_result)standing;
}

void weft__status_hear(struct weft__status *status, weft_result result, int32_t failed_rank,
                       const char *message)
{
    weft__status_fail(status, result, failed_rank, "%s", message);
    pthread_mutex_lock(&status->mutex);
    status->audience = WEFT__TOLD_TO_ALL;
    pthread_cond_broadcast(&status->changed);
    pthread_mutex_unlock(&status->mutex);
}

void weft__status_await_told(struct weft__status *status, int64_t timeout_ns)
{
    const int64_t deadline_ns = weft__now_ns() + timeout_ns;
    const struct timespec deadline = weft__timespec(deadline_ns);
    pthread_mutex_lock(&status->mutex);
    while (status->audience != WEFT__TOLD_TO_ALL && weft__now_ns() < deadline_ns)
        pthread_cond_timedwait(&status->changed, &status->mutex, &deadline);
    pthread_mutex_unlock(&status->mutex);
}

int weft__status_is_tolerant(const struct weft__status *status)
{
    return atomic_load(&status->num_tolerant) > 0;
}

/* The failure comes first: who sees that the rank is gone finds out why. */
void weft__status_lose_rank(struct weft__status *status, int32_t rank, const char *format, ...)
{
    char message[sizeof status->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (!weft__status_is_tolerant(status))
        weft__status_fail(status, WEFT_ERROR_RANK_FAILED, rank, "%s", message);
    weft__status_set_rank(status, rank, WEFT__RANK_DEAD);
}

void weft__status_set_rank(struct weft__status *status, int32_t rank, enum weft__rank_state state)
{
    pthread_mutex_lock(&status->mutex);
    const int is_news = atomic_load(&status->rank_states[rank]) != state;
    atomic_store_explicit(&status->rank_states[rank], (uint8_t)state, memory_order_release);
    if (is_news && state == WEFT__RANK_DEAD)
        atomic_fetch_add(&status->num_dead, 1);
    wake_sleepers(status);
    pthread_mutex_unlock(&status->mutex);
}

void weft__status_set_bell(struct weft__status *status, struct weft__doorbell *bell)
{
    pthread_mutex_lock(&status->mutex);
    status->own_bell = bell;
    pthread_mutex_unlock(&status->mutex);
}

static void await_record(struct weft__status *status)
{
    enum { MOST_MS = 1000 };
    const int64_t deadline_ns = weft__now_ns() + MOST_MS * WEFT__NS_PER_MS;
    const struct timespec deadline = weft__timespec(deadline_ns);
    pthread_mutex_lock(&status->mutex);
    while (status->record == WEFT__RECORD_AWAITED && weft__now_ns() < deadline_ns)
        pthread_cond_timedwait(&status->changed, &status->mutex, &deadline);
    if (status->record == WEFT__RECORD_AWAITED)
        status->record = WEFT__RECORD_IS_LATE;
    pthread_mutex_unlock(&status->mutex);
}

weft_result weft__status_check(struct weft__status *status)
{
    weft_result result = (weft_result)atomic_load_explicit(&status->result, memory_order_acquire);
    if (result == WEFT_OK)
        return WEFT_OK;
    await_record(status);
    return weft__error(result, "%s", status->message);
}

weft_result weft__status_await_failure(struct weft__status *status, int64_t timeout_ns)
{
    int64_t deadline_ns = weft__now_ns() + timeout_ns;
    const struct timespec deadline = weft__timespec(deadline_ns);
    pthread_mutex_lock(&status->mutex);
    while (atomic_load(&status->result) == WEFT_OK && weft__now_ns() < deadline_ns)
        pthread_cond_timedwait(&status->changed, &status->mutex, &deadline);
    pthread_mutex_unlock(&status->mutex);
    return weft__status_check(status);
}

weft_result weft__watch_check(const struct weft__watch *watch)
{
    if (watch->status == NULL)
        return WEFT_OK;
    if (watch->ranks == NULL)
        return weft__status_check(watch->status);
    for (int32_t i = 0; i < watch->num_ranks; i++)
        if (atomic_load(&watch->status->rank_states[watch->ranks[i]]) == WEFT__RANK_DEAD)
            return weft__error(WEFT_ERROR_RANK_FAILED, "rank %d died", watch->ranks[i]);
    return WEFT_OK;
}
