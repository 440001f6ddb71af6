/* SPDX-License-Identifier: MIT */
/* Which machine communicators are on, and what weft_machine_query tells of machines. */
#include <stdlib.h>
#include <string.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

/* The environment's machine, the config's against it, and the parent's. */
TEST_ON_RANKS(communicators_have_the_machine_asked_for, RANKS_PROCESSES, 2)
{
    const weft_machine usual = tests_on_cuda() ? WEFT_MACHINE_CUDA : WEFT_MACHINE_CPU;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    weft_comm *comm, *child;
    RANK_CHECK(context, weft_comm_machine(NULL) == WEFT_MACHINE_AUTO, "no comm, but a machine");
    RANK_CHECK_OK(context, ranks_comm_create(context, NULL, &comm));
    RANK_CHECK(context, weft_comm_machine(comm) == usual, "machine %d", weft_comm_machine(comm));
    config.machine = WEFT_MACHINE_CPU;
    RANK_CHECK_OK(context, weft_comm_split(comm, 0, 0, &config, &child));
    RANK_CHECK(context, weft_comm_machine(child) == usual, "machine %d", weft_comm_machine(child));
    RANK_CHECK_OK(context, weft_comm_destroy(child));
    RANK_CHECK_OK(context, weft_comm_destroy(comm));
    ranks_barrier(context);
    RANK_CHECK_OK(context, ranks_comm_create(context, &config, &comm));
    RANK_CHECK(context, weft_comm_machine(comm) == WEFT_MACHINE_CPU, "machine %d",
               weft_comm_machine(comm));
    RANK_CHECK(context, weft_comm_device(comm) == 0, "device %d", weft_comm_device(comm));
    RANK_CHECK(context, weft_comm_device(NULL) == -1, "no comm, but a device");
    RANK_CHECK_OK(context, weft_comm_destroy(comm));
    config.machine = (weft_machine)(WEFT_MACHINE_CUDA + 1);
    RANK_CHECK_ERROR(context, ranks_comm_create(context, &config, &comm),
                     WEFT_ERROR_INVALID_ARGUMENT,
                     "machine is 3, allowed are WEFT_MACHINE_AUTO (0), ");
    return 0;
}

static int check_devices(struct ranks_context *context, const weft_machine_info *info)
{
    RANK_CHECK(context, info->is_usable == 1, "%s", info->reason);
    RANK_CHECK(context, info->reason[0] == '\0', "usable, but %s", info->reason);
    RANK_CHECK(context, info->num_devices >= 1, "%d devices", info->num_devices);
    weft_device_info device = WEFT_INIT(weft_device_info);
    for (int32_t i = 0; i < info->num_devices; i++) {
        RANK_CHECK_OK(context, weft_device_query(info->machine, i, &device));
        RANK_CHECK(context, device.name[0] != '\0', "device %d has no name", i);
        RANK_CHECK(context, memchr(device.name, '\0', sizeof device.name) != NULL, "no end");
        RANK_CHECK(context, device.memory_bytes > 0, "device %d has no memory", i);
        RANK_CHECK(context, device.num_processors > 0, "device %d has no processors", i);
    }
    RANK_CHECK_ERROR(context, weft_device_query(info->machine, info->num_devices, &device),
                     WEFT_ERROR_INVALID_ARGUMENT, "device_idx");
    RANK_CHECK_ERROR(context, weft_device_query(info->machine, -1, &device),
                     WEFT_ERROR_INVALID_ARGUMENT, "device_idx");
    return 0;
}

static int query(struct ranks_context *context)
{
    weft_machine_info info = WEFT_INIT(weft_machine_info);
    memset(&info, 0xff, sizeof info);
    info.size = sizeof info;
    RANK_CHECK_OK(context, weft_machine_query(WEFT_MACHINE_CPU, &info));
    RANK_CHECK(context, info.machine == WEFT_MACHINE_CPU, "machine %d", info.machine);
    RANK_CHECK(context, info.driver_version == 0 && info.build_version == 0, "versions of a cpu");
    if (check_devices(context, &info))
        return 1;
    RANK_CHECK_OK(context, weft_machine_query(WEFT_MACHINE_CUDA, &info));
    RANK_CHECK(context, info.machine == WEFT_MACHINE_CUDA, "machine %d", info.machine);
    RANK_CHECK(context, info.is_usable || !tests_on_cuda(), "%s", info.reason);
    if (info.is_usable) {
        RANK_CHECK(context, info.driver_version >= 11000 && info.build_version >= 11000,
                   "versions %d and %d", info.driver_version, info.build_version);
        return check_devices(context, &info);
    }
    RANK_CHECK(context, strstr(info.reason, "machine cuda cannot be used: ") != NULL, "%s",
               info.reason);
    RANK_CHECK(context, info.num_devices == 0, "%d devices", info.num_devices);
    weft_device_info device = WEFT_INIT(weft_device_info);
    RANK_CHECK_ERROR(context, weft_device_query(WEFT_MACHINE_CUDA, 0, &device),
                     WEFT_ERROR_UNSUPPORTED, "machine cuda cannot be used: ");
    return 0;
}

/* The environment decides, as for communicators. */
static int query_auto(struct ranks_context *context)
{
    const weft_machine usual = tests_on_cuda() ? WEFT_MACHINE_CUDA : WEFT_MACHINE_CPU;
    const weft_result invalid = WEFT_ERROR_INVALID_ARGUMENT;
    weft_machine_info info = WEFT_INIT(weft_machine_info);
    RANK_CHECK_OK(context, weft_machine_query(WEFT_MACHINE_AUTO, &info));
    RANK_CHECK(context, info.machine == usual, "machine %d", info.machine);
    if (check_devices(context, &info))
        return 1;
    setenv("WEFT_MACHINE", "tpu", 1);
    info.machine = WEFT_MACHINE_AUTO;
    RANK_CHECK_ERROR(context, weft_machine_query(WEFT_MACHINE_AUTO, &info), invalid, "tpu");
    RANK_CHECK(context, info.machine == WEFT_MACHINE_AUTO, "an output was written");
    RANK_CHECK_ERROR(context, weft_machine_query((weft_machine)3, &info), invalid, "machine");
    RANK_CHECK_ERROR(context, weft_machine_query(WEFT_MACHINE_CPU, NULL), invalid, "info");
    return 0;
}

TEST(machines_are_described)
{
    assert_int_equal(ranks_run(RANKS_PROCESSES, 1, query, NULL), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, 1, query_auto, NULL), 0);
}
