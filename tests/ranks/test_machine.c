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
    CHECK(weft_comm_machine(NULL) == WEFT_MACHINE_AUTO, "no comm, but a machine");
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    CHECK(weft_comm_machine(comm) == usual, "machine %d", weft_comm_machine(comm));
    config.machine = WEFT_MACHINE_CPU;
    CHECK_OK(weft_comm_split(comm, 0, 0, &config, &child));
    CHECK(weft_comm_machine(child) == usual, "machine %d", weft_comm_machine(child));
    CHECK_OK(weft_comm_destroy(child));
    CHECK_OK(weft_comm_destroy(comm));
    ranks_barrier(context);
    CHECK_OK(ranks_comm_create(context, &config, &comm));
    CHECK(weft_comm_machine(comm) == WEFT_MACHINE_CPU, "machine %d", weft_comm_machine(comm));
    CHECK(weft_comm_device(comm) == 0, "device %d", weft_comm_device(comm));
    CHECK(weft_comm_device(NULL) == -1, "no comm, but a device");
    CHECK_OK(weft_comm_destroy(comm));
    config.machine = (weft_machine)(WEFT_MACHINE_CUDA + 1);
    CHECK_ERROR(ranks_comm_create(context, &config, &comm), WEFT_ERROR_INVALID_ARGUMENT,
                "machine is 3, allowed are WEFT_MACHINE_AUTO (0), ");
    return 0;
}

static int check_devices(const weft_machine_info *info)
{
    CHECK(info->is_usable == 1, "%s", info->reason);
    CHECK(info->reason[0] == '\0', "usable, but %s", info->reason);
    CHECK(info->num_devices >= 1, "%d devices", info->num_devices);
    weft_device_info device = WEFT_INIT(weft_device_info);
    for (int32_t i = 0; i < info->num_devices; i++) {
        CHECK_OK(weft_device_query(info->machine, i, &device));
        CHECK(device.name[0] != '\0', "device %d has no name", i);
        CHECK(memchr(device.name, '\0', sizeof device.name) != NULL, "no end");
        CHECK(device.memory_bytes > 0, "device %d has no memory", i);
        CHECK(device.available_bytes > 0, "device %d has no memory left", i);
        CHECK(device.num_processors > 0, "device %d has no processors", i);
    }
    CHECK_ERROR(weft_device_query(info->machine, info->num_devices, &device),
                WEFT_ERROR_INVALID_ARGUMENT, "device_idx");
    CHECK_ERROR(weft_device_query(info->machine, -1, &device), WEFT_ERROR_INVALID_ARGUMENT,
                "device_idx");
    return 0;
}

static int query(struct ranks_context *context)
{
    (void)context;
    weft_machine_info info = WEFT_INIT(weft_machine_info);
    memset(&info, 0xff, sizeof info);
    info.size = sizeof info;
    CHECK_OK(weft_machine_query(WEFT_MACHINE_CPU, &info));
    CHECK(info.machine == WEFT_MACHINE_CPU, "machine %d", info.machine);
    CHECK(info.driver_version == 0 && info.build_version == 0, "versions of a cpu");
    if (check_devices(&info))
        return 1;
    CHECK_OK(weft_machine_query(WEFT_MACHINE_CUDA, &info));
    CHECK(info.machine == WEFT_MACHINE_CUDA, "machine %d", info.machine);
    CHECK(info.is_usable || !tests_on_cuda(), "%s", info.reason);
    if (info.is_usable) {
        CHECK(info.driver_version >= 11000 && info.build_version >= 11000, "versions %d and %d",
              info.driver_version, info.build_version);
        return check_devices(&info);
    }
    CHECK(strstr(info.reason, "machine cuda cannot be used: ") != NULL, "%s", info.reason);
    CHECK((info.build_version == 0) == (strstr(info.reason, "built without CUDA") != NULL),
          "version %d: %s", info.build_version, info.reason);
    CHECK(info.num_devices == 0, "%d devices", info.num_devices);
    weft_device_info device = WEFT_INIT(weft_device_info);
    CHECK_ERROR(weft_device_query(WEFT_MACHINE_CUDA, 0, &device), WEFT_ERROR_UNSUPPORTED,
                "machine cuda cannot be used: ");
    return 0;
}

/* The environment decides, as for communicators. */
static int query_auto(struct ranks_context *context)
{
    (void)context;
    const weft_machine usual = tests_on_cuda() ? WEFT_MACHINE_CUDA : WEFT_MACHINE_CPU;
    const weft_result invalid = WEFT_ERROR_INVALID_ARGUMENT;
    weft_machine_info info = WEFT_INIT(weft_machine_info);
    CHECK_OK(weft_machine_query(WEFT_MACHINE_AUTO, &info));
    CHECK(info.machine == usual, "machine %d", info.machine);
    if (check_devices(&info))
        return 1;
    setenv("WEFT_MACHINE", "tpu", 1);
    info.machine = WEFT_MACHINE_AUTO;
    CHECK_ERROR(weft_machine_query(WEFT_MACHINE_AUTO, &info), invalid, "tpu");
    CHECK(info.machine == WEFT_MACHINE_AUTO, "an output was written");
    CHECK_ERROR(weft_machine_query((weft_machine)3, &info), invalid, "machine");
    CHECK_ERROR(weft_machine_query(WEFT_MACHINE_CPU, NULL), invalid, "info");
    return 0;
}

TEST(machines_are_described)
{
    assert_int_equal(ranks_run(RANKS_PROCESSES, 1, query, NULL), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, 1, query_auto, NULL), 0);
}
