/* SPDX-License-Identifier: MIT */
#include "nic_uverbs.h"

#ifdef WEFT_TEST_MLX5
#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "harness/cmocka.h"
#include "nic_kernel.h"

static uint32_t user_index;

uint32_t nic_kernel_user_index(void)
{
    return user_index;
}

/* A driver's part follows that of all devices. */
#define ANSWER(type_of_core, type_of_device)                                                       \
    type_of_core *core = memory;                                                                   \
    type_of_device *device = (void *)(core + 1)

/* A kernel of today leaves it to the library to ask for pages of doorbells. */
static int get_context(const struct ib_uverbs_get_context *question, void *memory)
{
    const struct mlx5_ib_alloc_ucontext_req_v2 *question_of_driver = (const void *)(question + 1);
    if (nic_uverbs_fails(NIC_CALL_OPEN))
        return -1;
    ANSWER(struct ib_uverbs_get_context_resp, struct mlx5_ib_alloc_ucontext_resp);
    core->async_fd = (uint32_t)(open)("/dev/null", O_RDONLY);
    core->num_comp_vectors = 1;
    device->qp_tab_size = 1 << 18;
    device->bf_reg_size = 512;
    if (!(question_of_driver->flags & MLX5_IB_ALLOC_UCTX_DEVX) || nic_kernel_world.is_old)
        device->tot_bfregs = 16;
    device->cache_line_size = 64;
    device->max_sq_desc_sz = 1024;
    device->max_rq_desc_sz = 512;
    device->max_send_wqebb = device->max_recv_wr = 32768;
    device->max_srq_recv_wr = 32768;
    device->num_ports = 1;
    device->cqe_version = 1; /* completions name queue pairs by the user's index */
    device->cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
    device->log_uar_size = 12;
    device->num_uars_per_page = 1;
    device->response_length = sizeof *device;
    return 0;
}

static void query_device(void *memory)
{
    struct ib_uverbs_query_device_resp *answer = memory;
    memset(answer, 0, sizeof *answer);
    answer->max_qp = 1 << 17;
    answer->max_qp_wr = 32768;
    answer->max_sge = 30;
    answer->max_cq = 1 << 16;
    answer->max_cqe = 1 << 22;
    answer->max_qp_rd_atom = answer->max_qp_init_rd_atom = 16;
    answer->atomic_cap = 1;
    answer->phys_port_cnt = 1;
    answer->vendor_id = 0x15b3;
}

static int query_port(const struct nic_hardware *hardware,
                      const struct ib_uverbs_query_port *question, void *memory)
{
    struct ib_uverbs_query_port_resp *answer = memory;
    memset(answer, 0, sizeof *answer);
    if (question->port_num != 1) {
        errno = EINVAL;
        return -1;
    }
    answer->state = (uint8_t)nic_kernel_world.port_state;
    answer->max_mtu = answer->active_mtu = 5;
    answer->gid_tbl_len = 8;
    answer->lid = nic_hardware_lid(hardware->device);
    answer->link_layer = (uint8_t)nic_kernel_world.link;
    answer->pkey_tbl_len = 1;
    return 0;
}

static int allocate_pd(struct nic_hardware *hardware, void *memory)
{
    ANSWER(struct ib_uverbs_alloc_pd_resp, struct mlx5_ib_alloc_pd_resp);
    if (nic_uverbs_fails(NIC_CALL_PD))
        return -1;
    device->pdn = nic_hardware_add(hardware, NIC_PD, &core->pd_handle)->number;
    return 0;
}

static int register_memory(struct nic_hardware *hardware, const struct ib_uverbs_reg_mr *question,
                           struct ib_uverbs_reg_mr_resp *answer)
{
    const struct nic_memory memory = {question->start, question->length, -1};
    if (nic_uverbs_fails(NIC_CALL_MR))
        return -1;
    struct nic_object *mr = nic_hardware_add(hardware, NIC_MR, &answer->mr_handle);
    assert_int_equal(nic_hardware_map(mr, &memory), 0);
    mr->address = question->hca_va;
    answer->lkey = answer->rkey = mr->number;
    nic_hardware_add_region(hardware, mr, question->access_flags);
    return 0;
}

