/* SPDX-License-Identifier: MIT */
/* Calls that need an object and nothing else. They would end the objects that stay, for which they
 * are not made: what is tried is that anything else is refused. */
#include "api_targets.h"

static void do_nothing(void *argument)
{
    (void)argument;
}

/* The call, its object, that which stays, and the arguments. */
#define REFUSES(name, member, own, arguments)                                                      \
    FUZZ_CALL(call_##name, a->member == (own) ? WEFT_OK : weft_##name arguments)                   \
    FUZZ_TARGET_BY(name, name, NULL, call_##name, NULL, FUZZ_OBJECT(#member, member))
REFUSES(comm_destroy, comm, a->own_comm, (a->comm))
REFUSES(comm_abort, comm, a->own_comm, (a->comm))
REFUSES(comm_status, comm, a->own_comm, (a->comm, a->ranks))
REFUSES(comm_host_barrier, comm, a->own_comm, (a->comm))
REFUSES(stream_wrap, comm, a->own_comm, (a->comm, NULL, a->out))
REFUSES(stream_destroy, stream, a->own_stream, (a->stream))
REFUSES(stream_synchronize, stream, a->own_stream, (a->stream))
REFUSES(stream_call, stream, a->own_stream, (a->stream, do_nothing, NULL))
REFUSES(event_destroy, event, a->own_event, (a->event))
REFUSES(event_synchronize, event, a->own_event, (a->event))
REFUSES(graph_launch, graph, a, (a->graph, a->stream))
REFUSES(graph_destroy, graph, a, (a->graph))
REFUSES(arena_destroy, arena, a->own_arena, (a->arena))
REFUSES(arena_reset, arena, a->own_arena, (a->arena))
REFUSES(coll_destroy, coll, a->own_coll, (a->coll))
REFUSES(coll_group_begin, coll, a->own_coll, (a->coll))
REFUSES(coll_group_end, coll, a->own_coll, (a->coll))
REFUSES(coll_record_end, record, (void *)a, (a->record))
REFUSES(coll_record_destroy, record, (void *)a, (a->record))
REFUSES(ep_destroy, ep, a->own_ep, (a->ep))
REFUSES(ep_handle_destroy, handle, a->ready_handle, (a->handle))
REFUSES(ep_check, handle, a->ready_handle, (a->handle, NULL))
REFUSES(ll_destroy, ll, a->empty_ll, (a->ll))
