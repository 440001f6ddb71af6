/* SPDX-License-Identifier: MIT */
/* Streams of the sim machine: a fiber per stream runs its tasks in order. */

#include "machine/sim/sim_launch.h"

struct own_stream {
    weft_stream base;
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

#define TASK_MEMBERS struct sim_clock clock; /* what the one who enqueued it had done before */
#define EVENT_MEMBERS                                                                              \
    int64_t time_ns;                                                                               \
    struct sim_clock clock;

#include "machine/stream_body.h"

static int has_work(struct sim_fiber *fiber)
{
    const struct own_stream *stream = fiber->wait_argument;
    return stream->first != NULL || stream->must_end;
}

static void run_tasks(struct sim_fiber *fiber)
{
    struct own_stream *stream = fiber->argument;
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
        sim_shadow_forget(task->args, task->args_bytes);
        sim_free(task);
        sim_release(&stream->clock);
        stream->is_busy = 0;
    }
}

static void enqueue(struct own_stream *stream, struct task *task)
{
    sim_release(&task->clock);
    *stream->last = task;
    stream->last = &task->next;
    sim_yield();
}

static weft_result stream_wrap(weft_comm *comm, void *native, weft_stream **stream)
{
    (void)native;
    (void)stream;
    return weft__error(WEFT_ERROR_UNSUPPORTED,
                       "comm is on machine %s, which has no streams but weft's own: call "
                       "weft_stream_create",
                       comm->hooks->name);
}

static weft_result stream_create(weft_comm *comm, weft_stream **out)
{
    struct own_stream *stream = calloc(1, sizeof *stream);
    WEFT__CHECK_MEMORY(stream, "no memory for a stream");
    stream->base = (weft_stream){weft__machine_of(comm), weft__stream_new_id()};
    stream->last = &stream->first;
    stream->worker = sim_fiber_start(sim_current()->rank, SIM_HOST_STACK, run_tasks, stream);
    if (stream->worker == NULL) {
        free(stream);
        return weft__no_memory("the sim machine has no more than %d fibers", SIM_MAX_FIBERS);
    }
    *out = &stream->base;
    return WEFT_OK;
}

static int worker_is_done(struct sim_fiber *fiber)
{
    return ((const struct own_stream *)fiber->wait_argument)->worker->state == SIM_DONE;
}

static void stream_destroy(weft_stream *base)
{
    struct own_stream *stream = own_stream(base);
    stream->must_end = 1;
    sim_wait_until(worker_is_done, stream, INT64_MAX);
    sim_acquire(&stream->clock);
    sim_lanes_free(&stream->lanes);
    free(stream);
}

static int is_idle(struct sim_fiber *fiber)
{
    const struct own_stream *stream = fiber->wait_argument;
    return stream->first == NULL && !stream->is_busy;
}

static weft_result stream_synchronize(weft_stream *base)
{
    struct own_stream *stream = own_stream(base);
    sim_wait_until(is_idle, stream, INT64_MAX);
    sim_acquire(&stream->clock);
    const weft_result result = stream->error;
    if (result != WEFT_OK)
        weft__error(result, "%s", stream->error_message);
    stream->error = WEFT_OK;
    return result;
}

/* ---------------------------------------------------------------- tasks */

static void launch_is_queued(weft_comm *comm)
{
    comm->num_launches++;
}

static void run_launch(struct own_stream *stream, struct task *task)
{
    const struct weft__launch *launch = &task->launch;
    weft_result result = weft__status_check(&launch->comm->status);
    if (result == WEFT_OK) {
        struct wp_failure failure = {.kind = WP_FAILURE_NONE};
        result = sim_launch_run(&stream->lanes, launch, &failure);
        if (result == WEFT_OK && failure.kind != WP_FAILURE_NONE)
            result = launch->on_failure(launch->comm, launch->call, &failure);
    } else {
        weft__on_host_end_awaited_words(&launch->grid);
    }
    if (result != WEFT_OK && stream->error == WEFT_OK) {
        stream->error = result;
        strncpy(stream->error_message, weft_last_error(), sizeof stream->error_message - 1);
    }
    launch->comm->num_launches--;
}

/* ---------------------------------------------------------------- events */

static void begin_event(struct own_event *event)
{
    (void)event;
}

static void end_event(struct own_event *event)
{
    (void)event;
}

static void lock_event(struct own_event *event)
{
    (void)event;
}

static void unlock_event(struct own_event *event)
{
    (void)event;
}

static void pass_event(struct own_event *event)
{
    event->time_ns = sim_world->now_ns;
    sim_release(&event->clock);
}

struct record_wait {
    struct own_event *event;
    uint64_t record;
};

static int record_is_passed(struct sim_fiber *fiber)
{
    const struct record_wait *wait = fiber->wait_argument;
    return wait->event->num_passed >= wait->record;
}

static void wait_record(struct own_stream *recorded_on, struct own_event *event, uint64_t record)
{
    (void)recorded_on;
    struct record_wait wait = {event, record};
    sim_wait_until(record_is_passed, &wait, INT64_MAX);
    sim_acquire(&event->clock);
}

static weft_result event_elapsed_us(weft_event *start, weft_event *end, double *elapsed_us)
{
    *elapsed_us = (double)(own_event(end)->time_ns - own_event(start)->time_ns) * 1e-3;
    return WEFT_OK;
}

/* ---------------------------------------------------------------- the machine */

static int has_no_launches(struct sim_fiber *fiber)
{
    const weft_comm *comm = fiber->wait_argument;
    return comm->num_launches == 0;
}

static void wait_launches(weft_comm *comm)
{
    sim_wait_until(has_no_launches, comm, INT64_MAX);
}

/* Host code that says what it touches. */
static weft_result copy_on_host(weft_comm *comm, void *dst, const void *src, uint64_t bytes)
{
    weft__sim_host_reads(src, bytes);
    weft__sim_host_writes(dst, bytes);
    return weft__on_host_copy(comm, dst, src, bytes);
}

static void free_network(weft_comm *comm, void *memory)
{
    if (memory != NULL)
        sim_wire_drain(comm);
    weft__on_host_network_free(comm, memory);
}

/* All ranks take turns in one thread. */
static double ranks_per_core(const weft_comm *comm)
{
    return comm->num_ranks;
}

/* Programs that compute something of each token run with one or two blocks and warps, as the
 * schedule draws: so it shows what these share. */
static struct weft__grid choose_grid(const weft_comm *comm, const struct weft__work *work)
{
    enum { MOST = 2 };
    struct weft__grid grid = weft__on_host_choose_grid(comm, work);
    if (work->kind != WEFT__WORK_TOKENS)
        return grid;
    if (work->num_tokens > 1)
        grid.num_blocks += (int32_t)sim_random(MOST);
    grid.num_warps += (int32_t)sim_random(MOST);
    return grid;
}

const struct weft__machine weft__host_machine = WEFT__ON_HOST_MACHINE(
    "sim", weft__on_host_start, weft__on_host_do_nothing, weft__on_host_describe_no_network,
    copy_on_host, free_network, choose_grid);
