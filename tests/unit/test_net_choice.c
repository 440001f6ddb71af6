/* SPDX-License-Identifier: MIT */
/* Which engine and which transport: what is asked for, or an error that says what there is. Each
 * test is a process of its own, since UCX stays in the one that loads it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/host/error.h"
#include "comm/host/log.h"
#include "harness/cmocka.h"
#include "net/devices.h"
#include "net/engine.h"
#include "net_world.h"

static void run_child(int (*child)(void))
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int failed_line = child();
        if (failed_line != 0)
            fprintf(stderr, "line %d: %s\n", failed_line, weft__last_error());
        fflush(NULL);
        _exit(failed_line != 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__;                                                                       \
    } while (0)

/* Two nets of this process, connected as far as that goes. */
static weft_result connect_pair(const struct weft__net_config *config, struct weft__net **nets)
{
    struct weft__net_blob blobs[2];
    weft_result result = WEFT_OK;
    for (int32_t rank = 0; rank < 2 && result == WEFT_OK; rank++) {
        struct weft__net_config own = *config;
        own.rank = rank;
        own.num_ranks = 2;
        result = weft__net_open(&own, &nets[rank]);
        if (result == WEFT_OK)
            result = weft__net_address(nets[rank], &blobs[rank]);
    }
    for (int32_t rank = 0; rank < 2 && result == WEFT_OK; rank++)
        result = weft__net_connect(nets[rank], blobs);
    for (int32_t rank = 0; rank < 2 && result == WEFT_OK; rank++)
        result = weft__net_find_transports(nets[rank]);
    return result;
}

static int names_must_be_known(void)
{
    struct weft__net *net;
    const struct weft__net_config config = {.engine = "carrier pigeon", .num_ranks = 1};
    CHECK(weft__net_open(&config, &net) == WEFT_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(weft__last_error(), "carrier pigeon") != NULL);
    /* What only tests have a world for. */
    const struct weft__net_config fake = {.engine = "fake", .num_ranks = 1};
    CHECK(weft__net_open(&fake, &net) == WEFT_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(weft__last_error(), "\"fake\"; it must be auto, tcp or ucx") != NULL);
    return 0;
}

static int settings_are_read(void)
{
    struct weft__net_config config = {.num_ranks = 1};
    CHECK(weft__net_read_settings(&config) == WEFT_OK);
    CHECK(strcmp(config.engine, "auto") == 0 && config.devices == NULL);
    CHECK(config.demand == WEFT__NET_ANY_TRANSPORT && config.gpudirect == WEFT__NET_GPUDIRECT_AUTO);
    setenv("WEFT_NET", "ucx", 1);
    setenv("WEFT_NET_DEVICES", "eth0", 1);
    setenv("WEFT_NET_TRANSPORT", "rdma", 1);
    setenv("WEFT_NET_GPUDIRECT", "off", 1);
    CHECK(weft__net_read_settings(&config) == WEFT_OK);
    CHECK(strcmp(config.engine, "ucx") == 0 && strcmp(config.devices, "eth0") == 0);
    CHECK(config.demand == WEFT__NET_RDMA && config.gpudirect == WEFT__NET_GPUDIRECT_OFF);
    setenv("WEFT_NET_TRANSPORT", "carrier pigeon", 1);
    CHECK(weft__net_read_settings(&config) == WEFT_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(weft__last_error(), "WEFT_NET_TRANSPORT is \"carrier pigeon\"") != NULL);
    return 0;
}

/* What peers have in common is named once, and what begins alike is not the same. */
static int transports_are_listed(void)
{
    struct weft__net *net;
    const char *const found[] = {"tcp/eth10",          "tcp/eth1", "tcp/eth10",
                                 "tcp/eth1, tcp/eth2", "eth1",     "tcp/eth1"};
    const struct weft__net_config config = {.engine = "tcp", .num_ranks = 1};
    CHECK(weft__net_open(&config, &net) == WEFT_OK);
    for (int32_t peer = 0; peer < 6; peer++)
        weft__net_found_transport(net, peer, found[peer], WEFT__NET_WITHOUT_RDMA);
    CHECK(strcmp(weft__net_transport(net), "tcp/eth10; tcp/eth1; tcp/eth1, tcp/eth2; eth1") == 0);
    weft__net_close(net);
    return 0;
}

