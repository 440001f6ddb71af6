/* SPDX-License-Identifier: MIT */
/* Ranks that are threads of a process and share a GPU share a CUDA context. A call of one rank on
 * the host must wait for no kernel of another rank: that kernel may wait for the calling rank. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 4, TIMEOUT_MS = 10000, HEAP_BYTES = 8 << 20, COUNT = 1000 };
#define HEAP_MAX_BYTES (256u << 20) /* a heap by CUDA IPC takes all of it at once */

/* ---------------------------------------------------------------- streams */

/* All ranks launch on new streams at one moment. */
static int begin_together(struct ranks_context *context)
{
    enum { NUM_ROUNDS = 300, NUM_BARRIERS = 5 };
    weft_comm *comm;
    CHECK_OK(
        ranks_comm_create(context, WEFT_ARGS(weft_comm_config, .timeout_ms = TIMEOUT_MS), &comm));
    for (int round = 0; round < NUM_ROUNDS; round++) {
        weft_stream *stream;
        CHECK_OK(weft_stream_create(comm, &stream));
        ranks_barrier(context);
        for (int i = 0; i < NUM_BARRIERS; i++)
            CHECK_OK(weft_comm_barrier(comm, stream));
        CHECK_OK(weft_stream_synchronize(stream));
        CHECK_OK(weft_stream_destroy(stream));
    }
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

TEST(new_streams_begin_beside_each_other)
{
    assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, begin_together, NULL), 0);
    assert_int_equal(ranks_run(RANKS_THREADS, 2 * NUM_RANKS, begin_together, NULL), 0);
}

/* ---------------------------------------------------------------- memory */

static weft_result split(weft_comm *comm, weft_comm **child)
{
    return weft_comm_split(
        comm, 0, weft_comm_rank(comm),
        WEFT_ARGS(weft_comm_config, .timeout_ms = TIMEOUT_MS, .heap_max_bytes = HEAP_MAX_BYTES),
        child);
}

/* A communicator, and objects of it. */
struct world {
    weft_comm *comm;
    weft_coll *coll;
    weft_ep *ep;
    weft_stream *stream;
    weft_event *event;
    void *memory, *heap;
};

static int open_world(struct world *world, weft_comm *comm)
{
    world->comm = comm;
    CHECK_OK(weft_stream_create(comm, &world->stream));
    CHECK_OK(weft_event_create(comm, &world->event));
    CHECK_OK(weft_coll_create(comm, NULL, &world->coll));
    CHECK_OK(weft_ep_create(
        comm, WEFT_ARGS(weft_ep_config, .num_experts = 2 * weft_comm_num_ranks(comm)), &world->ep));
    CHECK_OK(weft_memory_alloc(comm, COUNT * sizeof(float), &world->memory));
    CHECK_OK(weft_heap_alloc(comm, HEAP_BYTES, &world->heap));
    CHECK_OK(
        weft_coll_all_reduce(world->coll,
                             WEFT_ARGS(weft_coll_args, .send = world->memory, .recv = world->heap,
                                       .count = COUNT, .dtype = WEFT_FP32),
                             world->stream));
    CHECK_OK(weft_event_record(world->event, world->stream));
    CHECK_OK(weft_stream_synchronize(world->stream));
    return 0;
}

static int close_world(const struct world *world)
{
    CHECK_OK(weft_memory_free(world->comm, world->memory));
    CHECK_OK(weft_coll_destroy(world->coll));
    CHECK_OK(weft_ep_destroy(world->ep));
    CHECK_OK(weft_event_destroy(world->event));
    CHECK_OK(weft_stream_destroy(world->stream));
    CHECK_OK(weft_comm_destroy(world->comm));
    return 0;
}

/* A barrier of one rank waits for the others, which first make a communicator with it, destroy
 * that, and then what they had. */
static int live_beside_a_waiting_kernel(struct ranks_context *context, weft_comm *comm,
                                        const struct world *own)
{
    struct world other;
    weft_comm *child;
    weft_stream *stream;
    CHECK_OK(weft_stream_create(comm, &stream));
    if (own == NULL)
        CHECK_OK(weft_comm_barrier(comm, stream));
    ranks_barrier(context);
    CHECK_OK(split(comm, &child));
    if (open_world(&other, child) || close_world(&other))
        return 1;
    if (own != NULL) {
        if (close_world(own))
            return 1;
        CHECK_OK(weft_comm_barrier(comm, stream));
    }
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK_OK(weft_stream_destroy(stream));
    return 0;
}

static int come_and_go(struct ranks_context *context)
{
    const int32_t num_nodes = *(const int32_t *)context->argument;
    const int32_t last = context->num_ranks - 1;
    struct world worlds[2];
    weft_comm *comm, *child;
    CHECK_OK(
        ranks_comm_create(context,
                          WEFT_ARGS(weft_comm_config, .num_nodes = num_nodes,
                                    .timeout_ms = TIMEOUT_MS, .heap_max_bytes = HEAP_MAX_BYTES),
                          &comm));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(split(comm, &child));
        if (open_world(&worlds[i], child))
            return 1;
    }
    if (live_beside_a_waiting_kernel(context, comm, context->rank == last ? NULL : &worlds[0]) ||
        live_beside_a_waiting_kernel(context, comm, context->rank == 0 ? NULL : &worlds[1]))
        return 1;
    if (context->rank == last && close_world(&worlds[0]))
        return 1;
    if (context->rank == 0 && close_world(&worlds[1]))
        return 1;
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

static void run_between(int32_t num_nodes, const char *heap)
{
    setenv("WEFT_CUDA_HEAP", heap, 1);
    if (ranks_run(RANKS_THREADS, NUM_RANKS, come_and_go, &num_nodes) != 0)
        fail_msg("%d nodes, heaps by %s", num_nodes, heap);
    unsetenv("WEFT_CUDA_HEAP");
}

TEST(communicators_come_and_go_beside_a_kernel_that_waits)
{
    run_between(1, "auto");
    run_between(1, "ipc");
}

TEST_OVER(communicators_of_nodes_come_and_go_too, "tcp")
{
    run_between(2, "auto");
    run_between(2, "ipc");
}
