/* SPDX-License-Identifier: MIT */
/* Streams of the cpu machine: a queue of tasks, and a thread that runs them in order: a worker of
 * the stream's, or, of one that was wrapped, whoever waits for it. That saves two changes of
 * threads where the caller waits anyway. */

#include <pthread.h>
#include <time.h>

#include "comm/host/cores.h"
#include "comm/host/thread.h"
#include "machine/cpu/cpu_launch.h"
#include "machine/cpu/pending.h"
#include "machine/on_host.h"
#include "net/attach.h"

struct own_stream {
    weft_stream base;
    struct own_stream *next_waited; /* of those without a worker */
    int has_worker;
    pthread_t worker;
    pthread_mutex_t mutex;
    pthread_cond_t has_task; /* or must end */
    pthread_cond_t is_idle;
    struct task *first;
    struct task **last;
    int is_busy;
    int must_end;
    weft_result error; /* the first since the last synchronize */
    char error_message[512];
    struct weft__cpu_runner *runner;
};

#define TASK_MEMBERS
#define EVENT_MEMBERS                                                                              \
    pthread_mutex_t mutex;                                                                         \
    pthread_cond_t passed;                                                                         \
    struct timespec time; /* of the last record that was passed */

#include "machine/stream_body.h"

static void note_error(struct own_stream *stream, weft_result result)
{
    pthread_mutex_lock(&stream->mutex);
    if (stream->error == WEFT_OK) {
        stream->error = result;
        strncpy(stream->error_message, weft_last_error(), sizeof stream->error_message - 1);
    }
    pthread_mutex_unlock(&stream->mutex);
}

/* With the mutex held, and a task. */
static void run_first(struct own_stream *stream)
{
    struct task *task = stream->first;
    stream->first = task->next;
    if (stream->first == NULL)
        stream->last = &stream->first;
    stream->is_busy = 1;
    pthread_mutex_unlock(&stream->mutex);
    task->run(stream, task);
    free(task);
    pthread_mutex_lock(&stream->mutex);
    stream->is_busy = 0;
    if (stream->first == NULL || !stream->has_worker) /* who waits may run the next one */
        pthread_cond_broadcast(&stream->is_idle);
}

static void *work(void *argument)
{
    struct own_stream *stream = argument;
    pthread_mutex_lock(&stream->mutex);
    for (;;) {
        while (stream->first == NULL && !stream->must_end)
            pthread_cond_wait(&stream->has_task, &stream->mutex);
        if (stream->first == NULL)
            break;
        run_first(stream);
    }
    pthread_mutex_unlock(&stream->mutex);
    return NULL;
}

/* ------------------------------------------------------------------ without a worker */

static pthread_mutex_t waited_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t waited_changed = PTHREAD_COND_INITIALIZER; /* one has run a task, or ends */
static struct own_stream *first_waited;

static void add_waited(struct own_stream *stream)
{
    pthread_mutex_lock(&waited_mutex);
    stream->next_waited = first_waited;
    first_waited = stream;
    pthread_mutex_unlock(&waited_mutex);
}

static void remove_waited(const struct own_stream *stream)
{
    pthread_mutex_lock(&waited_mutex);
    struct own_stream **link = &first_waited;
    while (*link != stream)
        link = &(*link)->next_waited;
    *link = stream->next_waited;
    pthread_cond_broadcast(&waited_changed);
    pthread_mutex_unlock(&waited_mutex);
}

static int is_waited(const struct own_stream *wanted)
{
    const struct own_stream *stream = first_waited;
    while (stream != NULL && stream != wanted)
        stream = stream->next_waited;
    return stream != NULL;
}

/* Runs the first task of a stream without a worker, whose mutex is held and then given back. */
static void run_waited(struct own_stream *stream)
{
    run_first(stream);
    pthread_mutex_unlock(&stream->mutex);
    pthread_mutex_lock(&waited_mutex);
    pthread_cond_broadcast(&waited_changed);
    pthread_mutex_unlock(&waited_mutex);
}

/* With the mutex held: until all tasks have run. */
static void await_idle(struct own_stream *stream)
{
    while (stream->first != NULL || stream->is_busy) {
        if (stream->has_worker || stream->is_busy) {
            pthread_cond_wait(&stream->is_idle, &stream->mutex);
        } else {
            run_waited(stream);
            pthread_mutex_lock(&stream->mutex);
        }
    }
}

static int has_passed(struct own_event *event, uint64_t record)
{
    pthread_mutex_lock(&event->mutex);
    const int has = event->num_passed >= record;
    pthread_mutex_unlock(&event->mutex);
    return has;
}

