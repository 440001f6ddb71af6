/* SPDX-License-Identifier: MIT */
/* Tells the other ranks that this process returns from main, or calls exit, without
 * weft_comm_destroy, and its status. Else they would take the process for killed. */
#include <stdlib.h>
#include <unistd.h>

#include "comm/rendezvous/link_internal.h"

enum { TOLD_MS = 500 }; /* for the rendezvous to tell the others */

static struct {
    pthread_mutex_t mutex;
    struct weft__link *first;
    int is_asked; /* on_exit has note_status */
    int status;
} registry = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Only notes the status: handlers of exit run before destructors, so a handler of the program may
 * still destroy its communicators. */
static void note_status(int status, void *unused)
{
    (void)unused;
    registry.status = status;
}

void weft__link_enter(struct weft__link *link)
{
    pthread_mutex_lock(&registry.mutex);
    if (!registry.is_asked)
        registry.is_asked = on_exit(note_status, NULL) == 0;
    link->pid = getpid();
    link->next = registry.first;
    registry.first = link;
    pthread_mutex_unlock(&registry.mutex);
}

void weft__link_leave(struct weft__link *link)
{
    pthread_mutex_lock(&registry.mutex);
    for (struct weft__link **at = &registry.first; *at != NULL; at = &(*at)->next) {
        if (*at == link) {
            *at = link->next;
            break;
        }
    }
    pthread_mutex_unlock(&registry.mutex);
}

/* If the communicator has failed, all ranks already know why. */
static int is_to_be_told(const struct weft__link *link)
{
    return link->pid == getpid() && atomic_load(&link->status->result) == WEFT_OK;
}

static void tell(struct weft__link *link)
{
    const struct weft__ending ending = {.kind = WEFT__ENDED_BY_EXIT, .status = registry.status};
    pthread_mutex_lock(&link->send_mutex);
    link->close_ns = weft__now_ns() + TOLD_MS * WEFT__NS_PER_MS; /* the end is expected */
    pthread_mutex_unlock(&link->send_mutex);
    weft__link_send(link, weft__message_create(WEFT__FRAME_EXIT, &ending, sizeof(ending), NULL, 0));
}

/* The rendezvous ends a connection when it has told the others. Then the monitor ends, too. */
__attribute__((destructor)) static void tell_all(void)
{
    for (struct weft__link *link = registry.first; link != NULL; link = link->next)
        if (is_to_be_told(link))
            tell(link);
    for (struct weft__link *link = registry.first; link != NULL; link = link->next)
        if (is_to_be_told(link))
            pthread_join(link->monitor, NULL);
}
