/* SPDX-License-Identifier: MIT */
/* Every collective with every element type, operator, algorithm and count, on 1 to 9 ranks, and
 * some of them on up to 32; memory, alignment, values and form are drawn at random for each, unless
 * said otherwise. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/coll_trials.h"
#include "workload/elements.h"
#include "workload/rng.h"

enum { NUM_COUNTS = 12, NUM_SMALL_COUNTS = 11, NUM_COUNTS_FOR_ALL_SETUPS = 10, MAX_RANKS = 9 };
static const uint64_t counts[NUM_COUNTS] = {0, 1, 3, 7, 8, 15, 16, 17, 100, 1023, 4096, 65537};
static const uint64_t LARGE_COUNT = (1 << 20) + 3;

/* Limits an array of a row for each rank to about max_bytes. */
static uint64_t limited(enum coll_operation operation, weft_dtype dtype, uint64_t count,
                        int32_t num_ranks, uint64_t max_bytes)
{
    const int is_one_row =
        operation == COLL_ALL_REDUCE || operation == COLL_BROADCAST || operation == COLL_REDUCE;
    const uint64_t num_rows = is_one_row ? 1 : (uint64_t)num_ranks;
    const uint64_t most = max_bytes / (num_rows * dtype_bytes(dtype));
    return count < most ? count : most;
}

/* Everything that is not given is drawn from a seed, which must differ from call to call. */
static void add(struct coll_trials *trials, uint64_t seed, enum coll_operation operation,
                weft_dtype dtype, weft_reduce_op op, uint64_t count, uint64_t setup)
{
    const struct coll_case spec =
        coll_case_random(seed, trials->num_ranks, operation, dtype, op, count);
    coll_trials_add(trials, coll_trial_of(&spec, setup));
}

/* Bits for each kind of values with each setup. */
struct met {
    uint64_t pairs[COLL_NUM_OPERATIONS][NUM_DTYPES];
};

/* On one to nine ranks every operation does every type in every setup with every kind of values, of
 * one element at least; and every operator, where it reduces, with every type in every setup. */
static void add_every_dtype_and_values(struct coll_trials *trials, struct met *met)
{
    _Static_assert((int)NUM_REDUCE_OPS == (int)COLL_NUM_VALUES,
                   "the operators go through the values");
    const int32_t num_ranks = trials->num_ranks;
    struct rng rng = {rng_key(1, (uint64_t)num_ranks)};
    for (int i = 0; i < COLL_NUM_OPERATIONS * NUM_DTYPES * NUM_REDUCE_OPS; i++) {
        const int operation = i / NUM_DTYPES / NUM_REDUCE_OPS, dtype = i % NUM_DTYPES;
        const int op = i / NUM_DTYPES % NUM_REDUCE_OPS;
        const uint64_t count = counts[1 + rng_below(&rng, NUM_COUNTS_FOR_ALL_SETUPS - 1)];
        struct coll_case spec =
            coll_case_random(rng_next(&rng), num_ranks, (enum coll_operation)operation,
                             (weft_dtype)(1 + dtype), (weft_reduce_op)op, count);
        spec.values = (enum coll_values)((num_ranks + op) % COLL_NUM_VALUES);
        const struct coll_trial trial = coll_trial_of(&spec, (uint64_t)num_ranks + (uint64_t)dtype);
        met->pairs[operation][dtype] |= UINT64_C(1)
                                        << (spec.values * COLL_NUM_SETUPS + trial.setup);
        coll_trials_add(trials, trial);
    }
}

/* Long rows take most of the time. Each operation has them in each setup, on three of the nine
 * numbers of ranks. */
static void add_every_count_and_setup(struct coll_trials *trials)
{
    enum { MAX_BYTES = 1 << 20, LONG_COUNT = 4096 };
    struct rng rng = {rng_key(2, (uint64_t)trials->num_ranks)};
    const int step = tests_grid_size(1, 7); /* prime to all that is counted */
    for (int i = 0; i < COLL_NUM_OPERATIONS * NUM_COUNTS * COLL_NUM_SETUPS; i += step) {
        const enum coll_operation operation = (enum coll_operation)(i % COLL_NUM_OPERATIONS);
        const weft_dtype dtype = (weft_dtype)(1 + rng_below(&rng, NUM_DTYPES));
        const uint64_t count = counts[i / COLL_NUM_OPERATIONS % NUM_COUNTS];
        const int32_t setup = i / COLL_NUM_OPERATIONS / NUM_COUNTS;
        if (count >= LONG_COUNT && (setup + (int32_t)operation + trials->num_ranks) % 3 != 0)
            continue;
        add(trials, rng_next(&rng), operation, dtype,
            (weft_reduce_op)rng_below(&rng, NUM_REDUCE_OPS),
            limited(operation, dtype, count, trials->num_ranks, MAX_BYTES), (uint64_t)setup);
    }
}

