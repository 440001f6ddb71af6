/* SPDX-License-Identifier: MIT */
/* The heap of a communicator over several nodes, as the network writes to it: what it had, what it
 * has grown by, also while others put, and what a rank could not register. */
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"
#include "net/attach.h"

enum {
    NUM_RANKS = 4,
    NUM_NODES = 2,
    VICTIM = 1,
    SPARE_BYTES = 300 << 10, /* before the heap grows */
    HALF_BYTES = 2 << 20,
    NUM_PUTS = 60,
    PUT_BYTES = 100000,
    STEP_BYTES = 128 << 10,
    MIN_WRITE_BYTES = 8000
};

/* ---------------------------------------------------------------- the linker puts these in the
 * way */

/* As UCX has it from 1.16 on: with older ones nothing would be written. */
size_t __wrap_weft__ucx_min_write_bytes(void *state);
size_t __wrap_weft__ucx_min_write_bytes(void *state)
{
    (void)state;
    return MIN_WRITE_BYTES;
}

static enum { WORKS, FAILS, FAILS_WITH_NIC } registering;

weft_result __real_weft__net_reg_step(struct weft__net *net, uint32_t number, uint64_t place,
                                      size_t num_bytes);
weft_result __wrap_weft__net_reg_step(struct weft__net *net, uint32_t number, uint64_t place,
                                      size_t num_bytes);
weft_result __wrap_weft__net_reg_step(struct weft__net *net, uint32_t number, uint64_t place,
                                      size_t num_bytes)
{
    return registering == FAILS ? weft__error(WEFT_ERROR_SYSTEM, "too much memory is locked")
                                : __real_weft__net_reg_step(net, number, place, num_bytes);
}

weft_result __real_weft__nic_adapter_add_step(struct weft__nic_adapter *adapter, uint64_t begin,
                                              uint64_t num_bytes, struct weft__nic_key *own);
weft_result __wrap_weft__nic_adapter_add_step(struct weft__nic_adapter *adapter, uint64_t begin,
                                              uint64_t num_bytes, struct weft__nic_key *own);
weft_result __wrap_weft__nic_adapter_add_step(struct weft__nic_adapter *adapter, uint64_t begin,
                                              uint64_t num_bytes, struct weft__nic_key *own)
{
    return registering == FAILS_WITH_NIC
               ? weft__error(WEFT_ERROR_SYSTEM, "the NIC has no key left")
               : __real_weft__nic_adapter_add_step(adapter, begin, num_bytes, own);
}

/* ---------------------------------------------------------------- ranks */

struct scene {
    struct ranks_context *context;
    weft_comm *comm;
    weft_stream *stream;
    unsigned char *halves[2];
    int has_writes;
};

static int32_t partner_of(const struct scene *scene)
{
    return (scene->context->rank + NUM_RANKS / NUM_NODES) % NUM_RANKS;
}

static unsigned char value_at(int32_t rank, int round, size_t byte)
{
    return (unsigned char)((size_t)rank * 77 + (size_t)round * 13 + byte + (byte >> 8));
}

static uint64_t num_written(const struct scene *scene)
{
    return weft__net_counts(scene->comm->network->net).num_written_bytes;
}

static uint64_t committed_bytes(const struct scene *scene)
{
    weft_heap_info info = WEFT_INIT(weft_heap_info);
    return weft_heap_query(scene->comm, &info) == WEFT_OK ? info.committed_bytes : 0;
}

static int open_scene(struct ranks_context *context, struct scene *scene)
{
    void *rest;
    registering = WORKS;
    *scene = (struct scene){.context = context};
    scene->comm = ranks_comm(context, WEFT_ARGS(weft_comm_config, .num_nodes = NUM_NODES));
    scene->stream = ranks_stream(context);
    scene->has_writes = strcmp(scene->comm->network->engine, "ucx") == 0;
    CHECK_OK(weft_heap_alloc(scene->comm, committed_bytes(scene) - SPARE_BYTES, &rest));
    return 0;
}

/* The heap grows, but for the beginning of the first half. */
static int alloc_halves(struct scene *scene)
{
    void *memory;
    const uint64_t before = committed_bytes(scene);
    CHECK_OK(weft_heap_alloc(scene->comm, (uint64_t)2 * HALF_BYTES, &memory));
    CHECK(committed_bytes(scene) > before, "the heap has not grown");
    scene->halves[0] = memory;
    scene->halves[1] = scene->halves[0] + HALF_BYTES;
    return 0;
}

