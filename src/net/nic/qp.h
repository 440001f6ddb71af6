/* SPDX-License-Identifier: MIT */
/*
 * A queue pair to one peer, and its completion queue, in memory of the caller's. Ranks exchange
 * their ends and connect; once all have, they may post (machine/nic_post.h).
 */
#pragma once

#include "net/nic/mr.h"

enum {
    WEFT__NIC_RECORD_BYTES = 8,
    WEFT__NIC_CQ_BYTES = 128 /* the entry, 64 bytes; behind it the record of the queue */
};

struct weft__nic_qp_config {
    int32_t peer; /* a rank */
    uint32_t depth, batch;
    /* Offsets. Units and the entry of completions begin with a page; the record is aligned to 8. */
    const struct weft__nic_umem *sends;
    uint64_t units, record; /* all 0 at first */
    const struct weft__nic_umem *completions;
    uint64_t entry; /* 0xff everywhere at first, but its record 0; the host reads it, too */
};

struct weft__nic_qp {
    const struct weft__nic_device *device;
    struct weft__nic_qp_config config;
    struct weft__mlx5dv_devx_obj *cq, *qp;
    uint32_t cq_number;
    struct weft__devx_end end; /* for the peer */
    int has_failed;
    uint64_t failed_unit; /* its low 16 bits */
    struct weft__nic_cqe failure;
};

/* The device must stay. Errors name the peer, what was asked of the NIC, and its answer. */
weft_result weft__nic_qp_create(const struct weft__nic_device *device,
                                const struct weft__nic_qp_config *config, struct weft__nic_qp *qp);
weft_result weft__nic_qp_connect(struct weft__nic_qp *qp, const struct weft__devx_end *peer);
void weft__nic_qp_destroy(struct weft__nic_qp *qp); /* legal if it was not created, but zeroed */

/* Programs post to it. */
struct weft__nic_queue weft__nic_qp_queue(const struct weft__nic_qp *qp);

/* Looks at the completion entry; to be called in rounds, since flushes overwrite the cause. OK, or
 * the failure of the queue: RANK_FAILED if the peer cannot be reached. */
weft_result weft__nic_qp_check(struct weft__nic_qp *qp);