/* Runs tasks of a stream without a worker until the record has passed, and none behind it: they may
 * wait for what the caller does next. Another thread may run some of them. Does nothing for another
 * stream, or one that has been destroyed. */
static void run_until(struct own_stream *stream, struct own_event *event, uint64_t record)
{
    pthread_mutex_lock(&waited_mutex);
    while (is_waited(stream) && !has_passed(event, record)) {
        pthread_mutex_lock(&stream->mutex);
        if (stream->first == NULL || stream->is_busy) {
            pthread_mutex_unlock(&stream->mutex);
            pthread_cond_wait(&waited_changed, &waited_mutex);
            continue;
        }
        pthread_mutex_unlock(&waited_mutex);
        run_waited(stream);
        pthread_mutex_lock(&waited_mutex);
    }
    pthread_mutex_unlock(&waited_mutex);
}

static void enqueue(struct own_stream *stream, struct task *task)
{
    pthread_mutex_lock(&stream->mutex);
    const int was_empty = stream->first == NULL;
    *stream->last = task;
    stream->last = &task->next;
    if (was_empty && stream->has_worker)
        pthread_cond_signal(&stream->has_task);
    pthread_mutex_unlock(&stream->mutex);
}

static weft_result new_stream(const weft_comm *comm, struct own_stream **out)
{
    struct own_stream *stream = calloc(1, sizeof *stream);
    WEFT__CHECK_MEMORY(stream, "no memory for a stream");
    stream->base = (weft_stream){weft__machine_of(comm), weft__stream_new_id()};
    const weft_result result = weft__cpu_runner_create(comm, &stream->runner);
    if (result != WEFT_OK) {
        free(stream);
        return result;
    }
    stream->last = &stream->first;
    pthread_mutex_init(&stream->mutex, NULL);
    pthread_cond_init(&stream->has_task, NULL);
    pthread_cond_init(&stream->is_idle, NULL);
    *out = stream;
    return WEFT_OK;
}

static void free_stream(struct own_stream *stream)
{
    pthread_cond_destroy(&stream->is_idle);
    pthread_cond_destroy(&stream->has_task);
    pthread_mutex_destroy(&stream->mutex);
    weft__cpu_runner_destroy(stream->runner);
    free(stream);
}

static weft_result stream_create(weft_comm *comm, weft_stream **out)
{
    struct own_stream *stream = NULL;
    WEFT__TRY(new_stream(comm, &stream));
    stream->has_worker = 1;
    /* Without signals: a handler of the program must not run on the small stack of a fiber. */
    const weft_result result = weft__thread_start(&stream->worker, work, stream);
    if (result != WEFT_OK) {
        free_stream(stream);
        return result;
    }
    *out = &stream->base;
    return WEFT_OK;
}

static weft_result stream_wrap(weft_comm *comm, void *native, weft_stream **out)
{
    struct own_stream *stream = NULL;
    if (native != NULL)
        return weft__invalid(
            "native_stream is %p, must be NULL on machine cpu: the thread that waits", native);
    WEFT__TRY(new_stream(comm, &stream));
    add_waited(stream);
    *out = &stream->base;
    return WEFT_OK;
}

static void stream_destroy(weft_stream *base)
{
    struct own_stream *stream = own_stream(base);
    pthread_mutex_lock(&stream->mutex);
    stream->must_end = 1;
    pthread_cond_signal(&stream->has_task);
    if (!stream->has_worker)
        await_idle(stream);
    pthread_mutex_unlock(&stream->mutex);
    if (stream->has_worker)
        pthread_join(stream->worker, NULL);
    else
        remove_waited(stream);
    free_stream(stream);
}

static weft_result stream_synchronize(weft_stream *base)
{
    struct own_stream *stream = own_stream(base);
    pthread_mutex_lock(&stream->mutex);
    await_idle(stream);
    const weft_result result = stream->error;
    if (result != WEFT_OK)
        weft__error(result, "%s", stream->error_message);
    stream->error = WEFT_OK;
    pthread_mutex_unlock(&stream->mutex);
    return result;
}

/* ------------------------------------------------------------------ tasks */

static void launch_is_queued(weft_comm *comm)
{
    weft__cpu_launch_is_queued(comm);
}

