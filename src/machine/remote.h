/* SPDX-License-Identifier: MIT */
/* What goes to ranks of other nodes, whose memory cannot be reached. Machines supply weft_remote_put,
 * weft_remote_post and weft_remote_await (machine.h). */
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

enum weft_access_operation {
    WEFT_ACCESS_PUT,
    WEFT_ACCESS_PUT_SIGNAL, /* with an add; num_bytes 0: nothing but the add */
    WEFT_ACCESS_GET,
    WEFT_ACCESS_FETCH_ADD,
    WEFT_ACCESS_FLUSH /* all that this rank has posted to the rank before */
};

/* One access to the heap of another rank. Places are offsets in the heaps. */
struct weft_access {
    enum weft_access_operation operation;
    int32_t rank;
    uint64_t source;    /* here; of a get there */
    uint64_t target;    /* there; of a get and a fetch-add here */
    uint64_t num_bytes; /* of a put or get */
    uint64_t word, add; /* of a signal or fetch-add: 64 bits there, aligned to 8 */
};

#endif