/* From one half to the partner's other one; *written gets the bytes that the engine has written. */
static int put_half(const struct scene *scene, int round, uint64_t *written)
{
    unsigned char *from = scene->halves[round % 2], *to = scene->halves[1 - round % 2];
    const uint64_t before = num_written(scene);
    for (size_t byte = 0; byte < HALF_BYTES; byte++)
        from[byte] = value_at(scene->context->rank, round, byte);
    memset(to, 0, HALF_BYTES);
    CHECK_OK(weft_comm_host_barrier(scene->comm));
    CHECK_OK(weft_rma_put(scene->comm,
                          WEFT_ARGS(weft_rma_args, .dst = to, .src = from, .bytes = HALF_BYTES,
                                    .rank = partner_of(scene)),
                          scene->stream));
    CHECK_OK(weft_rma_quiet(scene->comm, scene->stream));
    CHECK_OK(weft_stream_synchronize(scene->stream));
    CHECK_OK(weft_comm_host_barrier(scene->comm));
    for (size_t byte = 0; byte < HALF_BYTES; byte++)
        CHECK(to[byte] == value_at(partner_of(scene), round, byte), "round %d: byte %zu is wrong",
              round, byte);
    *written = num_written(scene) - before;
    return 0;
}

/* Both halves as sources and targets: one begins in another step than it ends in. */
static int check_all_written(const struct scene *scene)
{
    for (int round = 0; round < 2; round++) {
        uint64_t written;
        if (put_half(scene, round, &written) != 0)
            return 1;
        /* The end of a step may be short: then it is a message. */
        CHECK(scene->has_writes ? HALF_BYTES - written < MIN_WRITE_BYTES : written == 0,
              "round %d: %llu bytes of %d are written", round, (unsigned long long)written,
              HALF_BYTES);
    }
    return 0;
}

/* ---------------------------------------------------------------- growth */

static int get_half(const struct scene *scene)
{
    unsigned char *here = scene->halves[0], *there = scene->halves[1];
    memset(here, 0, HALF_BYTES);
    for (size_t byte = 0; byte < HALF_BYTES; byte++)
        there[byte] = value_at(scene->context->rank, 5, byte);
    CHECK_OK(weft_comm_host_barrier(scene->comm));
    CHECK_OK(weft_rma_get(scene->comm,
                          WEFT_ARGS(weft_rma_args, .dst = here, .src = there, .bytes = HALF_BYTES,
                                    .rank = partner_of(scene)),
                          scene->stream));
    CHECK_OK(weft_stream_synchronize(scene->stream));
    for (size_t byte = 0; byte < HALF_BYTES; byte++)
        CHECK(here[byte] == value_at(partner_of(scene), 5, byte), "byte %zu that was got is wrong",
              byte);
    CHECK_OK(weft_comm_host_barrier(scene->comm));
    return 0;
}

TEST_ON_RANKS_OVER_ENGINES(what_has_grown_is_written, RANKS_PROCESSES, NUM_RANKS)
{
    struct scene scene;
    return open_scene(context, &scene) || alloc_halves(&scene) || check_all_written(&scene) ||
           get_half(&scene);
}

/* What is put meanwhile, from and to older memory, is none of its business. */
TEST_ON_RANKS_OVER_ENGINES(heaps_grow_while_others_put, RANKS_PROCESSES, NUM_RANKS)
{
    struct scene scene;
    if (open_scene(context, &scene) != 0 || alloc_halves(&scene) != 0)
        return 1;
    memset(scene.halves[1], 0, HALF_BYTES);
    for (size_t byte = 0; byte < HALF_BYTES; byte++)
        scene.halves[0][byte] = value_at(context->rank, 1, byte);
    CHECK_OK(weft_comm_host_barrier(scene.comm));
    for (int i = 0; i < NUM_PUTS; i++) {
        const size_t begin = (size_t)i * 31 % (HALF_BYTES / PUT_BYTES) * PUT_BYTES;
        CHECK_OK(weft_rma_put(scene.comm,
                              WEFT_ARGS(weft_rma_args, .dst = scene.halves[1] + begin,
                                        .src = scene.halves[0] + begin, .bytes = PUT_BYTES,
                                        .rank = partner_of(&scene)),
                              scene.stream));
        if (i % 15 == 14)
            CHECK_OK(weft_heap_grow(scene.comm, committed_bytes(&scene) + STEP_BYTES));
    }
    CHECK_OK(weft_rma_quiet(scene.comm, scene.stream));
    CHECK_OK(weft_stream_synchronize(scene.stream));
    CHECK_OK(weft_comm_host_barrier(scene.comm));
    for (size_t byte = 0; byte < HALF_BYTES / PUT_BYTES * (size_t)PUT_BYTES; byte++)
        CHECK(scene.halves[1][byte] == value_at(partner_of(&scene), 1, byte), "byte %zu is wrong",
              byte);
    return alloc_halves(&scene) || check_all_written(&scene);
}

