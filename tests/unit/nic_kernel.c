/* SPDX-License-Identifier: MIT */
#include "nic_kernel.h"

struct nic_kernel_world nic_kernel_world;

#ifdef WEFT_TEST_MLX5
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/netlink.h>
#include <rdma/ib_user_verbs.h>
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
#include "nic_uverbs.h"

#define DEVICE_FILE "/dev/infiniband/uverbs"

static struct {
    char folder[64];
} kernel;

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

static void write_device(int device)
{
    static const struct {
        const char *format, *text;
    } files[] = {
        {"class/infiniband_verbs/uverbs%d/abi_version", "1"},
        {"class/infiniband_verbs/uverbs%d/dev", "1:3"}, /* that of /dev/null */
        {"class/infiniband/mlx5_%d/node_type", "1: CA"},
        {"class/infiniband/mlx5_%d/fw_ver", "28.39.1002"},
        {"class/infiniband/mlx5_%d/device/modalias",
         "pci:v000015B3d00001021sv000015B3sd00000001bc02sc07i00"},
        {"class/infiniband/mlx5_%d/ports/1/gids/0", "fe80:0000:0000:0000:0015:b3ff:fe40:5060"},
        {"class/infiniband/mlx5_%d/ports/1/gid_attrs/types/0", "IB/RoCE v1"},
        {"class/infiniband/mlx5_%d/ports/1/gid_attrs/types/1", "RoCE v2"},
    };
    char path[128], text[64];
    uint8_t gid[16];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, files[i].format, device);
        write_file(path, files[i].text);
    }
    snprintf(path, sizeof path, "class/infiniband_verbs/uverbs%d/ibdev", device);
    snprintf(text, sizeof text, "mlx5_%d", device);
    write_file(path, text);
    nic_hardware_gid(device, gid);
    snprintf(path, sizeof path, "class/infiniband/mlx5_%d/ports/1/gids/1", device);
    for (int i = 0; i < 8; i++)
        snprintf(text + (size_t)5 * i, sizeof text - (size_t)5 * i, "%02x%02x%s", gid[2 * i],
                 gid[2 * i + 1], i < 7 ? ":" : "");
    write_file(path, text);
}

void nic_kernel_reset(void)
{
    nic_kernel_world = (struct nic_kernel_world){.link = 1,
                                                 .port_state = 4,
                                                 .first_lid = 1,
                                                 .cqe_version = 1,
                                                 .max_log_depth = 15,
                                                 .max_log_message = 30,
                                                 .log_reads = 4};
}

void nic_kernel_start(int num_devices)
{
    assert_true(num_devices <= NIC_KERNEL_MAX_DEVICES);
    snprintf(kernel.folder, sizeof kernel.folder, "/tmp/weft-nic-XXXXXX");
    assert_non_null(mkdtemp(kernel.folder));
    write_file("class/infiniband_verbs/abi_version", "6");
    for (int device = 0; device < num_devices; device++)
        write_device(device);
    assert_int_equal(setenv("SYSFS_PATH", kernel.folder, 1), 0);
    nic_kernel_reset();
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
        (void)nic_hardware_open(path[strlen(DEVICE_FILE)] - '0', fd);
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

int close(int fd)
{
    struct nic_hardware *hardware = nic_hardware_of(fd);
    if (hardware != NULL)
        nic_hardware_close(hardware);
    return (int)syscall(SYS_close, fd);
}

/* Pages of the device are plain memory. That of a doorbell is looked at. */
void *mmap(void *address, size_t num_bytes, int protection, int flags, int fd, off_t offset)
{
    enum { FIRST_PAGE_OF_OLD_KERNEL = 0x600 };
    struct nic_hardware *hardware = nic_hardware_of(fd);
    if (hardware == NULL)
        return (void *)syscall(SYS_mmap, address, num_bytes, protection, flags, fd, offset);
    void *page = (void *)syscall(SYS_mmap, address, num_bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, (off_t)0);
    if (offset / NIC_PAGE_BYTES >= NIC_UVERBS_FIRST_PAGE)
        hardware->objects[offset / NIC_PAGE_BYTES - NIC_UVERBS_FIRST_PAGE].memory = page;
    else if (offset / NIC_PAGE_BYTES >= FIRST_PAGE_OF_OLD_KERNEL)
        hardware->pages_of_old_kernel[offset / NIC_PAGE_BYTES - FIRST_PAGE_OF_OLD_KERNEL] = page;
    return page;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    struct nic_hardware *hardware = nic_hardware_of(fd);
    return hardware != NULL ? nic_uverbs_ioctl(hardware, argument)
                            : (int)syscall(SYS_ioctl, fd, request, argument);
}

ssize_t write(int fd, const void *bytes, size_t num_bytes)
{
    const struct ib_uverbs_cmd_hdr *header = bytes;
    struct nic_hardware *hardware = nic_hardware_of(fd);
    uint64_t response = 0;
    if (hardware == NULL)
        return syscall(SYS_write, fd, bytes, num_bytes);
    if (header->command & IB_USER_VERBS_CMD_FLAG_EXTENDED) {
        errno = ENOSYS;
        return -1;
    }
    /* Each question that has an answer begins with its address. */
    if (num_bytes >= sizeof *header + sizeof response)
        memcpy(&response, header + 1, sizeof response);
    return nic_uverbs_run(hardware, header->command & IB_USER_VERBS_CMD_COMMAND_MASK, header + 1,
                          (void *)(uintptr_t)response) == 0
               ? (ssize_t)num_bytes
               : -1;
}
#endif
