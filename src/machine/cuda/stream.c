/* SPDX-License-Identifier: MIT */
/* Streams and events of the cuda machine: CUDA's own, with what weft adds. */
#include <stdio.h>
#include <stdlib.h>

#include "machine/cuda/device.h"

/* Streams and events may outlive the communicator they were made for. */
struct own_stream {
    weft_stream base;
    CUdevice device;
    CUcontext context;
    struct weft__cuda_queue queue;
    int is_wrapped;
    /* Whose launches the next synchronisation answers for. */
    weft_comm **comms;
    int32_t num_comms, max_comms;
    struct own_stream *next; /* in `streams` */
};

/* A stream may be synchronised long after a communicator that launched on it was destroyed: so this must
 * be able to forget itself everywhere. */
static pthread_mutex_t streams_mutex = PTHREAD_MUTEX_INITIALIZER; /* also of what streams note */
static struct own_stream *streams;

struct own_event {
    weft_event base;
    CUcontext context;
    CUevent event;
    int has_record;
};

static struct own_stream *own_stream(weft_stream *base)
{
    return (struct own_stream *)(void *)base;
}

static struct own_event *own_event(weft_event *base)
{
    return (struct own_event *)(void *)base;
}

static weft_result enter(CUcontext context)
{
    WEFT__CUDA_TRY(weft__cu.ctx_push_current(context), "cannot use the stream's GPU");
    return WEFT_OK;
}

/* ---------------------------------------------------------------- streams */

/* NULL: no memory. */
static struct own_stream *new_stream(weft_comm *comm, CUstream native)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    struct own_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a stream");
        return NULL;
    }
    stream->base = (weft_stream){weft__machine_of(comm), weft__stream_new_id()};
    stream->device = cuda->device;
    stream->context = cuda->context;
    stream->queue.stream = native;
    pthread_mutex_lock(&streams_mutex);
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&streams_mutex);
    return stream;
}

static void free_stream(struct own_stream *stream)
{
    pthread_mutex_lock(&streams_mutex);
    struct own_stream **link = &streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    pthread_mutex_unlock(&streams_mutex);
    free(stream->comms);
    free(stream);
}

static weft_result stream_create(weft_comm *comm, weft_stream **out)
{
    CUstream native = NULL;
    WEFT__TRY(weft__cuda_enter(weft__cuda_of(comm)));
    const CUresult created = weft__cu.stream_create(&native, CU_STREAM_NON_BLOCKING);
    weft__cuda_leave();
    if (created != CUDA_SUCCESS)
        return weft__cuda_error(created, "cannot create a CUDA stream");
    struct own_stream *stream = new_stream(comm, native);
    if (stream == NULL) {
        (void)weft__cu.stream_destroy(native);
        return WEFT_ERROR_OUT_OF_MEMORY;
    }
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
    return weft__error(
        WEFT_ERROR_INVALID_ARGUMENT,
        "native_stream is %p, which is no stream of the primary context of CUDA device "
        "%d",
        (void *)native, cuda->ordinal);
}

