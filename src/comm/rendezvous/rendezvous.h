/* SPDX-License-Identifier: MIT */
/* The server at which ranks meet. It stays connected to them, carries host all-gathers and notices
 * deaths. One thread serves an address and port, however many secrets it knows: programs make ids
 * again and again, and each id may be used for as long as the process lives. The server ends with
 * the process, or when the library is unloaded. */
#pragma once

#include "comm/rendezvous/listener.h"
#include "comm/rendezvous/meeting_point.h"
#include "weft.h"

/* Serves `point`, unless this process already does, and writes the port back. Port 0 is any port:
 * one that this process already serves at this address, or one that the system chooses. While
 * another program has the port, tries again for patience_ms. */
weft_result weft__rendezvous_serve(struct weft__meeting_point *point,
                                   enum weft__listen_on listen_on, int64_t patience_ms);

/* The ranks connected to it, communicator by communicator; -1 if this process does not serve
 * `point`. */
int32_t weft__rendezvous_num_ranks(const struct weft__meeting_point *point);
