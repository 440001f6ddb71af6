/* SPDX-License-Identifier: MIT */
/* One-sided operations that cannot be done: wrong arguments, words that nobody adds to, ranks that
 * have left. And communicators of every n-th rank, on which they work as on others. */

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum { AREA_BYTES = 4096 };

struct shape {
    int32_t num_ranks, num_nodes;
    uint32_t timeout_ms;
};

struct actor {
    weft_comm *comm;
    weft_stream *stream;
    char *area; /* in the heap */
};

static int open_actor(struct ranks_context *context, struct actor *actor)
{
    const struct shape *shape = context->argument;
    static const char zeroes[AREA_BYTES];
    void *area;
    if (shape->timeout_ms > 0 && ranks_warm_up(context))
        return 1;
    actor->comm = ranks_comm(context, WEFT_ARGS(weft_comm_config, .num_nodes = shape->num_nodes,
                                                .timeout_ms = shape->timeout_ms));
    actor->stream = ranks_stream(context);
    CHECK_OK(weft_heap_alloc(actor->comm, AREA_BYTES, &area));
    CHECK_OK(weft_memory_copy(actor->comm, area, zeroes, AREA_BYTES));
    CHECK_OK(weft_comm_host_barrier(actor->comm));
    actor->area = area;
    return 0;
}

static uint64_t *word_of(const struct actor *actor, size_t offset)
{
    return (uint64_t *)(void *)(actor->area + offset);
}

/* ---------------------------------------------------------------- arguments */

static int call_wrongly(struct ranks_context *context)
{
    struct actor actor;
    char outside[64];
    if (open_actor(context, &actor) != 0)
        return 1;
    char *const area = actor.area;
    uint64_t *word = word_of(&actor, 0), *crooked = word_of(&actor, 4);
    const struct {
        weft_result (*call)(weft_comm *, const weft_rma_args *, weft_stream *);
        weft_rma_args args;
        const char *text;
    } wrong[] = {
        {weft_rma_put,
         {.dst = area, .src = area, .bytes = 8, .rank = 4},
         "rank is 4, allowed are 0..3"},
        {weft_rma_signal, {.word = word, .value = 1, .rank = -1}, "rank is -1"},
        {weft_rma_put, {.dst = outside, .src = area, .bytes = 8}, "dst is "},
        {weft_rma_put, {.dst = area, .src = outside, .bytes = 8}, "src is "},
        {weft_rma_get,
         {.dst = area, .src = area + 8, .bytes = AREA_BYTES},
         "must lie in one allocation of the communicator's heap"},
        {weft_rma_put_signal,
         {.dst = area, .src = area + 8, .bytes = 8, .word = crooked, .value = 1},
         "must be aligned to 8 bytes"},
        {weft_rma_add, {.word = NULL, .value = 1}, "word is NULL"},
        {weft_rma_fetch_add, {.before = crooked, .word = word, .value = 1}, "before is "},
        {weft_rma_wait_until, {.word = crooked}, "word is "},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weft_rma_args args = wrong[i].args;
        args.size = sizeof args;
        CHECK_ERROR(wrong[i].call(actor.comm, &args, actor.stream), WEFT_ERROR_INVALID_ARGUMENT,
                    wrong[i].text);
    }
    CHECK_OK(weft_rma_put(actor.comm, WEFT_ARGS(weft_rma_args, .bytes = 0), actor.stream));
    CHECK_OK(weft_stream_synchronize(actor.stream));
    CHECK_OK(weft_comm_host_barrier(actor.comm));
    return 0;
}

/* ---------------------------------------------------------------- waits */

static int wait_in_vain(struct ranks_context *context)
{
    const struct shape *shape = context->argument;
    struct actor actor;
    int32_t failed_rank = 0;
    char text[128];
    snprintf(text, sizeof text, "which any rank may change, to be 5 or more; within %u ms it was 4",
             (unsigned)shape->timeout_ms);
    if (open_actor(context, &actor) != 0)
        return 1;
    if (context->rank != 0) { /* rank 0 tells of its failure */
        ranks_barrier(context);
        return 0;
    }
    CHECK_OK(weft_rma_signal(
        actor.comm, WEFT_ARGS(weft_rma_args, .word = word_of(&actor, 8), .value = 4, .rank = 0),
        actor.stream));
    CHECK_OK(weft_rma_wait_until(actor.comm,
                                 WEFT_ARGS(weft_rma_args, .word = word_of(&actor, 8), .value = 5),
                                 actor.stream));
    CHECK_ERROR(weft_stream_synchronize(actor.stream), WEFT_ERROR_TIMEOUT, text);
    char word[128]; /* as the user knows it */
    snprintf(word, sizeof word, "weft_rma_wait_until: rank 0 waited for the word at %p",
             (void *)word_of(&actor, 8));
    CHECK(strncmp(weft_last_error(), word, strlen(word)) == 0, "%s", weft_last_error());
    CHECK(weft_comm_status(actor.comm, &failed_rank) == WEFT_ERROR_TIMEOUT && failed_rank == -1,
          "rank %d is blamed: %s", failed_rank, weft_last_error());
    ranks_barrier(context);
    return 0;
}

