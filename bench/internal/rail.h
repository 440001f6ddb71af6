/* SPDX-License-Identifier: MIT */
/* A net of its own between the ranks with the same local index on each node, driven by the thread
 * that measures. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "net/net.h"
#include "weft.h"

struct rail {
    weft_comm *comm;
    int32_t rank, num_ranks;
    int32_t num_peers;
    int32_t *peers; /* [num_peers] ranks of other nodes */
    struct weft__net *net;
    unsigned char *memory; /* region 0, zeroed */
    int num_idle_rounds;
};

/* Collective. The memory has the same size on all ranks. */
weft_result rail_open(struct rail *rail, weft_comm *comm, uint64_t num_bytes);
void rail_close(struct rail *rail);

/* One round of progress; sleeps, as the library's progress thread does, after several in vain.
 * Fails when a peer has failed. */
weft_result rail_progress(struct rail *rail);

/* Collective: as weft_comm_host_all_gather, with progress while it waits for the others. */
weft_result rail_all_gather(struct rail *rail, const void *send, size_t bytes, void *recv);

static inline _Atomic uint64_t *rail_word(const struct rail *rail, uint64_t offset)
{
    return (_Atomic uint64_t *)(void *)(rail->memory + offset);
}