/* ---------------------------------------------------------------- failures */

TEST_ON_RANKS_OVER(what_a_rank_cannot_register_goes_in_messages, "ucx", RANKS_PROCESSES, NUM_RANKS)
{
    struct scene scene;
    uint64_t written;
    if (open_scene(context, &scene) != 0)
        return 1;
    registering = context->rank == VICTIM ? FAILS : WORKS;
    if (alloc_halves(&scene) != 0)
        return 1;
    CHECK(strstr(weft__last_error(), "too much memory is locked") != NULL, "%s",
          weft__last_error());
    CHECK(context->rank == VICTIM || strstr(weft__last_error(), "rank 1: cannot register"), "%s",
          weft__last_error());
    registering = WORKS;
    /* From where it was before to what cannot be written; and the other way round, but for the
     * beginning. */
    if (put_half(&scene, 0, &written) != 0)
        return 1;
    CHECK(written == 0, "%llu bytes are written", (unsigned long long)written);
    if (put_half(&scene, 1, &written) != 0)
        return 1;
    CHECK(written > 0 && written < SPARE_BYTES, "%llu bytes are written",
          (unsigned long long)written);
    /* The next step is as any. */
    if (alloc_halves(&scene) != 0 || put_half(&scene, 1, &written) != 0)
        return 1;
    CHECK(written > HALF_BYTES / 2, "%llu bytes are written", (unsigned long long)written);
    return 0;
}

TEST_ON_RANKS_OVER(a_heap_may_grow_too_often, "ucx", RANKS_PROCESSES, NUM_RANKS)
{
    struct scene scene;
    uint64_t written;
    if (open_scene(context, &scene) != 0)
        return 1;
    for (int step = 0; step < WEFT__NET_MAX_STEPS + 2; step++)
        CHECK_OK(weft_heap_grow(scene.comm, committed_bytes(&scene) + 1));
    CHECK(strstr(weft__last_error(), "more than 32 steps") != NULL, "%s", weft__last_error());
    CHECK(scene.comm->network->num_steps == WEFT__NET_MAX_STEPS, "%u steps",
          scene.comm->network->num_steps);
    return alloc_halves(&scene) || put_half(&scene, 0, &written);
}

/* ---------------------------------------------------------------- a NIC */

static int open_scene_with_nic(struct ranks_context *context, struct scene *scene)
{
    setenv("WEFT_NET_INITIATOR", "model", 1);
    return open_scene(context, scene);
}

/* A NIC has no messages for what it does not know: so there is no such memory, until all have
 * registered it. */
TEST_ON_RANKS_OVER(what_a_nic_cannot_register_is_no_memory, "tcp", RANKS_PROCESSES, NUM_RANKS)
{
    enum { NUM_FAILURES = 3 };
    struct scene scene;
    void *memory;
    if (open_scene_with_nic(context, &scene) != 0)
        return 1;
    registering = context->rank == VICTIM ? FAILS_WITH_NIC : WORKS;
    for (int i = 0; i < NUM_FAILURES; i++)
        CHECK_ERROR(weft_heap_alloc(scene.comm, HALF_BYTES, &memory), WEFT_ERROR_UNSUPPORTED,
                    "cannot register memory with the network: the NIC has no key left");
    CHECK_ERROR(weft_heap_grow(scene.comm, committed_bytes(&scene) + 1), WEFT_ERROR_UNSUPPORTED,
                "the NIC has no key left");
    CHECK_OK(weft_heap_alloc(scene.comm, SPARE_BYTES / 2, &memory)); /* is registered */
    CHECK_OK(weft_heap_free(scene.comm, memory));
    registering = WORKS;
    return alloc_halves(&scene) || check_all_written(&scene) || get_half(&scene);
}

TEST_ON_RANKS_OVER(a_heap_with_a_nic_grows_as_often_as_it_likes, "tcp", RANKS_PROCESSES, NUM_RANKS)
{
    struct scene scene;
    const int num_steps = 3 * WEFT__NET_MAX_STEPS;
    if (open_scene_with_nic(context, &scene) != 0)
        return 1;
    for (int step = 0; step < num_steps; step++)
        CHECK_OK(weft_heap_grow(scene.comm, committed_bytes(&scene) + 1));
    return alloc_halves(&scene) || check_all_written(&scene) || get_half(&scene);
}
