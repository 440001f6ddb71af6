/* SPDX-License-Identifier: MIT */
/* What is said when ranks do not fit together, do not come, leave or abort. */
#include <pthread.h>
#include <string.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum { MAX_RANKS = 9 };
#define run_host(num_ranks, function) assert_int_equal(ranks_run_host(num_ranks, function), 0)

static weft_comm_config config_of(uint32_t timeout_ms, int32_t num_nodes)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    config.timeout_ms = timeout_ms;
    config.num_nodes = num_nodes;
    return config;
}

/* ---------------------------------------------------------------- disagreement */

static int disagree_on_num_ranks(struct ranks_context *context)
{
    weft_comm *comm;
    int32_t num_ranks = context->num_ranks + (context->rank == 1);
    CHECK_ERROR(weft_comm_create(&context->id, context->rank, num_ranks, NULL, &comm),
                WEFT_ERROR_MISMATCH, "num_ranks is");
    CHECK(strstr(weft_last_error(), "rank 1") != NULL, "%s", weft_last_error());
    return 0;
}

static int disagree_on_num_nodes(struct ranks_context *context)
{
    weft_comm *comm;
    weft_comm_config config = config_of(0, context->rank == 2 ? 2 : 4);
    CHECK_ERROR(ranks_comm_create(context, &config, &comm), WEFT_ERROR_MISMATCH, "num_nodes is");
    CHECK(strstr(weft_last_error(), "rank 2") != NULL, "%s", weft_last_error());
    return 0;
}

static int claim_the_same_rank(struct ranks_context *context)
{
    weft_comm *comm;
    int32_t rank = context->rank < 2 ? 0 : context->rank;
    int pids[2] = {0, 0};
    CHECK_ERROR(weft_comm_create(&context->id, rank, context->num_ranks, NULL, &comm),
                WEFT_ERROR_MISMATCH, "rank 0");
    const char *processes = strstr(weft_last_error(), "two processes");
    CHECK(processes == NULL
              ? strstr(weft_last_error(), "two threads of process") != NULL
              : sscanf(processes, "two processes say that they are rank 0: pid %d and pid %d",
                       &pids[0], &pids[1]) == 2 &&
                    pids[0] != pids[1],
          "%s", weft_last_error());
    return 0;
}

TEST(ranks_that_disagree_are_told_so)
{
    run_host(4, disagree_on_num_ranks);
    run_host(4, disagree_on_num_nodes);
    run_host(4, claim_the_same_rank);
}

TEST_ON_HOST(gathers_of_different_sizes, 4)
{
    char send[16] = "", recv[16 * MAX_RANKS];
    weft_comm *const comm = ranks_comm(context, NULL);
    CHECK_ERROR(weft_comm_host_all_gather(comm, send, context->rank == 2 ? 12 : 16, recv),
                WEFT_ERROR_MISMATCH, "rank 2");
    /* That was a mistake, not a failure of the communicator. */
    CHECK_OK(weft_comm_status(comm, NULL));
    CHECK_OK(weft_comm_host_all_gather(comm, send, 16, recv));
    return 0;
}

/* ---------------------------------------------------------------- absence */

static int miss_ranks(struct ranks_context *context)
{
    weft_comm *comm;
    weft_comm_config config = config_of(tests_deadline_ms(300), 0);
    char message[64];
    snprintf(message, sizeof message, "ranks 1, 4 of 5 did not come within %u ms",
             config.timeout_ms);
    if (context->rank == 1 || context->rank == 4)
        return 0;
    CHECK_ERROR(ranks_comm_create(context, &config, &comm), WEFT_ERROR_TIMEOUT, message);
    return 0;
}

static int miss_the_rendezvous(struct ranks_context *context)
{
    weft_comm *comm;
    weft_comm_config config = config_of(tests_deadline_ms(200), 0);
    context->id.bytes[12] ^= 1; /* a bit of the secret */
    CHECK_ERROR(weft_comm_create(&context->id, 0, 2, &config, &comm), WEFT_ERROR_TIMEOUT,
                "unique id");
    return 0;
}

/* Rank 1 has another secret, and more time than rank 0, with which the rendezvous ends. */
static int mistake_the_secret(struct ranks_context *context)
{
    weft_comm *comm;
    weft_comm_config config = config_of(tests_deadline_ms(500) * (context->rank == 1 ? 4 : 1), 0);
    if (context->rank == 1)
        context->id.bytes[12] ^= 1;
    CHECK_ERROR(ranks_comm_create(context, &config, &comm), WEFT_ERROR_TIMEOUT,
                "another unique id or WEFT_SECRET");
    CHECK(strstr(weft_last_error(), "rank 1") != NULL, "%s", weft_last_error());
    return 0;
}

TEST(a_wrong_secret_is_called_that)
{
    const struct ranks_options options = {
        .mode = RANKS_PROCESSES, .id = RANKS_ID_BY_RANK_0, .num_ranks = 3};
    assert_int_equal(ranks_run_with(&options, mistake_the_secret), 0);
}

