/* SPDX-License-Identifier: MIT */
/* Memory of rings between nodes (programs/ring.h), whose sizes the caller has chosen. */
#pragma once

#include "comm/comm.h"
#include "programs/ring.h"

/* That a caller may ask for. */
enum { WEFT__MAX_CHANNELS = 64, WEFT__MAX_SLOTS = 1 << 16, WEFT__MAX_SLOT_BYTES = 1 << 30 };

/* Collective: words, with more_bytes behind them, and slots; all zero. After an error, too, they
 * are freed by weft__rings_free. */
weft_result weft__rings_allocate(weft_comm *comm, uint64_t more_bytes, struct wp_rings *rings);
void weft__rings_free(weft_comm *comm, struct wp_rings *rings);

/* num_sent and num_received, in zeroed memory of the machine that is the caller's; returns what is
 * behind them. */
uint64_t weft__rings_counters_bytes(const struct wp_rings *rings);
uint64_t *weft__rings_lay_counters(struct wp_rings *rings, void *memory);