/* ---------------------------------------------------------------- ranks that leave */

/* Quiet holds for what they have taken; anything new is refused. */
static int leave_early(struct ranks_context *context)
{
    struct actor actor;
    weft_result result = WEFT_OK;
    if (open_actor(context, &actor) != 0)
        return 1;
    if (context->rank == 3) {
        const int failed = ranks_leave(context);
        ranks_barrier(context);
        return failed;
    }
    CHECK_OK(weft_rma_quiet(actor.comm, actor.stream));
    CHECK_OK(weft_stream_synchronize(actor.stream));
    ranks_barrier(context);
    for (int i = 0; i < 1000000 && result == WEFT_OK; i++) {
        result = weft_rma_fetch_add(actor.comm,
                                    WEFT_ARGS(weft_rma_args, .before = word_of(&actor, 0),
                                              .word = word_of(&actor, 8), .value = 1, .rank = 3),
                                    actor.stream);
        if (result == WEFT_OK)
            result = weft_stream_synchronize(actor.stream);
    }
    CHECK(result == WEFT_ERROR_RANK_FAILED, "result is %d", result);
    CHECK(strstr(weft_last_error(), "rank 3 has left") != NULL, "%s", weft_last_error());
    return 0;
}

/* ---------------------------------------------------------------- splits */

static int split_by_stride(struct ranks_context *context)
{
    struct actor actor;
    weft_comm *team;
    if (open_actor(context, &actor) != 0)
        return 1;
    CHECK_ERROR(weft_comm_split_strided(actor.comm, 4, 1, 1, NULL, &team),
                WEFT_ERROR_INVALID_ARGUMENT, "first is 4, allowed are 0..3");
    CHECK_ERROR(weft_comm_split_strided(actor.comm, 1, 0, 1, NULL, &team),
                WEFT_ERROR_INVALID_ARGUMENT, "stride is 0");
    CHECK_ERROR(weft_comm_split_strided(actor.comm, 1, 2, 3, NULL, &team),
                WEFT_ERROR_INVALID_ARGUMENT, "num_ranks is 3, allowed are 1..2");
    CHECK_ERROR(weft_comm_split_strided(actor.comm, 0, context->rank == 2 ? 2 : 1, 2, NULL, &team),
                WEFT_ERROR_MISMATCH, "stride: 1 on rank 0 and 2 on rank 2");
    CHECK(weft_comm_parent_rank(actor.comm, 0) == -1, "it was split from nothing");
    CHECK_OK(weft_comm_split_strided(actor.comm, 1, 2, 2, NULL, &team));
    CHECK((team != NULL) == (context->rank % 2 == 1), "wrong members");
    if (team != NULL) {
        CHECK(weft_comm_num_ranks(team) == 2 && weft_comm_rank(team) == context->rank / 2,
              "rank %d of %d", weft_comm_rank(team), weft_comm_num_ranks(team));
        CHECK(weft_comm_parent_rank(team, 0) == 1 && weft_comm_parent_rank(team, 1) == 3 &&
                  weft_comm_parent_rank(team, 2) == -1 && weft_comm_parent_rank(team, -1) == -1,
              "parent's ranks are wrong");
        CHECK_OK(weft_comm_destroy(team));
    }
    CHECK_OK(weft_comm_host_barrier(actor.comm));
    return 0;
}

/* ---------------------------------------------------------------- tests */

static void run_on_nodes(rank_function function, uint32_t timeout_ms)
{
    for (int32_t num_nodes = 1; num_nodes <= 2; num_nodes++) {
        struct shape shape = {.num_ranks = 4, .num_nodes = num_nodes, .timeout_ms = timeout_ms};
        if (num_nodes > 1 && !tests_network_is_there("auto"))
            continue;
        assert_int_equal(ranks_run(RANKS_PROCESSES, shape.num_ranks, function, &shape), 0);
    }
}

TEST_CALL(wrong_arguments_are_named, run_on_nodes(call_wrongly, 0))

TEST(a_wait_in_vain_names_the_word_and_no_rank)
{
    /* Ranks that share a GPU take turns there, also while they meet. */
    run_on_nodes(wait_in_vain, tests_deadline_ms((uint32_t)tests_rounds(300, 2000)));
}

TEST_CALL(a_rank_that_has_left_is_named, run_on_nodes(leave_early, 0))
TEST_CALL(every_second_rank_is_a_communicator, run_on_nodes(split_by_stride, 0))
