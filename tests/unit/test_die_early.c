/* SPDX-License-Identifier: MIT */
/* A rank dies while communicators are made, or a weft_ll with masks: before, in and after each of
 * the exchanges that this takes. All others hear of it by its number, also where the network
 * between nodes notices it first, and where some of them are behind the others. */
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"
#include "harness/cmocka.h"
#include "harness/memory.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 4, VICTIM = 2, LATE_RANK = 0, NEVER = -1 };

/* ---------------------------------------------------------------- the linker puts this in the
 * way */

static int32_t num_left = NEVER; /* exchanges of this process, before it dies */
static enum moment { BEFORE_IT, AFTER_IT, IN_IT, NUM_MOMENTS } moment;
static int is_late;

/* This process ends when it has told its part, and the late rank has not. */
static void die_soon(void)
{
    const struct itimerval soon = {.it_value = {.tv_usec = 5000}};
    setitimer(ITIMER_REAL, &soon, NULL);
}

weft_result __real_weft__comm_exchange(weft_comm *comm, struct weft__share *share);
weft_result __wrap_weft__comm_exchange(weft_comm *comm, struct weft__share *share);
weft_result __wrap_weft__comm_exchange(weft_comm *comm, struct weft__share *share)
{
    const int dies = num_left != NEVER && num_left-- == 0;
    if (dies && moment == BEFORE_IT)
        kill(getpid(), SIGKILL);
    if (dies && moment == IN_IT)
        die_soon();
    const weft_result result = __real_weft__comm_exchange(comm, share);
    if (dies)
        kill(getpid(), SIGKILL);
    if (is_late)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return result;
}

/* ---------------------------------------------------------------- creation and splits */

struct plan {
    int32_t num_exchanges; /* of the victim, before it dies */
    int32_t moment;
    int32_t num_nodes;
    enum { CREATION, SPLIT, LL_CREATION } when;
    int *has_survived; /* shared: the exchanges were fewer */
};

static void arm(const struct ranks_context *context, const struct plan *plan)
{
    is_late = context->rank == LATE_RANK && plan->moment == IN_IT;
    if (context->rank != VICTIM)
        return;
    moment = (enum moment)plan->moment;
    num_left = plan->num_exchanges;
}

static weft_result make_ll(struct ranks_context *context, const struct plan *plan, weft_comm *comm)
{
    weft_ep *ep;
    weft_ll *ll;
    const weft_result result =
        weft_ep_create(comm, WEFT_ARGS(weft_ep_config, .num_experts = NUM_RANKS), &ep);
    arm(context, plan);
    return result == WEFT_OK
               ? weft_ll_create(ep,
                                WEFT_ARGS(weft_ll_config, .hidden = 16, .max_tokens = 1,
                                          .num_topk = 1, .dtype = WEFT_BF16,
                                          .on_missing = WEFT_LL_MASK),
                                &ll)
               : result;
}

static int make(struct ranks_context *context)
{
    static const char *const moments[] = {"before", "after", "in"};
    const struct plan *plan = context->argument;
    weft_comm *comm = NULL, *child = NULL;
    if (plan->when == CREATION)
        arm(context, plan);
    weft_result result = ranks_comm_create(
        context, WEFT_ARGS(weft_comm_config, .num_nodes = plan->num_nodes), &comm);
    if (plan->when == SPLIT) {
        CHECK_OK(result);
        arm(context, plan);
        /* Ranks have other numbers in it. */
        result = weft_comm_split(comm, 0, -context->rank, NULL, &child);
    }
    if (plan->when == LL_CREATION) {
        CHECK_OK(result);
        result = make_ll(context, plan, comm);
    }
    is_late = 0;
    if (context->rank == VICTIM) {
        *plan->has_survived = num_left >= 0;
        num_left = NEVER;
    }
    /* Whoever was done before it died hears of it in the next call. */
    if (result == WEFT_OK)
        result = weft_comm_host_barrier(child != NULL ? child : comm);
    CHECK(result == WEFT_OK ||
              (result == WEFT_ERROR_RANK_FAILED && strstr(weft_last_error(), "rank -1") == NULL &&
               (strstr(weft_last_error(), "rank 2") != NULL ||
                (child != NULL && strstr(weft_last_error(), "rank 1")))),
          "%s exchange %d: %s: %s", moments[plan->moment], plan->num_exchanges,
          weft_result_string(result), weft_last_error());
    if (child != NULL)
        CHECK_OK(weft_comm_destroy(child));
    if (comm != NULL)
        CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

static void die_everywhere(struct plan plan)
{
    const int num_moments = plan.when == LL_CREATION ? NUM_MOMENTS : IN_IT;
    const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                          .num_ranks = NUM_RANKS,
                                          RANKS_ARGUMENT(&plan),
                                          .may_die = 1 << VICTIM};
    plan.has_survived = memory_alloc_common(sizeof(int));
    for (plan.moment = BEFORE_IT; plan.moment < num_moments; plan.moment++) {
        plan.num_exchanges = 0;
        for (*plan.has_survived = 0; !*plan.has_survived; plan.num_exchanges++)
            assert_int_equal(ranks_run_with(&options, make), 0);
        assert_in_range(plan.num_exchanges, 5, 100);
    }
    memory_free_common(plan.has_survived);
}

TEST_CALL(in_the_creation_on_one_node, die_everywhere((struct plan){.num_nodes = 1}))
TEST_CALL(in_the_creation_between_nodes, die_everywhere((struct plan){.num_nodes = NUM_RANKS}))
TEST_CALL(in_a_split_between_nodes,
          die_everywhere((struct plan){.num_nodes = NUM_RANKS, .when = SPLIT}))
TEST_CALL(in_the_creation_of_masks_on_one_node,
          die_everywhere((struct plan){.num_nodes = 1, .when = LL_CREATION}))
TEST_CALL(in_the_creation_of_masks_between_nodes,
          die_everywhere((struct plan){.num_nodes = NUM_RANKS / 2, .when = LL_CREATION}))
