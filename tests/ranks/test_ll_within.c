/* SPDX-License-Identifier: MIT */
/* A weft_ll within another one, whose memory and masks it uses; expert_capacity of a call; and
 * operations that are only checked. */
#include "harness/cmocka.h"
#include "harness/ll_scene.h"

enum { BYTES_WITHIN = 1 << 18, FEW = 3, NUM_EXPERTS = 4 };

static weft_ll_config masked_config(void)
{
    weft_ll_config config = ll_scene_config(WEFT_LL_BY_EXPERT);
    config.answer = WEFT_LL_ANSWER_ROWS;
    config.on_missing = WEFT_LL_MASK;
    return config;
}

static weft_ll_config within_config(weft_ll *base, int32_t max_tokens)
{
    weft_ll_config config = masked_config();
    config.max_tokens = max_tokens;
    config.expert_capacity = 0;
    config.num_experts = NUM_EXPERTS;
    config.within = base;
    return config;
}

/* All tokens are ones, and each chooses an expert of each rank. */
static int fill(const struct ll_scene *scene)
{
    float x[LL_SCENE_TOKENS * LL_SCENE_HIDDEN], weights[LL_SCENE_TOKENS * LL_SCENE_TOPK];
    int32_t ids[LL_SCENE_TOKENS * LL_SCENE_TOPK];
    for (int i = 0; i < LL_SCENE_TOKENS * LL_SCENE_HIDDEN; i++)
        x[i] = 1.0f;
    for (int i = 0; i < LL_SCENE_TOKENS * LL_SCENE_TOPK; i++) {
        weights[i] = 1.0f;
        ids[i] = i % LL_SCENE_TOPK == 0 ? 0 : NUM_EXPERTS - 1;
    }
    CHECK_OK(weft_memory_copy(scene->comm, scene->x, x, sizeof x));
    CHECK_OK(weft_memory_copy(scene->comm, scene->weights, weights, sizeof weights));
    CHECK_OK(weft_memory_copy(scene->comm, scene->topk_idx, ids, sizeof ids));
    return 0;
}

/* One step of FEW tokens. Each sum is the number of ranks that are reached. */
static int step(struct ll_scene *scene, weft_ll *ll, float wanted)
{
    weft_ll *const usual = scene->by_expert;
    float out[LL_SCENE_HIDDEN];
    scene->by_expert = ll;
    weft_ll_dispatch_args dispatch = ll_scene_dispatch_args(scene, ll, WEFT_LL_SEND_AND_RECEIVE);
    weft_ll_combine_args combine = ll_scene_combine_args(scene, ll, WEFT_LL_SEND_AND_RECEIVE);
    scene->by_expert = usual;
    dispatch.num_tokens = FEW;
    combine.expert_capacity = dispatch.expert_capacity = LL_SCENE_RANKS * FEW;
    CHECK_OK(weft_ll_dispatch(ll, &dispatch, scene->stream));
    CHECK_OK(weft_ll_combine(ll, &combine, scene->stream));
    CHECK_OK(weft_stream_synchronize(scene->stream));
    CHECK_OK(
        weft_memory_copy(scene->comm, out, scene->out + (FEW - 1) * LL_SCENE_HIDDEN, sizeof out));
    for (int i = 0; i < LL_SCENE_HIDDEN; i++)
        CHECK(out[i] == wanted, "element %d is %g, not %g", i, (double)out[i], (double)wanted);
    return 0;
}

static int set_mask(const struct ll_scene *scene, int32_t *mask, int32_t rank)
{
    int32_t values[LL_SCENE_RANKS] = {0};
    if (rank >= 0)
        values[rank] = 1;
    CHECK_OK(weft_memory_copy(scene->comm, mask, values, sizeof values));
    return 0;
}

static int open_base(struct ranks_context *context, struct ll_scene *scene, weft_ll **base)
{
    weft_ll_config config = masked_config();
    config.bytes_within = BYTES_WITHIN;
    if (ll_scene_open(context, scene) || fill(scene))
        return 1;
    CHECK_OK(weft_ll_create(scene->ep, &config, base));
    return 0;
}

