/* SPDX-License-Identifier: MIT */
/* The network of a communicator: which one it has, who has none, and what it says when it cannot be
 * had. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

static int open_comm(struct ranks_context *context, int32_t num_nodes, weft_comm **comm)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.num_nodes = num_nodes;
    CHECK_OK(ranks_comm_create(context, &config, comm));
    return 0;
}

static int check_engine(const weft_comm *comm, const char *engine, const char *transport)
{
    weft_net_info info = WEFT_INIT(weft_net_info);
    CHECK_OK(weft_net_query(comm, &info));
    CHECK(strcmp(info.engine, engine) == 0, "engine is %s (%s)", info.engine, info.reason);
    CHECK(strstr(info.transport, transport) != NULL, "transport is %s", info.transport);
    CHECK(info.reason[0] != '\0', "no reason");
    const char *gpu_memory =
        engine[0] != '\0' && tests_on_cuda() ? "through the host, because " : "";
    CHECK(strncmp(info.gpu_memory, gpu_memory, strlen(gpu_memory)) == 0 &&
              (gpu_memory[0] != '\0') == (info.gpu_memory[0] != '\0'),
          "memory of GPUs: %s", info.gpu_memory);
    return 0;
}

/* A split has a network of its own if it has several nodes; ranks leave in any order. */
static int see_networks(struct ranks_context *context, const char *engine, const char *transport)
{
    weft_comm *comm, *node, *rail;
    if (open_comm(context, 2, &comm) != 0)
        return 1;
    CHECK_OK(weft_comm_split(comm, weft_comm_node(comm, context->rank), 0, NULL, &node));
    CHECK_OK(weft_comm_split(comm, context->rank % 2, 0, NULL, &rail));
    if (check_engine(comm, engine, transport) || check_engine(node, "", "") ||
        check_engine(rail, engine, transport))
        return 1;
    CHECK_OK(weft_comm_destroy(context->rank % 2 ? comm : rail));
    CHECK_OK(weft_comm_destroy(node));
    CHECK_OK(weft_comm_destroy(context->rank % 2 ? rail : comm));
    return 0;
}

/* All ranks are on one host: it listens on loopback alone. */
static int see_tcp(struct ranks_context *context)
{
    return see_networks(context, "tcp", "tcp/lo");
}

/* The same. */
static int see_ucx(struct ranks_context *context)
{
    return see_networks(context, "ucx", "tcp/lo");
}

static void run_with(const char *engine, rank_function function)
{
    if (!tests_network_is_there(engine))
        skip();
    setenv("WEFT_NET", engine, 1);
    assert_int_equal(ranks_run(RANKS_THREADS, 4, function, NULL), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, 4, function, NULL), 0);
    unsetenv("WEFT_NET");
}

TEST(communicators_of_several_nodes_have_one_over_tcp)
{
    run_with("tcp", see_tcp);
}

TEST(communicators_of_several_nodes_have_one_over_ucx)
{
    run_with("ucx", see_ucx);
}

static int disagree(struct ranks_context *context)
{
    weft_comm *comm;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.num_nodes = 2;
    setenv("WEFT_NET", context->rank == 3 ? "ucx" : "tcp", 1);
    CHECK_ERROR(ranks_comm_create(context, &config, &comm), WEFT_ERROR_MISMATCH,
                "the network engine is tcp on rank 0 and ucx on rank 3; WEFT_NET chooses it");
    return 0;
}

TEST(ranks_must_have_the_same_engine)
{
    if (!tests_network_is_there("ucx"))
        skip();
    assert_int_equal(ranks_run(RANKS_PROCESSES, 4, disagree, NULL), 0);
}

static int demand_what_there_is_not(struct ranks_context *context)
{
    weft_comm *comm;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.num_nodes = 2;
    setenv("WEFT_NET", "tcp", 1);
    setenv("WEFT_NET_TRANSPORT", "rdma", 1);
    CHECK_ERROR(ranks_comm_create(context, &config, &comm), WEFT_ERROR_UNSUPPORTED,
                "RDMA is demanded");
    return 0;
}

/* By the ranks of one node, while the others connect to them: all are told by whom. */
static int demand_rdma_on_a_node(struct ranks_context *context)
{
    weft_comm *comm;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.num_nodes = 2;
    setenv("WEFT_NET", "ucx", 1);
    if (context->rank < context->num_ranks / 2)
        setenv("WEFT_NET_TRANSPORT", "rdma", 1);
    CHECK_ERROR(ranks_comm_create(context, &config, &comm), WEFT_ERROR_UNSUPPORTED,
                context->rank < context->num_ranks / 2 ? "tcp" : "rank 0 cannot");
    return 0;
}

TEST(some_may_demand_what_there_is_not)
{
    if (!tests_network_is_there("ucx"))
        skip();
    for (int trial = 0; trial < 5; trial++)
        assert_int_equal(ranks_run(RANKS_PROCESSES, 4, demand_rdma_on_a_node, NULL), 0);
}

/* Where one rank has none, the other does not reach it either; each tells of its own. */
static int choose_no_devices(struct ranks_context *context)
{
    weft_comm *comm;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.num_nodes = 2;
    setenv("WEFT_NET", "ucx", 1);
    if (context->rank == 1)
        setenv("WEFT_NET_DEVICES", "pigeons", 1);
    CHECK_ERROR(ranks_comm_create(context, &config, &comm), WEFT_ERROR_UNSUPPORTED,
                context->rank == 1 ? "devices of rank 1 are pigeons; WEFT_NET_DEVICES names them"
                                   : "cannot connect rank 0 to rank 1");
    return 0;
}

/* Where one rank has none, all are told by which. */
static int listen_nowhere(struct ranks_context *context)
{
    weft_comm *comm;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.num_nodes = 2;
    setenv("WEFT_NET", "tcp", 1);
    if (context->rank == 1)
        setenv("WEFT_NET_DEVICES", "pigeons", 1);
    CHECK_ERROR(ranks_comm_create(context, &config, &comm), WEFT_ERROR_UNSUPPORTED,
                context->rank == 1 ? "its devices are pigeons; WEFT_NET_DEVICES names them"
                                   : "rank 1 cannot open its network");
    return 0;
}

TEST(devices_must_exist)
{
    assert_int_equal(ranks_run(RANKS_PROCESSES, 2, listen_nowhere, NULL), 0);
    if (!tests_network_is_there("ucx"))
        skip();
    assert_int_equal(ranks_run(RANKS_PROCESSES, 2, choose_no_devices, NULL), 0);
}

static int ask_wrongly(struct ranks_context *context)
{
    (void)context;
    weft_net_info info = WEFT_INIT(weft_net_info);
    CHECK_ERROR(weft_net_query(NULL, NULL), WEFT_ERROR_INVALID_ARGUMENT, "info");
    setenv("WEFT_NET", "pigeons", 1);
    CHECK_ERROR(weft_net_query(NULL, &info), WEFT_ERROR_INVALID_ARGUMENT,
                "\"pigeons\"; it must be auto, tcp or ucx");
    return 0;
}

TEST(what_cannot_be_had_is_an_error)
{
    if (!tests_network_is_there("tcp"))
        skip();
    assert_int_equal(ranks_run(RANKS_PROCESSES, 2, demand_what_there_is_not, NULL), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, 1, ask_wrongly, NULL), 0);
}