/* Rank 1 stays away from the second all-gather until the others have given up. */
static int miss_a_gather(struct ranks_context *context)
{
    int32_t failed_rank = -1;
    char byte = 0, all[MAX_RANKS];
    weft_comm_config config = config_of(tests_deadline_ms(300), 0);
    if (ranks_warm_up(context))
        return 1;
    weft_comm *const comm = ranks_comm(context, &config);
    CHECK_OK(weft_comm_host_barrier(comm));
    if (context->rank == 1)
        ranks_barrier(context);
    CHECK_ERROR(weft_comm_host_all_gather(comm, &byte, 1, all), WEFT_ERROR_TIMEOUT,
                "rank 1 of 3 did not come");
    CHECK_ERROR(weft_comm_status(comm, &failed_rank), WEFT_ERROR_TIMEOUT, "rank 1");
    CHECK(failed_rank == 1, "failed_rank is %d", failed_rank);
    if (context->rank != 1)
        ranks_barrier(context);
    return 0;
}

TEST(missing_ranks_are_named)
{
    run_host(5, miss_ranks);
    run_host(1, miss_the_rendezvous);
    run_host(3, miss_a_gather);
}

TEST_ON_HOST(a_rank_that_left_is_named_when_needed, 4)
{
    weft_comm *comm;
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    CHECK_OK(weft_comm_host_barrier(comm));
    if (context->rank == 2) {
        CHECK_OK(weft_comm_destroy(comm));
        ranks_barrier(context);
        return 0;
    }
    ranks_barrier(context);
    /* That it left is no failure as long as nobody needs it. */
    CHECK_OK(weft_comm_status(comm, NULL));
    ranks_barrier(context);
    CHECK_ERROR(weft_comm_host_barrier(comm), WEFT_ERROR_RANK_FAILED,
                "has left the communicator by weft_comm_destroy");
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

/* Rank 0, whose process serves the rendezvous, leaves and ends. */
static int outlive_the_rendezvous(struct ranks_context *context)
{
    weft_comm *comm;
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    CHECK_OK(weft_comm_host_barrier(comm));
    if (context->rank == 0) {
        CHECK_OK(weft_comm_destroy(comm));
        return 0;
    }
    ranks_barrier(context); /* passes when rank 0 has ended its part */
    CHECK_OK(weft_comm_status(comm, NULL));
    ranks_barrier(context);
    CHECK_ERROR(weft_comm_host_barrier(comm), WEFT_ERROR_RANK_FAILED,
                "has left the communicator by weft_comm_destroy");
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

TEST(the_rank_of_the_rendezvous_may_leave)
{
    const struct ranks_options options = {
        .mode = RANKS_PROCESSES, .id = RANKS_ID_BY_RANK_0, .num_ranks = 4};
    assert_int_equal(ranks_run_with(&options, outlive_the_rendezvous), 0);
}

/* ---------------------------------------------------------------- abort and arguments */

static void *abort_it(void *comm)
{
    weft_comm_abort(comm);
    return NULL;
}

TEST_ON_HOST(an_abort_ends_all_waits, 1 + 3)
{
    pthread_t thread;
    int32_t failed_rank = -1;
    weft_comm *const comm = ranks_comm(context, NULL);
    CHECK_OK(weft_comm_host_barrier(comm));
    /* Rank 1 never comes to the barrier: only the abort, from another thread, ends it. */
    if (context->rank == 1) {
        pthread_create(&thread, NULL, abort_it, comm);
        pthread_join(thread, NULL);
    }
    CHECK_ERROR(weft_comm_host_barrier(comm), WEFT_ERROR_ABORTED, "rank 1");
    CHECK_ERROR(weft_comm_status(comm, &failed_rank), WEFT_ERROR_ABORTED, "rank 1");
    return 0;
}

TEST(bad_arguments_are_named)
{
    weft_comm *comm = NULL;
    weft_unique_id id = {{0}};
    weft_comm_config config = config_of(0, 0);
    assert_int_equal(weft_comm_create(&id, 0, 1, NULL, &comm), WEFT_ERROR_INVALID_ARGUMENT);
    assert_error(weft_comm_create(&id, 3, 3, NULL, &comm), WEFT_ERROR_INVALID_ARGUMENT,
                 "rank is 3");
    assert_error(weft_comm_create(&id, 0, 0, NULL, &comm), WEFT_ERROR_INVALID_ARGUMENT,
                 "num_ranks is 0");
    config.num_nodes = -1;
    assert_error(weft_comm_create_from_env(&config, &comm), WEFT_ERROR_INVALID_ARGUMENT,
                 "num_nodes is -1");
    config = config_of(0, 0);
    config.num_streams = 65;
    assert_error(weft_comm_create_from_env(&config, &comm), WEFT_ERROR_INVALID_ARGUMENT,
                 "num_streams is 65");
    config = config_of(0, 2);
    assert_int_equal(weft_comm_create_from_env(&config, &comm), WEFT_ERROR_INVALID_ARGUMENT);
    config = config_of(0, 0);
    config.heap_bytes = 2;
    config.heap_max_bytes = 1;
    assert_int_equal(weft_comm_create_from_env(&config, &comm), WEFT_ERROR_INVALID_ARGUMENT);
    config.size = 4;
    assert_int_equal(weft_comm_create_from_env(&config, &comm), WEFT_ERROR_INVALID_ARGUMENT);
    assert_null(comm);
    assert_int_equal(weft_unique_id_create(NULL), WEFT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(weft_version(), 200);
    for (int result = WEFT_ERROR_CAPACITY; result <= WEFT_OK; result++)
        assert_string_not_equal(weft_result_string((weft_result)result), "unknown result");
    assert_string_equal(weft_result_string((weft_result)-77), "unknown result");
}
