/* SPDX-License-Identifier: MIT */
/* How objects end: in any order, with work queued, twice; and calls with objects that are gone. */

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 2, NUM_TOKENS = 8, NUM_TOPK = 2, COUNT = 3000, HEAP_BYTES = 32 << 10 };
enum { ROW_BYTES = 64, CAPACITY = NUM_RANKS * NUM_TOKENS, LL_HIDDEN = 4 };

enum kind { COMM, CHILD, STREAM, EVENT, ARENA, COLL, CAPTURE, EP, HANDLE, LL, MEMORY, NUM_KINDS };
static const char *const arguments[NUM_KINDS] = {
    "comm", "comm", "stream", "event", "arena", "coll", "record", "ep", "handle", "ll", "ptr"};

/* One object of each kind. */
struct world {
    weft_comm *comm, *child;
    weft_stream *stream;
    weft_event *event;
    weft_arena *arena;
    weft_coll *coll;
    weft_coll_record *capture;
    weft_ep *ep;
    weft_ep_handle *handle;
    weft_ll *ll;
    char *memory; /* inputs and outputs that are not in the heap */
    char *heap;
};

static int open_objects(struct ranks_context *context, struct world *world, uint32_t timeout_ms)
{
    weft_comm_config comm = WEFT_INIT(weft_comm_config);
    weft_ep_config ep = WEFT_INIT(weft_ep_config);
    weft_ep_handle_config handle = WEFT_INIT(weft_ep_handle_config);
    weft_ll_config ll = WEFT_INIT(weft_ll_config);
    void *memory;
    comm.timeout_ms = timeout_ms;
    ep.num_experts = 4;
    handle.max_tokens = NUM_TOKENS;
    handle.num_topk = NUM_TOPK;
    ll.max_tokens = NUM_TOKENS;
    ll.num_topk = NUM_TOPK;
    ll.hidden = LL_HIDDEN;
    ll.dtype = WEFT_FP32;
    CHECK_OK(ranks_comm_create(context, &comm, &world->comm));
    CHECK_OK(weft_comm_split(world->comm, 0, 0, &comm, &world->child));
    CHECK_OK(weft_stream_create(world->comm, &world->stream));
    CHECK_OK(weft_event_create(world->comm, &world->event));
    CHECK_OK(weft_arena_create(world->comm, 4096, &world->arena));
    CHECK_OK(ranks_coll_create(world->comm, &world->coll));
    CHECK_OK(weft_coll_record_begin(world->coll, &world->capture));
    CHECK_OK(weft_ep_create(world->comm, &ep, &world->ep));
    CHECK_OK(weft_ep_handle_create(world->ep, &handle, &world->handle));
    CHECK_OK(weft_ll_create(world->ep, &ll, &world->ll));
    CHECK_OK(weft_memory_alloc(world->comm, HEAP_BYTES, &memory));
    world->memory = memory;
    CHECK_OK(weft_heap_alloc(world->comm, HEAP_BYTES, &memory));
    world->heap = memory;
    return 0;
}

/* Of tokens, choices and answers that are all zeroes. */
static int queue_low_latency(const struct world *world)
{
    CHECK_OK(weft_ll_dispatch(world->ll,
                              WEFT_ARGS(weft_ll_dispatch_args, .num_tokens = NUM_TOKENS,
                                        .x = world->memory, .index_type = WEFT_INT64,
                                        .topk_idx = world->memory),
                              world->stream));
    CHECK_OK(weft_ll_combine(
        world->ll,
        WEFT_ARGS(weft_ll_combine_args, .x = world->memory, .out = world->memory + (30 << 10)),
        world->stream));
    return 0;
}

/* Every operation of every object, none of which has begun when the first object ends. */
static int queue_work(struct ranks_context *context, const struct world *world)
{
    weft_ep_layout_args layout = WEFT_INIT(weft_ep_layout_args);
    const weft_plane plane = {.size = sizeof(weft_plane),
                              .src = world->memory,
                              .dst = world->heap,
                              .row_bytes = ROW_BYTES};
    layout.num_tokens = NUM_TOKENS;
    layout.index_type = WEFT_INT64;
    layout.topk_idx = world->memory; /* of zeroes */
    CHECK_OK(weft_coll_all_reduce(world->coll,
                                  WEFT_ARGS(weft_coll_args, .send = world->memory,
                                            .recv = world->memory + (16 << 10), .count = COUNT,
                                            .dtype = WEFT_FP32, .op = WEFT_SUM),
                                  world->stream));
    CHECK_OK(weft_ep_layout(world->handle, &layout, world->stream));
    CHECK_OK(weft_ep_notify(world->handle, world->stream));
    CHECK_OK(weft_ep_dispatch(
        world->handle,
        WEFT_ARGS(weft_ep_dispatch_args, .num_planes = 1, .planes = &plane, .capacity = CAPACITY),
        world->stream));
    if (queue_low_latency(world))
        return 1;
    CHECK_OK(
        weft_rma_put(world->comm,
                     WEFT_ARGS(weft_rma_args, .dst = world->heap + 8192, .src = world->heap + 16384,
                               .bytes = 4096, .rank = 1 - context->rank),
                     world->stream));
    CHECK_OK(weft_event_record(world->event, world->stream));
    CHECK_OK(weft_comm_barrier(world->comm, world->stream));
    CHECK_OK(weft_comm_barrier(world->child, world->stream));
    return 0;
}

