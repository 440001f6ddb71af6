/* SPDX-License-Identifier: MIT */
/* Operations whose input is the output of the one before, and whose output is where that one's
 * input was, without the host in between: only the order of the stream, and what an operation
 * promises when it has finished, keeps them apart. Integers that wrap around lose nothing, so any
 * mistake is in the end. */
#include <string.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/memory.h"
#include "oracle/coll_rank.h"
#include "workload/collective.h"
#include "workload/rng.h"

enum { NUM_RANKS = 4, NUM_BUFFERS = 3, NUM_STEPS = 150 };
enum { OUTSIDE = 1 }; /* the buffer that is not in the heap */

/* A step reads one buffer, and writes another, or the same if the operation has an in-place form.
 * All buffers hold a row for each rank; what a step does not write stays. */
struct step {
    enum coll_operation operation;
    weft_dtype dtype;
    int32_t root;
    int from, to;
    int setup;
};

/* Only the root has an output, which is then in such memory as the inputs. */
static int is_of_root(enum coll_operation operation)
{
    return operation == COLL_REDUCE || operation == COLL_GATHER;
}

static struct step step_of(uint64_t seed, int idx, int setup)
{
    static const enum coll_operation operations[] = {
        COLL_ALL_REDUCE, COLL_REDUCE_SCATTER, COLL_ALL_GATHER, COLL_ALL_TO_ALL,
        COLL_BROADCAST,  COLL_REDUCE,         COLL_GATHER,     COLL_SCATTER};
    static const weft_dtype dtypes[] = {WEFT_INT32, WEFT_INT64, WEFT_UINT8};
    struct rng rng = {rng_key(seed, (uint64_t)idx)};
    struct step step = {.operation = operations[rng_below(&rng, 8)],
                        .dtype = dtypes[rng_below(&rng, 3)],
                        .root = (int32_t)rng_below(&rng, NUM_RANKS),
                        .from = (int)rng_below(&rng, NUM_BUFFERS),
                        .setup = setup == COLL_NUM_SETUPS ? (int)rng_below(&rng, COLL_NUM_SETUPS)
                                                          : setup};
    const int is_in_place = rng_below(&rng, 4) == 0 && step.operation != COLL_ALL_TO_ALL;
    step.to = is_in_place ? step.from : (step.from + 1 + (int)rng_below(&rng, 2)) % NUM_BUFFERS;
    if (is_of_root(step.operation) && (step.from == OUTSIDE) != (step.to == OUTSIDE))
        step.to = step.from == OUTSIDE ? OUTSIDE : NUM_BUFFERS - 1 - step.from;
    return step;
}

/* ---------------------------------------------------------------- what must come of it */

struct plan {
    uint64_t seed;
    uint64_t row_bytes;                   /* a multiple of 8 */
    int setup;                            /* COLL_NUM_SETUPS: another for each step */
    char *images[NUM_RANKS][NUM_BUFFERS]; /* in the end */
};

static void reduce_images(const struct step *step, char *const *from, uint64_t offset,
                          uint64_t bytes, char *out)
{
    const void *rows[NUM_RANKS];
    const uint64_t count = bytes / dtype_bytes(step->dtype);
    struct coll_case spec = {.num_ranks = NUM_RANKS,
                             .operation = step->operation,
                             .dtype = step->dtype,
                             .op = WEFT_SUM,
                             .count = count};
    const struct coll_setup setup = coll_setup_of(step->setup, NUM_RANKS, &spec.nodes);
    coll_setup_order(&setup, &spec);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        rows[rank] = from[rank] + offset;
    coll_reduce(&spec, (int32_t)(offset / bytes), rows, count, out);
}

/* What `rank` gets, given the buffers that all ranks read. */
static void simulate_rank(const struct plan *plan, const struct step *step, int32_t rank,
                          char *const *from, char *to)
{
    const uint64_t row_bytes = plan->row_bytes;
    const uint64_t own = (uint64_t)rank * row_bytes;
    /* As issue() places them: in place a row of the buffer, else the first. */
    const uint64_t part = step->from == step->to ? own : 0;
    if (is_of_root(step->operation) && rank != step->root)
        return;
    switch (step->operation) {
    case COLL_ALL_REDUCE:
    case COLL_REDUCE:
        reduce_images(step, from, 0, NUM_RANKS * row_bytes, to);
        break;
    case COLL_REDUCE_SCATTER:
        reduce_images(step, from, own, row_bytes, to + part);
        break;
    case COLL_BROADCAST:
        memcpy(to, from[step->root], NUM_RANKS * row_bytes);
        break;
    case COLL_SCATTER:
        memcpy(to + part, from[step->root] + own, row_bytes);
        break;
    default:
        for (int32_t row = 0; row < NUM_RANKS; row++) {
            const uint64_t in_place = step->from == step->to ? (uint64_t)row * row_bytes : 0;
            const uint64_t offset = step->operation == COLL_ALL_TO_ALL ? own : in_place;
            memcpy(to + (uint64_t)row * row_bytes, from[row] + offset, row_bytes);
        }
    }
}

static void simulate_step(struct plan *plan, const struct step *step)
{
    const uint64_t bytes = NUM_RANKS * plan->row_bytes;
    char *from[NUM_RANKS];
    for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
        from[rank] = tests_alloc(bytes);
        memcpy(from[rank], plan->images[rank][step->from], bytes);
    }
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        simulate_rank(plan, step, rank, from, plan->images[rank][step->to]);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        tests_free(from[rank]);
}

