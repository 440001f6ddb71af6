/* SPDX-License-Identifier: MIT */
#include "harness/cmocka.h"

#ifdef WEFT_TEST_MLX5
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "nic_firmware.h"
#include "nic_kernel.h"
#include "nic_uverbs.h"

int nic_uverbs_fails(uint32_t call)
{
    if (nic_kernel_world.failing != call)
        return 0;
    errno = nic_kernel_world.error;
    return 1;
}

static struct ib_uverbs_attr *find(struct ib_uverbs_ioctl_hdr *header, int id)
{
    for (int i = 0; i < header->num_attrs; i++)
        if (header->attrs[i].attr_id == id)
            return &header->attrs[i];
    return NULL;
}

/* Small ones are in the attribute itself. */
static uint64_t number_of(struct ib_uverbs_ioctl_hdr *header, int id)
{
    const struct ib_uverbs_attr *attr = find(header, id);
    uint64_t number = 0;
    assert_non_null(attr);
    assert_true(attr->len <= sizeof number);
    memcpy(&number, &attr->data, attr->len);
    return number;
}

static void answer(struct ib_uverbs_ioctl_hdr *header, int id, const void *bytes, size_t num_bytes)
{
    const struct ib_uverbs_attr *attr = find(header, id);
    assert_non_null(attr);
    assert_true(num_bytes <= attr->len);
    memcpy((void *)(uintptr_t)attr->data, bytes, num_bytes);
}

static int refuse(int error)
{
    errno = error;
    return -1;
}

/* ---------------------------------------------------------------- memory */

static int dmabuf_of(struct ib_uverbs_ioctl_hdr *header, int id)
{
    const struct ib_uverbs_attr *attr = find(header, id);
    return attr != NULL ? (int)attr->data_s64 : -1;
}

/* The kernel takes the largest page that the bitmap allows and the memory has; the smallest allowed
 * one is what the caller relies on. */
static int register_umem(struct nic_hardware *hardware, struct ib_uverbs_ioctl_hdr *header)
{
    const struct nic_memory memory = {number_of(header, MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR),
                                      number_of(header, MLX5_IB_ATTR_DEVX_UMEM_REG_LEN),
                                      dmabuf_of(header, MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD)};
    const uint64_t pages = number_of(header, MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP);
    const uint64_t page_bytes = pages & (~pages + 1);
    uint32_t handle;
    if (nic_uverbs_fails(NIC_CALL_UMEM))
        return -1;
    if (page_bytes < NIC_PAGE_BYTES || (memory.address | memory.num_bytes) % page_bytes != 0) {
        nic_hardware_complain("umem: 0x%llx, %llu bytes, do not fit pages of %llu bytes",
                              (unsigned long long)memory.address,
                              (unsigned long long)memory.num_bytes, (unsigned long long)page_bytes);
        return refuse(EINVAL);
    }
    struct nic_object *umem = nic_hardware_add(hardware, NIC_UMEM, &handle);
    umem->page_bytes = page_bytes;
    const int error = nic_hardware_map(umem, &memory);
    if (error != 0) {
        nic_hardware_remove(hardware, handle);
        return refuse(error);
    }
    answer(header, MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, &umem->number, sizeof umem->number);
    find(header, MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)->data = handle;
    return 0;
}

static int register_dmabuf(struct nic_hardware *hardware, struct ib_uverbs_ioctl_hdr *header)
{
    const struct nic_memory memory = {number_of(header, UVERBS_ATTR_REG_DMABUF_MR_OFFSET),
                                      number_of(header, UVERBS_ATTR_REG_DMABUF_MR_LENGTH),
                                      dmabuf_of(header, UVERBS_ATTR_REG_DMABUF_MR_FD)};
    uint32_t handle;
    if (nic_uverbs_fails(NIC_CALL_DMABUF_MR))
        return -1;
    struct nic_object *mr = nic_hardware_add(hardware, NIC_MR, &handle);
    const int error = nic_hardware_map(mr, &memory);
    if (error != 0) {
        nic_hardware_remove(hardware, handle);
        return refuse(error);
    }
    mr->address = number_of(header, UVERBS_ATTR_REG_DMABUF_MR_IOVA);
    nic_hardware_add_region(hardware, mr,
                            (uint32_t)number_of(header, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS));
    answer(header, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &mr->number, sizeof mr->number);
    answer(header, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &mr->number, sizeof mr->number);
    find(header, UVERBS_ATTR_REG_DMABUF_MR_HANDLE)->data = handle;
    return 0;
}

static int allocate_uar(struct nic_hardware *hardware, struct ib_uverbs_ioctl_hdr *header)
{
    const uint32_t num_bytes = NIC_PAGE_BYTES;
    uint32_t handle;
    if (nic_uverbs_fails(NIC_CALL_UAR))
        return -1;
    const struct nic_object *uar = nic_hardware_add(hardware, NIC_UAR, &handle);
    const uint64_t offset = (uint64_t)(NIC_UVERBS_FIRST_PAGE + handle) * NIC_PAGE_BYTES;
    answer(header, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset, sizeof offset);
    answer(header, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &num_bytes, sizeof num_bytes);
    answer(header, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &uar->number, sizeof uar->number);
    find(header, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)->data = handle;
    return 0;
}

/* Older kernels: a page that the library has mapped before. */
static int query_uar(struct nic_hardware *hardware, struct ib_uverbs_ioctl_hdr *header)
{
    const uint64_t page = number_of(header, MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX);
    uint32_t handle;
    assert_true(page < NIC_PAGES_OF_OLD_KERNEL);
    struct nic_object *uar = nic_hardware_add(hardware, NIC_UAR, &handle);
    uar->is_static = 1;
    uar->memory = hardware->pages_of_old_kernel[page];
    answer(header, MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, &uar->number, sizeof uar->number);
    return 0;
}

