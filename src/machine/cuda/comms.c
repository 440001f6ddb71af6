/* SPDX-License-Identifier: MIT */
#include "machine/cuda/comms.h"

#include <pthread.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of `sets`, and of what is in them */
static struct weft__cuda_comms *sets;

void weft__cuda_comms_open(struct weft__cuda_comms *comms)
{
    pthread_mutex_lock(&mutex);
    comms->next = sets;
    sets = comms;
    pthread_mutex_unlock(&mutex);
}

void weft__cuda_comms_close(struct weft__cuda_comms *comms)
{
    pthread_mutex_lock(&mutex);
    struct weft__cuda_comms **link = &sets;
    while (*link != comms)
        link = &(*link)->next;
    *link = comms->next;
    pthread_mutex_unlock(&mutex);
    free(comms->members);
}

/* Under the mutex. */
static weft_result add(struct weft__cuda_comms *comms, weft_comm *comm)
{
    for (int32_t i = 0; i < comms->num_members; i++) {
        if (comms->members[i] == comm)
            return WEFT_OK;
    }
    if (comms->num_members == comms->max_members) {
        const int32_t max_members = 2 * comms->max_members + 1;
        weft_comm **members =
            realloc(comms->members, (size_t)max_members * sizeof(*comms->members));
        WEFT__CHECK_MEMORY(members, "no memory to enqueue an operation");
        comms->members = members;
        comms->max_members = max_members;
    }
    comms->members[comms->num_members++] = comm;
    return WEFT_OK;
}

weft_result weft__cuda_comms_add(struct weft__cuda_comms *comms, weft_comm *comm)
{
    pthread_mutex_lock(&mutex);
    const weft_result result = add(comms, comm);
    pthread_mutex_unlock(&mutex);
    return result;
}

weft_result weft__cuda_comms_add_all(struct weft__cuda_comms *comms,
                                     const struct weft__cuda_comms *added)
{
    weft_result result = WEFT_OK;
    pthread_mutex_lock(&mutex);
    for (int32_t i = 0; i < added->num_members && result == WEFT_OK; i++)
        result = add(comms, added->members[i]);
    pthread_mutex_unlock(&mutex);
    return result;
}

weft_comm *weft__cuda_comms_take(struct weft__cuda_comms *comms)
{
    pthread_mutex_lock(&mutex);
    weft_comm *comm = comms->num_members > 0 ? comms->members[--comms->num_members] : NULL;
    pthread_mutex_unlock(&mutex);
    return comm;
}

/* Under the mutex. */
static int remove_from(struct weft__cuda_comms *comms, const weft_comm *comm)
{
    for (int32_t i = 0; i < comms->num_members; i++) {
        if (comms->members[i] != comm)
            continue;
        comms->members[i] = comms->members[--comms->num_members];
        return 1;
    }
    return 0;
}

struct weft__cuda_stream *weft__cuda_comms_leave(const weft_comm *comm)
{
    pthread_mutex_lock(&mutex);
    struct weft__cuda_comms *comms = sets;
    while (comms != NULL && (comms->stream == NULL || !remove_from(comms, comm)))
        comms = comms->next;
    struct weft__cuda_stream *stream = comms == NULL ? NULL : comms->stream;
    pthread_mutex_unlock(&mutex);
    return stream;
}

void weft__cuda_comms_forget(const weft_comm *comm)
{
    pthread_mutex_lock(&mutex);
    for (struct weft__cuda_comms *comms = sets; comms != NULL; comms = comms->next)
        (void)remove_from(comms, comm);
    pthread_mutex_unlock(&mutex);
}
