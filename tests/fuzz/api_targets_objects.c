/* SPDX-License-Identifier: MIT */
/* Calls that need an object and nothing else. They would end the objects that stay, for which they are not made: what is
 * tried is that anything else is refused. */
#include "api_targets.h"

static void fill(struct fuzz_arguments *a, struct rng *rng)
{
    (void)rng;
    a->comm = a->own_comm;
    a->stream = a->own_stream;
    a->event = a->own_event;
    a->graph = a;
    a->arena = a->own_arena;
    a->ep = a->own_ep;
    a->handle = a->ready_handle;
    a->ll = a->empty_ll;
    a->coll = a->own_coll;
    a->record = (void *)a;
    a->out = &a->created;
}

static void do_nothing(void *argument)
{
    (void)argument;
}

/* The call, its object, that which stays, and the arguments. */
#define CALLS(CALL)                                                                                \
    CALL(comm_destroy, comm, a->own_comm, (a->comm))                                               \
    CALL(comm_abort, comm, a->own_comm, (a->comm))                                                 \
    CALL(comm_status, comm, a->own_comm, (a->comm, a->ranks))                                      \
    CALL(host_barrier, comm, a->own_comm, (a->comm))                                               \
    CALL(stream_wrap, comm, a->own_comm, (a->comm, NULL, a->out))                                  \
    CALL(stream_destroy, stream, a->own_stream, (a->stream))                                       \
    CALL(stream_synchronize, stream, a->own_stream, (a->stream))                                   \
    CALL(stream_call, stream, a->own_stream, (a->stream, do_nothing, NULL))                        \
    CALL(event_destroy, event, a->own_event, (a->event))                                           \
    CALL(event_synchronize, event, a->own_event, (a->event))                                       \
    CALL(graph_launch, graph, a, (a->graph, a->stream))                                            \
    CALL(graph_destroy, graph, a, (a->graph))                                                      \
    CALL(arena_destroy, arena, a->own_arena, (a->arena))                                           \
    CALL(arena_reset, arena, a->own_arena, (a->arena))                                             \
    CALL(coll_destroy, coll, a->own_coll, (a->coll))                                               \
    CALL(coll_group_begin, coll, a->own_coll, (a->coll))                                           \
    CALL(coll_group_end, coll, a->own_coll, (a->coll))                                             \
    CALL(coll_record_end, record, (void *)a, (a->record))                                          \
    CALL(coll_record_destroy, record, (void *)a, (a->record))                                      \
    CALL(ep_destroy, ep, a->own_ep, (a->ep))                                                       \
    CALL(ep_handle_destroy, handle, a->ready_handle, (a->handle))                                  \
    CALL(ep_check, handle, a->ready_handle, (a->handle, NULL))                                     \
    CALL(ll_destroy, ll, a->empty_ll, (a->ll))

#define DEFINE(name, member, own, arguments)                                                       \
    static const struct fuzz_mutation name##_mutations[] = {FUZZ_OBJECT(#member, member)};         \
    FUZZ_CALL(call_##name, a->member == (own) ? WEFT_OK : weft_##name arguments)
CALLS(DEFINE)

#define TARGET(name, member, own, arguments)                                                       \
    FUZZ_TARGET("weft_" #name, fill, call_##name, fuzz_nothing_to_undo, name##_mutations),
const struct fuzz_target fuzz_object_targets[] = {CALLS(TARGET)};
const int fuzz_num_object_targets = sizeof fuzz_object_targets / sizeof fuzz_object_targets[0];