/* ---------------------------------------------------------------- commands */

static void put_status(uint8_t *bytes, uint32_t status, uint32_t syndrome)
{
    nic_firmware_put(bytes, 0x00, 8, status);
    nic_firmware_put(bytes, 0x20, 32, syndrome);
}

/* Linux 5.19 and later hand the firmware's answer over with this error. */
static int run_command(struct nic_hardware *hardware, struct ib_uverbs_ioctl_hdr *header, int in,
                       int out, uint32_t *handle)
{
    enum { BAD_PARAMETER = 3, ANSWER_BYTES = 16 };
    const struct ib_uverbs_attr *question = find(header, in);
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)question->data;
    const uint32_t opcode = (uint32_t)nic_firmware_get(bytes, 0, 16);
    uint8_t told[ANSWER_BYTES] = {0};
    uint32_t number = 0;
    if (nic_uverbs_fails(opcode)) {
        put_status(told, nic_kernel_world.status, nic_kernel_world.status != 0 ? 0x5eed : 0);
        answer(header, out, told, sizeof told);
        return -1;
    }
    const uint32_t syndrome = nic_hardware_run(hardware, bytes, question->len, handle, &number);
    if (syndrome != 0)
        put_status(told, BAD_PARAMETER, opcode << 16 | syndrome);
    nic_firmware_put(told, 0x48, 24, number);
    answer(header, out, told, sizeof told);
    return syndrome != 0 ? refuse(EREMOTEIO) : 0;
}

static int create_object(struct nic_hardware *hardware, struct ib_uverbs_ioctl_hdr *header)
{
    uint32_t handle = 0;
    const int result = run_command(hardware, header, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN,
                                   MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, &handle);
    find(header, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE)->data = handle;
    return result;
}

static int modify_object(struct nic_hardware *hardware, struct ib_uverbs_ioctl_hdr *header)
{
    uint32_t handle = 0;
    return run_command(hardware, header, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
                       MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, &handle);
}

/* Capabilities. */
static int run_other(struct ib_uverbs_ioctl_hdr *header)
{
    enum { ANSWER_BYTES = 4112, BYTES_BEFORE = 16, BITS_BEFORE = BYTES_BEFORE * 8, NO_COMMAND = 2 };
    const struct nic_kernel_world *can = &nic_kernel_world;
    const struct ib_uverbs_attr *question = find(header, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN);
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)question->data;
    char text[NIC_FIRMWARE_TEXT_BYTES];
    static uint8_t told[ANSWER_BYTES];
    memset(told, 0, sizeof told);
    const uint32_t syndrome = nic_firmware_check(bytes, question->len, text);
    const int fails = nic_uverbs_fails(0x100);
    if (syndrome != 0)
        nic_hardware_complain("%s", text);
    if (syndrome != 0 || fails) {
        put_status(told, fails ? can->status : NO_COMMAND, syndrome);
        answer(header, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, told, sizeof told);
        return fails ? -1 : refuse(EREMOTEIO);
    }
    switch (nic_firmware_value(bytes, question->len, "op_mod")) {
    case 0 << 1 | 1:
        nic_firmware_put(told, BITS_BEFORE + 0x88, 8, can->max_log_depth);
        nic_firmware_put(told, BITS_BEFORE + 0x14a, 6, can->log_reads);
        nic_firmware_put(told, BITS_BEFORE + 0x15a, 6, can->log_reads);
        nic_firmware_put(told, BITS_BEFORE + 0x1c3, 5, can->max_log_message);
        nic_firmware_put(told, BITS_BEFORE + 0x1fc, 4, can->cqe_version);
        break;
    case 3 << 1 | 1:
        nic_firmware_put(told, BITS_BEFORE + 0x40, 2, can->atomics_are_big_endian ? 0 : 1);
        nic_firmware_put(told, BITS_BEFORE + 0x90, 16, 3);
        nic_firmware_put(told, BITS_BEFORE + 0xb0, 16, 8);
        break;
    default:
        nic_firmware_put(told, BITS_BEFORE + 0x1e, 2, 2);
        break;
    }
    answer(header, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, told, sizeof told);
    return 0;
}

static int query_eqn(struct ib_uverbs_ioctl_hdr *header)
{
    const uint32_t eqn = 7;
    if (nic_uverbs_fails(NIC_CALL_EQN))
        return -1;
    answer(header, MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, &eqn, sizeof eqn);
    return 0;
}

/* ---------------------------------------------------------------- all of them */

static int destroy(struct nic_hardware *hardware, const struct ib_uverbs_ioctl_hdr *header)
{
    nic_hardware_remove(hardware, header->attrs[0].data);
    return 0;
}

#define CALL(object, method) ((uint32_t)(object) << 16 | (uint32_t)(method))

int nic_uverbs_ioctl(struct nic_hardware *hardware, struct ib_uverbs_ioctl_hdr *header)
{
    switch (CALL(header->object_id, header->method_id)) {
    case CALL(UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR):
        return register_dmabuf(hardware, header);
    case CALL(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN):
        return query_eqn(header);
    case CALL(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR):
        return query_uar(hardware, header);
    case CALL(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER):
        return run_other(header);
    case CALL(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC):
        return allocate_uar(hardware, header);
    case CALL(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG):
        return register_umem(hardware, header);
    case CALL(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE):
        return create_object(hardware, header);
    case CALL(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY):
        return modify_object(hardware, header);
    case CALL(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY):
    case CALL(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG):
    case CALL(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY):
        return destroy(hardware, header);
    default: /* the library then takes the older interface */
        return refuse(ENOTTY);
    }
}
#endif
