/* SPDX-License-Identifier: MIT */
/* The host refuses operations of low latency for which there is no result, or one too many. It does
 * not see those of graphs, which the programs refuse: unit/test_ll_outstanding. */
#include "harness/cmocka.h"
#include "harness/ll_scene.h"

static int refuse_without_results(const struct ll_scene *scene, weft_ll *ll)
{
    REFUSED(ll_scene_combine(scene, ll, WEFT_LL_SEND_AND_RECEIVE, 0), "no result");
    REFUSED(ll_scene_combine(scene, ll, WEFT_LL_SEND, 0), "no result");
    REFUSED(ll_scene_combine(scene, ll, WEFT_LL_RECEIVE, 0), "no combine has been sent");
    REFUSED(weft_ll_release(ll, scene->stream), "no result");
    REFUSED(ll_scene_dispatch(scene, ll, WEFT_LL_RECEIVE), "no dispatch has been sent");
    return 0;
}

/* A result that was sent and not received is none yet, but counts among those that there may be. */
static int refuse_more_results(const struct ll_scene *scene, weft_ll *ll)
{
    CHECK_OK(ll_scene_dispatch(scene, ll, WEFT_LL_SEND));
    REFUSED(ll_scene_dispatch(scene, ll, WEFT_LL_SEND_AND_RECEIVE),
            "a dispatch has been sent and not");
    REFUSED(ll_scene_combine(scene, ll, WEFT_LL_SEND, 0), "no result");
    REFUSED(weft_ll_release(ll, scene->stream), "no result");
    CHECK_OK(ll_scene_dispatch(scene, ll, WEFT_LL_SEND));
    REFUSED(ll_scene_dispatch(scene, ll, WEFT_LL_SEND), "2 results are outstanding");
    REFUSED(ll_scene_dispatch(scene, ll, WEFT_LL_SEND_AND_RECEIVE), "2 results are outstanding");
    CHECK_OK(ll_scene_dispatch(scene, ll, WEFT_LL_RECEIVE));
    CHECK_OK(ll_scene_dispatch(scene, ll, WEFT_LL_RECEIVE));
    REFUSED(ll_scene_dispatch(scene, ll, WEFT_LL_SEND), "2 results are outstanding");
    /* An answered result ends when its answers have been received. */
    CHECK_OK(ll_scene_combine(scene, ll, WEFT_LL_SEND, 0));
    REFUSED(ll_scene_combine(scene, ll, WEFT_LL_SEND_AND_RECEIVE, 0),
            "a combine has been sent and not");
    REFUSED(ll_scene_dispatch(scene, ll, WEFT_LL_SEND), "2 results are outstanding");
    REFUSED(weft_ll_release(ll, scene->stream), "a combine has been sent and not been received");
    CHECK_OK(ll_scene_combine(scene, ll, WEFT_LL_SEND, 1));
    REFUSED(ll_scene_combine(scene, ll, WEFT_LL_SEND, 0), "2 combines have been sent");
    CHECK_OK(ll_scene_combine(scene, ll, WEFT_LL_RECEIVE, 0));
    REFUSED(weft_ll_release(ll, scene->stream), "a combine has been sent and not been received");
    CHECK_OK(ll_scene_dispatch(scene, ll, WEFT_LL_SEND_AND_RECEIVE));
    CHECK_OK(ll_scene_combine(scene, ll, WEFT_LL_RECEIVE, 0));
    /* The one that was kept is there until it is released. */
    REFUSED(ll_scene_dispatch(scene, ll, WEFT_LL_SEND), "2 results are outstanding");
    CHECK_OK(weft_ll_release(ll, scene->stream));
    CHECK_OK(weft_ll_release(ll, scene->stream));
    return 0;
}

TEST_ON_RANKS(one_result_too_few_or_too_many_is_refused, RANKS_THREADS, LL_SCENE_RANKS)
{
    struct ll_scene scene;
    if (ll_scene_open(context, &scene))
        return 1;
    weft_ll *const both[] = {scene.by_rank, scene.by_expert};
    for (int i = 0; i < 2; i++)
        for (int round = 0; round < 2; round++)
            if (refuse_without_results(&scene, both[i]) || refuse_more_results(&scene, both[i]))
                return 1;
    return ll_scene_close(&scene);
}

/* Whether there must be an output is told by the tokens of the result that is next. */
TEST_ON_RANKS(outputs_are_those_of_the_oldest_result, RANKS_THREADS, LL_SCENE_RANKS)
{
    struct ll_scene scene;
    if (ll_scene_open(context, &scene))
        return 1;
    weft_ll *ll = scene.by_rank;
    weft_ll_dispatch_args none = ll_scene_dispatch_args(&scene, ll, WEFT_LL_SEND_AND_RECEIVE);
    weft_ll_combine_args receive = ll_scene_combine_args(&scene, ll, WEFT_LL_RECEIVE);
    none.num_tokens = 0;
    receive.out = NULL;
    for (int empty = 0; empty < 2; empty++) {
        for (int i = 0; i < 2; i++)
            CHECK_OK(i == empty ? weft_ll_dispatch(ll, &none, scene.stream)
                                : ll_scene_dispatch(&scene, ll, WEFT_LL_SEND_AND_RECEIVE));
        CHECK_OK(ll_scene_combine(&scene, ll, WEFT_LL_SEND, 0));
        CHECK_OK(ll_scene_combine(&scene, ll, WEFT_LL_SEND, 0));
        for (int i = 0; i < 2; i++) {
            if (i == empty) {
                CHECK_OK(weft_ll_combine(ll, &receive, scene.stream));
                continue;
            }
            REFUSED(weft_ll_combine(ll, &receive, scene.stream), "out");
            CHECK_OK(ll_scene_combine(&scene, ll, WEFT_LL_RECEIVE, 0));
        }
    }
    return ll_scene_close(&scene);
}

TEST_ON_RANKS(one_result_at_a_time, RANKS_THREADS, LL_SCENE_RANKS)
{
    struct ll_scene scene;
    weft_ll_config config = ll_scene_config(WEFT_LL_BY_EXPERT);
    weft_ll *ll;
    if (ll_scene_open(context, &scene))
        return 1;
    config.num_results = 1;
    config.answer = WEFT_LL_ANSWER_ROWS;
    CHECK_OK(weft_ll_create(scene.ep, &config, &ll));
    scene.by_expert = ll;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(ll_scene_dispatch(&scene, ll, WEFT_LL_SEND_AND_RECEIVE));
        REFUSED(ll_scene_dispatch(&scene, ll, WEFT_LL_SEND), "1 results are outstanding");
        CHECK_OK(ll_scene_combine(&scene, ll, WEFT_LL_SEND, 1));
        REFUSED(ll_scene_combine(&scene, ll, WEFT_LL_SEND, 1), "1 combines have been sent");
        CHECK_OK(ll_scene_combine(&scene, ll, WEFT_LL_RECEIVE, 0));
        CHECK_OK(weft_ll_release(ll, scene.stream));
    }
    return ll_scene_close(&scene);
}
