/* SPDX-License-Identifier: MIT */
/* Streams, events and graphs: order, host calls, waits across streams, times, errors. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum { NUM_CALLS = 1000 };

static void sleep_ms(long ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* What ran, in which order. */
struct log {
    int num_entries;
    int entries[NUM_CALLS];
};

struct entry {
    struct log *log;
    int number;
    long delay_ms;
};

static void append(void *argument)
{
    const struct entry *entry = argument;
    sleep_ms(entry->delay_ms);
    entry->log->entries[entry->log->num_entries++] = entry->number;
}

static int calls_in_order(struct ranks_context *context)
{
    weft_comm *comm = context->argument;
    static struct log log;
    static struct entry entries[NUM_CALLS];
    weft_stream *stream;
    log.num_entries = 0;
    CHECK_OK(weft_stream_create(comm, &stream));
    for (int i = 0; i < NUM_CALLS; i++) {
        entries[i] = (struct entry){&log, i, i % 500 == 0 ? 2 : 0};
        CHECK_OK(weft_stream_call(stream, append, &entries[i]));
    }
    CHECK_ERROR(weft_stream_call(stream, NULL, NULL), WEFT_ERROR_INVALID_ARGUMENT, "function");
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK(log.num_entries == NUM_CALLS, "%d calls ran", log.num_entries);
    for (int i = 0; i < NUM_CALLS; i++)
        CHECK(log.entries[i] == i, "call %d ran as number %d", log.entries[i], i);
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK_OK(weft_stream_destroy(stream));
    return 0;
}

/* Enqueueing does not wait for what is enqueued. */
static void wait_for_flag(void *argument)
{
    while (!atomic_load((_Atomic int *)argument))
        sleep_ms(1);
}

static void set_flag(void *argument)
{
    atomic_store((_Atomic int *)argument, 1);
}

static int calls_are_asynchronous(struct ranks_context *context)
{
    weft_comm *comm = context->argument;
    _Atomic int flag = 0;
    _Atomic int passed = 0;
    weft_stream *stream;
    CHECK_OK(weft_stream_create(comm, &stream));
    CHECK_OK(weft_stream_call(stream, wait_for_flag, &flag));
    CHECK_OK(weft_stream_call(stream, set_flag, &passed));
    sleep_ms(5);
    CHECK(!atomic_load(&passed), "a call overtook the one before it");
    atomic_store(&flag, 1);
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK(atomic_load(&passed), "synchronize returned too early");
    CHECK_OK(weft_stream_destroy(stream));
    return 0;
}

static int destroy_waits(struct ranks_context *context)
{
    weft_comm *comm = context->argument;
    struct log log = {0};
    struct entry entries[3];
    weft_stream *stream;
    CHECK_OK(weft_stream_create(comm, &stream));
    for (int i = 0; i < 3; i++) {
        entries[i] = (struct entry){&log, i, 5};
        CHECK_OK(weft_stream_call(stream, append, &entries[i]));
    }
    CHECK_OK(weft_stream_destroy(stream));
    CHECK(log.num_entries == 3, "%d calls ran before destroy returned", log.num_entries);
    return 0;
}

/* The second stream's work waits for the first's, not the other way round. */
static int event_orders_streams(struct ranks_context *context)
{
    weft_comm *comm = context->argument;
    _Atomic int flag = 0;
    _Atomic int passed = 0;
    weft_stream *first, *second;
    weft_event *event;
    CHECK_OK(weft_stream_create(comm, &first));
    CHECK_OK(weft_stream_create(comm, &second));
    CHECK_OK(weft_event_create(comm, &event));
    CHECK_OK(weft_stream_call(first, wait_for_flag, &flag));
    CHECK_OK(weft_event_record(event, first));
    CHECK_OK(weft_stream_wait_event(second, event));
    CHECK_OK(weft_stream_call(second, set_flag, &passed));
    sleep_ms(5);
    CHECK(!atomic_load(&passed), "the second stream did not wait");
    atomic_store(&flag, 1);
    CHECK_OK(weft_stream_synchronize(second));
    CHECK(atomic_load(&passed), "the second stream did not go on");
    CHECK_OK(weft_event_destroy(event));
    CHECK_OK(weft_stream_destroy(second));
    CHECK_OK(weft_stream_destroy(first));
    return 0;
}

