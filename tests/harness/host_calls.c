/* SPDX-License-Identifier: MIT */
#include "harness/host_calls.h"

/* A call, and what undoes it. */
#define CALL(name, call)                                                                           \
    static weft_result name(struct host_scene *scene)                                              \
    {                                                                                              \
        return call;                                                                               \
    }
#define UNDO(name, call)                                                                           \
    static void name(struct host_scene *scene)                                                     \
    {                                                                                              \
        call;                                                                                      \
    }

CALL(split, weft_comm_split(scene->comm, 0, 0, NULL, &scene->made.child))

static weft_result split_team(struct host_scene *scene)
{
    const int32_t num_ranks = weft_comm_num_ranks(scene->comm);
    return weft_comm_split_strided(scene->comm, 0, 1, num_ranks, NULL, &scene->made.child);
}

/* By no rank: all that differs is that new ones could come. */
static weft_result grow(struct host_scene *scene)
{
    weft_unique_id id;
    const int is_giver = weft_comm_rank(scene->comm) == 0;
    const weft_result result = is_giver ? weft_comm_unique_id(scene->comm, &id) : WEFT_OK;
    return result == WEFT_OK
               ? weft_comm_grow(scene->comm, is_giver ? &id : NULL,
                                weft_comm_num_ranks(scene->comm), NULL, &scene->made.child)
               : result;
}

UNDO(destroy_child, weft_comm_destroy(scene->made.child))
CALL(meet, weft_comm_host_barrier(scene->comm))
CALL(gather, weft_comm_host_all_gather(scene->comm, scene->memory, 16, scene->gathered))
CALL(allocate, weft_heap_alloc(scene->comm, 128, &scene->made.ptr))
UNDO(free_allocation, weft_heap_free(scene->comm, scene->made.ptr))

static weft_result grow_heap(struct host_scene *scene)
{
    weft_heap_info info = WEFT_INIT(weft_heap_info);
    const weft_result result = weft_heap_query(scene->comm, &info);
    return result == WEFT_OK ? weft_heap_grow(scene->comm, info.committed_bytes + 1) : result;
}

CALL(create_arena, weft_arena_create(scene->comm, 256, &scene->made.arena))
UNDO(destroy_arena, weft_arena_destroy(scene->made.arena))

static weft_result create_coll(struct host_scene *scene)
{
    return weft_coll_create(
        scene->comm, WEFT_ARGS(weft_coll_config, .staging_bytes = 4096, .packet_bytes = 1024),
        &scene->made.coll);
}

UNDO(destroy_coll, weft_coll_destroy(scene->made.coll))
CALL(register_memory, weft_memory_register(scene->comm, scene->memory, sizeof scene->memory, NULL))
UNDO(unregister_memory, weft_memory_unregister(scene->comm, scene->memory))
CALL(unregister_nothing, weft_memory_unregister(scene->comm, NULL))
CALL(end_capture, weft_coll_record_end(scene->capture))

static weft_result destroy_capture(struct host_scene *scene)
{
    const weft_result result = weft_coll_record_destroy(scene->capture);
    if (result == WEFT_OK)
        scene->capture = NULL;
    return result;
}

static weft_result create_ep(struct host_scene *scene)
{
    return weft_ep_create(scene->comm, WEFT_ARGS(weft_ep_config, .num_experts = 8),
                          &scene->made.ep);
}

UNDO(destroy_ep, weft_ep_destroy(scene->made.ep))

static weft_result create_ll(struct host_scene *scene)
{
    return weft_ll_create(scene->ep,
                          WEFT_ARGS(weft_ll_config, .hidden = 4, .max_tokens = 2, .num_topk = 1,
                                    .dtype = WEFT_FP32, .layout = WEFT_LL_BY_EXPERT),
                          &scene->made.ll);
}

UNDO(destroy_ll, weft_ll_destroy(scene->made.ll))

const struct host_call host_calls[NUM_HOST_CALLS] = {
    {"weft_comm_split", split, destroy_child, HOST_CALL_ANYWHERE},
    {"weft_comm_split_strided", split_team, destroy_child, HOST_CALL_ANYWHERE},
    {"weft_comm_grow", grow, destroy_child, HOST_CALL_ANYWHERE},
    {"weft_comm_host_barrier", meet, NULL, HOST_CALL_ANYWHERE},
    {"weft_comm_host_all_gather", gather, NULL, HOST_CALL_ANYWHERE},
    {"weft_heap_alloc", allocate, free_allocation, HOST_CALL_ANYWHERE},
    {"weft_heap_grow", grow_heap, NULL, HOST_CALL_ANYWHERE},
    {"weft_arena_create", create_arena, destroy_arena, HOST_CALL_ANYWHERE},
    {"weft_coll_create", create_coll, destroy_coll, HOST_CALL_OF_ONE_NODE},
    {"weft_memory_register", register_memory, unregister_memory, HOST_CALL_ANYWHERE},
    {"weft_memory_unregister", unregister_nothing, NULL, HOST_CALL_ANYWHERE},
    {"weft_coll_record_end", end_capture, NULL, HOST_CALL_OF_ONE_NODE},
    {"weft_coll_record_destroy", destroy_capture, NULL, HOST_CALL_OF_ONE_NODE},
    {"weft_ep_create", create_ep, destroy_ep, HOST_CALL_ANYWHERE},
    {"weft_ll_create", create_ll, destroy_ll, HOST_CALL_OF_ONE_NODE},
};

int host_scene_begin(struct host_scene *scene)
{
    if (scene->coll != NULL)
        CHECK_OK(weft_coll_record_begin(scene->coll, &scene->capture));
    return 0;
}

int host_scene_end(struct host_scene *scene)
{
    if (scene->capture != NULL)
        CHECK_OK(weft_coll_record_destroy(scene->capture));
    return 0;
}
