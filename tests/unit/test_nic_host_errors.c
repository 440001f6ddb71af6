/* SPDX-License-Identifier: MIT */
/* Errors when the kernel, a device or a peer is in the way of the queues of a NIC. Skipped where
 * the headers of libmlx5 are not installed. */
#include "harness/cmocka.h"

#ifdef WEFT_TEST_MLX5
#include <errno.h>

#include "nic_host.h"

static struct nic_host host;
static const struct weft__verbs *verbs;

static weft_result make(void)
{
    return nic_host_try(&host, 2, NIC_HOST_OF_HOST, verbs);
}

/* Nothing may be left. */
static void unmake(void)
{
    nic_host_close(&host);
    assert_string_equal(nic_hardware_complaint(), "");
}

static int set_up(void **state)
{
    (void)state;
    nic_kernel_start(NIC_HOST_MAX_RANKS);
    assert_ok(weft__verbs_load(&verbs));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    nic_kernel_stop();
    return 0;
}

/* ---------------------------------------------------------------- the kernel and the device */

static const struct obstacle {
    uint32_t call, status;
    int error;
    const char *message;
} obstacles[] = {
    {NIC_CALL_OPEN, 0, EINVAL,
     "mlx5_0 cannot be opened with the right to make queues (DEVX): Invalid argument"},
    {NIC_CALL_PD, 0, ENOMEM, "mlx5_0 gives no protection domain: Cannot allocate memory"},
    {NIC_CALL_EQN, 0, EINVAL, "mlx5_0 has no event queue: Invalid argument"},
    {NIC_CALL_UAR, 0, ENOSPC, "mlx5_0 gives no doorbell register (UAR): No space left on device"},
    {NIC_CALL_MR, 0, ENOMEM,
     "cannot be registered with mlx5_0: Cannot allocate memory (is the limit of locked memory, "
     "ulimit -l, too low?)"},
    {NIC_CALL_MR, 0, EFAULT, "Bad address (memory of a GPU needs nvidia-peermem, or a dmabuf)"},
    {NIC_CALL_UMEM, 0, EOPNOTSUPP,
     "cannot be registered with mlx5_0 for queues: Operation not supported"},
    {WEFT__DEVX_QUERY_HCA_CAP, 0, EPERM,
     "capabilities 0 of mlx5_0 cannot be queried: Operation not permitted"},
    {WEFT__DEVX_CREATE_CQ, 0x0f, EREMOTEIO,
     "mlx5_0 refuses to create the completions of the queue to rank 1: status 0xf (no resources "
     "left), syndrome 0x5eed"},
    {WEFT__DEVX_CREATE_QP, 0x08, EREMOTEIO,
     "mlx5_0 refuses to create the queue pair of the queue to rank 1: status 0x8 (limit exceeded)"},
    {WEFT__DEVX_CREATE_QP, 0, ENOMEM,
     "mlx5_0 refuses to create the queue pair of the queue to rank 1: Cannot allocate memory"},
    {WEFT__DEVX_RST2INIT, 0x10, EREMOTEIO,
     "mlx5_0 refuses to initialise the queue pair of the queue to rank 1: status 0x10 (queue pair "
     "is in the wrong state)"},
    {WEFT__DEVX_INIT2RTR, 0x03, EREMOTEIO,
     "mlx5_0 refuses to connect the queue pair of the queue to rank 1: status 0x3 (bad parameter)"},
    {WEFT__DEVX_RTR2RTS, 0, EIO,
     "mlx5_0 refuses to open the sends of the queue to rank 1: Input/output error"},
};

TEST(what_the_kernel_refuses_is_told)
{
    for (size_t i = 0; i < sizeof obstacles / sizeof *obstacles; i++) {
        nic_kernel_reset();
        nic_kernel_world.failing = obstacles[i].call;
        nic_kernel_world.status = obstacles[i].status;
        nic_kernel_world.error = obstacles[i].error;
        const weft_result result = make();
        if (result == WEFT_OK || strstr(weft_last_error(), obstacles[i].message) == NULL)
            fail_msg("obstacle %d: result %d, %s", (int)i, result, weft_last_error());
        nic_kernel_reset();
        unmake();
    }
}

static void check_device(const char *message)
{
    const weft_result result = make();
    if (result == WEFT_OK || strstr(weft_last_error(), message) == NULL)
        fail_msg("result %d, %s, not %s", result, weft_last_error(), message);
    unmake();
    nic_kernel_reset();
}

TEST(what_a_device_lacks_is_told)
{
    nic_kernel_reset();
    nic_kernel_world.port_state = 1;
    check_device("no port of mlx5_0 is active: port 1 is in state 1, not 4");
    nic_kernel_world.first_lid = 0;
    check_device("port 1 of mlx5_0 has no LID: there is no subnet manager");
    nic_kernel_world.cqe_version = 0;
    check_device("mlx5_0 writes completions of version 0, not 1");
    nic_kernel_world.atomics_are_big_endian = 1;
    check_device("mlx5_0 has no fetch-add of 8 bytes in the order of the processor");
    nic_kernel_world.max_log_message = 29;
    check_device("mlx5_0 sends messages of up to 2^29 bytes, not 2^30");
    nic_kernel_world.max_log_depth = 5;
    check_device("the queue to rank 1 has 64 units: not a power of two up to 32");
    struct weft__nic_device device;
    assert_error(weft__nic_device_open(verbs, "mlx5_9", &device), WEFT_ERROR_UNSUPPORTED,
                 "there is no device mlx5_9 among 3");
}

