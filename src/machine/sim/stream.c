/* SPDX-License-Identifier: MIT */
/* Streams of the sim machine: a fiber per stream runs its tasks in order. */
#include "machine/stream.h"

#include <stdlib.h>
#include <string.h>

#include "machine/sim/launch.h"

struct task {
    struct task *next;
    void (*run)(weft_stream *stream, struct task *task);
    void (*function)(void *argument); /* of a call */
    void *argument;
    weft_event *event;
    uint64_t record;
    struct weft__launch launch;
    struct sim_clock clock; /* what the one who enqueued it had done before */
    _Alignas(16) char args[];
};

struct weft_stream {
    struct sim_fiber *worker;
    struct task *first;
    struct task **last;
    int is_busy;
    int must_end;
    struct sim_clock clock; /* of what the stream has done */
    struct sim_lanes lanes;
    weft_result error;
    char error_message[512];
};

struct weft_event {
    int num_references;
    uint64_t num_records, num_passed;
    int64_t time_ns;
    struct sim_clock clock;
};

static int has_work(struct sim_fiber *fiber)
{
    const weft_stream *stream = fiber->wait_argument;
    return stream->first != NULL || stream->must_end;
}

static void run_tasks(struct sim_fiber *fiber)
{
    weft_stream *stream = fiber->argument;
    fiber->is_host = 1;
    for (;;) {
        sim_wait_until(has_work, stream, INT64_MAX);
        struct task *task = stream->first;
        if (task == NULL)
            return;
        stream->first = task->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        stream->is_busy = 1;
        sim_acquire(&task->clock);
        task->run(stream, task);
        sim_shadow_forget(task->args, task->launch.args_bytes);
        sim_free(task);
        sim_release(&stream->clock);
        stream->is_busy = 0;
    }
}

static struct task *new_task(void (*run)(weft_stream *, struct task *), size_t args_bytes)
{
    struct task *task = calloc(1, sizeof *task + args_bytes);
    if (task == NULL)
        weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory to enqueue an operation");
    else
        task->run = run;
    return task;
}

static void enqueue(weft_stream *stream, struct task *task)
{
    sim_release(&task->clock);
    *stream->last = task;
    stream->last = &task->next;
    sim_yield();
}

weft_result weft__stream_create(weft_stream **out)
{
    weft_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a stream");
    stream->last = &stream->first;
    stream->worker = sim_fiber_start(sim_current()->rank, SIM_HOST_STACK, run_tasks, stream);
    if (stream->worker == NULL) {
        free(stream);
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "the sim machine has no more than %d fibers",
                           SIM_MAX_FIBERS);
    }
    *out = stream;
    return WEFT_OK;
}

static int worker_is_done(struct sim_fiber *fiber)
{
    return ((const weft_stream *)fiber->wait_argument)->worker->state == SIM_DONE;
}

void weft__stream_destroy(weft_stream *stream)
{
    stream->must_end = 1;
    sim_wait_until(worker_is_done, stream, INT64_MAX);
    sim_acquire(&stream->clock);
    sim_lanes_free(&stream->lanes);
    free(stream);
}

static int is_idle(struct sim_fiber *fiber)
{
    const weft_stream *stream = fiber->wait_argument;
    return stream->first == NULL && !stream->is_busy;
}

weft_result weft__stream_synchronize(weft_stream *stream)
{
    sim_wait_until(is_idle, stream, INT64_MAX);
    sim_acquire(&stream->clock);
    const weft_result result = stream->error;
    if (result != WEFT_OK)
        weft__error(result, "%s", stream->error_message);
    stream->error = WEFT_OK;
    return result;
}

/* ---------------------------------------------------------------- tasks */

static void run_call(weft_stream *stream, struct task *task)
{
    (void)stream;
    task->function(task->argument);
}

weft_result weft__stream_call(weft_stream *stream, void (*function)(void *), void *argument)
{
    struct task *task = new_task(run_call, 0);
    if (task == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    task->function = function;
    task->argument = argument;
    enqueue(stream, task);
    return WEFT_OK;
}

static void run_launch(weft_stream *stream, struct task *task)
{
    const struct weft__launch *launch = &task->launch;
    weft_result result = weft__status_check(&launch->comm->status);
    if (result == WEFT_OK) {
        struct weft_failure failure = {.kind = WEFT_FAILURE_NONE};
        result = sim_launch_run(&stream->lanes, launch, &failure);
        if (result == WEFT_OK && failure.kind != WEFT_FAILURE_NONE)
            result = launch->on_failure(launch->comm, launch->program, &failure);
    }
    if (result == WEFT_OK || stream->error != WEFT_OK)
        return;
    stream->error = result;
    strncpy(stream->error_message, weft_last_error(), sizeof stream->error_message - 1);
}

weft_result weft__stream_launch(weft_stream *stream, const struct weft__launch *launch)
{
    struct task *task = new_task(run_launch, launch->args_bytes);
    if (task == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    task->launch = *launch;
    task->launch.args = memcpy(task->args, launch->args, launch->args_bytes);
    enqueue(stream, task);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- events */

weft_result weft__event_create(weft_event **out)
{
    weft_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for an event");
    event->num_references = 1;
    *out = event;
    return WEFT_OK;
}

void weft__event_destroy(weft_event *event)
{
    if (--event->num_references == 0)
        free(event);
}

static void run_record(weft_stream *stream, struct task *task)
{
    (void)stream;
    weft_event *event = task->event;
    event->time_ns = sim_world->now_ns;
    if (event->num_passed < task->record)
        event->num_passed = task->record;
    sim_release(&event->clock);
    weft__event_destroy(event);
}

struct record_wait {
    weft_event *event;
    uint64_t record;
};

static int record_is_passed(struct sim_fiber *fiber)
{
    const struct record_wait *wait = fiber->wait_argument;
    return wait->event->num_passed >= wait->record;
}

static void wait_record(weft_event *event, uint64_t record)
{
    struct record_wait wait = {event, record};
    sim_wait_until(record_is_passed, &wait, INT64_MAX);
    sim_acquire(&event->clock);
}

static void run_wait(weft_stream *stream, struct task *task)
{
    (void)stream;
    wait_record(task->event, task->record);
    weft__event_destroy(task->event);
}

weft_result weft__event_record(weft_event *event, weft_stream *stream)
{
    struct task *task = new_task(run_record, 0);
    if (task == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    event->num_references++;
    task->record = ++event->num_records;
    task->event = event;
    enqueue(stream, task);
    return WEFT_OK;
}

weft_result weft__stream_wait_event(weft_stream *stream, weft_event *event)
{
    struct task *task = new_task(run_wait, 0);
    if (task == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    event->num_references++;
    task->event = event;
    task->record = event->num_records;
    enqueue(stream, task);
    return WEFT_OK;
}

weft_result weft__event_synchronize(weft_event *event)
{
    wait_record(event, event->num_records);
    return WEFT_OK;
}

weft_result weft__event_elapsed_us(weft_event *start, weft_event *end, double *elapsed_us)
{
    *elapsed_us = (double)(end->time_ns - start->time_ns) * 1e-3;
    return WEFT_OK;
}