/* Each rank makes its weft_ll alone, masked or not, and they work together. */
TEST_ON_RANKS(those_within_need_no_other_rank, RANKS_THREADS, LL_SCENE_RANKS)
{
    struct ll_scene scene;
    weft_ll *base, *first, *second;
    if (open_base(context, &scene, &base))
        return 1;
    const weft_ll_config few = within_config(base, FEW), more = within_config(base, 4);
    int32_t *mask = scene.numbers + 512;
    if (set_mask(&scene, mask, 1 - context->rank))
        return 1;
    CHECK_OK(weft_ll_create(scene.ep, &few, &first));
    if (step(&scene, first, LL_SCENE_RANKS))
        return 1;
    CHECK_OK(weft_ll_mask(base, mask, scene.stream));
    CHECK_OK(weft_stream_synchronize(scene.stream));
    CHECK_OK(weft_comm_host_barrier(scene.comm)); /* else one may miss the other in this step */
    if (context->rank == 0) {                     /* alone: the other one does not even make it */
        CHECK_OK(weft_ll_create(scene.ep, &more, &second));
        if (step(&scene, second, 1) || step(&scene, first, 1))
            return 1;
        CHECK_OK(weft_ll_destroy(second));
    }
    CHECK_OK(weft_ll_destroy(first));
    if (set_mask(&scene, mask, -1))
        return 1;
    CHECK_OK(weft_ll_unmask(base, mask, 1, scene.stream));
    CHECK_OK(weft_ll_create(scene.ep, &more, &second));
    CHECK_OK(weft_ll_create(scene.ep, &few, &first));
    return step(&scene, second, LL_SCENE_RANKS) || step(&scene, first, LL_SCENE_RANKS) ||
           ll_scene_close(&scene);
}

/* The memory is used again once all ranks begin anew. */
TEST_ON_RANKS(memory_for_those_within_is_used_again, RANKS_THREADS, LL_SCENE_RANKS)
{
    struct ll_scene scene;
    weft_ll *base, *made[64];
    weft_ll_sizes sizes = WEFT_INIT(weft_ll_sizes);
    if (open_base(context, &scene, &base))
        return 1;
    const weft_ll_config config = within_config(base, FEW);
    int32_t *mask = scene.numbers + 512;
    if (set_mask(&scene, mask, -1))
        return 1;
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        int num = 0;
        while (num < 64 && weft_ll_query_sizes(scene.ep, &config, &sizes) == WEFT_OK) {
            CHECK_OK(weft_ll_create(scene.ep, &config, &made[num++]));
            if (step(&scene, made[num - 1], LL_SCENE_RANKS))
                return 1;
        }
        CHECK(num > 1 && num < 64, "%d were made", num);
        CHECK_ERROR(weft_ll_create(scene.ep, &config, &made[63]), WEFT_ERROR_OUT_OF_MEMORY,
                    "bytes_within");
        if (step(&scene, made[0], LL_SCENE_RANKS))
            return 1;
        while (num > 0)
            CHECK_OK(weft_ll_destroy(made[--num]));
        CHECK_ERROR(weft_ll_create(scene.ep, &config, &made[0]), WEFT_ERROR_OUT_OF_MEMORY,
                    "within");
        CHECK_OK(weft_ll_unmask(base, mask, epoch, scene.stream));
    }
    return ll_scene_close(&scene);
}

#define WITHIN_REFUSED(field, value, text)                                                         \
    do {                                                                                           \
        weft_ll_config config = within_config(base, FEW);                                          \
        weft_ll *ll;                                                                               \
        config.field = value;                                                                      \
        REFUSED(weft_ll_create(scene.ep, &config, &ll), text);                                     \
    } while (0)

TEST_ON_RANKS(what_cannot_be_within_is_refused, RANKS_THREADS, LL_SCENE_RANKS)
{
    struct ll_scene scene;
    weft_ll *base;
    if (open_base(context, &scene, &base))
        return 1;
    WITHIN_REFUSED(on_missing, WEFT_LL_FAIL, "on_missing");
    WITHIN_REFUSED(route, WEFT_LL_RELAYED, "route");
    WITHIN_REFUSED(missing_ms, 17, "missing_ms is 17");
    WITHIN_REFUSED(bytes_within, 1, "bytes_within");
    WITHIN_REFUSED(network_bytes_within, 1, "network_bytes_within");
    WITHIN_REFUSED(within, scene.by_expert, "bytes_within");
    WITHIN_REFUSED(num_experts, -1, "num_experts");
    WITHIN_REFUSED(hidden, 0, "hidden");
    return ll_scene_close(&scene);
}

