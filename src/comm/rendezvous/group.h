/* SPDX-License-Identifier: MIT */
/* One communicator as the rendezvous sees it: its ranks meet, gather, leave and die. Used by the
 * rendezvous thread alone, so nothing here is locked. */
#pragma once

#include <stdatomic.h>

#include "comm/rendezvous/heartbeat.h"
#include "comm/rendezvous/wire.h"

struct weft__group;

/* The ranks that know one secret. Communicators of two meetings never mix. */
struct weft__meeting {
    struct weft__meeting *next;
    uint8_t nonce[WEFT__NONCE_BYTES];
    _Atomic int32_t num_ranks; /* connected; other threads read it */
};

/* A connection to the rendezvous. Without a group it belongs to a stranger. */
struct weft__client {
    struct weft__client *next;
    struct weft__wire wire;
    int process_fd; /* readable when the member's process has ended; -1: not watched */
    struct weft__meeting *meeting; /* NULL: the client has not shown that it knows a secret */
    struct weft__group *group;
    int32_t rank;         /* in the group */
    uint64_t observation; /* the number of an observer's question to all ranks; 0: no observer */
    struct weft__heartbeat heartbeat; /* of a member, once all have met */
    int64_t deadline_ns; /* of a stranger: to introduce itself, or to go after it was refused */
    enum { WEFT__CLIENT_OPEN, WEFT__CLIENT_BROKEN } state; /* broken: to be removed by the loop */
};

/* Lets the client in, or tells it why not. A group that does not exist yet is added to *groups. */
void weft__group_join(struct weft__group **groups, struct weft__client *client,
                      const struct weft__hello *hello, const struct weft__identity *server);

/* Who has come, under this name, with another secret: a rank that somebody may wait for. */
void weft__groups_note_refused(struct weft__group *groups, const struct weft__hello *hello,
                               const char *name);

/* A frame of a member; WEFT__WIRE_GARBAGE if it makes no sense. */
enum weft__wire_result weft__group_receive(struct weft__group **groups, struct weft__client *client,
                                           const struct weft__frame *frame);

/* The connection of a member has ended without a goodbye. */
void weft__group_lose(struct weft__client *client);

/* Lets expired waits fail, and silent members, and frees the groups that are over. All that had
 * come by read_ns has been read. */
void weft__groups_tick(struct weft__group **groups, int64_t read_ns);
/* When to tick at the latest; INT64_MAX: never. */
int64_t weft__groups_deadline_ns(const struct weft__group *groups);
void weft__groups_free(struct weft__group **groups);
