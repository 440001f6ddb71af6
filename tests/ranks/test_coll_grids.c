/* SPDX-License-Identifier: MIT */
/* One and the same call gives the same bits with every algorithm that can do it and every number of
 * blocks and warps. The oracle knows neither: what equals it in all of them is the same in all. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/coll_call.h"
#include "oracle/coll_rank.h"
#include "workload/collective.h"

static const int32_t grids[][2] = {{1, 1}, {1, 7}, {2, 1}, {3, 5}, {2, 16}};
enum { NUM_GRIDS = sizeof grids / sizeof grids[0], NUM_CASES = 8 };

/* The cases of a collective, whatever the algorithm. */
static struct coll_case case_of(weft_collective collective, int i, int32_t num_ranks)
{
    static const uint64_t counts[] = {1, 17, 100, 1023, 2500};
    static const weft_dtype dtypes[] = {WEFT_BF16, WEFT_FP32, WEFT_FP8_E4M3, WEFT_INT64, WEFT_FP64};
    const uint64_t seed = 1000 * (uint64_t)collective + (uint64_t)i;
    struct coll_case spec =
        coll_case_random(seed, num_ranks, (enum coll_operation)collective, dtypes[i % 5],
                         i % 2 == 0 ? WEFT_SUM : WEFT_AVG, counts[i * 3 % 5]);
    spec.values = i % 2 == 0 ? COLL_VALUES_CANCELLING : COLL_VALUES_HOSTILE;
    return spec;
}

/* Every block has two pieces of a part, the last of them short. Rows elsewhere would be staged, and
 * so have one. */
static struct coll_case relayed_case(int32_t num_ranks, int32_t num_blocks)
{
    enum { PIECE_BYTES = 128 << 10 };
    const uint64_t num_pieces = 2 * (uint64_t)(num_ranks - 1) * (uint64_t)num_blocks;
    struct coll_case spec = coll_case_random(17, num_ranks, COLL_BROADCAST, WEFT_UINT8, WEFT_SUM,
                                             num_pieces * PIECE_BYTES - 1000);
    spec.send_place = spec.recv_place = COLL_IN_HEAP;
    return spec;
}

static int check_grid(struct ep_rank *self, weft_collective collective, weft_algorithm algorithm,
                      int grid)
{
    struct coll_setup setup = {.kind = COLL_CONFIGURED, .config = WEFT_INIT(weft_coll_config)};
    weft_coll_config *config = &setup.config;
    weft_coll *coll;
    char name[64];
    config->packet_bytes = 32 << 10;
    config->staging_bytes = 8 << 10; /* less than some of the cases have */
    config->choices = WEFT_ARGS(weft_coll_choice, .collective = collective, .algorithm = algorithm);
    config->num_choices = 1;
    config->num_blocks = grids[grid][0];
    config->num_warps = grids[grid][1];
    snprintf(name, sizeof name, "%s, %dx%d", weft_coll_algorithm_name(algorithm),
             config->num_blocks, config->num_warps);
    CHECK_OK(weft_coll_create(self->comm, config, &coll));
    for (int i = 0; i < NUM_CASES; i++) {
        struct coll_case spec = case_of(collective, i, self->context->num_ranks);
        coll_setup_adapt(&setup, &spec);
        CHECK(weft_coll_algorithm(coll, collective, coll_row_bytes(&spec)) == algorithm,
              "%s was pinned", name);
        if (coll_check(self, coll, &spec, name))
            return 1;
    }
    if (algorithm == WEFT_ALGORITHM_RELAY) {
        const struct coll_case spec = relayed_case(self->context->num_ranks, config->num_blocks);
        if (coll_check(self, coll, &spec, name))
            return 1;
    }
    /* Heap memory goes back: nobody may still be reading it. */
    CHECK_OK(weft_comm_host_barrier(self->comm));
    CHECK_OK(weft_coll_destroy(coll));
    return 0;
}

static int check_all(struct ranks_context *context)
{
    struct ep_rank self;
    if (ep_rank_open(&self, context, 0, 16 << 20))
        return 1;
    for (int i = 0; i < NUM_COLLECTIVES * NUM_ALGORITHMS * NUM_GRIDS; i++) {
        const weft_collective collective = (weft_collective)(i / NUM_GRIDS / NUM_ALGORITHMS);
        const weft_algorithm algorithm = (weft_algorithm)(i / NUM_GRIDS % NUM_ALGORITHMS);
        if (algorithm != WEFT_ALGORITHM_AUTO && collective_is_served(collective, algorithm) &&
            check_grid(&self, collective, algorithm, i % NUM_GRIDS))
            return 1;
    }
    return ep_rank_close(&self);
}

TEST(every_algorithm_and_grid)
{
    for (int32_t num_ranks = 2; num_ranks <= 6; num_ranks += tests_grid_size(2, 4))
        assert_int_equal(ranks_run(RANKS_THREADS, num_ranks, check_all, NULL), 0);
}