static weft_result stream_wrap(weft_comm *comm, void *native, weft_stream **out)
{
    WEFT__TRY(check_device(weft__cuda_of(comm), native));
    struct own_stream *stream = new_stream(comm, native);
    if (stream == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    stream->is_wrapped = 1;
    *out = &stream->base;
    return WEFT_OK;
}

static void stream_destroy(weft_stream *base)
{
    struct own_stream *stream = own_stream(base);
    if (!stream->is_wrapped && enter(stream->context) == WEFT_OK) {
        (void)weft__cu.stream_synchronize(stream->queue.stream);
        (void)weft__cu.stream_destroy(stream->queue.stream);
        weft__cuda_leave();
    }
    free_stream(stream);
}

static int stream_is_capturing(weft_stream *base)
{
    struct own_stream *stream = own_stream(base);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (enter(stream->context) != WEFT_OK)
        return 0;
    (void)weft__cu.stream_is_capturing(stream->queue.stream, &status);
    weft__cuda_leave();
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void weft__cuda_forget_comm(const weft_comm *comm)
{
    pthread_mutex_lock(&streams_mutex);
    for (struct own_stream *stream = streams; stream != NULL; stream = stream->next) {
        for (int32_t i = 0; i < stream->num_comms; i++) {
            if (stream->comms[i] == comm)
                stream->comms[i--] = stream->comms[--stream->num_comms];
        }
    }
    pthread_mutex_unlock(&streams_mutex);
}

/* One of those that have launched since the last time, or NULL. */
static weft_comm *take_comm(struct own_stream *stream)
{
    pthread_mutex_lock(&streams_mutex);
    weft_comm *comm = stream->num_comms > 0 ? stream->comms[--stream->num_comms] : NULL;
    pthread_mutex_unlock(&streams_mutex);
    return comm;
}

/* The failure of one of the communicators that have launched since the last time. */
static weft_result take_failures(struct own_stream *stream)
{
    char message[512] = "";
    weft_result result = WEFT_OK;
    for (weft_comm *comm = take_comm(stream); comm != NULL; comm = take_comm(stream)) {
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
static void fail_comms(struct own_stream *stream)
{
    char message[512];
    snprintf(message, sizeof message, "%s", weft__last_error());
    for (weft_comm *comm = take_comm(stream); comm != NULL; comm = take_comm(stream)) {
        weft__status_fail(&comm->status, WEFT_ERROR_SYSTEM, comm->rank, "rank %d: %s", comm->rank,
                          message);
        weft__comm_tell_failure(comm);
    }
}

static weft_result stream_synchronize(weft_stream *base)
{
    struct own_stream *stream = own_stream(base);
    if (stream_is_capturing(base))
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "stream is under capture: the host cannot wait for it");
    WEFT__TRY(enter(stream->context));
    const CUresult result = weft__cu.stream_synchronize(stream->queue.stream);
    weft__cuda_leave();
    if (result == CUDA_SUCCESS)
        return take_failures(stream);
    const weft_result failure = weft__cuda_error(result, "the stream failed");
    fail_comms(stream);
    return failure;
}

static weft_result note_comm(struct own_stream *stream, weft_comm *comm)
{
    for (int32_t i = 0; i < stream->num_comms; i++) {
        if (stream->comms[i] == comm)
            return WEFT_OK;
    }
    if (stream->num_comms == stream->max_comms) {
        const int32_t max_comms = 2 * stream->max_comms + 1;
        weft_comm **comms = realloc(stream->comms, (size_t)max_comms * sizeof *comms);
        if (comms == NULL)
            return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory to enqueue an operation");
        stream->comms = comms;
        stream->max_comms = max_comms;
    }
    stream->comms[stream->num_comms++] = comm;
    return WEFT_OK;
}

static weft_result launch(weft_stream *base, const struct weft__launch *launch)
{
    struct own_stream *stream = own_stream(base);
    const struct weft__cuda *cuda = weft__cuda_of(launch->comm);
    if (stream->device != cuda->device)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "stream is of CUDA device %d, the communicator of CUDA device %d",
                           (int)stream->device, (int)cuda->device);
    /* What is captured is no work of this stream, and nothing that it can answer for. */
    if (!stream_is_capturing(base)) {
        pthread_mutex_lock(&streams_mutex);
        const weft_result noted = note_comm(stream, launch->comm);
        pthread_mutex_unlock(&streams_mutex);
        WEFT__TRY(noted);
    }
    return weft__cuda_launch_on(&stream->queue, launch);
}

static weft_result stream_call(weft_stream *base, void (*function)(void *argument), void *argument)
{
    struct own_stream *stream = own_stream(base);
    WEFT__TRY(enter(stream->context));
    const CUresult result = weft__cu.launch_host_func(stream->queue.stream, function, argument);
    weft__cuda_leave();
    return result == CUDA_SUCCESS ? WEFT_OK : weft__cuda_error(result, "cannot enqueue a call");
}

/* ---------------------------------------------------------------- events */

static weft_result event_create(weft_comm *comm, enum weft__event_use use, weft_event **out)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    struct own_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for an event");
    event->base.machine = weft__machine_of(comm);
    event->context = cuda->context;
    weft_result result = enter(event->context);
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
    if (enter(event->context) == WEFT_OK) {
        (void)weft__cu.event_destroy(event->event);
        weft__cuda_leave();
    }
    free(event);
}

static weft_result event_record(weft_event *base, weft_stream *stream)
{
    struct own_event *event = own_event(base);
    WEFT__TRY(enter(event->context));
    const CUresult result = weft__cu.event_record(event->event, own_stream(stream)->queue.stream);
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
    WEFT__TRY(enter(event->context));
    const CUresult result =
        weft__cu.stream_wait_event(own_stream(stream)->queue.stream, event->event, 0);
    weft__cuda_leave();
    return result == CUDA_SUCCESS
               ? WEFT_OK
               : weft__cuda_error(result, "the stream cannot wait for the event");
}

static weft_result event_synchronize(weft_event *base)
{
    struct own_event *event = own_event(base);
    WEFT__TRY(enter(event->context));
    const CUresult result = weft__cu.event_synchronize(event->event);
    weft__cuda_leave();
    return result == CUDA_SUCCESS ? WEFT_OK : weft__cuda_error(result, "cannot wait for an event");
}

static weft_result event_elapsed_us(weft_event *start, weft_event *end, double *elapsed_us)
{
    float elapsed_ms = 0.0f;
    WEFT__TRY(enter(own_event(start)->context));
    const CUresult result =
        weft__cu.event_elapsed_time(&elapsed_ms, own_event(start)->event, own_event(end)->event);
    weft__cuda_leave();
    if (result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_INVALID_HANDLE)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "start or end is an event whose record has not been passed; synchronise "
                           "first");
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
    return weft__cuda_measure_links(comm);
}

static const struct weft__machine machine = {
    .hooks = {.name = "cuda",
              .attach = weft__cuda_attach,
              .start = start,
              .stop = weft__cuda_watcher_stop,
              .detach = weft__cuda_detach},
    .kind = WEFT_MACHINE_CUDA,
    .max_windows = 1024,
    .describe = weft__cuda_describe,
    .alloc = weft__cuda_alloc,
    .free = weft__cuda_free,
    .copy = weft__cuda_copy,
    .check_pointer = weft__cuda_check_pointer,
    .find_block = weft__cuda_find_block,
    .share_block = weft__cuda_share_block,
    .close_block = weft__cuda_close_block,
    .choose_grid = weft__cuda_choose_grid,
    .max_blocks = 256,
    .launch = launch,
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
};

const struct weft__machine *weft__cuda_machine(void)
{
    return weft__cuda_load() != NULL ? &machine : NULL;
}