/* A wait is for the latest record before it: later records change nothing. */
static int wait_is_for_latest_record(struct ranks_context *context)
{
    weft_comm *comm = context->argument;
    _Atomic int first_flag = 0, second_flag = 0;
    weft_stream *recorder, *waiter;
    weft_event *event;
    CHECK_OK(weft_stream_create(comm, &recorder));
    CHECK_OK(weft_stream_create(comm, &waiter));
    CHECK_OK(weft_event_create(comm, &event));
    CHECK_OK(weft_stream_wait_event(waiter, event));
    CHECK_OK(weft_event_synchronize(event));
    CHECK_OK(weft_stream_synchronize(waiter)); /* never recorded: done */
    CHECK_OK(weft_stream_call(recorder, wait_for_flag, &first_flag));
    CHECK_OK(weft_event_record(event, recorder));
    CHECK_OK(weft_stream_wait_event(waiter, event));
    CHECK_OK(weft_stream_call(recorder, wait_for_flag, &second_flag));
    CHECK_OK(weft_event_record(event, recorder));
    atomic_store(&first_flag, 1);
    CHECK_OK(weft_stream_synchronize(waiter)); /* would hang on the second record */
    atomic_store(&second_flag, 1);
    CHECK_OK(weft_event_synchronize(event));
    CHECK_OK(weft_event_destroy(event));
    CHECK_OK(weft_stream_destroy(waiter));
    CHECK_OK(weft_stream_destroy(recorder));
    return 0;
}

static int elapsed_time(struct ranks_context *context)
{
    weft_comm *comm = context->argument;
    struct log log = {0};
    struct entry entry = {&log, 0, 20};
    weft_stream *stream;
    weft_event *start, *end;
    double elapsed_us = -1;
    CHECK_OK(weft_stream_create(comm, &stream));
    CHECK_OK(weft_event_create(comm, &start));
    CHECK_OK(weft_event_create(comm, &end));
    CHECK_ERROR(weft_event_elapsed_us(start, end, &elapsed_us), WEFT_ERROR_INVALID_ARGUMENT,
                "start");
    CHECK(elapsed_us < 0, "an output was written by a call that failed");
    CHECK_OK(weft_event_record(start, stream));
    CHECK_OK(weft_stream_call(stream, append, &entry));
    CHECK_OK(weft_event_synchronize(start));
    CHECK_ERROR(weft_event_elapsed_us(start, end, &elapsed_us), WEFT_ERROR_INVALID_ARGUMENT, "end");
    CHECK_OK(weft_event_record(end, stream));
    CHECK_OK(weft_event_synchronize(end));
    CHECK_OK(weft_event_elapsed_us(start, end, &elapsed_us));
    /* No upper bound: the machine may be busy. */
    CHECK(elapsed_us >= 20000, "a sleep of 20 ms took %.1f us", elapsed_us);
    CHECK_OK(weft_event_elapsed_us(start, start, &elapsed_us));
    CHECK(elapsed_us == 0, "%.1f us between an event and itself", elapsed_us);
    CHECK_OK(weft_event_destroy(end));
    CHECK_OK(weft_event_destroy(start));
    CHECK_OK(weft_stream_destroy(stream));
    return 0;
}

/* An event may be destroyed while its record is queued elsewhere only after that was passed, and
 * used again as often as one likes. */
static int events_again(struct ranks_context *context)
{
    weft_comm *comm = context->argument;
    struct log log = {0};
    struct entry entries[NUM_CALLS];
    weft_stream *streams[2];
    weft_event *event;
    CHECK_OK(weft_stream_create(comm, &streams[0]));
    CHECK_OK(weft_stream_create(comm, &streams[1]));
    CHECK_OK(weft_event_create(comm, &event));
    for (int i = 0; i < NUM_CALLS; i++) { /* one after the other, to and fro */
        entries[i] = (struct entry){&log, i, 0};
        CHECK_OK(weft_stream_wait_event(streams[i % 2], event));
        CHECK_OK(weft_stream_call(streams[i % 2], append, &entries[i]));
        CHECK_OK(weft_event_record(event, streams[i % 2]));
    }
    CHECK_OK(weft_event_synchronize(event));
    for (int i = 0; i < NUM_CALLS; i++)
        CHECK(log.entries[i] == i, "call %d ran as number %d", log.entries[i], i);
    CHECK_OK(weft_stream_synchronize(streams[0]));
    CHECK_OK(weft_stream_synchronize(streams[1]));
    CHECK_OK(weft_event_destroy(event));
    CHECK_OK(weft_stream_destroy(streams[0]));
    CHECK_OK(weft_stream_destroy(streams[1]));
    return 0;
}

