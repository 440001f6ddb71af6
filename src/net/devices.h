/* SPDX-License-Identifier: MIT */
/* Which of the host's network devices a communicator uses when nobody says. */
#pragma once

#include "comm/comm.h"

enum { WEFT__NET_DEVICES_BYTES = 512 };

/* "eth0,mlx5_0:1", as UCX names them: the interface towards the rendezvous, since UCX listens on
 * what it uses, and the ports for RDMA. */
weft_result weft__net_default_devices(const weft_comm *comm, char devices[WEFT__NET_DEVICES_BYTES]);

/* Whether there is a device for RDMA that has an active port and that this process may open; `sys`
 * and `dev` are where the system shows devices. */
enum { WEFT__NET_DEVICE_NAME_BYTES = 64 };
int weft__net_find_rdma(const char *sys, const char *dev, char name[WEFT__NET_DEVICE_NAME_BYTES]);
