/* SPDX-License-Identifier: MIT */
/* If ranks are in two calls that can never fit, of any two kinds, all get an error that names both
 * calls, long before the deadline. Ranks that are late, or make equal calls in an order that can
 * work, get none. */
#include <pthread.h>
#include <time.h>

#include "harness/cmocka.h"
#include "harness/host_calls.h"
#include "harness/ll_scene.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum {
    NUM_RANKS = 3,
    ODD_ONE = 1,
    NUM_TOKENS = LL_SCENE_TOKENS,
    NUM_TOPK = LL_SCENE_TOPK,
    HIDDEN = LL_SCENE_HIDDEN,
    COUNT = 64,
    MAX_COUNT = 4096, /* bytes of each rank's row in the largest array */
    ROW = MAX_COUNT,
    FAR_MS = 60000,  /* a deadline that no test may come to */
    SOON_MS = 15000, /* far less, on a machine that is busy */
    LATE_MS = 1500
};

/* The objects that the calls use. */
struct scene {
    weft_comm *comm;
    weft_stream *stream;
    weft_coll *coll;
    weft_ep *ep;
    weft_ep_handle *handle;
    weft_ll *ll;
    void *heap, *memory;
    int32_t *topk_idx;
    float *weights;
    int32_t num_ranks, rank;
};

typedef weft_result call_fn(struct scene *scene);

static weft_coll_args row_args(const struct scene *scene)
{
    return (weft_coll_args){.size = sizeof(weft_coll_args),
                            .send = scene->heap,
                            .recv = (char *)scene->heap + NUM_RANKS * ROW,
                            .count = COUNT,
                            .dtype = WEFT_FP32};
}

#define COLLECTIVE(name)                                                                           \
    static weft_result name(struct scene *scene)                                                   \
    {                                                                                              \
        const weft_coll_args args = row_args(scene);                                               \
        return weft_coll_##name(scene->coll, &args, scene->stream);                                \
    }
COLLECTIVE(all_reduce)
COLLECTIVE(reduce_scatter)
COLLECTIVE(all_gather)
COLLECTIVE(all_to_all)
COLLECTIVE(broadcast)
COLLECTIVE(reduce)
COLLECTIVE(gather)
COLLECTIVE(scatter)

static weft_result all_to_all_v(struct scene *scene)
{
    const int64_t counts[NUM_RANKS] = {COUNT, COUNT, COUNT};
    const int64_t offsets[NUM_RANKS] = {0, COUNT, 2 * COUNT};
    return weft_coll_all_to_all_v(scene->coll,
                                  WEFT_ARGS(weft_coll_all_to_all_v_args, .send = scene->heap,
                                            .recv = (char *)scene->heap + NUM_RANKS * ROW,
                                            .send_counts = counts, .send_offsets = offsets,
                                            .recv_counts = counts, .recv_offsets = offsets,
                                            .dtype = WEFT_FP32),
                                  scene->stream);
}

/* Receives from the previous rank. */
static weft_result receive(struct scene *scene)
{
    return weft_coll_recv(scene->coll,
                          WEFT_ARGS(weft_coll_recv_args, .recv = scene->heap, .count = COUNT,
                                    .dtype = WEFT_FP32,
                                    .peer = (scene->rank + NUM_RANKS - 1) % NUM_RANKS),
                          scene->stream);
}

static weft_result barrier(struct scene *scene)
{
    return weft_comm_barrier(scene->comm, scene->stream);
}

static weft_result notify(struct scene *scene)
{
    return weft_ep_notify(scene->handle, scene->stream);
}

static weft_result dispatch(struct scene *scene)
{
    weft_plane plane = {.size = sizeof plane,
                        .src = scene->memory,
                        .dst = scene->heap,
                        .row_bytes = HIDDEN * sizeof(float)};
    return weft_ep_dispatch(scene->handle,
                            WEFT_ARGS(weft_ep_dispatch_args, .planes = &plane, .num_planes = 1,
                                      .capacity = NUM_RANKS * NUM_TOKENS),
                            scene->stream);
}

