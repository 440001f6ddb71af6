/* SPDX-License-Identifier: MIT */
/* Memory that a NIC reaches: as a target and source of requests (MR), or as the place of queues
 * (umem). The memory may be the host's, or any other that is exported as a dmabuf, as a GPU's is
 * (cuMemGetHandleForAddressRange). */
#pragma once

#include "net/nic/device.h"
#include "net/nic/queue.h"

enum { WEFT__NIC_NO_DMABUF = -1 };

struct weft__nic_memory {
    void *address; /* as programs name it */
    uint64_t num_bytes;
    int dmabuf;             /* a file descriptor, or WEFT__NIC_NO_DMABUF: memory of the host */
    uint64_t dmabuf_offset; /* of the address, in the dmabuf: it may be of a larger allocation */
};

/* ---------------------------------------------------------------- for requests */

struct weft__nic_mr {
    const struct weft__verbs *verbs;
    struct weft__ibv_mr *mr;
    struct weft__nic_key local; /* for requests of this rank */
    struct weft__nic_key remote;
};

enum weft__nic_use {
    WEFT__NIC_FOR_THIS_RANK, /* a sink, which no other rank may reach */
    WEFT__NIC_FOR_ALL_RANKS
};

/* `what` is for errors: "the heap". */
weft_result weft__nic_mr_create(const struct weft__nic_device *device, const char *what,
                                const struct weft__nic_memory *memory, enum weft__nic_use use,
                                struct weft__nic_mr *mr);
void weft__nic_mr_destroy(struct weft__nic_mr *mr); /* legal if it was not created, but zeroed */

/* ---------------------------------------------------------------- for queues */

struct weft__nic_umem {
    const struct weft__verbs *verbs;
    struct weft__mlx5dv_devx_umem *umem;
    char *address; /* of the memory */
    uint64_t num_bytes;
    uint32_t log_page; /* the smallest page that the NIC may see of the memory */
};

/* Begin and length are multiples of a page: of the host's, or in a dmabuf of 64 KiB. */
weft_result weft__nic_umem_create(const struct weft__nic_device *device, const char *what,
                                  const struct weft__nic_memory *memory,
                                  struct weft__nic_umem *umem);
void weft__nic_umem_destroy(struct weft__nic_umem *umem); /* likewise */
