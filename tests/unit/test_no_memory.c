/* SPDX-License-Identifier: MIT */
/* A rank that has no memory for its part of a call says so: all ranks get the error at once, with
 * the rank and the reason, and go on. Each allocation of each call in which all ranks take part
 * fails once. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "comm/rendezvous/gather.h"
#include "harness/cmocka.h"
#include "harness/host_calls.h"

enum { NUM_RANKS = 3, VICTIM = 1, MAX_ALLOCATIONS = 1000, NEVER = -1 };

/* ---------------------------------------------------------------- the linker puts these in the
 * way */

/* How many allocations of this thread succeed before one fails. */
static _Thread_local int32_t num_left = NEVER;

static int fails_now(void)
{
    return num_left != NEVER && num_left-- == 0;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
int __real_posix_memalign(void **memory, size_t alignment, size_t bytes);

void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes)
{
    return fails_now() ? NULL : __real_realloc(memory, bytes);
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    return fails_now() ? ENOMEM : __real_posix_memalign(memory, alignment, bytes);
}

/* What is closed twice, or was never opened, may be another thread's meanwhile. */
static _Atomic int32_t num_wrong_closes;

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    const int result = __real_close(fd);
    if (fd <= STDERR_FILENO || result != 0)
        atomic_fetch_add(&num_wrong_closes, 1);
    return result;
}

/* ---------------------------------------------------------------- calls of a communicator */

/* What the ranks tell each other of a call. */
struct report {
    weft_unique_id id; /* of the next communicator */
    weft_result results[NUM_RANKS];
    _Atomic int has_failed;   /* an allocation of the victim */
    _Atomic int32_t num_left; /* of the victim's */
};

static weft_result call_with_failure(struct ranks_context *context, struct host_scene *scene,
                                     const struct host_call *call, int32_t num_allocations)
{
    struct report *report = context->shared;
    if (context->rank == VICTIM)
        num_left = num_allocations;
    const weft_result result = call->call(scene);
    if (context->rank == VICTIM)
        atomic_store(&report->has_failed, num_left == NEVER);
    num_left = NEVER;
    report->results[context->rank] = result;
    ranks_barrier(context);
    return result;
}

/* Whether an allocation failed. Without a weft_coll there is no capture: then the result is the
 * same. */
static int check_call(struct ranks_context *context, struct host_scene *scene,
                      const struct host_call *call, int32_t num_allocations, int *has_failed)
{
    const struct report *report = context->shared;
    if (host_scene_begin(scene))
        return 1;
    const weft_result result = call_with_failure(context, scene, call, num_allocations);
    *has_failed = atomic_load(&report->has_failed);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        CHECK((report->results[rank] == WEFT_OK) == (result == WEFT_OK),
              "%s, allocation %d: %s here, %s on rank %d: %s", call->name, num_allocations,
              weft_result_string(result), weft_result_string(report->results[rank]), rank,
              weft_last_error());
    CHECK(result == WEFT_OK || result == WEFT_ERROR_OUT_OF_MEMORY, "%s, allocation %d: %s: %s",
          call->name, num_allocations, weft_result_string(result), weft_last_error());
    CHECK(result == WEFT_OK || context->rank == VICTIM ||
              strstr(weft_last_error(), "rank 1") != NULL,
          "%s, allocation %d: %s", call->name, num_allocations, weft_last_error());
    CHECK(result == WEFT_OK || strstr(weft_last_error(), "memory") != NULL, "%s, allocation %d: %s",
          call->name, num_allocations, weft_last_error());
    CHECK(atomic_load(&num_wrong_closes) == 0,
          "%s, allocation %d: a descriptor is closed that is not its own", call->name,
          num_allocations);
    if (result == WEFT_OK && call->undo != NULL)
        call->undo(scene);
    CHECK_OK(weft_comm_status(scene->comm, NULL));
    ranks_barrier(context);
    return host_scene_end(scene);
}

static int fail_each_allocation(struct ranks_context *context)
{
    const weft_comm_config config = *(const weft_comm_config *)context->argument;
    struct host_scene scene = {.comm = NULL};
    weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
    ep_config.num_experts = 8;
    CHECK_OK(ranks_comm_create(context, &config, &scene.comm));
    if (config.num_nodes == 0) {
        CHECK_OK(weft_coll_create(scene.comm, NULL, &scene.coll));
        CHECK_OK(weft_ep_create(scene.comm, &ep_config, &scene.ep));
    }
    for (int i = 0; i < NUM_HOST_CALLS; i++) {
        int has_failed = host_calls[i].where == HOST_CALL_ANYWHERE || scene.coll != NULL;
        for (int32_t n = 0; has_failed && n < MAX_ALLOCATIONS; n++)
            if (check_call(context, &scene, &host_calls[i], n, &has_failed))
                return 1;
        CHECK(!has_failed, "%s", host_calls[i].name);
    }
    if (scene.coll != NULL) {
        CHECK_OK(weft_ep_destroy(scene.ep));
        CHECK_OK(weft_coll_destroy(scene.coll));
    }
    CHECK_OK(weft_comm_destroy(scene.comm));
    return 0;
}

