/* SPDX-License-Identifier: MIT */
/* Kernels of the application that may start before the launch of weft's that is before them in the
 * stream has ended (programmatic dependent launch): they take all of the GPU that is free, and
 * nothing that this launch waits for may need it. */
#include <time.h>

#include "cuda/driver.h"
#include "harness/cmocka.h"
#include "harness/machine.h"

enum { NUM_RANKS = 2, MAX_BYTES = 4 << 20, TIMEOUT_MS = 10000, NUM_ROUNDS = 3 };

/* An application's stream, and weft's objects for it, of which the second is made of the same
 * stream. */
struct lane {
    CUstream native;
    weft_stream *streams[2];
    weft_coll *coll;
};

struct app {
    struct ranks_context *context;
    weft_comm *comm;
    struct lane lanes[2];
    void *data;     /* [MAX_BYTES] in the heap */
    uint64_t *word; /* in the heap */
    CUlibrary library;
    CUfunction filling;
    int num_sms;
    CUdeviceptr num_blocks_run;
    uint32_t num_blocks_launched;
};

struct plan {
    int32_t num_nodes;
    size_t bytes; /* of an all-reduce */
    int is_half;  /* of the GPU, which each takes */
};

extern const unsigned long long weft__fatbin_filling[];

/* ---------------------------------------------------------------- life */