static void first_content(const struct plan *plan, int32_t rank, int buffer, char *content)
{
    struct rng rng = {rng_key(plan->seed, 1000 + (uint64_t)rank * NUM_BUFFERS + (uint64_t)buffer)};
    for (uint64_t i = 0; i < NUM_RANKS * plan->row_bytes; i += 8) {
        const uint64_t word = rng_next(&rng);
        memcpy(content + i, &word, 8);
    }
}

static void simulate(struct plan *plan)
{
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        for (int buffer = 0; buffer < NUM_BUFFERS; buffer++) {
            plan->images[rank][buffer] = tests_alloc(NUM_RANKS * plan->row_bytes);
            first_content(plan, rank, buffer, plan->images[rank][buffer]);
        }
    for (int idx = 0; idx < tests_grid_size(NUM_STEPS, 40); idx++) {
        const struct step step = step_of(plan->seed, idx, plan->setup);
        simulate_step(plan, &step);
    }
}

/* ---------------------------------------------------------------- what comes of it */

static weft_result issue(struct coll_rank *self, const struct plan *plan, const struct step *step,
                         const struct ep_array *buffers)
{
    weft_coll *coll = self->colls[step->setup];
    weft_stream *stream = self->base.stream;
    char *from = buffers[step->from].data;
    char *to = buffers[step->to].data;
    const uint64_t count = plan->row_bytes / dtype_bytes(step->dtype);
    const uint64_t own = (uint64_t)self->base.context->rank * plan->row_bytes;
    const uint64_t part = step->from == step->to ? own : 0;
    const int has_rows = step->operation != COLL_ALL_REDUCE && step->operation != COLL_BROADCAST &&
                         step->operation != COLL_REDUCE;
    const int gathers = step->operation == COLL_ALL_GATHER || step->operation == COLL_GATHER;
    const int scatters = step->operation == COLL_REDUCE_SCATTER || step->operation == COLL_SCATTER;
    return collective_call(coll_collective(step->operation), coll,
                           WEFT_ARGS(weft_coll_args, .send = gathers ? from + part : from,
                                     .recv = scatters ? to + part : to,
                                     .count = (int64_t)(has_rows ? count : NUM_RANKS * count),
                                     .dtype = step->dtype, .root = step->root),
                           stream);
}

static int check_buffers(struct coll_rank *self, const struct plan *plan, struct ep_array *buffers)
{
    struct ranks_context *context = self->base.context;
    for (int buffer = 0; buffer < NUM_BUFFERS; buffer++) {
        const char *expected = plan->images[context->rank][buffer];
        uint64_t i = 0;
        if (ep_array_pull(&self->base, &buffers[buffer]))
            return 1;
        const char *got = buffers[buffer].host;
        while (i < NUM_RANKS * plan->row_bytes && got[i] == expected[i])
            i++;
        CHECK(i == NUM_RANKS * plan->row_bytes,
              "buffer %d differs at byte %llu (seed %llu, setup %d)", buffer, (unsigned long long)i,
              (unsigned long long)plan->seed, plan->setup);
        if (ep_array_check_and_free(&self->base, &buffers[buffer], "a buffer"))
            return 1;
    }
    return 0;
}

/* Ranks that are threads have one CUDA context on a GPU that they share, and a thread that
 * launches into a full queue keeps the others out: so nobody may be far ahead of a rank that has
 * not begun. */
static int threads_share_a_gpu(const struct ranks_context *context)
{
    return tests_on_cuda() && tests_num_devices() < context->num_ranks;
}

static int run_chain(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct ep_array buffers[NUM_BUFFERS];
    struct coll_rank self;
    if (coll_rank_open(&self, context))
        return 1;
    for (int buffer = 0; buffer < NUM_BUFFERS; buffer++) {
        if (ep_array_alloc(&self.base, &buffers[buffer], buffer == OUTSIDE ? EP_OWN : EP_HEAP,
                           NUM_RANKS * plan->row_bytes, 8 * (uint64_t)buffer))
            return 1;
        first_content(plan, context->rank, buffer, buffers[buffer].host);
        if (ep_array_push(&self.base, &buffers[buffer]))
            return 1;
    }
    for (int idx = 0; idx < tests_grid_size(NUM_STEPS, 40); idx++) {
        const struct step step = step_of(plan->seed, idx, plan->setup);
        CHECK_OK(issue(&self, plan, &step, buffers));
        if (threads_share_a_gpu(context) && idx % 20 == 19)
            CHECK_OK(weft_stream_synchronize(self.base.stream));
    }
    CHECK_OK(weft_stream_synchronize(self.base.stream));
    return check_buffers(&self, plan, buffers) || coll_rank_close(&self);
}

static void run(enum ranks_mode mode, uint64_t row_bytes, int setup)
{
    struct plan plan = {
        .seed = row_bytes + 7 * (uint64_t)setup, .row_bytes = row_bytes, .setup = setup};
    simulate(&plan);
    assert_int_equal(ranks_run(mode, NUM_RANKS, run_chain, &plan), 0);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        for (int buffer = 0; buffer < NUM_BUFFERS; buffer++)
            tests_free(plan.images[rank][buffer]);
}

/* The whole buffer of NUM_RANKS rows must fit into the packets of every setup. */
TEST(small_rows)
{
    for (int setup = 0; setup <= COLL_NUM_SETUPS; setup++)
        run(RANKS_THREADS, setup % 2 == 0 ? 8 : 1000, setup);
    run(RANKS_PROCESSES, 40, COLL_NUM_SETUPS);
}

/* More than the small buffers hold; by setups that can. */
TEST(large_rows)
{
    run(RANKS_THREADS, 30000, 0);
    run(RANKS_THREADS, 30000, 3);
    run(RANKS_PROCESSES, 30000, COLL_NUM_SETUPS - 1);
}
