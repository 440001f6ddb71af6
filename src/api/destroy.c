/* SPDX-License-Identifier: MIT */
#include "api/destroy.h"

#include <string.h>

#include "coll/coll.h"
#include "ep/low_latency.h"

/* On behalf of what belongs to it: that may be in use by operations that are not its own. */
static void wait_for_operations(enum weft__kind kind, void *object)
{
    weft_comm *comm = object;
    if (kind != WEFT__KIND_COMM)
        return;
    weft__standing_hold(
        (struct weft__hold){.kind = WEFT__HELD_BY_ALL, .standing = &comm->standing});
    weft__machine_of(comm)->wait_launches(comm);
    weft__standing_release();
}

static void end_memory(const void *owner, void *memory)
{
    weft_comm *comm = (weft_comm *)(uintptr_t)owner;
    weft__machine_of(comm)->free(comm, memory);
}

static void end_stream(weft_stream *stream)
{
    weft__standing_hold((struct weft__hold){.kind = WEFT__HELD_BY_STREAM, .stream_id = stream->id});
    stream->machine->stream_destroy(stream);
    weft__standing_release();
}

static void end_event(weft_event *event)
{
    event->machine->event_destroy(event);
}

static void end_graph(weft_graph *graph)
{
    graph->machine->graphs->destroy(graph);
}

static void end(enum weft__kind kind, void *object, const void *owner)
{
    switch (kind) {
    case WEFT__KIND_COMM:
        weft__comm_end(object);
        break;
    case WEFT__KIND_MEMORY:
        end_memory(owner, object);
        break;
    case WEFT__KIND_ARENA:
        weft__arena_end(object);
        break;
    case WEFT__KIND_COLL:
        weft__coll_destroy(object);
        break;
    case WEFT__KIND_CAPTURE:
        weft__capture_free(object);
        break;
    case WEFT__KIND_EP:
        weft__ep_destroy(object);
        break;
    case WEFT__KIND_HANDLE:
        weft__handle_destroy(object);
        break;
    case WEFT__KIND_LL:
        weft__ll_destroy(object);
        break;
    case WEFT__KIND_STREAM:
        end_stream(object);
        break;
    case WEFT__KIND_EVENT:
        end_event(object);
        break;
    case WEFT__KIND_GRAPH:
        end_graph(object);
        break;
    case WEFT__NUM_KINDS:
        break;
    }
}

weft_result weft__destroy(enum weft__kind kind, void *object)
{
    struct weft__object last;
    wait_for_operations(kind, object);
    while ((last = weft__object_of(object)).ptr != NULL)
        (void)weft__destroy(last.kind, last.ptr);
    const void *owner = weft__object_owner(kind, object);
    weft__object_remove(kind, object);
    end(kind, object, owner);
    return WEFT_OK;
}

weft_result weft__give(enum weft__kind kind, void *object, const void *owner, void *out)
{
    const weft_result result = weft__object_add(kind, object, owner);
    if (result == WEFT_OK)
        memcpy(out, &object, sizeof object);
    else
        end(kind, object, owner);
    return result;
}

weft_result weft__give_on_all(weft_comm *comm, enum weft__kind kind, void *object,
                              const void *owner, void *out)
{
    const weft_result mine = weft__object_add(kind, object, owner);
    const weft_result result = weft__comm_agree(comm, mine, "keep what it has made");
    if (result == WEFT_OK) {
        memcpy(out, &object, sizeof object);
        return WEFT_OK;
    }
    if (mine == WEFT_OK)
        weft__object_remove(kind, object);
    end(kind, object, owner);
    return result;
}
