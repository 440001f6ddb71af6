/* SPDX-License-Identifier: MIT */
/* A device of an unmodified libmlx5 over the stand-in for the kernel, which has been started: one
 * queue pair, one completion queue, one region. */
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "net/nic/wqe.h"

enum { NIC_DEVICE_MAX_POSTED = 64, NIC_DEVICE_CQES = 64 };

struct nic_device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct mlx5dv_qp raw_qp;
    struct mlx5dv_cq raw_cq;
};

void nic_device_open(struct nic_device *device, void *memory, size_t num_bytes);
void nic_device_close(struct nic_device *device);
/* Posts what weft's encoder would write; wr_id is the index. */
void nic_device_post(struct nic_device *device, const struct weft__nic_request *request);