/* Machine cpu has no graphs: then nothing is recorded, and the stream goes on as it was. */
static int graph_of_calls(struct ranks_context *context)
{
    enum { NUM_RECORDED = 3, NUM_LAUNCHES = 5 };
    weft_comm *comm = context->argument;
    struct log log = {0};
    struct entry entries[NUM_RECORDED];
    weft_stream *stream;
    weft_graph *graph = NULL;
    const int has_graphs = weft_comm_machine(comm) == WEFT_MACHINE_CUDA;
    CHECK_OK(weft_stream_create(comm, &stream));
    if (has_graphs)
        CHECK_OK(weft_graph_begin(stream));
    else
        CHECK_ERROR(weft_graph_begin(stream), WEFT_ERROR_UNSUPPORTED,
                    "machine cpu, which has no graphs");
    for (int i = 0; i < NUM_RECORDED; i++) {
        entries[i] = (struct entry){&log, i, 0};
        CHECK_OK(weft_stream_call(stream, append, &entries[i]));
    }
    if (has_graphs)
        CHECK_OK(weft_graph_end(stream, &graph));
    else
        CHECK_ERROR(weft_graph_end(stream, &graph), WEFT_ERROR_UNSUPPORTED,
                    "machine cpu, which has no graphs");
    for (int i = 0; has_graphs && i < NUM_LAUNCHES; i++)
        CHECK_OK(weft_graph_launch(graph, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    const int num_expected = NUM_RECORDED * (has_graphs ? NUM_LAUNCHES : 1);
    CHECK(log.num_entries == num_expected, "%d calls ran, not %d", log.num_entries, num_expected);
    for (int i = 0; i < num_expected; i++)
        CHECK(log.entries[i] == i % NUM_RECORDED, "call %d ran as number %d", log.entries[i], i);
    if (has_graphs)
        CHECK_OK(weft_graph_destroy(graph));
    CHECK_OK(weft_stream_destroy(stream));
    return 0;
}

static void note_thread(void *argument)
{
    *(pthread_t *)argument = pthread_self();
}

/* Without a worker: what is queued runs in whichever call waits for it. */
static int who_waits_runs_it(struct ranks_context *context)
{
    weft_comm *comm = context->argument, *other;
    weft_stream *stream, *behind;
    weft_event *event;
    pthread_t thread = {0};
    struct log log = {0};
    struct entry entries[5];
    if (weft_comm_machine(comm) == WEFT_MACHINE_CUDA)
        return 0;
    for (int i = 0; i < 5; i++)
        entries[i] = (struct entry){&log, i, 0};
    CHECK_ERROR(weft_stream_wrap(comm, &log, &stream), WEFT_ERROR_INVALID_ARGUMENT,
                "native_stream");
    CHECK_ERROR(weft_stream_wrap(comm, NULL, NULL), WEFT_ERROR_INVALID_ARGUMENT, "stream");
    CHECK_OK(weft_stream_wrap(comm, NULL, &stream));
    CHECK_OK(weft_event_create(comm, &event));
    CHECK_OK(weft_stream_call(stream, append, &entries[0]));
    CHECK_OK(weft_stream_call(stream, note_thread, &thread));
    CHECK(log.num_entries == 0, "a call ran before anybody waited");
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK(log.num_entries == 1 && pthread_equal(thread, pthread_self()), "another thread ran it");
    CHECK_OK(weft_stream_call(stream, append, &entries[1]));
    CHECK_OK(weft_event_record(event, stream));
    CHECK_OK(weft_stream_call(stream, append, &entries[2]));
    CHECK_OK(weft_event_synchronize(event));
    CHECK(log.num_entries == 2, "%d calls ran, not those before the event", log.num_entries);
    CHECK_OK(weft_stream_wrap(comm, NULL, &behind));
    CHECK_OK(weft_event_record(event, stream));
    CHECK_OK(weft_stream_wait_event(behind, event));
    CHECK_OK(weft_stream_synchronize(behind)); /* runs what is before the event elsewhere */
    CHECK(log.num_entries == 3, "%d calls ran, not those before the second event", log.num_entries);
    CHECK_OK(weft_stream_destroy(behind));
    CHECK_OK(weft_comm_split(comm, 0, 0, NULL, &other));
    CHECK_OK(weft_stream_call(stream, append, &entries[3]));
    CHECK_OK(weft_comm_barrier(other, stream));
    CHECK_OK(weft_comm_destroy(other)); /* runs its barrier, and what is before */
    CHECK(log.num_entries == 4, "%d of 4 calls ran", log.num_entries);
    CHECK_OK(weft_stream_call(stream, append, &entries[4]));
    CHECK_OK(weft_stream_destroy(stream));
    CHECK(log.num_entries == 5, "%d of 5 calls ran", log.num_entries);
    CHECK_OK(weft_event_destroy(event));
    return 0;
}

struct waiter {
    weft_comm *comm;
    weft_stream *own, *other;
    weft_event *event;
    int num_refused;
    char message[256]; /* that lacks what it should say */
};

static void expect_refusal(struct waiter *waiter, weft_result result, const char *call)
{
    const int is_refused = result == WEFT_ERROR_INVALID_ARGUMENT &&
                           strncmp(weft_last_error(), call, strlen(call)) == 0 &&
                           strstr(weft_last_error(), "weft_stream_call") != NULL;
    if (!is_refused)
        snprintf(waiter->message, sizeof waiter->message, "%s: %s", call, weft_last_error());
    waiter->num_refused += is_refused;
}

static void wait_inside(void *argument)
{
    struct waiter *waiter = argument;
    weft_comm *child;
    char byte = 0;
    expect_refusal(waiter, weft_stream_synchronize(waiter->own), "weft_stream_synchronize");
    expect_refusal(waiter, weft_stream_synchronize(waiter->other), "weft_stream_synchronize");
    expect_refusal(waiter, weft_stream_destroy(waiter->own), "weft_stream_destroy");
    expect_refusal(waiter, weft_event_synchronize(waiter->event), "weft_event_synchronize");
    expect_refusal(waiter, weft_comm_host_barrier(waiter->comm), "weft_comm_host_barrier");
    expect_refusal(waiter, weft_comm_host_all_gather(waiter->comm, &byte, 1, &byte),
                   "weft_comm_host_all_gather");
    expect_refusal(waiter, weft_comm_split(waiter->comm, 0, 0, NULL, &child), "weft_comm_split");
    expect_refusal(waiter, weft_comm_destroy(waiter->comm), "weft_comm_destroy");
}

/* Each of them waits for what is queued behind the function, or for ranks that wait for this
 * stream. */
static int functions_do_not_wait(struct ranks_context *context)
{
    struct waiter waiter = {.comm = context->argument};
    CHECK_OK(weft_stream_create(waiter.comm, &waiter.own));
    CHECK_OK(weft_stream_create(waiter.comm, &waiter.other));
    CHECK_OK(weft_event_create(waiter.comm, &waiter.event));
    CHECK_OK(weft_stream_call(waiter.own, wait_inside, &waiter));
    CHECK_OK(weft_event_record(waiter.event, waiter.own));
    CHECK_OK(weft_stream_synchronize(waiter.own));
    CHECK(waiter.num_refused == 8, "%d of 8 were refused: %s", waiter.num_refused, waiter.message);
    CHECK_OK(weft_event_destroy(waiter.event));
    CHECK_OK(weft_stream_destroy(waiter.other));
    CHECK_OK(weft_stream_destroy(waiter.own));
    return 0;
}

/* The last rank never comes: the others' barrier fails, and each stream tells so once. The
 * communicator stays failed, the stream does not. */
static int error_is_told_once(struct ranks_context *context)
{
    struct log log = {0};
    struct entry entry = {&log, 7, 0};
    if (ranks_warm_up(context))
        return 1;
    weft_comm *const comm =
        ranks_comm(context, WEFT_ARGS(weft_comm_config, .timeout_ms = tests_deadline_ms(1000)));
    weft_stream *const stream = ranks_stream(context);
    if (context->rank != context->num_ranks - 1) {
        CHECK_OK(weft_comm_barrier(comm, stream));
        const weft_result result = weft_stream_synchronize(stream);
        CHECK(result == WEFT_ERROR_TIMEOUT, "\"%s\": %s", weft_result_string(result),
              weft_last_error());
        CHECK(strncmp(weft_last_error(), "weft_comm_barrier #", 14) == 0, "%s", weft_last_error());
        CHECK_OK(weft_stream_synchronize(stream));
        CHECK_OK(weft_stream_call(stream, append, &entry));
        CHECK_OK(weft_stream_synchronize(stream));
        CHECK(log.num_entries == 1, "the stream does not go on after an error");
        CHECK(weft_comm_status(comm, NULL) == WEFT_ERROR_TIMEOUT,
              "the communicator forgot that it failed");
    }
    ranks_barrier(context);
    return 0;
}

static int with_comm(struct ranks_context *context)
{
    const rank_function *function = context->argument;
    weft_comm *comm;
    CHECK_OK(weft_comm_create(&context->id, 0, 1, NULL, &comm));
    context->argument = comm;
    if ((*function)(context))
        return 1;
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

static void run_alone(rank_function function)
{
    assert_int_equal(ranks_run(RANKS_THREADS, 1, with_comm, &function), 0);
}

#define ALONE(name) TEST_CALL(test_##name, run_alone(name))

ALONE(calls_in_order)
ALONE(calls_are_asynchronous)
ALONE(destroy_waits)
ALONE(event_orders_streams)
ALONE(functions_do_not_wait)
ALONE(wait_is_for_latest_record)
ALONE(elapsed_time)
ALONE(events_again)
ALONE(graph_of_calls)
ALONE(who_waits_runs_it)

TEST(test_error_is_told_once)
{
    assert_int_equal(ranks_run(RANKS_THREADS, 2, error_is_told_once, NULL), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, 3, error_is_told_once, NULL), 0);
}