TEST(ends_must_fit)
{
    nic_kernel_reset();
    assert_ok(make());
    struct weft__devx_end end = host.ranks[1].qps[0].end;
    end.link = WEFT__IBV_ETHERNET;
    assert_error(weft__nic_qp_connect(&host.ranks[0].qps[1], &end), WEFT_ERROR_MISMATCH,
                 "the NIC of rank 1 is on Ethernet, mlx5_0 of this rank on InfiniBand");
    unmake();
    nic_kernel_world.link = WEFT__IBV_ETHERNET;
    assert_ok(make());
    end = host.ranks[1].qps[0].end;
    end.gid[15] = 99;
    assert_error(weft__nic_qp_connect(&host.ranks[0].qps[1], &end), WEFT_ERROR_SYSTEM,
                 "mlx5_0 does not find the address of rank 1: Network is unreachable");
    unmake();
}

TEST(memory_must_fit)
{
    nic_kernel_reset();
    assert_ok(make());
    struct nic_rank *rank = &host.ranks[0];
    struct weft__nic_umem umem = {0};
    struct weft__nic_memory memory = rank->sends;
    memory.num_bytes -= 64;
    assert_error(weft__nic_umem_create(&rank->device, "sends", &memory, &umem),
                 WEFT_ERROR_INVALID_ARGUMENT, "not multiples of 4096");
    struct weft__nic_qp_config config = rank->qps[1].config;
    struct weft__nic_qp qp = {0};
    config.depth = 48;
    assert_error(weft__nic_qp_create(&rank->device, &config, &qp), WEFT_ERROR_INVALID_ARGUMENT,
                 "the queue to rank 1 has 48 units: not a power of two up to 32768");
    config.depth = 32768;
    assert_error(weft__nic_qp_create(&rank->device, &config, &qp), WEFT_ERROR_INVALID_ARGUMENT,
                 "the queue to rank 1 ends behind its memory, 262144 and");
    config = rank->qps[1].config;
    config.entry += 128;
    assert_error(weft__nic_qp_create(&rank->device, &config, &qp), WEFT_ERROR_INVALID_ARGUMENT,
                 "not multiples of 4096, 8, 4096");
    unmake();
}

/* ---------------------------------------------------------------- failures of requests */

static void check_failure(const struct wp_access *access, weft_result expected, const char *message)
{
    uint64_t index;
    assert_int_equal(nic_host_post(&host, 0, access, &index), WP_STATUS_OK);
    assert_int_equal(nic_host_await(&host, 0, 1, index), WP_STATUS_FAILED);
    assert_error(weft__nic_qp_check(&host.ranks[0].qps[1]), expected, message);
    /* A post after it ends at once. */
    assert_int_equal(nic_host_post(&host, 0, access, &index), WP_STATUS_FAILED);
    assert_error(weft__nic_qp_check(&host.ranks[0].qps[1]), expected, message);
}

TEST(failures_name_the_rank_and_the_syndrome)
{
    struct wp_access access = {.operation = WP_ACCESS_PUT, .rank = 1, .num_bytes = 8};
    nic_kernel_reset();
    assert_ok(make());
    nic_hardware_cut(1);
    check_failure(&access, WEFT_ERROR_RANK_FAILED,
                  "the NIC's queue to rank 1 has failed: transport retries exceeded (0x15, vendor "
                  "0x00), QP 0x");
    unmake();
    assert_ok(make());
    access.target = NIC_HOST_HEAP_BYTES; /* behind it */
    check_failure(&access, WEFT_ERROR_SYSTEM,
                  "the NIC's queue to rank 1 has failed: remote memory that is not registered for "
                  "it (0x13, vendor 0x");
    (void)nic_hardware_complaint(); /* the model's, of the key */
    unmake();
}

/* Requests behind the failed one are flushed, and their completions are written over its own. */
TEST(the_first_cause_stays)
{
    const struct wp_access access = {.operation = WP_ACCESS_PUT, .rank = 1, .num_bytes = 8};
    enum { NUM_PUTS = 8 };
    uint64_t index;
    int num_failures = 0;
    nic_kernel_reset();
    assert_ok(make());
    nic_hardware_cut(1);
    for (int i = 0; i < NUM_PUTS; i++)
        assert_int_equal(nic_host_post(&host, 0, &access, &index), WP_STATUS_OK);
    while (nic_hardware_step())
        num_failures += weft__nic_qp_check(&host.ranks[0].qps[1]) != WEFT_OK;
    assert_true(num_failures > NUM_PUTS);
    assert_error(weft__nic_qp_check(&host.ranks[0].qps[1]), WEFT_ERROR_RANK_FAILED,
                 "rank 1 has failed: transport retries exceeded (0x15");
    assert_non_null(strstr(weft_last_error(), ", unit 0"));
    unmake();
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