static weft_result combine(struct scene *scene)
{
    return weft_ep_combine(scene->handle,
                           WEFT_ARGS(weft_ep_combine_args, .x = scene->heap, .out = scene->memory,
                                     .dtype = WEFT_FP32, .hidden = HIDDEN,
                                     .capacity = NUM_RANKS * NUM_TOKENS),
                           scene->stream);
}

static weft_result ll_dispatch(struct scene *scene)
{
    return weft_ll_dispatch(scene->ll,
                            WEFT_ARGS(weft_ll_dispatch_args, .x = scene->memory,
                                      .num_tokens = NUM_TOKENS, .topk_idx = scene->topk_idx,
                                      .index_type = WEFT_INT32, .topk_weights = scene->weights),
                            scene->stream);
}

static const struct call {
    const char *name;
    call_fn *run; /* on the stream; NULL: it is one of host_calls */
} calls[] = {{"weft_coll_all_reduce", all_reduce},
             {"weft_comm_barrier", barrier},
             {"weft_ep_notify", notify},
             {"weft_ll_dispatch", ll_dispatch},
             {"weft_comm_host_barrier", NULL},
             {"weft_coll_recv", receive},
             {"weft_heap_alloc", NULL},
             {"weft_ep_dispatch", dispatch},
             {"weft_ep_combine", combine},
             {"weft_coll_broadcast", broadcast},
             {"weft_comm_split", NULL},
             {"weft_coll_reduce_scatter", reduce_scatter},
             {"weft_coll_all_gather", all_gather},
             {"weft_coll_all_to_all", all_to_all},
             {"weft_coll_reduce", reduce},
             {"weft_coll_gather", gather},
             {"weft_coll_scatter", scatter},
             {"weft_coll_all_to_all_v", all_to_all_v},
             {"weft_comm_host_all_gather", NULL},
             {"weft_coll_create", NULL},
             {"weft_ep_create", NULL}};
enum { NUM_CALLS = sizeof calls / sizeof *calls, FIRST_FEW = 7, NUM_MOST = 5 };

/* ---------------------------------------------------------------- the scene */

static int open_objects(struct scene *scene)
{
    const weft_ep_config ep = ll_scene_ep_config();
    const weft_ll_config ll = ll_scene_config(WEFT_LL_BY_RANK);
    weft_ep_handle_config handle = WEFT_INIT(weft_ep_handle_config);
    handle.max_tokens = NUM_TOKENS;
    handle.num_topk = NUM_TOPK;
    CHECK_OK(ranks_coll_create(scene->comm, &scene->coll));
    CHECK_OK(weft_ep_create(scene->comm, &ep, &scene->ep));
    CHECK_OK(weft_ep_handle_create(scene->ep, &handle, &scene->handle));
    CHECK_OK(weft_ll_create(scene->ep, &ll, &scene->ll));
    return 0;
}

static int allocate(struct scene *scene)
{
    const uint64_t bytes = 4 * NUM_RANKS * ROW;
    int32_t topk_idx[NUM_TOKENS * NUM_TOPK];
    for (int i = 0; i < NUM_TOKENS * NUM_TOPK; i++)
        topk_idx[i] = (i * 5 + scene->rank) % LL_SCENE_EXPERTS;
    CHECK_OK(weft_heap_alloc(scene->comm, bytes, &scene->heap));
    CHECK_OK(weft_memory_alloc(scene->comm, bytes, &scene->memory));
    CHECK_OK(weft_memory_alloc(scene->comm, sizeof topk_idx, (void **)&scene->topk_idx));
    CHECK_OK(weft_memory_alloc(scene->comm, sizeof topk_idx, (void **)&scene->weights));
    CHECK_OK(weft_memory_copy(scene->comm, scene->topk_idx, topk_idx, sizeof topk_idx));
    return 0;
}

/* Makes once the calls that must come before others. */
static int warm_up(struct scene *scene)
{
    CHECK_OK(all_reduce(scene));
    CHECK_OK(barrier(scene));
    CHECK_OK(weft_ep_layout(scene->handle,
                            WEFT_ARGS(weft_ep_layout_args, .num_tokens = NUM_TOKENS,
                                      .topk_idx = scene->topk_idx, .index_type = WEFT_INT32),
                            scene->stream));
    CHECK_OK(notify(scene));
    CHECK_OK(dispatch(scene));
    CHECK_OK(combine(scene));
    CHECK_OK(weft_stream_synchronize(scene->stream));
    /* A rank may finish combine before another: no rank may fail while one is still in it. */
    CHECK_OK(weft_comm_host_barrier(scene->comm));
    return 0;
}

