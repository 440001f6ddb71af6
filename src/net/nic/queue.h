/* SPDX-License-Identifier: MIT */
/* An mlx5 NIC as those who post see it: the send queue and the collapsed completion queue of each
 * peer, and the keys of memory. The protocol is machine/nic_post.h. */
#pragma once

#include "net/nic/wqe.h"

struct weft__nic_queue {
    struct weft__nic_unit *units;
    uint32_t *record;               /* both words; 8-aligned, zero at first */
    uint64_t *doorbell;             /* in the NIC's registers */
    struct weft__nic_unit *cqe;     /* the one entry; 0xff everywhere at first */
    uint32_t qp, depth;             /* a power of two, up to WEFT__NIC_MAX_DEPTH */
    uint32_t batch;                 /* a power of two: fewer units wait for the next doorbell */
    uint64_t reserved, ready, done; /* counts of units: equal at first */
    uint64_t failure;               /* 0, or WEFT__NIC_QUEUE_FAILED and the syndrome */
};

/* Whoever gave up at a deadline has no syndrome. */
#define WEFT__NIC_QUEUE_FAILED ((uint64_t)1 << 63)

/* A group's units are posted together. batch - 1 units may be published that nobody has rung for:
 * their room is not to be waited for. */
WEFT__NIC_FN uint32_t weft__nic_max_group(const struct weft__nic_queue *queue)
{
    return queue->depth - queue->batch + 1;
}

/* To one peer. */
struct weft__nic_channel {
    struct weft__nic_queue queue;
    uint64_t doorbell; /* the register, where the NIC is a model: what it has taken is 0 */
    uint64_t num_news; /* raised (release) when the queue's words, or the CQE, have changed */
    uint64_t
        num_flushed; /* of the host's queue, by flushes: numbers below are to be awaited, too */
    uint64_t kept;   /* units before it are of accesses that must not be lost, or done */
};

/* Where memory is that a key opens. */
struct weft__nic_key {
    uint64_t address;
    uint32_t key; /* 0: nobody's, which the NIC refuses */
};

/* Bytes by which all heaps have grown together. It never changes. */
struct weft__nic_step {
    struct weft__nic_step *before; /* the last one before it, or NULL */
    uint64_t begin, end;           /* offsets in the heaps */
    struct weft__nic_key keys[];   /* [num_ranks] */
};

/* Programs post with this. */
struct weft__nic_port {
    int32_t rank;
    struct weft__nic_channel *channels; /* [num_ranks], those of peers */
    struct weft__nic_key sink;          /* 8 bytes that nobody reads */
    struct weft__nic_step *last_step;   /* stored (release) when all ranks have it */
    uint64_t num_puts, num_put_bytes;   /* that were posted, signals included */
};