static void run(uint32_t timeout_ms, int32_t num_nodes, rank_function function)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.timeout_ms = timeout_ms;
    config.num_nodes = num_nodes;
    const struct ranks_options options = {.mode = RANKS_THREADS,
                                          .num_ranks = NUM_RANKS,
                                          RANKS_ARGUMENT(&config),
                                          .shared_bytes = sizeof(struct report)};
    assert_int_equal(ranks_run_with(&options, function), 0);
}

TEST(ranks_without_memory_tell_all)
{
    run(60000, 0, fail_each_allocation);
    run(60000, NUM_RANKS, fail_each_allocation);
}

/* ---------------------------------------------------------------- creation */

/* report->num_left: of the victim's `num_allocations`, NEVER if one more has failed. */
static int create_and_destroy(struct ranks_context *context, int32_t num_allocations,
                              weft_result *result)
{
    struct report *report = context->shared;
    weft_comm *comm;
    ranks_barrier(context);
    if (context->rank == 0)
        CHECK_OK(weft_unique_id_create(&report->id));
    ranks_barrier(context);
    if (context->rank == VICTIM)
        num_left = num_allocations;
    *result =
        weft_comm_create(&report->id, context->rank, context->num_ranks, context->argument, &comm);
    if (context->rank == VICTIM)
        atomic_store(&report->num_left, num_left);
    num_left = NEVER;
    report->results[context->rank] = *result;
    if (*result == WEFT_OK)
        CHECK_OK(weft_comm_destroy(comm));
    CHECK(*result == WEFT_OK || context->rank == VICTIM ||
              strstr(weft_last_error(), "rank 1") != NULL,
          "allocation %d: %s", num_allocations, weft_last_error());
    CHECK(*result == WEFT_OK || *result == WEFT_ERROR_OUT_OF_MEMORY ||
              (*result == WEFT_ERROR_TIMEOUT && context->rank != VICTIM),
          "allocation %d: %s: %s", num_allocations, weft_result_string(*result), weft_last_error());
    ranks_barrier(context);
    return 0;
}

/* Before it is connected a rank cannot tell anything: the others say at their deadline that it did
 * not come. */
static int fail_to_create(struct ranks_context *context)
{
    const struct report *report = context->shared;
    for (int32_t n = 0;; n++) {
        weft_result result;
        if (create_and_destroy(context, n, &result) != 0)
            return 1;
        if (atomic_load(&report->num_left) != NEVER)
            return 0;
    }
}

TEST_CALL(ranks_without_memory_to_begin_with, run(300, 0, fail_to_create))

/* From the last allocation down to the one by which a rank is connected: the others are told, and
 * do not wait. */
static int fail_when_connected(struct ranks_context *context)
{
    enum { PLENTY = 1 << 20 };
    const struct report *report = context->shared;
    weft_result result;
    if (create_and_destroy(context, PLENTY, &result) != 0)
        return 1;
    CHECK_OK(result);
    for (int32_t n = PLENTY - atomic_load(&report->num_left) - 1;
         n >= 0 && report->results[0] != WEFT_ERROR_TIMEOUT; n--) {
        if (create_and_destroy(context, n, &result) != 0)
            return 1;
        CHECK(result != WEFT_ERROR_TIMEOUT || strstr(weft_last_error(), "did not come to ") == NULL,
              "allocation %d: %s", n, weft_last_error());
    }
    return 0;
}

TEST_CALL(ranks_without_memory_for_a_network, run(2000, NUM_RANKS, fail_when_connected))

/* ---------------------------------------------------------------- the rendezvous */

TEST(the_rendezvous_says_that_it_has_none)
{
    struct weft__gather gather = {.num_in = 0};
    struct weft__contribution contribution = {
        .num_ranks = 2, .header = {.sequence = 1, .blob_bytes = 4}, .blob = (const void *)"1234"};
    num_left = 0;
    weft__gather_add(&gather, &contribution);
    assert_int_equal(num_left, NEVER);
    contribution.rank = 1;
    weft__gather_add(&gather, &contribution);
    struct weft__message *message = weft__gather_result(&gather);
    assert_non_null(message);
    struct weft__gather_header header;
    memcpy(&header, message->body, sizeof header);
    assert_int_equal(header.result, WEFT_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr((const char *)message->body + sizeof header, "the rendezvous"));
    weft__message_release(message);
    weft__gather_drop(&gather);
}