/* The call says how far apart the rows of experts lie; combine must say so, too. */
TEST_ON_RANKS(a_call_may_have_less_room, RANKS_THREADS, LL_SCENE_RANKS)
{
    struct ll_scene scene;
    const weft_ll_phases both = WEFT_LL_SEND_AND_RECEIVE;
    float rows[LL_SCENE_LOCAL_EXPERTS * LL_SCENE_CAPACITY * LL_SCENE_HIDDEN] = {0};
    if (ll_scene_open(context, &scene) || fill(&scene))
        return 1;
    CHECK_OK(weft_memory_copy(scene.comm, scene.rows, rows, sizeof rows));
    weft_ll_dispatch_args dispatch = ll_scene_dispatch_args(&scene, scene.by_expert, both);
    weft_ll_combine_args combine = ll_scene_combine_args(&scene, scene.by_expert, both);
    dispatch.num_tokens = 1;
    dispatch.expert_capacity = LL_SCENE_CAPACITY + 1;
    REFUSED(weft_ll_dispatch(scene.by_expert, &dispatch, scene.stream), "expert_capacity");
    dispatch.expert_capacity = LL_SCENE_RANKS;
    CHECK_OK(weft_ll_dispatch(scene.by_expert, &dispatch, scene.stream));
    REFUSED(weft_ll_combine(scene.by_expert, &combine, scene.stream), "expert_capacity is 0");
    combine.expert_capacity = LL_SCENE_RANKS;
    CHECK_OK(weft_ll_combine(scene.by_expert, &combine, scene.stream));
    CHECK_OK(weft_stream_synchronize(scene.stream));
    CHECK_OK(weft_memory_copy(scene.comm, rows, scene.rows, sizeof rows));
    /* Rank 0 has experts 0 to 2, and rows of the first; rank 1 has 3 to 5, and rows of the
     * first. */
    for (int row = 0; row < LL_SCENE_LOCAL_EXPERTS * LL_SCENE_CAPACITY; row++)
        CHECK(rows[row * LL_SCENE_HIDDEN] == (row < LL_SCENE_RANKS ? 1.0f : 0.0f), "row %d", row);
    return ll_scene_close(&scene);
}

TEST_ON_RANKS(what_is_looked_at_does_nothing, RANKS_THREADS, LL_SCENE_RANKS)
{
    struct ll_scene scene;
    if (ll_scene_open(context, &scene) || fill(&scene))
        return 1;
    weft_ll *ll = scene.by_expert;
    weft_ll_dispatch_args dispatch = ll_scene_dispatch_args(&scene, ll, WEFT_LL_RECEIVE);
    weft_ll_combine_args combine = ll_scene_combine_args(&scene, ll, WEFT_LL_RECEIVE);
    dispatch.call = combine.call = WEFT_LL_CHECK;
    CHECK_OK(weft_ll_dispatch(ll, &dispatch, scene.stream)); /* though nothing was sent */
    CHECK_OK(weft_ll_combine(ll, &combine, scene.stream));
    dispatch.num_rows_per_rank = dispatch.num_rows_per_expert;
    REFUSED(weft_ll_dispatch(ll, &dispatch, scene.stream), "overlap");
    combine.x = scene.x;
    REFUSED(weft_ll_combine(ll, &combine, scene.stream), "x is not NULL");
    dispatch.call = (weft_ll_call)2;
    REFUSED(weft_ll_dispatch(ll, &dispatch, scene.stream), "call");
    for (int i = 0; i < 3; i++) {
        CHECK_OK(ll_scene_dispatch(&scene, ll, WEFT_LL_SEND_AND_RECEIVE));
        CHECK_OK(ll_scene_combine(&scene, ll, WEFT_LL_SEND_AND_RECEIVE, 0));
    }
    return ll_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_within_need_no_other_rank),
        cmocka_unit_test(memory_for_those_within_is_used_again),
        cmocka_unit_test(what_cannot_be_within_is_refused),
        cmocka_unit_test(a_call_may_have_less_room),
        cmocka_unit_test(what_is_looked_at_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
