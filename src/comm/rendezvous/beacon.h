/* SPDX-License-Identifier: MIT */
/*
 * How an observer on the same host, of the same user, finds a rendezvous and gets its secret: the
 * rendezvous listens on an abstract Unix socket that its process and port name, and hands the ids
 * of its meetings to whoever connects, if the system says that it is the same user, or root. So
 * nothing has a name in a file system, no file is left when the process is killed, and no secret is
 * in an environment or an argument.
 */
#pragma once

#include "comm/rendezvous/group.h"

enum { WEFT__MAX_BEACON_IDS = 64 };

/* The listening socket; -1: there is none, and nobody finds the rendezvous without its address. */
int weft__beacon_open(uint16_t port);
/* Answers whoever waits: the ids of the newest meetings that have ranks. */
void weft__beacon_answer(int beacon_fd, const struct weft__meeting_point *point,
                         const struct weft__meeting *meetings);

/* Processes of this user with a rendezvous: writes up to max_pids, returns how many there are. */
int32_t weft__beacon_list(int32_t *pids, int32_t max_pids);
/* The ids of the jobs that meet in process `pid`. TIMEOUT: it does not answer within timeout_ms. */
weft_result weft__beacon_ask(int32_t pid, int64_t timeout_ms, weft_unique_id *ids, int32_t max_ids,
                             int32_t *num_ids);
