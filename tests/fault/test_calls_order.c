/* SPDX-License-Identifier: MIT */
/* Ranks make equal calls on one stream in orders that can never fit: all get an error that names
 * two calls, long before the deadline. Orders that can work get none. */
#include <time.h>

#include "harness/cmocka.h"
#include "harness/ranks.h"

enum {
    NUM_RANKS = 3,
    COUNT = 64,
    FAR_MS = 60000,  /* a deadline that no test may come to */
    SOON_MS = 15000, /* far less, on a machine that is busy */
    LATE_MS = 1500
};

struct scene {
    weft_comm *comm;
    weft_stream *stream, *other;
    weft_coll *coll, *another;
    float *send, *recv;
    int32_t rank;
};

/* Each letter is a call: two of one object, one of another, the barrier, a message around the ring
 * of ranks, and a wait of the host. */
static weft_result make(struct scene *scene, char letter)
{
    const weft_coll_args args = {.size = sizeof args,
                                 .send = scene->send,
                                 .recv = scene->recv,
                                 .count = COUNT,
                                 .dtype = WEFT_FP32};
    switch (letter) {
    case 'r':
        return weft_coll_all_reduce(scene->coll, &args, scene->stream);
    case 'g':
        return weft_coll_all_gather(scene->coll, &args, scene->stream);
    case 'o':
        return weft_coll_all_reduce(scene->another, &args, scene->stream);
    case 'b':
        return weft_comm_barrier(scene->comm, scene->stream);
    case 's':
        return weft_coll_send(scene->coll,
                              WEFT_ARGS(weft_coll_send_args, .send = scene->send, .count = COUNT,
                                        .dtype = WEFT_FP32, .peer = (scene->rank + 1) % NUM_RANKS),
                              scene->stream);
    case 'v':
        return weft_coll_recv(scene->coll,
                              WEFT_ARGS(weft_coll_recv_args, .recv = scene->recv, .count = COUNT,
                                        .dtype = WEFT_FP32,
                                        .peer = (scene->rank + NUM_RANKS - 1) % NUM_RANKS),
                              scene->stream);
    case '(':
        return weft_coll_group_begin(scene->coll);
    case ')':
        return weft_coll_group_end(scene->coll);
    case '/': { /* what follows is on the other stream */
        weft_stream *const stream = scene->stream;
        scene->stream = scene->other;
        scene->other = stream;
        return WEFT_OK;
    }
    default:
        return weft_stream_synchronize(scene->stream);
    }
}

static const char *name_of(char letter)
{
    return letter == 'g'   ? "weft_coll_all_gather"
           : letter == 'b' ? "weft_comm_barrier"
           : letter == 'v' ? "weft_coll_recv"
                           : "weft_coll_all_reduce";
}

static int open_scene(struct scene *scene, struct ranks_context *context, int32_t num_nodes)
{
    *scene = (struct scene){.rank = context->rank};
    scene->comm = ranks_comm(
        context, WEFT_ARGS(weft_comm_config, .timeout_ms = FAR_MS, .num_nodes = num_nodes));
    scene->stream = ranks_stream(context);
    scene->other = ranks_stream(context);
    CHECK_OK(ranks_coll_create(scene->comm, &scene->coll));
    CHECK_OK(ranks_coll_create(scene->comm, &scene->another));
    CHECK_OK(
        weft_heap_alloc(scene->comm, NUM_RANKS * COUNT * sizeof(float), (void **)&scene->send));
    CHECK_OK(
        weft_heap_alloc(scene->comm, NUM_RANKS * COUNT * sizeof(float), (void **)&scene->recv));
    return 0;
}

static weft_result make_all(struct scene *scene, const char *letters)
{
    weft_result result = WEFT_OK;
    for (; result == WEFT_OK && *letters != '\0'; letters++)
        result = make(scene, *letters);
    return result == WEFT_OK ? weft_stream_synchronize(scene->stream) : result;
}

/* What each rank calls, and the two calls that the error must name. */
struct orders {
    const char *of_rank[NUM_RANKS];
    const char *named;
    int32_t num_nodes;
};

/* ---------------------------------------------------------------- orders that do not fit */

static int disagree(struct ranks_context *context)
{
    const struct orders *orders = context->argument;
    struct scene scene;
    if (open_scene(&scene, context, orders->num_nodes))
        return 1;
    const int64_t begin_ns = clock_ns();
    const weft_result result = make_all(&scene, orders->of_rank[context->rank]);
    const char *const message = weft_last_error();
    CHECK(result == WEFT_ERROR_MISMATCH, "%s: %s", weft_result_string(result), message);
    for (int i = 0; i < 2; i++)
        CHECK(strstr(message, name_of(orders->named[i])) != NULL, "no %s: %s",
              name_of(orders->named[i]), message);
    CHECK(clock_ns() - begin_ns < SOON_MS * INT64_C(1000000), "late: %s", message);
    return 0;
}

TEST(orders_that_cannot_fit)
{
    static struct orders all[] = {
        {{"rb", "br", "rb"}, "rb", 1},
        {{"br", "br", "rb"}, "rb", 1},
        {{"rg", "gr", "rg"}, "rg", 1},
        {{"ro", "or", "ro"}, "rr", 1},
        {{"rgb", "gbr", "brg"}, "rg", 1},       /* a circle of all three */
        {{"brrrg", "brrrg", "rbrrg"}, "rb", 1}, /* equal calls come behind */
        {{"rbrbrb", "brbrbr", "rbrbrb"}, "rb", 1},
        {{"b rgb", "b grb", "b rgb"}, "rg", 1}, /* after calls that fit */
        {{"bs", "rvb", "bsr"}, "rb", 1},
        {{"s/rb", "v/br", "/rb"}, "rb", 1},
        {{"rb", "br", "rb"}, "rb", NUM_RANKS},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (ranks_run(RANKS_PROCESSES, NUM_RANKS, disagree, &all[i]) != 0)
            fail_msg("%s, %s, %s, %d nodes", all[i].of_rank[0], all[i].of_rank[1],
                     all[i].of_rank[2], all[i].num_nodes);
    }
}

/* ---------------------------------------------------------------- orders that fit */

/* Rank 1 comes late, so that the others wait and tell where they stand. */
static int agree(struct ranks_context *context)
{
    const struct orders *orders = context->argument;
    struct scene scene;
    if (open_scene(&scene, context, 1))
        return 1;
    if (context->rank == 1)
        nanosleep(&(struct timespec){LATE_MS / 1000, LATE_MS % 1000 * 1000000}, NULL);
    CHECK_OK(make_all(&scene, orders->of_rank[context->rank]));
    CHECK_OK(weft_stream_synchronize(scene.other));
    return 0;
}

TEST(orders_that_fit)
{
    static struct orders all[] = {
        {.of_rank = {"rbrgbrrb", "rbrgbrrb", "rbrgbrrb"}},
        {.of_rank = {"r/b", "/b/r/", "r/b"}},     /* streams may cross */
        {.of_rank = {"(sv)b", "(vs)b", "(vs)b"}}, /* transfers of a group begin together */
        {.of_rank = {"(vs)(vs)rb", "(sv)(vs)rb", "(vs)(sv)rb"}},
        {.of_rank = {"svb", "vsb", "svb"}}, /* a send ends alone */
        {.of_rank = {"r b rrrb", "r b rrrb", "r b rrrb"}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (ranks_run(RANKS_PROCESSES, NUM_RANKS, agree, &all[i]) != 0)
            fail_msg("%s, %s, %s", all[i].of_rank[0], all[i].of_rank[1], all[i].of_rank[2]);
    }
}
