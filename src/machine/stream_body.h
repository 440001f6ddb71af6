/* SPDX-License-Identifier: MIT */
/*
 * Streams and events of the machines whose programs run on the host: a stream is a queue of tasks
 * that run in order. For one file of each machine, which defines struct own_stream, whose first
 * member is its base, TASK_MEMBERS and EVENT_MEMBERS before it, and behind it the functions that
 * are declared first here.
 */
#include <stdlib.h>
#include <string.h>

#include "machine/on_host.h"

struct task {
    struct task *next;
    void (*run)(struct own_stream *stream, struct task *task);
    union {
        struct {
            void (*function)(void *argument);
            void *argument;
        } call;
        struct {
            struct own_event *event;
            uint64_t record;
            struct own_stream *recorded_on; /* may have been destroyed, once that has passed */
        } event;
        struct weft__launch launch;
    };
    uint64_t args_bytes;
    TASK_MEMBERS
    _Alignas(16) char args[]; /* of a launch */
};

struct own_event {
    weft_event base;
    int num_references;             /* the user's, and one per task that is queued */
    uint64_t num_records;           /* enqueued */
    struct own_stream *recorded_on; /* last */
    uint64_t num_passed;
    EVENT_MEMBERS
};

static void enqueue(struct own_stream *stream, struct task *task);
static void launch_is_queued(weft_comm *comm);
static void run_launch(struct own_stream *stream, struct task *task);
static void begin_event(struct own_event *event);
static void end_event(struct own_event *event);
static void lock_event(struct own_event *event);
static void unlock_event(struct own_event *event);
/* With the event locked: notes the time, and what has been done; wakes who waits. */
static void pass_event(struct own_event *event);
static void wait_record(struct own_stream *recorded_on, struct own_event *event, uint64_t record);

static struct own_stream *own_stream(weft_stream *base)
{
    return (struct own_stream *)(void *)base;
}

static struct own_event *own_event(weft_event *base)
{
    return (struct own_event *)(void *)base;
}

/* ------------------------------------------------------------------ tasks */

static struct task *new_task(void (*run)(struct own_stream *, struct task *), uint64_t args_bytes)
{
    struct task *task = calloc(1, sizeof *task + args_bytes);
    if (task == NULL) {
        weft__no_memory("no memory to enqueue an operation");
        return NULL;
    }
    task->run = run;
    task->args_bytes = args_bytes;
    return task;
}

static void run_call(struct own_stream *stream, struct task *task)
{
    (void)stream;
    weft__run_stream_call(task->call.function, task->call.argument);
}

static weft_result stream_call(weft_stream *base, void (*function)(void *argument), void *argument)
{
    struct task *task = new_task(run_call, 0);
    if (task == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    task->call.function = function;
    task->call.argument = argument;
    enqueue(own_stream(base), task);
    return WEFT_OK;
}

static weft_result stream_launch(weft_stream *base, const struct weft__launch *launch)
{
    struct task *task = new_task(run_launch, launch->args_bytes);
    if (task == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    task->launch = *launch;
    task->launch.args = memcpy(task->args, launch->args, launch->args_bytes);
    launch_is_queued(launch->comm);
    enqueue(own_stream(base), task);
    return WEFT_OK;
}

/* ------------------------------------------------------------------ events */

static weft_result event_create(weft_comm *comm, enum weft__event_use use, weft_event **out)
{
    (void)use;
    struct own_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return weft__no_memory("no memory for an event");
    event->base.machine = weft__machine_of(comm);
    event->num_references = 1;
    begin_event(event);
    *out = &event->base;
    return WEFT_OK;
}

static void release_event(struct own_event *event)
{
    lock_event(event);
    const int is_last = --event->num_references == 0;
    unlock_event(event);
    if (!is_last)
        return;
    end_event(event);
    free(event);
}

static void event_destroy(weft_event *base)
{
    release_event(own_event(base));
}

static void run_record(struct own_stream *stream, struct task *task)
{
    (void)stream;
    struct own_event *event = task->event.event;
    lock_event(event);
    if (event->num_passed < task->event.record)
        event->num_passed = task->event.record;
    pass_event(event);
    unlock_event(event);
    release_event(event);
}

static void run_wait(struct own_stream *stream, struct task *task)
{
    (void)stream;
    wait_record(task->event.recorded_on, task->event.event, task->event.record);
    release_event(task->event.event);
}

static weft_result event_record(weft_event *base, weft_stream *stream)
{
    struct own_event *event = own_event(base);
    struct task *task = new_task(run_record, 0);
    if (task == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    lock_event(event);
    event->num_references++;
    task->event.record = ++event->num_records;
    event->recorded_on = own_stream(stream);
    unlock_event(event);
    task->event.event = event;
    enqueue(own_stream(stream), task);
    return WEFT_OK;
}

static weft_result stream_wait_event(weft_stream *stream, weft_event *base)
{
    struct own_event *event = own_event(base);
    struct task *task = new_task(run_wait, 0);
    if (task == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    lock_event(event);
    event->num_references++;
    task->event.record = event->num_records;
    task->event.recorded_on = event->recorded_on;
    unlock_event(event);
    task->event.event = event;
    enqueue(own_stream(stream), task);
    return WEFT_OK;
}

static weft_result event_synchronize(weft_event *base)
{
    struct own_event *event = own_event(base);
    lock_event(event);
    const uint64_t latest = event->num_records;
    struct own_stream *recorded_on = event->recorded_on;
    unlock_event(event);
    wait_record(recorded_on, event, latest);
    return WEFT_OK;
}
