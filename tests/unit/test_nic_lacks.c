/* SPDX-License-Identifier: MIT */
/* All that is missing for RDMA that GPUs start is told at once. Skipped where the headers of
 * libmlx5 are not installed. */
#include "harness/cmocka.h"

#ifdef WEFT_TEST_MLX5
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/nic/lacks.h"
#include "nic_hardware.h"
#include "nic_kernel.h"

static char folder[] = "/tmp/weft-lacks-XXXXXX";
static struct weft__sysfs system_files = {folder, folder};

/* A file of the driver, or with NULL none. */
static void write_driver(const char *file, const char *text)
{
    static const char *const folders[] = {"module", "driver", "driver/nvidia"};
    char path[256];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, folders[i]);
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    }
    snprintf(path, sizeof path, "%s/driver/nvidia/%s", folder, file);
    (void)unlink(path);
    if (text == NULL)
        return;
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static const char closed[] =
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1\nGCC version:\n",
                  open_modules[] =
                      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.1\n",
                  params[] = "EnableMSI: 1\nRegistryDwords: \"PeerMappingOverride=1;\"\n",
                  no_option[] = "EnableMSI: 1\nRegistryDwords: \"\"\n";

static void check(const char *name, const char *expected)
{
    char device[WEFT__NIC_NAME_BYTES], lacks[WEFT__NIC_LACKS_BYTES];
    weft__nic_find_lacks(&system_files, device, lacks);
    assert_string_equal(lacks, expected);
    assert_string_equal(device, name);
    assert_string_equal(nic_hardware_complaint(), "");
    assert_int_equal(nic_hardware_num_open(), 0);
}

#define NO_OPTION                                                                                  \
    "GPUs cannot reach doorbells: module nvidia has no option "                                    \
    "NVreg_RegistryDwords=\"PeerMappingOverride=1;\""
#define NO_MEMORY                                                                                  \
    "memory of GPUs cannot be registered: it takes the open modules of the driver, or "            \
    "nvidia-peermem"

TEST(each_lack_is_told)
{
    char module[256];
    check("mlx5_0", "there is no driver of NVIDIA's GPUs");
    write_driver("version", closed);
    check("mlx5_0", NO_MEMORY "; " NO_OPTION);
    write_driver("params", no_option);
    check("mlx5_0", NO_MEMORY "; " NO_OPTION);
    write_driver("params", params);
    check("mlx5_0", NO_MEMORY);
    snprintf(module, sizeof module, "%s/module/nvidia_peermem", folder);
    assert_int_equal(mkdir(module, 0700), 0);
    check("mlx5_0", "");
    assert_int_equal(rmdir(module), 0);
    write_driver("version", open_modules);
    check("mlx5_0", "");
    nic_kernel_world.port_state = 1;
    check("", "no port of mlx5_0 is active: port 1 is in state 1, not 4");
    write_driver("params", NULL);
    check("", "no port of mlx5_0 is active: port 1 is in state 1, not 4; " NO_OPTION);
    nic_kernel_reset();
    nic_kernel_world.failing = NIC_CALL_OPEN;
    nic_kernel_world.error = EPERM;
    check("", "mlx5_0 cannot be opened with the right to make queues (DEVX): Operation not "
              "permitted; " NO_OPTION);
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    nic_kernel_start(1);
    return 0;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status, (void)type, (void)at;
    return remove(path);
}

static int tear_down(void **state)
{
    enum { MAX_OPEN = 8 };
    (void)state;
    nic_kernel_stop();
    return nftw(folder, remove_entry, MAX_OPEN, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    return tests_run(set_up, tear_down);
}
#else
int main(void)
{
    enum { SKIPPED = 77 };
    return SKIPPED;
}
#endif
