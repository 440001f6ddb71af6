/* SPDX-License-Identifier: MIT */
/* Transports that UCX may use, and those that it has chosen. */
#pragma once

#include <stddef.h>

#include "net/ucx_library.h"

/* Not its shared memory: with it no death of a peer is told, or the survivors end
 * (docs/network.md). */
#define WEFT__UCX_DEFAULT_TRANSPORTS "^shm"

/* "tcp/eth0, rc_verbs/mlx5_0:1", each once. */
weft_result weft__ucx_transports(const struct weft__ucx *ucx, ucp_ep_h endpoint, char *names,
                                 size_t names_bytes);
/* Whether all of them are. */
int weft__ucx_is_rdma(const char *names);
