/* SPDX-License-Identifier: MIT */
/* Calls in which the hosts of all ranks take part, and that do not fit together: every pair of
 * them, and the same ones with other arguments. */
#include <string.h>

#include "harness/cmocka.h"
#include "harness/host_calls.h"
#include "harness/machine.h"

enum { NUM_RANKS = 3 };

static int open_scene(struct ranks_context *context, struct host_scene *scene)
{
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
    memset(scene, 0, sizeof *scene);
    ep_config.num_experts = 8;
    config.staging_bytes = 4096;
    CHECK_OK(ranks_comm_create(context, NULL, &scene->comm));
    CHECK_OK(weft_coll_create(scene->comm, &config, &scene->coll));
    CHECK_OK(weft_ep_create(scene->comm, &ep_config, &scene->ep));
    return 0;
}

static int close_scene(struct host_scene *scene)
{
    CHECK_OK(weft_ep_destroy(scene->ep));
    CHECK_OK(weft_coll_destroy(scene->coll));
    CHECK_OK(weft_comm_destroy(scene->comm));
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
    return close_scene(&scene);
}

TEST(every_pair_of_different_calls)
{
    assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, make_all_pairs, NULL), 0);
    if (tests_rounds(2, 1) == 2)
        assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, make_all_pairs, NULL), 0);
}

/* Rank 2 gives another argument than the others. */
TEST_ON_RANKS(the_same_call_with_other_arguments, RANKS_THREADS, NUM_RANKS)
{
    struct host_scene scene;
    void *ptr;
    weft_comm *child;
    const int32_t differs = context->rank == 2;
    if (open_scene(context, &scene))
        return 1;
    CHECK_ERROR(
        weft_comm_host_all_gather(scene.comm, scene.memory, differs ? 8 : 16, scene.gathered),
        WEFT_ERROR_MISMATCH, "weft_comm_host_all_gather: ranks disagree on bytes");
    CHECK_ERROR(weft_heap_alloc(scene.comm, differs ? 8 : 16, &ptr), WEFT_ERROR_MISMATCH,
                "bytes: 16 on rank 0 and 8 on rank 2");
    CHECK_ERROR(weft_heap_grow(scene.comm, differs ? 8 << 20 : 16 << 20), WEFT_ERROR_MISMATCH,
                "bytes: 16777216 on rank 0 and 8388608 on rank 2");
    CHECK_ERROR(weft_comm_split_strided(scene.comm, 0, 1, 2 + differs, NULL, &child),
                WEFT_ERROR_MISMATCH, "rank 2");
    CHECK_OK(weft_comm_host_barrier(scene.comm));
    return close_scene(&scene);
}
