/* SPDX-License-Identifier: MIT */
#include "memory/registered.h"

#include <stdio.h>
#include <stdlib.h>

struct weft__registration {
    struct weft__registration *next; /* the one before */
    char *ptr;
    uint64_t bytes;
    int32_t window; /* WEFT__WINDOW_NONE: it is staged, or in the heap */
};

static void add(struct weft__windows *windows, struct weft__registration *registration)
{
    pthread_mutex_lock(&windows->mutex);
    registration->next = windows->registrations;
    windows->registrations = registration;
    pthread_mutex_unlock(&windows->mutex);
}

/* The last that begins there, taken from the list; NULL: none. */
static struct weft__registration *take(struct weft__windows *windows, const void *ptr)
{
    pthread_mutex_lock(&windows->mutex);
    struct weft__registration **link = &windows->registrations;
    while (*link != NULL && (*link)->ptr != ptr)
        link = &(*link)->next;
    struct weft__registration *found = *link;
    if (found != NULL)
        *link = found->next;
    pthread_mutex_unlock(&windows->mutex);
    return found;
}

static int is_in_heap(const weft_comm *comm, const void *ptr, uint64_t bytes)
{
    uint64_t offset;
    return weft__heap_contains(comm->heap, ptr, bytes, &offset);
}

/* This rank's contribution; WEFT__WINDOW_FAILED: why there is none. */
static int32_t reserve(weft_comm *comm, const void *ptr, uint64_t bytes,
                       char reason[WEFT__MAX_TEXT_BYTES])
{
    int32_t window = WEFT__WINDOW_FAILED;
    if (bytes == 0 || is_in_heap(comm, ptr, bytes))
        return WEFT__WINDOW_NONE;
    if (weft__window_reserve(comm, ptr, bytes, &window) != WEFT_OK)
        snprintf(reason, WEFT__MAX_TEXT_BYTES, "%s", weft__last_error());
    return window;
}

static weft_result open_window(weft_comm *comm, struct weft__registration *registration,
                               struct weft__obstacle *obstacle)
{
    char reason[WEFT__MAX_TEXT_BYTES];
    const int32_t window = reserve(comm, registration->ptr, registration->bytes, reason);
    const weft_result result = weft__window_open(comm, WEFT_OK, window, obstacle);
    if (result == WEFT_OK && window == WEFT__WINDOW_FAILED && obstacle->rank == comm->rank)
        weft__windows_tell(comm, reason);
    registration->window = window;
    if (result == WEFT_OK && obstacle->rank == WEFT__NOBODY)
        return WEFT_OK;
    weft__window_release(comm, window);
    registration->window = WEFT__WINDOW_NONE;
    return result;
}

weft_result weft__register(weft_comm *comm, void *ptr, uint64_t bytes, int32_t *is_direct)
{
    struct weft__obstacle obstacle;
    struct weft__registration *registration = calloc(1, sizeof *registration);
    if (registration == NULL)
        return weft__window_open(comm, weft__no_memory("no memory to register memory"),
                                 WEFT__WINDOW_FAILED, &obstacle);
    registration->ptr = ptr;
    registration->bytes = bytes;
    const weft_result result = open_window(comm, registration, &obstacle);
    if (result != WEFT_OK || bytes == 0)
        free(registration);
    else
        add(comm->windows, registration);
    if (result == WEFT_OK && is_direct != NULL)
        *is_direct = obstacle.rank == WEFT__NOBODY;
    return result;
}

weft_result weft__unregister(weft_comm *comm, void *ptr)
{
    struct weft__registration *registration = ptr == NULL ? NULL : take(comm->windows, ptr);
    int32_t window = registration == NULL ? WEFT__WINDOW_NONE : registration->window;
    if (ptr != NULL && registration == NULL)
        window = WEFT__WINDOW_FAILED;
    const weft_result result = weft__window_close(comm, window);
    if (result != WEFT_OK && registration != NULL)
        add(comm->windows, registration);
    else
        free(registration);
    if (result == WEFT_ERROR_MISMATCH && window == WEFT__WINDOW_FAILED)
        return weft__invalid("ptr is %p; it must come from weft_memory_register of this "
                             "communicator and not have been unregistered, or be NULL",
                             ptr);
    return result;
}

int weft__registered_find(const weft_comm *comm, const void *ptr, uint64_t bytes, uint64_t *place)
{
    struct weft__windows *windows = comm->windows;
    int found = weft__heap_contains(comm->heap, ptr, bytes, place);
    if (windows == NULL) /* nothing can be registered yet */
        return found;
    pthread_mutex_lock(&windows->mutex);
    for (const struct weft__registration *registration = windows->registrations;
         registration != NULL && !found; registration = registration->next) {
        const uint64_t offset = (uintptr_t)ptr - (uintptr_t)registration->ptr;
        found = registration->window >= 0 && offset <= registration->bytes &&
                bytes <= registration->bytes - offset &&
                weft__window_contains(comm, registration->window, ptr, bytes, place);
    }
    pthread_mutex_unlock(&windows->mutex);
    return found;
}

void weft__registered_forget(weft_comm *comm)
{
    struct weft__windows *windows = comm->windows;
    while (windows != NULL && windows->registrations != NULL) {
        struct weft__registration *first = windows->registrations;
        windows->registrations = first->next;
        free(first);
    }
}
