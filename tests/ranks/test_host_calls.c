/* SPDX-License-Identifier: MIT */
/* Calls in which the hosts of all ranks take part, and that do not fit together: every pair of
 * them. The same call with other arguments is in the test of each. */
#include <string.h>

#include "harness/cmocka.h"
#include "harness/host_calls.h"
#include "harness/machine.h"

enum { NUM_RANKS = 3 };

static int open_scene(struct ranks_context *context, struct host_scene *scene)
{
    memset(scene, 0, sizeof *scene);
    scene->comm = ranks_comm(context, NULL);
    CHECK_OK(weft_coll_create(scene->comm, WEFT_ARGS(weft_coll_config, .staging_bytes = 4096),
                              &scene->coll));
    CHECK_OK(weft_ep_create(scene->comm, WEFT_ARGS(weft_ep_config, .num_experts = 8), &scene->ep));
    return 0;
}

/* Nothing is made, and the communicator can be used as before. */
static int make_pair(struct host_scene *scene, const struct host_call *mine,
                     const struct host_call *theirs)
{
    if (host_scene_begin(scene))
        return 1;
    CHECK_ERROR(mine->call(scene), WEFT_ERROR_MISMATCH, mine->name);
    CHECK(strstr(weft_last_error(), theirs->name) != NULL, "%s lacks %s", weft_last_error(),
          theirs->name);
    CHECK_OK(weft_comm_status(scene->comm, NULL));
    return host_scene_end(scene);
}

static int make_alone(struct host_scene *scene, const struct host_call *call)
{
    if (host_scene_begin(scene))
        return 1;
    CHECK_OK(call->call(scene));
    if (call->undo != NULL)
        call->undo(scene);
    return host_scene_end(scene);
}

static int make_all_pairs(struct ranks_context *context)
{
    struct host_scene scene;
    if (open_scene(context, &scene))
        return 1;
    for (int odd = 0; odd < NUM_HOST_CALLS; odd++) {
        for (int even = 0; even < NUM_HOST_CALLS; even++) {
            const int is_odd = context->rank == (odd + even) % context->num_ranks;
            if (odd != even && make_pair(&scene, &host_calls[is_odd ? odd : even],
                                         &host_calls[is_odd ? even : odd]))
                return 1;
        }
        if (make_alone(&scene, &host_calls[odd]))
            return 1;
    }
    return 0;
}

TEST(every_pair_of_different_calls)
{
    assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, make_all_pairs, NULL), 0);
    if (tests_rounds(2, 1) == 2)
        assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, make_all_pairs, NULL), 0);
}