/* The distance of a peer that is farther than half of the others at most, of those that are
 * known. */
static int far_peers_do_not_count(void)
{
    static const double far_us[] = {0, 40, 20, 90000, 30, 0};
    struct weft__net *net;
    const struct weft__net_config config = {.engine = "tcp", .num_ranks = 6};
    CHECK(weft__net_open(&config, &net) == WEFT_OK);
    CHECK(weft__net_round_trip_us(net) == 0);
    for (int32_t peer = 0; peer < 6; peer++)
        weft__net_found_round_trip(net, peer, far_us[peer]);
    CHECK(weft__net_round_trip_us(net) == 40);
    weft__net_close(net);
    return 0;
}

static int tcp_has_no_rdma(void)
{
    struct weft__net *net;
    const struct weft__net_config config = {
        .engine = "tcp", .num_ranks = 1, .demand = WEFT__NET_RDMA};
    CHECK(weft__net_open(&config, &net) == WEFT_ERROR_UNSUPPORTED);
    CHECK(strstr(weft__last_error(), "RDMA is demanded; the network engine is tcp") != NULL);
    return 0;
}

/* A tree as the system's; as empty as it is. */
static int make_file(const char *root, const char *path, const char *text)
{
    char command[1024];
    snprintf(command, sizeof(command), "mkdir -p \"$(dirname %s/%s)\" && echo '%s' > %s/%s", root,
             path, text, root, path);
    return system(command) == 0;
}

static int devices_for_rdma_are_found(void)
{
    char root[] = "/tmp/weft_test_devices_XXXXXX", dev[64], command[128], name[64];
    CHECK(mkdtemp(root) != NULL);
    snprintf(dev, sizeof(dev), "%s/dev", root);
    CHECK(!weft__net_find_rdma(root, dev, name));
    CHECK(make_file(root, "class/infiniband/mlx5_0/ports/1/state", "1: DOWN"));
    CHECK(make_file(root, "class/infiniband/mlx5_0/device/infiniband_verbs/uverbs0/dev", ""));
    CHECK(make_file(root, "class/infiniband/mlx5_7/ports/1/state", "1: DOWN"));
    CHECK(make_file(root, "class/infiniband/mlx5_7/ports/2/state", "4: ACTIVE"));
    CHECK(make_file(root, "class/infiniband/mlx5_7/device/infiniband_verbs/uverbs7/dev", ""));
    CHECK(!weft__net_find_rdma(root, dev, name)); /* a container without the device */
    CHECK(make_file(root, "dev/infiniband/uverbs7", ""));
    CHECK(weft__net_find_rdma(root, dev, name));
    CHECK(strcmp(name, "mlx5_7") == 0);
    snprintf(command, sizeof(command), "rm -r %s", root);
    CHECK(system(command) == 0);
    return 0;
}

static int automatic_takes_ucx_for_rdma_alone(void)
{
    struct weft__net *net;
    char reason[WEFT__NET_REASON_BYTES], name[WEFT__NET_DEVICE_NAME_BYTES];
    const char *engine = "";
    struct weft__net_config config = {.num_ranks = 1};
    const int has_ucx = weft__net_probe("ucx", reason, sizeof(reason)) == WEFT_OK;
    const int has_rdma = weft__net_find_rdma("/sys", "/dev", name);
    CHECK(has_ucx || reason[0] != '\0');
    CHECK(weft__net_open(&config, &net) == WEFT_OK);
    CHECK(strcmp(weft__net_engine_name(net), has_ucx && has_rdma ? "ucx" : "tcp") == 0);
    CHECK(strstr(weft__net_reason(net), has_rdma ? name : "no RDMA device is active") != NULL);
    weft__net_close(net);
    config.demand = WEFT__NET_RDMA;
    CHECK(weft__net_choice(&config, &engine, reason, sizeof(reason)) ==
          (has_ucx ? WEFT_OK : WEFT_ERROR_UNSUPPORTED));
    CHECK(strcmp(engine, has_ucx ? "ucx" : "") == 0);
    return 0;
}

