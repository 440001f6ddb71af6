/* SPDX-License-Identifier: MIT */
/* Streams and events of the cuda machine: CUDA's own, with what weft adds. */
#include <stdio.h>
#include <stdlib.h>

#include "machine/cuda/cuda_graph.h"
#include "machine/cuda/cuda_stream.h"
#include "machine/cuda/network.h"
#include "machine/cuda/own_streams.h"

/* It may outlive the communicator that it was made for. */
struct own_event {
    weft_event base;
    CUcontext context;
    CUevent event;
    int has_record;
};

static struct own_event *own_event(weft_event *base)
{
    return (struct own_event *)(void *)base;
}

weft_result weft__cuda_enter_context(CUcontext context)
{
    WEFT__CUDA_TRY(weft__cu.ctx_push_current(context), "cannot use the stream's GPU");
    return WEFT_OK;
}

/* ---------------------------------------------------------------- streams */

/* NULL: no memory. */
static struct weft__cuda_stream *new_stream(weft_comm *comm, CUstream native)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    struct weft__cuda_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        weft__no_memory("no memory for a stream");
        return NULL;
    }
    stream->base = (weft_stream){weft__machine_of(comm), weft__stream_new_id()};
    stream->device = cuda->device;
    stream->context = cuda->context;
    stream->queue.stream = native;
    stream->comms.stream = stream;
    weft__cuda_comms_open(&stream->comms);
    return stream;
}

static void free_stream(struct weft__cuda_stream *stream)
{
    weft__cuda_comms_close(&stream->comms);
    free(stream);
}

static weft_result stream_create(weft_comm *comm, weft_stream **out)
{
    CUstream native = NULL;
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    WEFT__TRY(weft__cuda_enter(cuda));
    const weft_result created = weft__cuda_take_stream(cuda->context, &native);
    weft__cuda_leave();
    WEFT__TRY(created);
    struct weft__cuda_stream *stream = new_stream(comm, native);
    if (stream == NULL) {
        weft__cuda_give_stream(cuda->context, native);
        return WEFT_ERROR_OUT_OF_MEMORY;
    }
    stream->queue.has_launched = 1;
    *out = &stream->base;
    return WEFT_OK;
}

/* One of another device would fail only at the first launch, and less clearly. */
static weft_result check_device(const struct weft__cuda *cuda, CUstream native)
{
    CUcontext context = NULL;
    WEFT__TRY(weft__cuda_enter(cuda));
    const CUresult result = weft__cu.stream_get_ctx(native, &context);
    weft__cuda_leave();
    if (result == CUDA_SUCCESS && context == cuda->context)
        return WEFT_OK;
    return weft__invalid(
        "native_stream is %p, which is no stream of the primary context of CUDA device %d",
        (void *)native, cuda->ordinal);
}

