/* SPDX-License-Identifier: MIT */
#include "harness/cmocka.h"

#ifdef WEFT_TEST_MLX5
#include <endian.h>

#include "nic_device.h"

static void open_context(struct nic_device *device, void *memory, size_t num_bytes)
{
    int num_devices;
    struct ibv_device **devices = ibv_get_device_list(&num_devices);
    assert_non_null(devices);
    assert_int_equal(num_devices, 1);
    device->context = ibv_open_device(devices[0]);
    assert_non_null(device->context);
    ibv_free_device_list(devices);
    device->pd = ibv_alloc_pd(device->context);
    assert_non_null(device->pd);
    device->mr = (ibv_reg_mr)(device->pd, memory, num_bytes, IBV_ACCESS_LOCAL_WRITE);
    assert_non_null(device->mr);
    device->cq = ibv_create_cq(device->context, NIC_DEVICE_CQES - 1, NULL, NULL, 0);
    assert_non_null(device->cq);
}

static void make_queue_pair(struct nic_device *device)
{
    static const enum ibv_qp_state states[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    struct ibv_qp_init_attr init = {.send_cq = device->cq,
                                    .recv_cq = device->cq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = NIC_DEVICE_MAX_POSTED,
                                            .max_recv_wr = 1,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = WEFT__NIC_MAX_INLINE_BYTES}};
    device->qp = ibv_create_qp(device->pd, &init);
    assert_non_null(device->qp);
    for (int i = 0; i < 3; i++) {
        struct ibv_qp_attr attributes = {.qp_state = states[i]};
        assert_int_equal(ibv_modify_qp(device->qp, &attributes, IBV_QP_STATE), 0);
    }
    struct mlx5dv_obj object = {.qp = {device->qp, &device->raw_qp},
                                .cq = {device->cq, &device->raw_cq}};
    assert_int_equal(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ), 0);
    assert_int_equal(device->raw_qp.sq.stride, WEFT__NIC_UNIT_BYTES);
    assert_int_equal(device->raw_cq.cqe_size, WEFT__NIC_UNIT_BYTES);
}

void nic_device_open(struct nic_device *device, void *memory, size_t num_bytes)
{
    open_context(device, memory, num_bytes);
    make_queue_pair(device);
}

void nic_device_close(struct nic_device *device)
{
    assert_int_equal(ibv_destroy_qp(device->qp), 0);
    assert_int_equal(ibv_destroy_cq(device->cq), 0);
    assert_int_equal(ibv_dereg_mr(device->mr), 0);
    assert_int_equal(ibv_dealloc_pd(device->pd), 0);
    assert_int_equal(ibv_close_device(device->context), 0);
}

static enum ibv_wr_opcode opcode_of(enum weft__nic_opcode opcode)
{
    switch (opcode) {
    case WEFT__NIC_WRITE:
        return IBV_WR_RDMA_WRITE;
    case WEFT__NIC_WRITE_IMMEDIATE:
        return IBV_WR_RDMA_WRITE_WITH_IMM;
    case WEFT__NIC_READ:
        return IBV_WR_RDMA_READ;
    default:
        assert_int_equal(opcode, WEFT__NIC_FETCH_ADD);
        return IBV_WR_ATOMIC_FETCH_AND_ADD;
    }
}

void nic_device_post(struct nic_device *device, const struct weft__nic_request *request)
{
    const int is_inline = request->inline_bytes != NULL;
    struct ibv_sge element = {.addr = is_inline ? (uintptr_t)request->inline_bytes
                                                : request->local_address,
                              .length = request->num_bytes,
                              .lkey = request->local_key};
    struct ibv_send_wr *bad,
        wr = {.wr_id = request->index,
              .sg_list = &element,
              .num_sge = 1,
              .opcode = opcode_of(request->opcode),
              .imm_data = htobe32(request->immediate),
              .send_flags = (request->completion == WEFT__NIC_ALWAYS ? IBV_SEND_SIGNALED : 0u) |
                            (request->fence == WEFT__NIC_FENCE ? IBV_SEND_FENCE : 0u) |
                            (is_inline ? IBV_SEND_INLINE : 0u)};
    if (request->opcode == WEFT__NIC_FETCH_ADD) {
        wr.wr.atomic.remote_addr = request->remote_address;
        wr.wr.atomic.rkey = request->remote_key;
        wr.wr.atomic.compare_add = request->addend;
    } else {
        wr.wr.rdma.remote_addr = request->remote_address;
        wr.wr.rdma.rkey = request->remote_key;
    }
    assert_int_equal(ibv_post_send(device->qp, &wr, &bad), 0);
}
#endif