static int open_filling(struct app *app)
{
    CUdevice device;
    CUkernel kernel;
    DRIVER_CHECK(driver.ctx_get_device(&device));
    DRIVER_CHECK(driver.device_get_attribute(&app->num_sms,
                                             CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    DRIVER_CHECK(driver.library_load_data(&app->library, weft__fatbin_filling, NULL, NULL, 0, NULL,
                                          NULL, 0));
    DRIVER_CHECK(driver.library_get_kernel(&kernel, app->library, "filling"));
    DRIVER_CHECK(driver.kernel_get_function(&app->filling, kernel));
    DRIVER_CHECK(driver.mem_alloc(&app->num_blocks_run, sizeof(uint32_t)));
    DRIVER_CHECK(driver.memset_d32(app->num_blocks_run, 0, 1));
    return 0;
}

static int open_lane(struct app *app, struct lane *lane)
{
    const struct plan *plan = app->context->argument;
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    if (plan->is_half) {
        config.num_blocks = app->num_sms / 2;
        config.num_warps = 16; /* one block on each SM */
    }
    DRIVER_CHECK(driver.stream_create(&lane->native, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++)
        CHECK_OK(weft_stream_wrap(app->comm, lane->native, &lane->streams[i]));
    if (plan->num_nodes <= 1) /* collectives need all ranks' memory */
        CHECK_OK(weft_coll_create(app->comm, &config, &lane->coll));
    return 0;
}

static int open_app(struct app *app, struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    void *word;
    *app = (struct app){.context = context};
    if (driver_use_device(context->rank))
        return 1;
    CHECK_OK(ranks_comm_create(
        context,
        WEFT_ARGS(weft_comm_config, .num_nodes = plan->num_nodes, .timeout_ms = TIMEOUT_MS),
        &app->comm));
    CHECK_OK(weft_heap_alloc(app->comm, MAX_BYTES, &app->data));
    CHECK_OK(weft_heap_alloc(app->comm, sizeof *app->word, &word));
    app->word = word;
    if (open_filling(app) || open_lane(app, &app->lanes[0]) || open_lane(app, &app->lanes[1]))
        return 1;
    CHECK_OK(weft_comm_host_barrier(app->comm));
    return 0;
}

static int close_lane(struct lane *lane)
{
    for (int i = 0; i < 2; i++)
        CHECK_OK(weft_stream_destroy(lane->streams[i]));
    DRIVER_CHECK(driver.stream_destroy(lane->native));
    if (lane->coll != NULL)
        CHECK_OK(weft_coll_destroy(lane->coll));
    return 0;
}

static int close_app(struct app *app)
{
    struct ranks_context *context = app->context;
    CHECK_OK(weft_comm_host_barrier(app->comm));
    if (close_lane(&app->lanes[0]) || close_lane(&app->lanes[1]))
        return 1;
    DRIVER_CHECK(driver.mem_free(app->num_blocks_run));
    DRIVER_CHECK(driver.library_unload(app->library));
    CHECK_OK(weft_heap_free(app->comm, app->word));
    CHECK_OK(weft_heap_free(app->comm, app->data));
    CHECK_OK(weft_comm_destroy(app->comm));
    return driver_leave_device(context->rank);
}

/* ---------------------------------------------------------------- what is enqueued */

/* So many blocks that no SM has room for one more, also where one of weft's is. */
static int fill_gpu(struct app *app, const struct lane *lane)
{
    enum { MAX_BLOCKS_PER_SM = 32, NUM_THREADS = 32 };
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value = {.programmaticStreamSerializationAllowed = 1}};
    const CUlaunchConfig config = {.gridDimX = (unsigned)app->num_sms * MAX_BLOCKS_PER_SM,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = NUM_THREADS,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = lane->native,
                                   .attrs = &early,
                                   .numAttrs = 1};
    void *arguments[] = {&app->num_blocks_run};
    DRIVER_CHECK(driver.launch_kernel_ex(&config, app->filling, arguments, NULL));
    app->num_blocks_launched += config.gridDimX;
    return 0;
}

static int reduce(struct app *app, const struct lane *lane, weft_stream *stream)
{
    const struct plan *plan = app->context->argument;
    CHECK_OK(weft_coll_all_reduce(lane->coll,
                                  WEFT_ARGS(weft_coll_args, .send = app->data, .recv = app->data,
                                            .count = (int64_t)(plan->bytes / 4), .dtype = WEFT_FP32,
                                            .op = WEFT_MAX),
                                  stream));
    return 0;
}

static int finish(const struct lane *lane)
{
    CHECK_OK(weft_stream_synchronize(lane->streams[0]));
    CHECK_OK(weft_stream_synchronize(lane->streams[1]));
    return 0;
}

static int check_filling(struct app *app)
{
    uint32_t num_blocks_run = 0;
    DRIVER_CHECK(driver.memcpy_async((CUdeviceptr)(uintptr_t)&num_blocks_run, app->num_blocks_run,
                                     sizeof num_blocks_run, app->lanes[0].native));
    DRIVER_CHECK(driver.stream_synchronize(app->lanes[0].native));
    CHECK(num_blocks_run == app->num_blocks_launched, "%u blocks have run, not %u", num_blocks_run,
          app->num_blocks_launched);
    return 0;
}

/* Until what is enqueued has got its places on the GPU, of which nobody is told. */
static void let_it_begin(void)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    nanosleep(&pause, NULL);
}

/* ---------------------------------------------------------------- what ranks do */

/* What the other node adds needs room for a block here. */
static int wait_for_a_word(struct ranks_context *context)
{
    struct app app;
    if (open_app(&app, context))
        return 1;
    for (uint64_t round = 1; round <= NUM_ROUNDS; round++) {
        const struct lane *lane = &app.lanes[0];
        if (context->rank == 0) {
            CHECK_OK(weft_rma_wait_until(app.comm,
                                         WEFT_ARGS(weft_rma_args, .word = app.word, .value = round),
                                         lane->streams[0]));
            if (fill_gpu(&app, lane))
                return 1;
        }
        ranks_barrier(context);
        if (context->rank != 0) {
            let_it_begin();
            CHECK_OK(weft_rma_signal(
                app.comm, WEFT_ARGS(weft_rma_args, .word = app.word, .value = 1, .rank = 0),
                lane->streams[0]));
        }
        if (finish(lane))
            return 1;
    }
    return check_filling(&app) || close_app(&app);
}

static int reduce_and_fill(struct app *app, const struct lane *lane)
{
    return reduce(app, lane, lane->streams[0]) || fill_gpu(app, lane);
}

/* Rank 1 has done with one of them before it begins with the other. */
static int opposite_orders(struct ranks_context *context)
{
    struct app app;
    if (open_app(&app, context))
        return 1;
    for (int round = 0; round < NUM_ROUNDS; round++) {
        const int first = context->rank == 0 ? 0 : 1;
        if (reduce_and_fill(&app, &app.lanes[first]))
            return 1;
        if (context->rank == 1 && finish(&app.lanes[first]))
            return 1;
        if (context->rank == 0)
            let_it_begin();
        if (reduce_and_fill(&app, &app.lanes[1 - first]) || finish(&app.lanes[0]) ||
            finish(&app.lanes[1]))
            return 1;
        CHECK_OK(weft_comm_host_barrier(app.comm));
    }
    return check_filling(&app) || close_app(&app);
}

/* Two that take half of the GPU each, one behind the other; weft does not know that it is one
 * stream. */
static int a_stream_wrapped_twice(struct ranks_context *context)
{
    struct app app;
    if (open_app(&app, context))
        return 1;
    for (int round = 0; round < NUM_ROUNDS; round++) {
        const struct lane *lane = &app.lanes[0], *other = &app.lanes[1];
        if (context->rank == 1 && (reduce(&app, other, other->streams[0]) || finish(other)))
            return 1;
        if (reduce(&app, lane, lane->streams[0]) || reduce(&app, lane, lane->streams[1]))
            return 1;
        if (context->rank == 0) {
            let_it_begin();
            if (reduce(&app, other, other->streams[0]))
                return 1;
        }
        if (finish(lane) || finish(other))
            return 1;
        CHECK_OK(weft_comm_host_barrier(app.comm));
    }
    return close_app(&app);
}

/* ---------------------------------------------------------------- the tests */

static void run(rank_function function, struct plan plan)
{
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, function, &plan), 0);
}

TEST_OVER(behind_a_wait_for_another_node, "auto")
{
    run(wait_for_a_word, (struct plan){.num_nodes = 2});
}

TEST(behind_collectives_in_opposite_orders)
{
    for (size_t bytes = 1 << 10; bytes <= MAX_BYTES; bytes <<= 6)
        run(opposite_orders, (struct plan){.bytes = bytes});
}

TEST(behind_one_stream_that_is_wrapped_twice)
{
    for (size_t bytes = 1 << 10; bytes <= MAX_BYTES; bytes <<= 6)
        run(a_stream_wrapped_twice, (struct plan){.bytes = bytes, .is_half = 1});
}
