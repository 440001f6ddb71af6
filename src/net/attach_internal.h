/* SPDX-License-Identifier: MIT */
/* What the files share that know the network of a communicator. */
#ifndef WEFT_NET_ATTACH_INTERNAL_H
#define WEFT_NET_ATTACH_INTERNAL_H

#include "net/attach.h"
#include "net/devices.h"

struct weft__network {
    struct weft__net *net; /* the progress thread's once there is one */
    struct weft__progress *progress;
    struct weft__work_queue *device_queue; /* NULL: none */
    const char *engine;
    const char *gpu_obstacle; /* to the registration of GPUs' memory; NULL: none */
    char devices[WEFT__NET_DEVICES_BYTES];
    char transport[WEFT__NET_TRANSPORT_BYTES];
    char reason[WEFT__NET_REASON_BYTES]; /* why this engine */
};

#endif
