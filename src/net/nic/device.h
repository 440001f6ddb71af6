/* SPDX-License-Identifier: MIT */
/* An mlx5 NIC of this machine, opened for DEVX: what its queues and its memory need. */
#pragma once

#include "net/nic/devx.h"

enum { WEFT__NIC_NAME_BYTES = 64 };

struct weft__nic_device {
    const struct weft__verbs *verbs;
    char name[WEFT__NIC_NAME_BYTES];
    struct weft__ibv_context *context;
    struct weft__ibv_pd *pd;
    struct weft__mlx5dv_devx_uar *uar; /* its doorbell serves all queues */
    uint32_t pd_number, eqn;
    uint32_t port, gid_index;
    struct weft__devx_limits limits;
    struct weft__devx_end end; /* of a queue pair of this port, without its number */
};

/* The device of this name, or with NULL the first one that can be used; its first port that is
 * active. Errors say what is missing. */
weft_result weft__nic_device_open(const struct weft__verbs *verbs, const char *name,
                                  struct weft__nic_device *device);
/* When its queues and its memory are gone. */
void weft__nic_device_close(struct weft__nic_device *device);