static weft_result destroy(struct world *world, enum kind kind)
{
    switch (kind) {
    case COMM:
        return weft_comm_destroy(world->comm);
    case CHILD:
        return weft_comm_destroy(world->child);
    case STREAM:
        return weft_stream_destroy(world->stream);
    case EVENT:
        return weft_event_destroy(world->event);
    case ARENA:
        return weft_arena_destroy(world->arena);
    case COLL:
        return weft_coll_destroy(world->coll);
    case CAPTURE:
        return weft_coll_record_destroy(world->capture);
    case EP:
        return weft_ep_destroy(world->ep);
    case HANDLE:
        return weft_ep_handle_destroy(world->handle);
    case LL:
        return weft_ll_destroy(world->ll);
    default:
        return weft_memory_free(world->comm, world->memory);
    }
}

/* Whether the first goes with the second. */
static int belongs_to(enum kind kind, enum kind owner)
{
    static const enum kind owners[NUM_KINDS] = {
        [COMM] = NUM_KINDS, [CHILD] = NUM_KINDS, [STREAM] = NUM_KINDS, [EVENT] = NUM_KINDS,
        [ARENA] = COMM,     [COLL] = COMM,       [CAPTURE] = COLL,     [EP] = COMM,
        [HANDLE] = EP,      [LL] = EP,           [MEMORY] = COMM};
    while (kind != NUM_KINDS && kind != owner)
        kind = owners[kind];
    return kind == owner;
}

/* ---------------------------------------------------------------- any order */

/* In the order of a permutation; what is gone already says so. */
static int destroy_all(struct world *world, const enum kind *order)
{
    int is_gone[NUM_KINDS] = {0};
    for (int i = 0; i < NUM_KINDS; i++) {
        const enum kind kind = order[i];
        const weft_result result = destroy(world, kind);
        const char *argument = kind == MEMORY ? "comm" : arguments[kind];
        /* To end a capture is collective: it ends, and says so, when another rank does not come. */
        const int has_ended =
            result == WEFT_OK || (kind == CAPTURE && result == WEFT_ERROR_TIMEOUT);
        CHECK(has_ended == !is_gone[kind], "object %d: \"%s\": %s", (int)kind,
              weft_result_string(result), weft_last_error());
        CHECK(has_ended || (result == WEFT_ERROR_INVALID_ARGUMENT &&
                            strncmp(weft_last_error(), argument, strlen(argument)) == 0),
              "object %d: %s", (int)kind, weft_last_error());
        for (int other = 0; other < NUM_KINDS; other++)
            is_gone[other] |= belongs_to((enum kind)other, kind);
    }
    return 0;
}

/* Memory, which operations that are queued use, goes last, and so with its communicator. */
static void begin_with(enum kind first, enum kind second, enum kind *order)
{
    int num_kinds = 2;
    order[0] = first;
    order[1] = second;
    for (int kind = MEMORY - 1; kind >= 0; kind--)
        if (kind != (int)first && kind != (int)second)
            order[num_kinds++] = (enum kind)kind;
    if (num_kinds < NUM_KINDS)
        order[num_kinds] = MEMORY;
}

struct ending {
    enum kind first, second;
};

/* Memory that is freed while operations use it is the caller's mistake, as with free(). */
static int end_in_order(struct ranks_context *context)
{
    const struct ending *ending = context->argument;
    struct world world;
    enum kind order[NUM_KINDS];
    if (open_objects(context, &world, 0) != 0 || queue_work(context, &world) != 0)
        return 1;
    if (ending->first == MEMORY || ending->second == MEMORY)
        CHECK_OK(weft_stream_synchronize(world.stream));
    begin_with(ending->first, ending->second, order);
    return destroy_all(&world, order);
}

/* In the small grid every kind is a second one, too. */
TEST(objects_end_in_any_order)
{
    const int step = tests_grid_size(1, 4);
    for (int first = 0; first < NUM_KINDS; first++) {
        for (int second = first % step; second < NUM_KINDS; second += step) {
            struct ending ending = {(enum kind)first, (enum kind)second};
            if (first != second)
                assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, end_in_order, &ending), 0);
        }
    }
}

/* ---------------------------------------------------------------- a rank that never comes */