static int engines_must_agree(void)
{
    struct weft__net *nets[2];
    struct weft__net_blob blobs[2];
    struct net_fake_options options = {.seed = 1};
    struct net_fake *world = net_fake_create(&options);
    for (int32_t rank = 0; rank < 2; rank++) {
        const struct weft__net_config config = {.engine = "tcp",
                                                .custom = rank == 0 ? &net_fake_engine : NULL,
                                                .rank = rank,
                                                .num_ranks = 2,
                                                .world = world};
        CHECK(weft__net_open(&config, &nets[rank]) == WEFT_OK);
        CHECK(weft__net_address(nets[rank], &blobs[rank]) == WEFT_OK);
    }
    CHECK(weft__net_connect(nets[0], blobs) == WEFT_ERROR_MISMATCH);
    CHECK(strstr(weft__last_error(), "fake on rank 0 and tcp on rank 1") != NULL);
    weft__net_close(nets[0]);
    weft__net_close(nets[1]);
    net_fake_destroy(world);
    return 0;
}

static int rdma_is_refused_over_tcp(void)
{
    struct weft__net *nets[2];
    const struct weft__net_config config = {
        .engine = "ucx", .transports = "tcp", .devices = "lo", .demand = WEFT__NET_RDMA};
    CHECK(connect_pair(&config, nets) == WEFT_ERROR_UNSUPPORTED);
    CHECK(strstr(weft__last_error(), "RDMA is demanded") != NULL);
    CHECK(strstr(weft__last_error(), "tcp/lo") != NULL);
    weft__net_close(nets[0]);
    weft__net_close(nets[1]);
    return 0;
}

/* What is the default must connect processes of one host too, without UCX's shared memory. */
static int default_transports_are_not_shared_memory(void)
{
    static char log[1 << 16];
    struct weft__net *nets[2];
    const struct weft__net_config config = {.engine = "ucx"};
    int out[2];
    CHECK(pipe(out) == 0);
    int saved = dup(STDERR_FILENO);
    dup2(out[1], STDERR_FILENO);
    setenv("WEFT_LOG", "info", 1);
    weft__log_configure();
    weft_result result = connect_pair(&config, nets);
    dup2(saved, STDERR_FILENO);
    close(out[1]);
    CHECK(read(out[0], log, sizeof(log) - 1) > 0);
    CHECK(result == WEFT_OK);
    CHECK(strstr(log, "network engine ucx") != NULL);
    CHECK(strstr(log, "network transport to rank 1: ") != NULL);
    CHECK(strstr(log, "posix") == NULL && strstr(log, "sysv") == NULL &&
          strstr(log, "cma") == NULL);
    weft__net_close(nets[0]);
    weft__net_close(nets[1]);
    return 0;
}

static int ucx_leaves_the_signals_alone(void)
{
    enum { NUM_CRASHES = 4 };
    struct weft__net *nets[2];
    const int crashes[NUM_CRASHES] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    struct sigaction before[NUM_CRASHES], after[NUM_CRASHES];
    const struct weft__net_config config = {.engine = "ucx", .transports = "tcp"};
    for (int index = 0; index < NUM_CRASHES; index++)
        CHECK(sigaction(crashes[index], NULL, &before[index]) == 0);
    CHECK(connect_pair(&config, nets) == WEFT_OK);
    for (int index = 0; index < NUM_CRASHES; index++) {
        CHECK(sigaction(crashes[index], NULL, &after[index]) == 0);
        CHECK(after[index].sa_handler == before[index].sa_handler);
    }
    weft__net_close(nets[0]);
    weft__net_close(nets[1]);
    return 0;
}

TEST(engines_are_chosen_by_name)
{
    run_child(names_must_be_known);
    run_child(settings_are_read);
    run_child(transports_are_listed);
    run_child(far_peers_do_not_count);
    run_child(tcp_has_no_rdma);
    run_child(devices_for_rdma_are_found);
    run_child(automatic_takes_ucx_for_rdma_alone);
    run_child(engines_must_agree);
}

TEST(ucx_says_and_does_what_it_may)
{
    if (!net_engine_is_there("ucx"))
        skip();
    run_child(rdma_is_refused_over_tcp);
    run_child(default_transports_are_not_shared_memory);
    run_child(ucx_leaves_the_signals_alone);
}
