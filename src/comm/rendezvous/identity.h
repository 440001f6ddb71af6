/* SPDX-License-Identifier: MIT */
#pragma once

#include "comm/rendezvous/wire.h"
#include "weft.h"

/* Fills in pid, uid and host of the calling process; its node is its host. The host is what can
 * share memory with it: the same kernel, and the same namespaces of processes and sockets. */
weft_result weft__identity_of_process(struct weft__identity *identity);

/* A descriptor that becomes readable when the other process ends, which its connections need not
 * show: a child that it forked may hold them open. -1 if it cannot be had: the process is on
 * another host, is this one, or the kernel is too old. */
int weft__identity_watch(const struct weft__identity *self, const struct weft__identity *other);

/* Writes "rank 3 died (pid 4711 on node7)", or "rank 3 (pid 4711 on node7) left without
 * weft_comm_destroy: its process ended with status 0". */
void weft__identity_tell_loss(const struct weft__identity *identity, int32_t rank,
                              struct weft__ending ending, char *text, size_t text_bytes);

int weft__identity_is_same_process(const struct weft__identity *one,
                                   const struct weft__identity *other);
