/* SPDX-License-Identifier: MIT */
/* A send queue of an mlx5 NIC and its collapsed completion queue, as those who post see them. The
 * protocol is machine/nic_post.h. */
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
