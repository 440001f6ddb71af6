/* SPDX-License-Identifier: MIT */
/* Weights that come with combine: which calls may have them, and where there are none. That the
 * sums are right is tested with all others' (oracle/ll_trials.h). */
#include "harness/cmocka.h"
#include "harness/ll_scene.h"

static weft_ll_config late_config(void)
{
    weft_ll_config config = ll_scene_config(WEFT_LL_BY_EXPERT);
    config.answer = WEFT_LL_ANSWER_SUMS_WEIGHED_LATE;
    return config;
}

/* Dispatch has no use for weights that combine brings, and they are needed where it sends. */
TEST_ON_RANKS(weights_come_once, RANKS_THREADS, LL_SCENE_RANKS)
{
    const weft_ll_config config = late_config();
    struct ll_scene scene;
    if (ll_scene_open(context, &scene))
        return 1;
    CHECK_OK(weft_ll_create(scene.ep, &config, &scene.by_expert));
    weft_ll_dispatch_args rows =
        ll_scene_dispatch_args(&scene, scene.by_expert, WEFT_LL_SEND_AND_RECEIVE);
    REFUSED(weft_ll_dispatch(scene.by_expert, &rows, scene.stream), "topk_weights");
    rows.topk_weights = NULL;
    CHECK_OK(weft_ll_dispatch(scene.by_expert, &rows, scene.stream));
    weft_ll_combine_args sent = ll_scene_combine_args(&scene, scene.by_expert, WEFT_LL_SEND);
    sent.topk_weights = scene.weights;
    CHECK_OK(weft_ll_combine(scene.by_expert, &sent, scene.stream));
    weft_ll_combine_args received = ll_scene_combine_args(&scene, scene.by_expert, WEFT_LL_RECEIVE);
    REFUSED(weft_ll_combine(scene.by_expert, &received, scene.stream), "topk_weights");
    received.topk_weights = NULL;
    CHECK_OK(weft_ll_combine(scene.by_expert, &received, scene.stream));
    return ll_scene_close(&scene);
}

TEST_ON_RANKS(late_weights_are_for_one_node, RANKS_THREADS, LL_SCENE_RANKS)
{
    const weft_ep_config ep_config = ll_scene_ep_config();
    const weft_ll_config config = late_config();
    weft_ep *ep;
    weft_ll *ll;
    weft_comm *const comm = ranks_comm(context, WEFT_ARGS(weft_comm_config, .num_nodes = 2));
    CHECK_OK(weft_ep_create(comm, &ep_config, &ep));
    CHECK_ERROR(weft_ll_create(ep, &config, &ll), WEFT_ERROR_UNSUPPORTED, "one node");
    return 0;
}
