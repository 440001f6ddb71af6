/* SPDX-License-Identifier: MIT */
/* A rank dies while communicators are made: before, and after, each of the exchanges that this takes. All others hear
 * of it by its number, also where the network between nodes notices it first. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "harness/cmocka.h"
#include "harness/memory.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 4, VICTIM = 2, NEVER = -1 };

/* ---------------------------------------------------------------- the linker puts this in the way */

static int32_t num_left = NEVER; /* exchanges of this process, before it dies */
static enum { BEFORE_IT, AFTER_IT } moment;

weft_result __real_weft__comm_exchange(weft_comm *comm, struct weft__share *share);
weft_result __wrap_weft__comm_exchange(weft_comm *comm, struct weft__share *share);
weft_result __wrap_weft__comm_exchange(weft_comm *comm, struct weft__share *share)
{
    const int dies = num_left != NEVER && num_left-- == 0;
    if (dies && moment == BEFORE_IT)
        kill(getpid(), SIGKILL);
    const weft_result result = __real_weft__comm_exchange(comm, share);
    if (dies)
        kill(getpid(), SIGKILL);
    return result;
}

/* ---------------------------------------------------------------- creation and splits */

struct plan {
    int32_t num_exchanges; /* of the victim, before it dies */
    int32_t moment;
    int32_t num_nodes;
    enum { CREATION, SPLIT } when;
    int *has_survived; /* shared: the exchanges were fewer */
};

static void arm(const struct ranks_context *context, const struct plan *plan)
{
    if (context->rank != VICTIM)
        return;
    moment = plan->moment ? AFTER_IT : BEFORE_IT;
    num_left = plan->num_exchanges;
}

static int make(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    weft_comm *comm = NULL, *child = NULL;
    config.num_nodes = plan->num_nodes;
    if (plan->when == CREATION)
        arm(context, plan);
    weft_result result = ranks_comm_create(context, &config, &comm);
    if (plan->when == SPLIT) {
        CHECK_OK(result);
        arm(context, plan);
        /* Ranks have other numbers in it. */
        result = weft_comm_split(comm, 0, -context->rank, NULL, &child);
    }
    if (context->rank == VICTIM) {
        *plan->has_survived = num_left >= 0;
        num_left = NEVER;
    }
    /* Whoever was done before it died hears of it in the next call. */
    if (result == WEFT_OK)
        result = weft_host_barrier(child != NULL ? child : comm);
    CHECK(result == WEFT_OK ||
              (result == WEFT_ERROR_RANK_FAILED && strstr(weft_last_error(), "rank -1") == NULL &&
               (strstr(weft_last_error(), "rank 2") != NULL ||
                (child != NULL && strstr(weft_last_error(), "rank 1")))),
          "%d exchanges, %s: %s: %s", plan->num_exchanges, plan->moment ? "after" : "before",
          weft_result_string(result), weft_last_error());
    if (child != NULL)
        CHECK_OK(weft_comm_destroy(child));
    if (comm != NULL)
        CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

static void die_everywhere(struct plan plan)
{
    const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                          .num_ranks = NUM_RANKS,
                                          RANKS_ARGUMENT(&plan),
                                          .may_die = 1 << VICTIM};
    plan.has_survived = memory_alloc_common(sizeof(int));
    for (plan.moment = BEFORE_IT; plan.moment <= AFTER_IT; plan.moment++) {
        plan.num_exchanges = 0;
        for (*plan.has_survived = 0; !*plan.has_survived; plan.num_exchanges++)
            assert_int_equal(ranks_run_with(&options, make), 0);
        assert_in_range(plan.num_exchanges, 10, 100);
    }
    memory_free_common(plan.has_survived);
}

TEST(in_the_creation_on_one_node)
{
    die_everywhere((struct plan){.num_nodes = 1});
}

TEST(in_the_creation_between_nodes)
{
    die_everywhere((struct plan){.num_nodes = NUM_RANKS});
}

TEST(in_a_split_between_nodes)
{
    die_everywhere((struct plan){.num_nodes = NUM_RANKS, .when = SPLIT});
}