static int open_scene(struct scene *scene, struct ranks_context *context, int32_t num_nodes)
{
    *scene = (struct scene){.num_ranks = NUM_RANKS, .rank = context->rank};
    scene->comm = ranks_comm(
        context, WEFT_ARGS(weft_comm_config, .timeout_ms = FAR_MS, .num_nodes = num_nodes));
    scene->stream = ranks_stream(context);
    return open_objects(scene) || allocate(scene) || warm_up(scene);
}

static weft_result make_on_host(struct scene *scene, const char *name)
{
    struct host_scene host = {.comm = scene->comm};
    int i = 0;
    while (strcmp(host_calls[i].name, name) != 0)
        i++;
    return host_calls[i].call(&host);
}

static weft_result make(struct scene *scene, const struct call *call)
{
    if (call->run == NULL)
        return make_on_host(scene, call->name);
    const weft_result result = call->run(scene);
    return result == WEFT_OK ? weft_stream_synchronize(scene->stream) : result;
}

/* ---------------------------------------------------------------- calls that do not fit */

struct pair {
    int most, odd; /* of calls[] */
    int32_t num_nodes;
};

static int disagree(struct ranks_context *context)
{
    const struct pair *pair = context->argument;
    const int64_t begin_ns = clock_ns();
    int32_t failed_rank = -1;
    struct scene scene;
    if (open_scene(&scene, context, pair->num_nodes))
        return 1;
    const struct call *call = &calls[context->rank == ODD_ONE ? pair->odd : pair->most];
    const weft_result result = make(&scene, call);
    CHECK(result == WEFT_ERROR_MISMATCH, "%s: %s: %s", call->name, weft_result_string(result),
          weft_last_error());
    const char *const message = weft_last_error();
    CHECK(strstr(message, calls[pair->odd].name) != NULL, "no %s: %s", calls[pair->odd].name,
          message);
    CHECK(strstr(message, calls[pair->most].name) != NULL, "no %s: %s", calls[pair->most].name,
          message);
    CHECK(strstr(message, "rank 1") != NULL, "no rank 1: %s", message);
    CHECK(weft_comm_status(scene.comm, &failed_rank) == result && failed_rank >= 0,
          "no rank is blamed"); /* one of two that differ */
    CHECK(clock_ns() - begin_ns < SOON_MS * INT64_C(1000000), "late: %s", message);
    return 0;
}

/* Returns 1 if it failed. Calls of the host that do not fit leave the communicator whole. */
static int try_pair(struct pair pair)
{
    if (pair.most == pair.odd || (calls[pair.most].run == NULL && calls[pair.odd].run == NULL))
        return 0;
    if (ranks_run(RANKS_PROCESSES, NUM_RANKS, disagree, &pair) == 0)
        return 0;
    print_error("%s, but %s on one rank, %d nodes\n", calls[pair.most].name, calls[pair.odd].name,
                pair.num_nodes);
    return 1;
}

/* On a GPU each pair takes seconds to start, so that only the first few calls are tried. */
static int count_calls(void)
{
    return tests_on_cuda() ? FIRST_FEW : tests_grid_size(NUM_CALLS, FIRST_FEW);
}

TEST(any_two_calls)
{
    const int num_calls = count_calls();
    int num_failed = 0;
    for (int most = 0; most < (tests_on_cuda() ? 1 : NUM_MOST); most++)
        for (int odd = 0; odd < num_calls; odd++)
            num_failed += try_pair((struct pair){most, odd, 1});
    assert_int_equal(num_failed, 0);
}

TEST(any_two_calls_over_nodes)
{
    const int num_calls = count_calls();
    int num_failed = 0;
    for (int odd = 0; odd < num_calls; odd++)
        num_failed +=
            try_pair((struct pair){0, odd, NUM_RANKS}) + try_pair((struct pair){2, odd, NUM_RANKS});
    assert_int_equal(num_failed, 0);
}

