/* SPDX-License-Identifier: MIT */
/* Ranks of one process, each with a NIC of its own, whose queues weft's host side makes by an
 * unmodified libmlx5 over the stand-in for the kernel (nic_kernel.h). */
#pragma once

#include "machine/nic_access.h"
#include "net/nic/qp.h"
#include "nic_hardware.h"
#include "nic_kernel.h"

enum {
    NIC_HOST_MAX_RANKS = 3,
    NIC_HOST_HEAP_BYTES = 1 << 18,
    NIC_HOST_DEPTH = 64,
    NIC_HOST_PAGE_BYTES = 1 << 16
};

enum nic_host_memory { NIC_HOST_OF_HOST, NIC_HOST_OF_DMABUF };

struct nic_rank {
    struct weft__nic_device device;
    /* The heap, the queues' units and their records; and the completions, of the host. */
    struct weft__nic_memory block, heap, sends, completions;
    struct weft__nic_mr heap_mr, sink_mr;
    struct weft__nic_umem send_umem, completion_umem;
    struct weft__nic_qp qps[NIC_HOST_MAX_RANKS]; /* by peer */
    struct weft__nic_channel channels[NIC_HOST_MAX_RANKS];
    struct weft__nic_step *step; /* the heap */
    struct weft__nic_port port;
    uint64_t sink;
};

struct nic_host {
    int num_ranks;
    struct nic_rank ranks[NIC_HOST_MAX_RANKS];
};

/* Memory and queues of all ranks, which exchange their ends and keys, and connect. The first
 * error. */
weft_result nic_host_try(struct nic_host *host, int num_ranks, enum nic_host_memory memory,
                         const struct weft__verbs *verbs);
/* Whatever there is of it. */
void nic_host_close(struct nic_host *host);

char *nic_host_heap(const struct nic_host *host, int rank);
/* By the protocol of programs. */
enum wp_status nic_host_post(struct nic_host *host, int rank, const struct wp_access *access,
                             uint64_t *index);
enum wp_status nic_host_await(struct nic_host *host, int rank, int peer, uint64_t index);
