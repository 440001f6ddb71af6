/* SPDX-License-Identifier: MIT */
#include "nic_kernel.h"

#ifdef WEFT_TEST_MLX5
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/netlink.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness/cmocka.h"

#define DEVICE_FILE "/dev/infiniband/uverbs"

static struct {
    char folder[64];
    int fd; /* of the device, or -1 */
    uint32_t last_key, user_index;
} kernel = {.fd = -1};

/* ---------------------------------------------------------------- the files of the device */

static void write_file(const char *path, const char *text)
{
    char whole[256];
    snprintf(whole, sizeof whole, "%s/%s", kernel.folder, path);
    for (char *slash = strchr(whole + strlen(kernel.folder) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(whole, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", text);
    assert_int_equal(fclose(file), 0);
}

void nic_kernel_start(void)
{
    static const char *const files[][2] = {
        {"class/infiniband_verbs/abi_version", "6"},
        {"class/infiniband_verbs/uverbs0/abi_version", "1"},
        {"class/infiniband_verbs/uverbs0/dev", "1:3"},
        {"class/infiniband_verbs/uverbs0/ibdev", "mlx5_0"},
        {"class/infiniband/mlx5_0/node_type", "1: CA"},
        {"class/infiniband/mlx5_0/fw_ver", "28.39.1002"},
        {"class/infiniband/mlx5_0/device/modalias",
         "pci:v000015B3d00001021sv000015B3sd00000001bc02sc07i00"},
    };
    snprintf(kernel.folder, sizeof kernel.folder, "/tmp/weft-nic-XXXXXX");
    assert_non_null(mkdtemp(kernel.folder));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        write_file(files[i][0], files[i][1]);
    assert_int_equal(setenv("SYSFS_PATH", kernel.folder, 1), 0);
    kernel.last_key = NIC_KERNEL_FIRST_KEY - 0x101;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status, (void)type, (void)at;
    return remove(path);
}

void nic_kernel_stop(void)
{
    enum { MAX_OPEN = 8 };
    assert_int_equal(nftw(kernel.folder, remove_entry, MAX_OPEN, FTW_DEPTH | FTW_PHYS), 0);
}

uint32_t nic_kernel_user_index(void)
{
    return kernel.user_index;
}

/* ---------------------------------------------------------------- commands */

/* A driver's part follows that of all devices. */
#define ANSWER(type_of_core, type_of_device)                                                       \
    type_of_core *core = memory;                                                                   \
    type_of_device *device = (void *)(core + 1)

static void get_context(void *memory)
{
    ANSWER(struct ib_uverbs_get_context_resp, struct mlx5_ib_alloc_ucontext_resp);
    core->async_fd = (uint32_t)(open)("/dev/null", O_RDONLY);
    core->num_comp_vectors = 1;
    device->qp_tab_size = 1 << 18;
    device->bf_reg_size = 512;
    device->tot_bfregs = 16;
    device->cache_line_size = 64;
    device->max_sq_desc_sz = 1024;
    device->max_rq_desc_sz = 512;
    device->max_send_wqebb = device->max_recv_wr = 32768;
    device->max_srq_recv_wr = 32768;
    device->num_ports = 1;
    device->cqe_version = 1; /* completions name queue pairs by the user's index */
    device->log_uar_size = 12;
    device->num_uars_per_page = 1;
    device->response_length = sizeof *device;
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

static void query_port(void *memory)
{
    struct ib_uverbs_query_port_resp *answer = memory;
    memset(answer, 0, sizeof *answer);
    answer->state = 4; /* active */
    answer->max_mtu = answer->active_mtu = 5;
    answer->gid_tbl_len = 8;
    answer->lid = 1;
    answer->link_layer = 1;
    answer->pkey_tbl_len = 1;
}

static void create_qp(const void *memory_of_question, void *memory)
{
    const struct ib_uverbs_create_qp *question = memory_of_question;
    const struct mlx5_ib_create_qp *question_of_driver = (const void *)(question + 1);
    ANSWER(struct ib_uverbs_create_qp_resp, struct mlx5_ib_create_qp_resp);
    kernel.user_index = question_of_driver->uidx;
    core->qp_handle = 3;
    core->qpn = NIC_KERNEL_QP;
    core->max_send_wr = question->max_send_wr;
    core->max_send_sge = question->max_send_sge;
    core->max_inline_data = question->max_inline_data;
    device->bfreg_index = 4;
}

static int run_command(uint32_t command, const void *question, void *memory)
{
    switch (command) {
    case IB_USER_VERBS_CMD_GET_CONTEXT:
        get_context(memory);
        return 0;
    case IB_USER_VERBS_CMD_QUERY_DEVICE:
        query_device(memory);
        return 0;
    case IB_USER_VERBS_CMD_QUERY_PORT:
        query_port(memory);
        return 0;
    case IB_USER_VERBS_CMD_ALLOC_PD: {
        ANSWER(struct ib_uverbs_alloc_pd_resp, struct mlx5_ib_alloc_pd_resp);
        core->pd_handle = 1;
        device->pdn = 0x23;
        return 0;
    }
    case IB_USER_VERBS_CMD_REG_MR: {
        struct ib_uverbs_reg_mr_resp *answer = memory;
        answer->mr_handle = answer->lkey = answer->rkey = kernel.last_key += 0x101;
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
    case IB_USER_VERBS_CMD_DEREG_MR:
    case IB_USER_VERBS_CMD_DEALLOC_PD:
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

/* ---------------------------------------------------------------- system calls of libibverbs */

static int is_device(const char *path)
{
    return strncmp(path, DEVICE_FILE, strlen(DEVICE_FILE)) == 0;
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    const int fd =
        (int)syscall(SYS_openat, AT_FDCWD, is_device(path) ? "/dev/null" : path, flags, mode);
    if (is_device(path))
        kernel.fd = fd;
    return fd;
}

int stat(const char *restrict path, struct stat *restrict status)
{
    return fstatat(AT_FDCWD, is_device(path) ? "/dev/null" : path, status, 0);
}

/* A kernel with an RDMA core would answer here that there is no device. */
int socket(int domain, int type, int protocol)
{
    if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
        errno = EPROTONOSUPPORT;
        return -1;
    }
    return (int)syscall(SYS_socket, domain, type, protocol);
}

/* Pages of the device are plain memory. */
void *mmap(void *address, size_t num_bytes, int protection, int flags, int fd, off_t offset)
{
    if (fd >= 0 && fd == kernel.fd) {
        flags = MAP_PRIVATE | MAP_ANONYMOUS;
        protection = PROT_READ | PROT_WRITE;
        fd = -1;
        offset = 0;
    }
    return (void *)syscall(SYS_mmap, address, num_bytes, protection, flags, fd, offset);
}

/* Newer interfaces than write() are refused: the library then takes it. */
int ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (fd >= 0 && fd == kernel.fd) {
        errno = ENOTTY;
        return -1;
    }
    return (int)syscall(SYS_ioctl, fd, request, argument);
}

ssize_t write(int fd, const void *bytes, size_t num_bytes)
{
    const struct ib_uverbs_cmd_hdr *header = bytes;
    uint64_t response;
    if (fd < 0 || fd != kernel.fd)
        return syscall(SYS_write, fd, bytes, num_bytes);
    if (header->command & IB_USER_VERBS_CMD_FLAG_EXTENDED) {
        errno = ENOSYS;
        return -1;
    }
    /* Each question that has an answer begins with its address. */
    memcpy(&response, header + 1, sizeof response);
    return run_command(header->command & IB_USER_VERBS_CMD_COMMAND_MASK, header + 1,
                       (void *)(uintptr_t)response) == 0
               ? (ssize_t)num_bytes
               : -1;
}
#endif