/* The kernel knows the neighbours' addresses. */
static int create_ah(struct nic_hardware *hardware, const struct ib_uverbs_create_ah *question,
                     void *memory)
{
    ANSWER(struct ib_uverbs_create_ah_resp, struct mlx5_ib_create_ah_resp);
    uint8_t gid[16];
    if (nic_uverbs_fails(NIC_CALL_AH))
        return -1;
    for (int peer = 0; peer < NIC_KERNEL_MAX_DEVICES; peer++) {
        nic_hardware_gid(peer, gid);
        if (memcmp(question->attr.grh.dgid, gid, sizeof gid) != 0)
            continue;
        (void)nic_hardware_add(hardware, NIC_AH, &core->ah_handle);
        device->response_length = sizeof *device;
        nic_hardware_mac(peer, device->dmac);
        return 0;
    }
    errno = ENETUNREACH;
    return -1;
}

static void create_qp(const void *memory_of_question, void *memory)
{
    const struct ib_uverbs_create_qp *question = memory_of_question;
    const struct mlx5_ib_create_qp *question_of_driver = (const void *)(question + 1);
    ANSWER(struct ib_uverbs_create_qp_resp, struct mlx5_ib_create_qp_resp);
    user_index = question_of_driver->uidx;
    core->qp_handle = 3;
    core->qpn = NIC_KERNEL_QP;
    core->max_send_wr = question->max_send_wr;
    core->max_send_sge = question->max_send_sge;
    core->max_inline_data = question->max_inline_data;
    device->bfreg_index = 4;
}

int nic_uverbs_run(struct nic_hardware *hardware, uint32_t command, const void *question,
                   void *memory)
{
    switch (command) {
    case IB_USER_VERBS_CMD_GET_CONTEXT:
        return get_context(question, memory);
    case IB_USER_VERBS_CMD_QUERY_DEVICE:
        query_device(memory);
        return 0;
    case IB_USER_VERBS_CMD_QUERY_PORT:
        return query_port(hardware, question, memory);
    case IB_USER_VERBS_CMD_ALLOC_PD:
        return allocate_pd(hardware, memory);
    case IB_USER_VERBS_CMD_REG_MR:
        return register_memory(hardware, question, memory);
    case IB_USER_VERBS_CMD_CREATE_AH:
        return create_ah(hardware, question, memory);
    case IB_USER_VERBS_CMD_DEREG_MR:
    case IB_USER_VERBS_CMD_DEALLOC_PD:
    case IB_USER_VERBS_CMD_DESTROY_AH: { /* all that is in it is the handle */
        uint32_t handle;
        memcpy(&handle, question, sizeof handle);
        nic_hardware_remove(hardware, handle);
        return 0;
    }
    case IB_USER_VERBS_CMD_CREATE_CQ: {
        ANSWER(struct ib_uverbs_create_cq_resp, struct mlx5_ib_create_cq_resp);
        core->cq_handle = 2;
        core->cqe = ((const struct ib_uverbs_create_cq *)question)->cqe;
        device->cqn = 0x455;
        return 0;
    }
    case IB_USER_VERBS_CMD_CREATE_QP:
        create_qp(question, memory);
        return 0;
    case IB_USER_VERBS_CMD_MODIFY_QP:
        return 0;
    case IB_USER_VERBS_CMD_DESTROY_QP:
        memset(memory, 0, sizeof(struct ib_uverbs_destroy_qp_resp));
        return 0;
    case IB_USER_VERBS_CMD_DESTROY_CQ:
        memset(memory, 0, sizeof(struct ib_uverbs_destroy_cq_resp));
        return 0;
    default:
        errno = ENOSYS;
        return -1;
    }
}
#endif
