/* SPDX-License-Identifier: MIT */
/* Puts to ranks of other nodes, whose memory cannot be reached. Machines supply weft_remote_put (machine.h). */
#ifndef WEFT_MACHINE_REMOTE_H
#define WEFT_MACHINE_REMOTE_H

#include <stdint.h>

/* Places are offsets in the memory of a rank that the network reaches, which the host side allocates for all
 * ranks together (struct weft__machine: network_alloc). */
struct weft_remote_put {
    int32_t rank;
    uint32_t add;
    uint64_t source, target; /* here, and there */
    uint64_t num_bytes;      /* 0: nothing but the add */
    uint64_t word;           /* there: 64 bits, aligned to 8, to which `add` is added */
};

#endif
