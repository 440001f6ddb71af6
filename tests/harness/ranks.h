/* SPDX-License-Identifier: MIT */
/* Runs a test function on every rank of a world, each rank a thread or a process of its own. The
 * calling process forks but never makes a thread, so that sanitizers can follow, and a hang ends as
 * a failure that names the ranks that hung. Processes are kept for the next run (harness/pool.h),
 * so what a rank reads of the test is its argument, memory of harness/memory.h, and what is
 * constant; and a rank destroys its communicators but that of ranks_comm. Communicators without a
 * machine in their config are on that of harness/machine.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "weft.h"
#include "workload/clock.h"

enum ranks_mode {
    RANKS_THREADS,  /* all ranks in one process, which is not the test's */
    RANKS_PROCESSES /* a process per rank */
};

enum ranks_id {
    RANKS_ID_BY_HOST,   /* made by a process that is no rank (RANKS_THREADS: the ranks' process) */
    RANKS_ID_BY_RANK_0, /* made by rank 0's process: the rendezvous dies with it */
    RANKS_ID_NONE       /* context->id is zero */
};

enum { RANKS_MAX = 64, RANKS_MAX_STREAMS = 2 };

struct ranks_options {
    enum ranks_mode mode;
    enum ranks_id id;
    int32_t num_ranks;    /* 1..RANKS_MAX */
    const void *argument; /* ranks have a copy: RANKS_ARGUMENT */
    size_t argument_bytes;
    size_t shared_bytes; /* of context->shared */
    uint64_t may_die;    /* bit per rank whose process may be killed by a signal */
    uint32_t deadline_s; /* of the whole run; 0: 600 */
};

struct ranks_context {
    int32_t rank, num_ranks;
    weft_unique_id id;
    void *argument;
    void *shared; /* memory that all ranks share, zero at first */
    char failure[1024];
    /* ranks_comm and ranks_stream have made these. */
    weft_comm *comm;
    weft_stream *streams[RANKS_MAX_STREAMS];
    int num_streams;
};

typedef int (*rank_function)(struct ranks_context *context); /* 0 = passed */

/* Both return how many ranks failed, and print their messages to stderr. */
int ranks_run_sized(enum ranks_mode mode, int32_t num_ranks, rank_function function,
                    const void *argument, size_t argument_bytes);
int ranks_run_with(const struct ranks_options *options, rank_function function);

/* In threads, then in processes; context->argument is the mode. */
int ranks_run_in_both_modes(int32_t num_ranks, rank_function function);
/* For what is the host's: in threads, and in processes, too, unless ranks are on GPUs, which take
 * long to start. */
int ranks_run_host(int32_t num_ranks, rank_function function);

/* The argument is NULL or points to a type that is known here, whose size is taken. */
#define ranks_run(mode, num_ranks, function, argument)                                             \
    ranks_run_sized(mode, num_ranks, function, argument, RANKS_SIZE_OF(argument))
#define RANKS_ARGUMENT(pointer) .argument = (pointer), .argument_bytes = RANKS_SIZE_OF(pointer)
#define RANKS_SIZE_OF(pointer)                                                                     \
    _Generic((pointer), void * : 0, const void * : 0, default : sizeof *(pointer))

/* Before the body of a test (harness/cmocka.h) that every rank runs, as a rank function. */
#define TEST_ON_RANKS(name, mode, num_ranks) TEST_ON_RANKS_AS(TEST(name), name, mode, num_ranks)
#define TEST_ON_RANKS_AS(test, name, mode, num_ranks)                                              \
    static int name##_on_rank(struct ranks_context *context);                                      \
    test                                                                                           \
    {                                                                                              \
        assert_int_equal(ranks_run(mode, num_ranks, name##_on_rank, NULL), 0);                     \
    }                                                                                              \
    static int name##_on_rank(struct ranks_context *context __attribute__((unused)))

/* The same with ranks that are threads, then with processes; context->argument is the mode. */
#define TEST_IN_BOTH_MODES(name, num_ranks)                                                        \
    static int name##_on_rank(struct ranks_context *context);                                      \
    TEST(name)                                                                                     \
    {                                                                                              \
        assert_int_equal(ranks_run_in_both_modes(num_ranks, name##_on_rank), 0);                   \
    }                                                                                              \
    static int name##_on_rank(struct ranks_context *context __attribute__((unused)))

/* A test that ranks_run_host runs on every rank. */
#define TEST_ON_HOST(name, num_ranks)                                                              \
    static int name##_on_rank(struct ranks_context *context);                                      \
    TEST_CALL(name, assert_int_equal(ranks_run_host(num_ranks, name##_on_rank), 0))                \
    static int name##_on_rank(struct ranks_context *context)

/* The body of a test on ranks gets an object of this type, between open(context, object) and
 * close(object), which return 0, or 1 when a check has failed. */
#define RANKS_WITH(test, name, type, object, open, close)                                          \
    static int name##_with(struct ranks_context *context, type *object);                           \
    test                                                                                           \
    {                                                                                              \
        type one;                                                                                  \
        return open(context, &one) || name##_with(context, &one) || close(&one);                   \
    }                                                                                              \
    static int name##_with(struct ranks_context *context __attribute__((unused)), type *object)

/* The communicator of all ranks of the run. */
static inline weft_result ranks_comm_create(const struct ranks_context *context,
                                            const weft_comm_config *config, weft_comm **comm)
{
    return weft_comm_create(&context->id, context->rank, context->num_ranks, config, comm);
}

/* Makes it once for each context. When the rank function has passed, it is destroyed with its heap,
 * memory and objects. NULL: there is none, which is printed; the next call with it fails. */
weft_comm *ranks_comm(struct ranks_context *context, const weft_comm_config *config);
/* A stream of that communicator, which is destroyed after it. */
weft_stream *ranks_stream(struct ranks_context *context);
/* Destroys them now. 0 = done. */
int ranks_leave(struct ranks_context *context);

/* For tests of something else than staging: heap memory is committed and cleared, page by page, for
 * each communicator. */
static inline weft_result ranks_coll_create(weft_comm *comm, weft_coll **coll)
{
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    config.packet_bytes = 4 << 10;
    config.staging_bytes = 64 << 10;
    return weft_coll_create(comm, &config, coll);
}

/* Waits until all ranks of the run have called it, or died. Also in a context numbered anew. */
void ranks_barrier(struct ranks_context *context);

/* Before a communicator with a short deadline: ranks on GPUs start CUDA, which takes them seconds
 * that differ, in one with the usual deadline. 0 = done. */
int ranks_warm_up(struct ranks_context *context);

/* Whom the thread works for: checks note there what has failed. */
extern _Thread_local struct ranks_context *ranks_self;

/* The message may be about the failure noted before. */
void ranks_note(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The checks note what failed and leave the rank function with 1. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            ranks_note(__FILE__, __LINE__, #condition, __VA_ARGS__);                               \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        weft_result result_ = (call);                                                              \
        CHECK(result_ == WEFT_OK, "%s gave \"%s\": %s", #call, weft_result_string(result_),        \
              weft_last_error());                                                                  \
    } while (0)

/* The call must give `expected`, with a message that contains `text`. */
#define CHECK_ERROR(call, expected, text)                                                          \
    do {                                                                                           \
        weft_result result_ = (call);                                                              \
        CHECK(result_ == (expected), "%s gave \"%s\": %s", #call, weft_result_string(result_),     \
              weft_last_error());                                                                  \
        CHECK(strstr(weft_last_error(), text) != NULL, "%s: the message lacks \"%s\": %s", #call,  \
              text, weft_last_error());                                                            \
    } while (0)
