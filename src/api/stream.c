/* SPDX-License-Identifier: MIT */
#include "machine/stream.h"

#include "api/check.h"
#include "coll/barrier.h"

weft_result weft_stream_create(weft_stream **stream)
{
    WEFT__TRY(weft__check_not_null(stream, "stream"));
    return weft__stream_create(stream);
}

weft_result weft_stream_destroy(weft_stream *stream)
{
    WEFT__TRY(weft__check_not_null(stream, "stream"));
    weft__stream_destroy(stream);
    return WEFT_OK;
}

weft_result weft_stream_synchronize(weft_stream *stream)
{
    WEFT__TRY(weft__check_not_null(stream, "stream"));
    return weft__stream_synchronize(stream);
}

weft_result weft_stream_call(weft_stream *stream, void (*function)(void *argument), void *argument)
{
    WEFT__TRY(weft__check_not_null(stream, "stream"));
    if (function == NULL)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "function is NULL, must not be");
    return weft__stream_call(stream, function, argument);
}

weft_result weft_stream_wait_event(weft_stream *stream, weft_event *event)
{
    WEFT__TRY(weft__check_not_null(stream, "stream"));
    WEFT__TRY(weft__check_not_null(event, "event"));
    return weft__stream_wait_event(stream, event);
}

weft_result weft_event_create(weft_event **event)
{
    WEFT__TRY(weft__check_not_null(event, "event"));
    return weft__event_create(event);
}

weft_result weft_event_destroy(weft_event *event)
{
    WEFT__TRY(weft__check_not_null(event, "event"));
    weft__event_destroy(event);
    return WEFT_OK;
}

weft_result weft_event_record(weft_event *event, weft_stream *stream)
{
    WEFT__TRY(weft__check_not_null(event, "event"));
    WEFT__TRY(weft__check_not_null(stream, "stream"));
    return weft__event_record(event, stream);
}

weft_result weft_event_synchronize(weft_event *event)
{
    WEFT__TRY(weft__check_not_null(event, "event"));
    return weft__event_synchronize(event);
}

weft_result weft_event_elapsed_us(weft_event *start, weft_event *end, double *elapsed_us)
{
    WEFT__TRY(weft__check_not_null(start, "start"));
    WEFT__TRY(weft__check_not_null(end, "end"));
    WEFT__TRY(weft__check_not_null(elapsed_us, "elapsed_us"));
    return weft__event_elapsed_us(start, end, elapsed_us);
}

weft_result weft_barrier(weft_comm *comm, weft_stream *stream)
{
    WEFT__TRY(weft__check_not_null(comm, "comm"));
    WEFT__TRY(weft__check_not_null(stream, "stream"));
    return weft__barrier_launch(comm, stream);
}
