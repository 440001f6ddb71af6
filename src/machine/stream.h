/* SPDX-License-Identifier: MIT */
/* Streams and events of the machine; arguments have been checked. Semantics: weft.h. */
#ifndef WEFT_MACHINE_STREAM_H
#define WEFT_MACHINE_STREAM_H

#include "weft.h"

weft_result weft__stream_create(weft_stream **stream);
void weft__stream_destroy(weft_stream *stream);
weft_result weft__stream_synchronize(weft_stream *stream);
weft_result weft__stream_call(weft_stream *stream, void (*function)(void *argument),
                              void *argument);
weft_result weft__stream_wait_event(weft_stream *stream, weft_event *event);

weft_result weft__event_create(weft_event **event);
void weft__event_destroy(weft_event *event);
weft_result weft__event_record(weft_event *event, weft_stream *stream);
weft_result weft__event_synchronize(weft_event *event);
weft_result weft__event_elapsed_us(weft_event *start, weft_event *end, double *elapsed_us);

#endif