TEST(on_one_to_nine_ranks)
{
    struct met met = {0};
    for (int32_t num_ranks = 1; num_ranks <= MAX_RANKS; num_ranks += tests_grid_size(1, 4)) {
        struct coll_trials trials = coll_trials_create(num_ranks);
        add_every_dtype_and_values(&trials, &met);
        add_every_count_and_setup(&trials);
        assert_int_equal(coll_trials_run(&trials, RANKS_THREADS), 0);
    }
    for (int i = 0; tests_grid_size(1, 0) && i < COLL_NUM_OPERATIONS * NUM_DTYPES; i++)
        assert_int_equal(met.pairs[i / NUM_DTYPES][i % NUM_DTYPES],
                         (UINT64_C(1) << (COLL_NUM_VALUES * COLL_NUM_SETUPS)) - 1);
}

/* More than the buffers hold, which are 8 MiB by default, and at most 1 MiB in the other setups:
 * LARGE_COUNT of every type in all-reduce, in others up to that where it is no more than so many
 * bytes. */
TEST(large)
{
    enum { MAX_BYTES = 9 << 20, MAX_BYTES_OF_OTHER_SETUPS = 3 << 20, DEFAULT_SETUP = 0 };
    /* For each type that an all-reduce has; time grows with the square. */
    static const int32_t worlds[NUM_DTYPES] = {1, 2, 3, 4, MAX_RANKS, 2, 3, 5};
    const uint64_t smallest = counts[NUM_COUNTS - 1];
    uint32_t reached = 0; /* a bit for each type that was reduced with LARGE_COUNT */
    for (int t = tests_grid_size(0, 2); t < NUM_DTYPES; t += tests_grid_size(1, NUM_DTYPES)) {
        const int32_t num_ranks = worlds[t];
        struct coll_trials trials = coll_trials_create(num_ranks);
        struct rng rng = {rng_key(3, (uint64_t)t)};
        for (int i = 0; i < COLL_NUM_OPERATIONS; i++) {
            const enum coll_operation operation = (enum coll_operation)i;
            const weft_dtype dtype = (weft_dtype)(1 + (t + 3 * i) % NUM_DTYPES);
            const uint64_t drawn = operation == COLL_ALL_REDUCE || rng_below(&rng, 2) == 0
                                       ? LARGE_COUNT
                                       : smallest + rng_next(&rng) % (LARGE_COUNT - smallest);
            const uint64_t setup = (uint64_t)t + (uint64_t)i;
            const int is_largest =
                operation == COLL_ALL_REDUCE || setup % COLL_NUM_SETUPS == DEFAULT_SETUP;
            const uint64_t count = limited(operation, dtype, drawn, num_ranks,
                                           is_largest ? MAX_BYTES : MAX_BYTES_OF_OTHER_SETUPS);
            if (operation == COLL_ALL_REDUCE && count == LARGE_COUNT)
                reached |= 1u << (dtype - 1);
            add(&trials, rng_next(&rng), operation, dtype,
                (weft_reduce_op)rng_below(&rng, NUM_REDUCE_OPS), count, setup);
        }
        assert_int_equal(coll_trials_run(&trials, RANKS_THREADS), 0);
    }
    if (tests_grid_size(1, 0))
        assert_int_equal(reached, (1u << NUM_DTYPES) - 1);
}

static void random_trials(enum ranks_mode mode, int32_t num_ranks, int32_t num_trials)
{
    struct coll_trials trials = coll_trials_create(num_ranks);
    for (int32_t i = 0; i < num_trials; i++) {
        const uint64_t seed = rng_key(4 + (uint64_t)num_ranks, (uint64_t)i);
        coll_trials_add(&trials, coll_trial_random(seed, num_ranks, 1u << i % 14));
    }
    assert_int_equal(coll_trials_run(&trials, mode), 0);
}

TEST(in_processes)
{
    for (int32_t num_ranks = 2; num_ranks <= 5; num_ranks += 3)
        random_trials(RANKS_PROCESSES, num_ranks, tests_grid_size(300, 50));
}

static void every_operation_and_setup(int32_t num_ranks)
{
    struct coll_trials trials = coll_trials_create(num_ranks);
    struct rng rng = {rng_key(4, (uint64_t)num_ranks)};
    for (int i = 0; i < COLL_NUM_OPERATIONS * COLL_NUM_SETUPS; i++)
        add(&trials, rng_next(&rng), (enum coll_operation)(i % COLL_NUM_OPERATIONS),
            (weft_dtype)(1 + rng_below(&rng, NUM_DTYPES)),
            (weft_reduce_op)rng_below(&rng, NUM_REDUCE_OPS),
            counts[rng_below(&rng, NUM_SMALL_COUNTS)], (uint64_t)(i / COLL_NUM_OPERATIONS));
    assert_int_equal(coll_trials_run(&trials, RANKS_THREADS), 0);
}

TEST(many_ranks)
{
    const int32_t first = tests_rounds(tests_grid_size(MAX_RANKS + 1, 16), 16);
    for (int32_t num_ranks = first; num_ranks <= 16; num_ranks++)
        every_operation_and_setup(num_ranks);
    /* A GPU has 32 queues for the kernels of ranks that share it, and needs some for itself. */
    if (!tests_on_cuda())
        random_trials(RANKS_THREADS, WEFT_COLL_MAX_RANKS, tests_grid_size(20, 5));
}