static weft_result stream_wrap(weft_comm *comm, void *native, weft_stream **out)
{
    WEFT__TRY(check_device(weft__cuda_of(comm), native));
    struct weft__cuda_stream *stream = new_stream(comm, native);
    if (stream == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    stream->is_wrapped = 1;
    *out = &stream->base;
    return WEFT_OK;
}

static void stream_destroy(weft_stream *base)
{
    struct weft__cuda_stream *stream = weft__cuda_stream_of(base);
    weft__cuda_graph_abandon(stream);
    if (!stream->is_wrapped && weft__cuda_enter_context(stream->context) == WEFT_OK) {
        if (weft__cu.stream_synchronize(stream->queue.stream) == CUDA_SUCCESS)
            weft__cuda_give_stream(stream->context, stream->queue.stream);
        else /* others capture it, or the context is lost */
            (void)weft__cu.stream_destroy(stream->queue.stream);
        weft__cuda_leave();
    }
    free_stream(stream);
}

struct weft__cuda_capture weft__cuda_capture_of(const struct weft__cuda_stream *stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    struct weft__cuda_capture capture = {0};
    if (weft__cuda_enter_context(stream->context) != WEFT_OK)
        return capture;
    (void)weft__cu.stream_is_capturing(stream->queue.stream, &status);
    capture.is_going_on = status != CU_STREAM_CAPTURE_STATUS_NONE;
    if (capture.is_going_on)
        (void)weft__cu.stream_get_capture_info(stream->queue.stream, &status, &capture.id, NULL,
                                               NULL, NULL);
    weft__cuda_leave();
    return capture;
}

static int stream_is_capturing(weft_stream *base)
{
    return weft__cuda_capture_of(weft__cuda_stream_of(base)).is_going_on;
}

/* Those to whom what is enqueued now belongs: of the stream, or of the graph that it goes into;
 * NULL if that is none of weft's. */
static struct weft__cuda_comms *answering_comms(struct weft__cuda_stream *stream)
{
    const struct weft__cuda_capture capture = weft__cuda_capture_of(stream);
    return capture.is_going_on ? weft__cuda_graph_comms(capture.id) : &stream->comms;
}

/* The failure of one of the communicators that have launched since the last time. */
static weft_result take_failures(struct weft__cuda_stream *stream)
{
    char message[512] = "";
    weft_result result = WEFT_OK;
    weft_comm *comm;
    while ((comm = weft__cuda_comms_take(&stream->comms)) != NULL) {
        const weft_result failure = weft__machine_check(comm);
        if (failure != WEFT_OK) {
            result = failure;
            snprintf(message, sizeof message, "%s", weft__last_error());
        }
    }
    return result == WEFT_OK ? WEFT_OK : weft__error(result, "%s", message);
}

/* An error that CUDA reports is none that a wait has met: the context may be lost, and with it the
 * operations of all communicators on the stream. */
static void fail_comms(struct weft__cuda_stream *stream)
{
    char message[512];
    snprintf(message, sizeof message, "%s", weft__last_error());
    weft_comm *comm;
    while ((comm = weft__cuda_comms_take(&stream->comms)) != NULL) {
        weft__status_fail(&comm->status, WEFT_ERROR_SYSTEM, comm->rank, "rank %d: %s", comm->rank,
                          message);
        weft__comm_tell_failure(comm);
    }
}

static weft_result stream_synchronize(weft_stream *base)
{
    struct weft__cuda_stream *stream = weft__cuda_stream_of(base);
    if (stream_is_capturing(base))
        return weft__invalid("stream is under capture: the host cannot wait for it");
    WEFT__TRY(weft__cuda_enter_context(stream->context));
    const CUresult result = weft__cu.stream_synchronize(stream->queue.stream);
    weft__cuda_leave();
    if (result == CUDA_SUCCESS)
        return take_failures(stream);
    const weft_result failure = weft__cuda_error(result, "the stream failed");
    fail_comms(stream);
    return failure;
}

static weft_result launch(weft_stream *base, const struct weft__launch *launch)
{
    struct weft__cuda_stream *stream = weft__cuda_stream_of(base);
    const struct weft__cuda *cuda = weft__cuda_of(launch->comm);
    if (stream->device != cuda->device)
        return weft__invalid("stream is of CUDA device %d, the communicator of CUDA device %d",
                             (int)stream->device, (int)cuda->device);
    struct weft__cuda_comms *answering = answering_comms(stream);
    if (answering != NULL)
        WEFT__TRY(weft__cuda_comms_add(answering, launch->comm));
    return weft__cuda_launch_on(&stream->queue, launch);
}

/* Streams that have been synchronised since the communicator's last launch on them have forgotten
 * it. Launches that go into graphs are not queued. */
static void wait_launches(weft_comm *comm)
{
    struct weft__cuda_stream *stream;
    while ((stream = weft__cuda_comms_leave(comm)) != NULL) {
        if (weft__cuda_capture_of(stream).is_going_on ||
            weft__cuda_enter_context(stream->context) != WEFT_OK)
            continue;
        (void)weft__cu.stream_synchronize(stream->queue.stream);
        weft__cuda_leave();
    }
}

static weft_result enqueue_call(struct weft__cuda_stream *stream, void (*function)(void *argument),
                                void *argument)
{
    WEFT__TRY(weft__cuda_enter_context(stream->context));
    const CUresult result = weft__cu.launch_host_func(stream->queue.stream, function, argument);
    weft__cuda_leave();
    return result == CUDA_SUCCESS ? WEFT_OK : weft__cuda_error(result, "cannot enqueue a call");
}

struct host_call {
    void (*function)(void *argument);
    void *argument;
};

static void run_call(void *queued)
{
    const struct host_call call = *(const struct host_call *)queued;
    free(queued);
    weft__run_stream_call(call.function, call.argument);
}

/* A graph may call it any number of times, so it gets the function itself; CUDA's own calls, by
 * which others would wait, are refused there by CUDA. */
static weft_result stream_call(weft_stream *base, void (*function)(void *argument), void *argument)
{
    struct weft__cuda_stream *stream = weft__cuda_stream_of(base);
    if (weft__cuda_capture_of(stream).is_going_on)
        return enqueue_call(stream, function, argument);
    struct host_call *call = malloc(sizeof *call);
    WEFT__CHECK_MEMORY(call, "no memory to enqueue a call");
    *call = (struct host_call){function, argument};
    const weft_result result = enqueue_call(stream, run_call, call);
    if (result != WEFT_OK)
        free(call);
    return result;
}

/* ---------------------------------------------------------------- events */

static weft_result event_create(weft_comm *comm, enum weft__event_use use, weft_event **out)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    struct own_event *event = calloc(1, sizeof *event);
    WEFT__CHECK_MEMORY(event, "no memory for an event");
    event->base.machine = weft__machine_of(comm);
    event->context = cuda->context;
    weft_result result = weft__cuda_enter_context(event->context);
    if (result == WEFT_OK) {
        const CUresult created = weft__cu.event_create(
            &event->event,
            use == WEFT__EVENT_MEASURES ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
        weft__cuda_leave();
        if (created != CUDA_SUCCESS)
            result = weft__cuda_error(created, "cannot create a CUDA event");
    }
    if (result != WEFT_OK) {
        free(event);
        return result;
    }
    *out = &event->base;
    return WEFT_OK;
}

static void event_destroy(weft_event *base)
{
    struct own_event *event = own_event(base);
    if (weft__cuda_enter_context(event->context) == WEFT_OK) {
        (void)weft__cu.event_destroy(event->event);
        weft__cuda_leave();
    }
    free(event);
}

static weft_result event_record(weft_event *base, weft_stream *stream)
{
    struct own_event *event = own_event(base);
    WEFT__TRY(weft__cuda_enter_context(event->context));
    const CUresult result =
        weft__cu.event_record(event->event, weft__cuda_stream_of(stream)->queue.stream);
    weft__cuda_leave();
    if (result != CUDA_SUCCESS)
        return weft__cuda_error(result, "cannot record an event");
    event->has_record = 1;
    return WEFT_OK;
}

static weft_result stream_wait_event(weft_stream *stream, weft_event *base)
{
    struct own_event *event = own_event(base);
    if (!event->has_record)
        return WEFT_OK;
    WEFT__TRY(weft__cuda_enter_context(event->context));
    const CUresult result =
        weft__cu.stream_wait_event(weft__cuda_stream_of(stream)->queue.stream, event->event, 0);
    weft__cuda_leave();
    return result == CUDA_SUCCESS
               ? WEFT_OK
               : weft__cuda_error(result, "the stream cannot wait for the event");
}

static weft_result event_synchronize(weft_event *base)
{
    struct own_event *event = own_event(base);
    WEFT__TRY(weft__cuda_enter_context(event->context));
    const CUresult result = weft__cu.event_synchronize(event->event);
    weft__cuda_leave();
    return result == CUDA_SUCCESS ? WEFT_OK : weft__cuda_error(result, "cannot wait for an event");
}

static weft_result event_elapsed_us(weft_event *start, weft_event *end, double *elapsed_us)
{
    float elapsed_ms = 0.0f;
    WEFT__TRY(weft__cuda_enter_context(own_event(start)->context));
    const CUresult result =
        weft__cu.event_elapsed_time(&elapsed_ms, own_event(start)->event, own_event(end)->event);
    weft__cuda_leave();
    if (result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_INVALID_HANDLE)
        return weft__invalid(
            "start or end is an event whose record has not been passed; synchronise first");
    if (result != CUDA_SUCCESS)
        return weft__cuda_error(result, "cannot compare events");
    *elapsed_us = (double)elapsed_ms * 1000.0;
    return WEFT_OK;
}

/* ---------------------------------------------------------------- the machine */

static weft_result start(weft_comm *comm)
{
    WEFT__TRY(weft__comm_agree(comm, weft__cuda_watcher_start(comm), "watch its GPU"));
    WEFT__TRY(weft__cuda_probe(comm));
    WEFT__TRY(weft__cuda_measure_links(comm));
    WEFT__TRY(weft__comm_agree(comm, weft__cuda_records_open(comm), "have memory for records"));
    return weft__cuda_network_start(comm);
}

static void stop(weft_comm *comm)
{
    weft__cuda_network_stop(comm);
    weft__cuda_watcher_stop(comm);
}

static const struct weft__machine machine = {
    .hooks = {.name = "cuda",
              .attach = weft__cuda_attach,
              .start = start,
              .device_of = weft__cuda_device_of,
              .read_records = weft__cuda_records_read,
              .stop = stop,
              .detach = weft__cuda_detach},
    .kind = WEFT_MACHINE_CUDA,
    .max_windows = 1024,
    .describe = weft__cuda_describe,
    .describe_device = weft__cuda_describe_device,
    .describe_links = weft__cuda_describe_links,
    .describe_network = weft__cuda_describe_network,
    .alloc = weft__cuda_alloc,
    .free = weft__cuda_free,
    .network_alloc = weft__cuda_network_alloc,
    .staging_alloc = weft__cuda_network_staging_alloc,
    .network_free = weft__cuda_network_free,
    .copy = weft__cuda_copy,
    .check_pointer = weft__cuda_check_pointer,
    .find_block = weft__cuda_find_block,
    .share_block = weft__cuda_share_block,
    .close_block = weft__cuda_close_block,
    .choose_grid = weft__cuda_choose_grid,
    .max_blocks = 256,
    .max_warps = WEFT__CUDA_MAX_WARPS,
    .launch = launch,
    .wait_launches = wait_launches,
    .collect_failure = weft__cuda_collect_failure,
    .stream_create = stream_create,
    .stream_wrap = stream_wrap,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .stream_call = stream_call,
    .stream_is_capturing = stream_is_capturing,
    .stream_wait_event = stream_wait_event,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_synchronize = event_synchronize,
    .event_elapsed_us = event_elapsed_us,
    .graphs = &weft__cuda_graphs,
};

const struct weft__machine *weft__cuda_machine(void)
{
    return weft__cuda_load() != NULL ? &machine : NULL;
}
