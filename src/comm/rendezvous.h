/* SPDX-License-Identifier: MIT */
/* The server at which ranks meet and which stays connected to them: it carries host all-gathers
 * and notices deaths. One thread per meeting point; it ends with the process, or when the library
 * is unloaded. */
#pragma once

#include "comm/listener.h"
#include "comm/meeting_point.h"
#include "weft.h"

/* Serves `point`, unless this process already does. Port 0 lets the system choose one, which is
 * written back. */
weft_result weft__rendezvous_serve(struct weft__meeting_point *point,
                                   enum weft__listen_on listen_on);

/* The ranks connected to it, communicator by communicator; -1 if this process does not serve
 * `point`. */
int32_t weft__rendezvous_num_ranks(const struct weft__meeting_point *point);
