/* SPDX-License-Identifier: MIT */
#include "machine/host.h"

#include "api/check.h"
#include "api/destroy.h"
#include "coll/comm_barrier.h"

static weft_result check_same_machine(const weft_stream *stream, const weft_event *event)
{
    if (stream->machine == event->machine)
        return WEFT_OK;
    return weft__invalid("stream is of machine %s, event of machine %s",
                         stream->machine->hooks.name, event->machine->hooks.name);
}

weft_result weft_stream_create(weft_comm *comm, weft_stream **stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_not_null(stream, "stream"));
    weft_stream *created;
    WEFT__TRY(weft__machine_of(comm)->stream_create(comm, &created));
    return weft__give(WEFT__KIND_STREAM, created, NULL, stream);
}

weft_result weft_stream_wrap(weft_comm *comm, void *native_stream, weft_stream **stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_not_null(stream, "stream"));
    weft_stream *created;
    WEFT__TRY(weft__machine_of(comm)->stream_wrap(comm, native_stream, &created));
    return weft__give(WEFT__KIND_STREAM, created, NULL, stream);
}

weft_result weft_stream_destroy(weft_stream *stream)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    return weft__destroy(WEFT__KIND_STREAM, stream);
}

weft_result weft_stream_synchronize(weft_stream *stream)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    weft__standing_hold((struct weft__hold){.kind = WEFT__HELD_BY_STREAM, .stream_id = stream->id});
    const weft_result result = stream->machine->stream_synchronize(stream);
    weft__standing_release();
    return result;
}

weft_result weft_stream_call(weft_stream *stream, void (*function)(void *argument), void *argument)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    if (function == NULL)
        return weft__invalid("function is NULL, must not be");
    return stream->machine->stream_call(stream, function, argument);
}

weft_result weft_stream_wait_event(weft_stream *stream, weft_event *event)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    WEFT__TRY(weft__object_check(WEFT__KIND_EVENT, event, "event"));
    WEFT__TRY(check_same_machine(stream, event));
    return stream->machine->stream_wait_event(stream, event);
}

weft_result weft_event_create(weft_comm *comm, weft_event **event)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_not_null(event, "event"));
    weft_event *created;
    WEFT__TRY(weft__machine_of(comm)->event_create(comm, WEFT__EVENT_MEASURES, &created));
    return weft__give(WEFT__KIND_EVENT, created, NULL, event);
}

weft_result weft_event_destroy(weft_event *event)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_EVENT, event, "event"));
    return weft__destroy(WEFT__KIND_EVENT, event);
}

weft_result weft_event_record(weft_event *event, weft_stream *stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_EVENT, event, "event"));
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    WEFT__TRY(check_same_machine(stream, event));
    event->stream_id = stream->id;
    return event->machine->event_record(event, stream);
}

weft_result weft_event_synchronize(weft_event *event)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_EVENT, event, "event"));
    weft__standing_hold(
        (struct weft__hold){.kind = WEFT__HELD_BY_STREAM, .stream_id = event->stream_id});
    const weft_result result = event->machine->event_synchronize(event);
    weft__standing_release();
    return result;
}

weft_result weft_event_elapsed_us(const weft_event *start, const weft_event *end,
                                  double *elapsed_us)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_EVENT, start, "start"));
    WEFT__TRY(weft__object_check(WEFT__KIND_EVENT, end, "end"));
    WEFT__TRY(weft__check_not_null(elapsed_us, "elapsed_us"));
    if (start->machine != end->machine)
        return weft__invalid("start is an event of machine %s, end of machine %s",
                             start->machine->hooks.name, end->machine->hooks.name);
    /* The machine locks them. */
    return start->machine->event_elapsed_us((weft_event *)start, (weft_event *)end, elapsed_us);
}

weft_result weft_comm_barrier(weft_comm *comm, weft_stream *stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    weft__current_call = WEFT__CALL_COMM_BARRIER;
    return weft__barrier_launch(comm, stream);
}