static int end_without_the_other(struct ranks_context *context)
{
    const struct ending *ending = context->argument;
    struct world world;
    enum kind order[NUM_KINDS];
    if (ranks_warm_up(context) || open_objects(context, &world, tests_deadline_ms(300)) != 0)
        return 1;
    if (context->rank == 0) {
        if (queue_work(context, &world) != 0)
            return 1;
        if (ending->first == MEMORY)
            (void)weft_stream_synchronize(world.stream);
        begin_with(ending->first, ending->second, order);
        if (destroy_all(&world, order) != 0)
            return 1;
    }
    ranks_barrier(context);
    if (context->rank == 1) {
        begin_with(COMM, CHILD, order);
        return destroy_all(&world, order);
    }
    return 0;
}

TEST(work_that_waits_in_vain_ends_at_its_deadline)
{
    for (int first = 0; first < NUM_KINDS; first += tests_grid_size(1, 2)) {
        struct ending ending = {(enum kind)first, first == COMM ? CHILD : COMM};
        assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, end_without_the_other, &ending), 0);
    }
}

/* ---------------------------------------------------------------- streams and events stay */

TEST_ON_RANKS(streams_events_and_splits_outlive_a_communicator, RANKS_THREADS, NUM_RANKS)
{
    struct world world;
    if (open_objects(context, &world, 0) != 0 || queue_work(context, &world) != 0)
        return 1;
    CHECK_OK(weft_comm_destroy(world.comm));
    CHECK_OK(weft_stream_synchronize(world.stream));
    CHECK_OK(weft_event_synchronize(world.event));
    CHECK_OK(weft_comm_barrier(world.child, world.stream));
    CHECK_OK(weft_event_record(world.event, world.stream));
    CHECK_OK(weft_stream_synchronize(world.stream));
    CHECK_OK(weft_comm_host_barrier(world.child));
    CHECK_OK(weft_stream_destroy(world.stream));
    CHECK_OK(weft_event_destroy(world.event));
    CHECK_OK(weft_comm_destroy(world.child));
    return 0;
}

/* ---------------------------------------------------------------- calls with what is gone */

#define GONE(call, argument) CHECK_ERROR(call, WEFT_ERROR_INVALID_ARGUMENT, argument " is 0x")

/* Questions, which have no error to tell. fuzz_api_arguments tries all calls. */
static int ask(const void *no_object)
{
    weft_comm *comm = (void *)(uintptr_t)no_object;
    weft_ep *ep = (void *)comm;
    CHECK(weft_comm_parent_rank(comm, 0) == -1 &&
              weft_team_world_rank(comm, WEFT_TEAM_WORLD, 0) == -1 && weft_comm_rank(comm) == -1 &&
              weft_comm_num_ranks(comm) == -1 && weft_comm_node(comm, 0) == -1 &&
              weft_comm_machine(comm) == WEFT_MACHINE_AUTO && weft_comm_device(comm) == -1 &&
              weft_heap_ptr(comm, comm, 0) == NULL && weft_ep_num_local_experts(ep, 0) == -1 &&
              weft_ep_global_expert(ep, 0, 0) == -1 &&
              weft_coll_algorithm((void *)comm, WEFT_ALL_REDUCE, 8) == WEFT_ALGORITHM_AUTO,
          "a question about what is no object was answered");
    return 0;
}

/* Addresses of no object: memory that is not mapped, the stack, crooked ones, other kinds. */
static int ask_strangers(const struct world *alive)
{
    static char bytes[64];
    const void *const strangers[] = {(void *)(uintptr_t)0xdeadbee0,  bytes, bytes + 1,    alive,
                                     (void *)(uintptr_t)UINTPTR_MAX, NULL,  alive->memory};
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        if (ask(strangers[i]))
            return 1;
        if (strangers[i] != NULL && strangers[i] != alive->memory)
            GONE(weft_memory_free(alive->comm, (void *)(uintptr_t)strangers[i]), "ptr");
    }
    return ask(alive->stream) || ask(alive->handle);
}

TEST_ON_RANKS(what_is_gone_is_refused_by_name, RANKS_PROCESSES, NUM_RANKS)
{
    struct world world;
    enum kind order[NUM_KINDS];
    if (open_objects(context, &world, 0) != 0 || ask_strangers(&world) != 0)
        return 1;
    GONE(weft_memory_free(world.child, world.memory), "ptr");
    GONE(weft_memory_free(world.comm, world.memory + 256), "ptr");
    CHECK_OK(weft_memory_free(world.comm, world.memory));
    GONE(weft_memory_free(world.comm, world.memory), "ptr");
    CHECK_OK(weft_memory_alloc(world.comm, 8, (void **)&world.memory));
    begin_with(COMM, CHILD, order);
    return destroy_all(&world, order) || ask(world.comm) || ask(world.ep) || ask(world.coll);
}
