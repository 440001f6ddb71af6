/* SPDX-License-Identifier: MIT */
/* Shared by the files of the rendezvous. */
#pragma once

#include <stdatomic.h>

#include "comm/rendezvous/group_internal.h"
#include "comm/rendezvous/identity.h"
#include "comm/rendezvous/listener.h"

enum { WEFT__MAX_REFUSED = 16 /* ranks that are warned of at once, each once */ };

/* Who has been refused, of those remembered. */
struct weft__refused {
    uint64_t host_key;
    int32_t pid, rank;
};

struct weft__rendezvous {
    struct weft__rendezvous *next;
    struct weft__meeting_point point; /* its nonce is that of one meeting */
    enum weft__listen_on listen_on;
    _Atomic(struct weft__meeting *) meetings; /* each is kept as long as the server */
    struct weft__identity identity;
    pthread_t thread;
    int listener_fd, stop_fd, beacon_fd;
    struct weft__client *clients;
    struct weft__group *groups;
    int num_strangers;
    uint64_t num_observations;
    struct weft__refused refused[WEFT__MAX_REFUSED]; /* the first ones */
    int num_refused;
    int64_t warned_ns;      /* time of the last warning */
    int is_warned_of_files; /* that no descriptor is left for a new client */
};

struct weft__meeting *weft__rendezvous_find_meeting(struct weft__rendezvous *server,
                                                    const uint8_t *nonce);

/* A stranger is a client that no group has taken in. */
void weft__stranger_drop(struct weft__client *client, const char *reason);
/* Serves its frame: it joins a group, observes one, is refused or dropped. */
void weft__stranger_introduce(struct weft__rendezvous *server, struct weft__client *client,
                              const struct weft__frame *frame);
