/* SPDX-License-Identifier: MIT */
#include "harness/ll_scene.h"

weft_ep_config ll_scene_ep_config(void)
{
    weft_ep_config config = WEFT_INIT(weft_ep_config);
    config.num_experts = LL_SCENE_EXPERTS;
    config.max_topk = LL_SCENE_TOPK;
    return config;
}

weft_ll_config ll_scene_config(weft_ll_layout layout)
{
    weft_ll_config config = WEFT_INIT(weft_ll_config);
    config.hidden = LL_SCENE_HIDDEN;
    config.max_tokens = LL_SCENE_TOKENS;
    config.num_topk = LL_SCENE_TOPK;
    config.dtype = WEFT_FP32;
    config.layout = layout;
    config.expert_capacity = layout == WEFT_LL_BY_EXPERT ? LL_SCENE_CAPACITY : 0;
    return config;
}

int ll_scene_open(struct ranks_context *context, struct ll_scene *scene)
{
    const weft_ep_config ep_config = ll_scene_ep_config();
    const weft_ll_config by_rank = ll_scene_config(WEFT_LL_BY_RANK);
    weft_ll_config by_expert = ll_scene_config(WEFT_LL_BY_EXPERT);
    const uint64_t rows_bytes =
        (uint64_t)LL_SCENE_LOCAL_EXPERTS * LL_SCENE_CAPACITY * LL_SCENE_HIDDEN * sizeof(float);
    const struct {
        void *at;
        uint64_t bytes;
    } blocks[] = {{&scene->x, LL_SCENE_TOKENS * LL_SCENE_HIDDEN * sizeof(float)},
                  {&scene->rows, rows_bytes},
                  {&scene->out, LL_SCENE_TOKENS * LL_SCENE_HIDDEN * sizeof(float)},
                  {&scene->weights, LL_SCENE_TOKENS * LL_SCENE_TOPK * sizeof(float)},
                  {&scene->topk_idx, LL_SCENE_TOKENS * LL_SCENE_TOPK * sizeof(int32_t)},
                  {&scene->numbers, 4096}};
    by_expert.answer = WEFT_LL_ANSWER_ROWS;
    CHECK_OK(ranks_comm_create(context, NULL, &scene->comm));
    CHECK_OK(weft_stream_create(scene->comm, &scene->stream));
    CHECK_OK(weft_ep_create(scene->comm, &ep_config, &scene->ep));
    CHECK_OK(weft_ll_create(scene->ep, &by_rank, &scene->by_rank));
    CHECK_OK(weft_ll_create(scene->ep, &by_expert, &scene->by_expert));
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        CHECK_OK(weft_memory_alloc(scene->comm, blocks[i].bytes, blocks[i].at));
    return 0;
}

int ll_scene_close(struct ll_scene *scene)
{
    CHECK_OK(weft_stream_synchronize(scene->stream));
    CHECK_OK(weft_comm_destroy(scene->comm));
    CHECK_OK(weft_stream_destroy(scene->stream));
    return 0;
}

weft_ll_dispatch_args ll_scene_dispatch_args(const struct ll_scene *scene, const weft_ll *ll,
                                             weft_ll_phases phases)
{
    weft_ll_dispatch_args args = WEFT_INIT(weft_ll_dispatch_args);
    args.phases = phases;
    if (phases != WEFT_LL_RECEIVE) {
        args.num_tokens = LL_SCENE_TOKENS;
        args.x = scene->x;
        args.topk_idx = scene->topk_idx;
        args.topk_weights = scene->weights;
        args.index_type = WEFT_INT32;
    }
    if (phases != WEFT_LL_SEND)
        args.num_rows_per_rank = scene->numbers;
    if (phases != WEFT_LL_SEND && ll == scene->by_expert) {
        args.rows = scene->rows;
        args.num_rows_per_expert = scene->numbers + 16;
        args.src_tokens = scene->numbers + 32;
        args.row_ranges = (int64_t *)(void *)(scene->numbers + 128);
        args.total_rows_per_expert = scene->numbers + 256;
    }
    return args;
}

weft_ll_combine_args ll_scene_combine_args(const struct ll_scene *scene, const weft_ll *ll,
                                           weft_ll_phases phases)
{
    weft_ll_combine_args args = WEFT_INIT(weft_ll_combine_args);
    args.phases = phases;
    if (phases != WEFT_LL_RECEIVE)
        args.x = scene->rows;
    if (phases != WEFT_LL_SEND) {
        args.out = scene->out;
        args.topk_weights = ll == scene->by_expert ? scene->weights : NULL;
    }
    return args;
}

weft_result ll_scene_dispatch(const struct ll_scene *scene, weft_ll *ll, weft_ll_phases phases)
{
    const weft_ll_dispatch_args args = ll_scene_dispatch_args(scene, ll, phases);
    return weft_ll_dispatch(ll, &args, scene->stream);
}

weft_result ll_scene_combine(const struct ll_scene *scene, weft_ll *ll, weft_ll_phases phases,
                             int32_t keep)
{
    weft_ll_combine_args args = ll_scene_combine_args(scene, ll, phases);
    args.keep = keep;
    return weft_ll_combine(ll, &args, scene->stream);
}
