/* SPDX-License-Identifier: MIT */
#include "machine/cuda/kept.h"

#include <pthread.h>
#include <stdlib.h>

struct kept {
    weft__cuda_give_back *kind;
    CUcontext context;
    void *kept;
    uint64_t bytes;
    struct kept *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct kept *all;
static int64_t num_comms;

void weft__cuda_kept_begin(void)
{
    pthread_mutex_lock(&mutex);
    num_comms++;
    pthread_mutex_unlock(&mutex);
}

static void give_back(const struct kept *kept)
{
    CUcontext context;
    if (weft__cu.ctx_push_current(kept->context) != CUDA_SUCCESS)
        return;
    kept->kind(kept->kept, kept->bytes);
    (void)weft__cu.ctx_pop_current(&context);
}

/* The caller holds the mutex: a communicator that begins now waits, so no kernel of weft runs. */
static void give_back_unless_needed(void)
{
    while (num_comms == 0 && all != NULL) {
        struct kept *first = all;
        all = first->next;
        give_back(first);
        free(first);
    }
}

void weft__cuda_kept_end(void)
{
    pthread_mutex_lock(&mutex);
    num_comms--;
    give_back_unless_needed();
    pthread_mutex_unlock(&mutex);
}

void weft__cuda_keep(weft__cuda_give_back *kind, CUcontext context, void *kept, uint64_t bytes)
{
    struct kept *added = malloc(sizeof *added);
    if (added == NULL)
        return; /* leaks it: giving it back here could wait for kernels */
    pthread_mutex_lock(&mutex);
    *added = (struct kept){kind, context, kept, bytes, all};
    all = added;
    give_back_unless_needed();
    pthread_mutex_unlock(&mutex);
}

void *weft__cuda_take_kept(weft__cuda_give_back *kind, CUcontext context, uint64_t least_bytes,
                           uint64_t most_bytes)
{
    void *taken = NULL;
    pthread_mutex_lock(&mutex);
    for (struct kept **link = &all; *link != NULL && taken == NULL; link = &(*link)->next) {
        struct kept *kept = *link;
        if (kept->kind != kind || kept->context != context || kept->bytes < least_bytes ||
            kept->bytes > most_bytes)
            continue;
        taken = kept->kept;
        *link = kept->next;
        free(kept);
        break;
    }
    pthread_mutex_unlock(&mutex);
    return taken;
}