/* ---------------------------------------------------------------- calls that fit */

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Rank 1 is late in every call: once before the call, and once in a stream of other calls. */
static int be_late(struct ranks_context *context)
{
    struct scene scene;
    if (open_scene(&scene, context, *(const int32_t *)context->argument))
        return 1;
    for (int round = 0; round < 2; round++) {
        if (context->rank == ODD_ONE)
            sleep_ms(LATE_MS);
        CHECK_OK(all_reduce(&scene));
        CHECK_OK(barrier(&scene));
        CHECK_OK(weft_stream_synchronize(scene.stream));
        if (context->rank == ODD_ONE)
            sleep_ms(LATE_MS);
        CHECK_OK(weft_comm_host_barrier(scene.comm));
        CHECK_OK(notify(&scene));
        CHECK_OK(weft_stream_synchronize(scene.stream));
    }
    return 0;
}

TEST(who_is_late_fits)
{
    for (int32_t num_nodes = 1; num_nodes <= NUM_RANKS; num_nodes += NUM_RANKS - 1)
        assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, be_late, &num_nodes), 0);
}

/* With masks, ranks that wait for one that is late go on without it. */
TEST_ON_RANKS(ranks_may_go_on_without_one, RANKS_PROCESSES, NUM_RANKS)
{
    struct scene scene;
    weft_ll_config ll = ll_scene_config(WEFT_LL_BY_RANK);
    ll.on_missing = WEFT_LL_MASK;
    ll.missing_ms = 2 * LATE_MS;
    if (open_scene(&scene, context, 1))
        return 1;
    CHECK_OK(weft_ll_destroy(scene.ll));
    CHECK_OK(weft_ll_create(scene.ep, &ll, &scene.ll));
    if (context->rank != ODD_ONE) {
        CHECK_OK(ll_dispatch(&scene));
        CHECK_OK(weft_stream_synchronize(scene.stream));
    }
    CHECK_OK(weft_comm_host_barrier(scene.comm));
    return 0;
}

/* Two objects on two streams in an order that differs by rank, with a long time between. */
TEST_ON_RANKS(streams_may_cross, RANKS_PROCESSES, NUM_RANKS)
{
    struct scene scene;
    if (open_scene(&scene, context, 1))
        return 1;
    weft_stream *const streams[2] = {scene.stream, ranks_stream(context)};
    for (int i = 0; i < 2; i++) {
        scene.stream = streams[i];
        CHECK_OK((i + context->rank) % 2 == 0 ? all_reduce(&scene) : barrier(&scene));
        sleep_ms(LATE_MS);
    }
    CHECK_OK(weft_stream_synchronize(streams[0]));
    CHECK_OK(weft_stream_synchronize(streams[1]));
    return 0;
}

/* Two threads drive one object each, and each waits for its own. */
struct driver {
    struct scene scene;
    call_fn *run;
    long delay_ms;
    weft_result result;
};

static void *drive(void *argument)
{
    struct driver *driver = argument;
    sleep_ms(driver->delay_ms);
    driver->result = driver->run(&driver->scene);
    if (driver->result == WEFT_OK)
        driver->result = weft_stream_synchronize(driver->scene.stream);
    return NULL;
}

TEST_ON_RANKS(threads_may_drive_objects_apart, RANKS_PROCESSES, NUM_RANKS)
{
    struct scene scene;
    pthread_t threads[2];
    if (open_scene(&scene, context, 1))
        return 1;
    const int is_first = context->rank == ODD_ONE;
    struct driver drivers[2] = {{scene, all_reduce, is_first ? LATE_MS : 0, WEFT_OK},
                                {scene, barrier, is_first ? 0 : LATE_MS, WEFT_OK}};
    drivers[1].scene.stream = ranks_stream(context);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, drive, &drivers[i]) == 0, "no thread");
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK(drivers[0].result == WEFT_OK && drivers[1].result == WEFT_OK, "%s and %s",
          weft_result_string(drivers[0].result), weft_result_string(drivers[1].result));
    return 0;
}