static void run_launch(struct own_stream *stream, struct task *task)
{
    const struct weft__launch *launch = &task->launch;
    weft_result result = weft__status_check(&launch->comm->status);
    if (result == WEFT_OK) {
        struct wp_failure failure;
        result = weft__cpu_run(stream->runner, launch, &failure);
        if (result != WEFT_OK) {
            weft__on_host_end_awaited_words(&launch->grid);
            weft__status_fail(&launch->comm->status, result, launch->comm->rank, "rank %d: %s",
                              launch->comm->rank, weft_last_error());
            weft__comm_tell_failure(launch->comm); /* the others would wait for it in vain */
        } else if (failure.kind != WP_FAILURE_NONE)
            result = launch->on_failure(launch->comm, launch->call, &failure);
    } else {
        weft__on_host_end_awaited_words(&launch->grid);
        weft__records_end(launch->comm->records, launch->record_id,
                          &(struct weft__record){.last_rank = WEFT__RECORD_NOBODY,
                                                 .state = WEFT__RECORD_FAILED,
                                                 .call_idx = (int32_t)launch->call});
    }
    if (result != WEFT_OK)
        note_error(stream, result);
    weft__cpu_launch_is_done(launch->comm);
}

/* ------------------------------------------------------------------ events */

static void begin_event(struct own_event *event)
{
    pthread_mutex_init(&event->mutex, NULL);
    pthread_cond_init(&event->passed, NULL);
}

static void end_event(struct own_event *event)
{
    pthread_cond_destroy(&event->passed);
    pthread_mutex_destroy(&event->mutex);
}

static void lock_event(struct own_event *event)
{
    pthread_mutex_lock(&event->mutex);
}

static void unlock_event(struct own_event *event)
{
    pthread_mutex_unlock(&event->mutex);
}

static void pass_event(struct own_event *event)
{
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    pthread_cond_broadcast(&event->passed);
}

static void wait_record(struct own_stream *recorded_on, struct own_event *event, uint64_t record)
{
    run_until(recorded_on, event, record);
    pthread_mutex_lock(&event->mutex);
    while (event->num_passed < record)
        pthread_cond_wait(&event->passed, &event->mutex);
    pthread_mutex_unlock(&event->mutex);
}

static weft_result event_elapsed_us(weft_event *start, weft_event *end, double *elapsed_us)
{
    struct own_event *const events[2] = {own_event(start), own_event(end)};
    struct timespec times[2];
    for (int i = 0; i < 2; i++) {
        pthread_mutex_lock(&events[i]->mutex);
        const int is_passed =
            events[i]->num_records > 0 && events[i]->num_passed == events[i]->num_records;
        times[i] = events[i]->time;
        pthread_mutex_unlock(&events[i]->mutex);
        if (!is_passed)
            return weft__invalid(
                "%s is an event whose record has not been passed; synchronise first",
                i == 0 ? "start" : "end");
    }
    *elapsed_us = (double)(times[1].tv_sec - times[0].tv_sec) * 1e6 +
                  (double)(times[1].tv_nsec - times[0].tv_nsec) * 1e-3;
    return WEFT_OK;
}

/* ---------------------------------------------------------------- the machine */

static double ranks_per_core(const weft_comm *comm)
{
    return weft__ranks_per_core(comm);
}

/* With the stream's mutex held. */
static int has_launch_of(const struct own_stream *stream, const weft_comm *comm)
{
    const struct task *task = stream->first;
    while (task != NULL && (task->run != run_launch || task->launch.comm != comm))
        task = task->next;
    return task != NULL;
}

/* A stream without a worker that has a launch of the communicator, with its mutex held, once nobody
 * else runs it. NULL: there is none. */
static struct own_stream *claim_launch_of(const weft_comm *comm)
{
    pthread_mutex_lock(&waited_mutex);
    struct own_stream *stream = first_waited;
    while (stream != NULL) {
        pthread_mutex_lock(&stream->mutex);
        const int has_launch = has_launch_of(stream, comm);
        if (has_launch && !stream->is_busy)
            break;
        pthread_mutex_unlock(&stream->mutex);
        if (has_launch)
            pthread_cond_wait(&waited_changed, &waited_mutex);
        stream = has_launch ? first_waited : stream->next_waited;
    }
    pthread_mutex_unlock(&waited_mutex);
    return stream;
}

static void wait_launches(weft_comm *comm)
{
    struct own_stream *stream = NULL;
    while ((stream = claim_launch_of(comm)) != NULL)
        run_waited(stream);
    weft__cpu_wait_launches(comm);
}

static void free_network(weft_comm *comm, void *memory)
{
    if (memory == NULL)
        return;
    weft__net_drain(comm);
    weft__on_host_network_free(comm, memory);
}

const struct weft__machine weft__host_machine =
    WEFT__ON_HOST_MACHINE("cpu", weft__net_attach, weft__net_detach, weft__net_describe,
                          weft__on_host_copy, free_network, weft__on_host_choose_grid);
