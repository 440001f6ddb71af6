/* SPDX-License-Identifier: MIT */
/* The network of a communicator: which one it has, who has none, and what it says when it cannot be
 * had. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

static int open_comm(struct ranks_context *context, int32_t num_nodes, weft_comm **comm)
{
    CHECK_OK(ranks_comm_create(context, WEFT_ARGS(weft_comm_config, .num_nodes = num_nodes), comm));
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

TEST_CALL(communicators_of_several_nodes_have_one_over_tcp, run_with("tcp", see_tcp))
TEST_CALL(communicators_of_several_nodes_have_one_over_ucx, run_with("ucx", see_ucx))

/* A network that cannot be had, since some ranks have another setting: what they are told, and the
 * others. */
struct refusal {
    int32_t num_ranks, num_trials;
    const char *engine;
    const char *name, *value;
    int32_t first, last; /* that have it */
    weft_result result;
    const char *told, *others_are_told;
};

static int be_refused(struct ranks_context *context)
{
    const struct refusal *refusal = context->argument;
    const int is_odd = context->rank >= refusal->first && context->rank <= refusal->last;
    weft_comm *comm;
    setenv("WEFT_NET", refusal->engine, 1);
    if (is_odd)
        setenv(refusal->name, refusal->value, 1);
    CHECK_ERROR(ranks_comm_create(context, WEFT_ARGS(weft_comm_config, .num_nodes = 2), &comm),
                refusal->result, is_odd ? refusal->told : refusal->others_are_told);
    return 0;
}

static void run_refusal(const char *needed, const struct refusal *refusal)
{
    if (!tests_network_is_there(needed))
        skip();
    for (int trial = 0; trial < refusal->num_trials; trial++)
        assert_int_equal(ranks_run(RANKS_PROCESSES, refusal->num_ranks, be_refused, refusal), 0);
}
#define REFUSED(name, needed, ...)                                                                 \
    TEST_CALL(name, run_refusal(needed, &(const struct refusal){__VA_ARGS__}))

#define ENGINES "the network engine is tcp on rank 0 and ucx on rank 3; WEFT_NET chooses it"
REFUSED(ranks_must_have_the_same_engine, "ucx", 4, 1, "tcp", "WEFT_NET", "ucx", 3, 3,
        WEFT_ERROR_MISMATCH, ENGINES, ENGINES)
/* By the ranks of one node, while the others connect to them: all are told by whom. */
REFUSED(some_may_demand_what_there_is_not, "ucx", 4, 5, "ucx", "WEFT_NET_TRANSPORT", "rdma", 0, 1,
        WEFT_ERROR_UNSUPPORTED, "tcp", "rank 0 cannot")
REFUSED(tcp_has_no_rdma, "tcp", 2, 1, "tcp", "WEFT_NET_TRANSPORT", "rdma", 0, 1,
        WEFT_ERROR_UNSUPPORTED, "RDMA is demanded", "")
/* Where one rank has none, the other does not reach it either; each tells of its own. */
REFUSED(devices_of_ucx_must_exist, "ucx", 2, 1, "ucx", "WEFT_NET_DEVICES", "pigeons", 1, 1,
        WEFT_ERROR_UNSUPPORTED, "devices of rank 1 are pigeons; WEFT_NET_DEVICES names them",
        "cannot connect rank 0 to rank 1")
/* Where one rank has none, all are told by which. */
REFUSED(devices_of_tcp_must_exist, "tcp", 2, 1, "tcp", "WEFT_NET_DEVICES", "pigeons", 1, 1,
        WEFT_ERROR_UNSUPPORTED, "its devices are pigeons; WEFT_NET_DEVICES names them",
        "rank 1 cannot open its network")

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
    assert_int_equal(ranks_run(RANKS_PROCESSES, 1, ask_wrongly, NULL), 0);
}
