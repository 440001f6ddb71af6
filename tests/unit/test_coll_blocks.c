/* SPDX-License-Identifier: MIT */
/* Ranks whose machines would choose other grids launch as many blocks as all of them can. */
#include "coll/coll.h"
#include "harness/cmocka.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 3, NUM_KINDS = 2 };

static const int32_t blocks_of_rank[NUM_RANKS][NUM_KINDS] = {{5, 3}, {4, 7}, {6, 4}};
static const int32_t fewest[NUM_KINDS] = {4, 3};

static struct weft__grid choose_by_rank(const weft_comm *comm, const struct weft__work *work)
{
    const int32_t kind = work->kind == WEFT__WORK_PULL_TENSOR ? 0 : 1;
    return (struct weft__grid){.num_blocks = blocks_of_rank[comm->rank][kind], .num_warps = 1};
}

TEST_ON_RANKS(the_fewest_blocks_are_those_of_all, RANKS_THREADS, NUM_RANKS)
{
    weft_coll *coll;
    weft_comm *const comm =
        ranks_comm(context, WEFT_ARGS(weft_comm_config, .machine = WEFT_MACHINE_CPU));
    const struct weft__comm_hooks *hooks = comm->hooks;
    struct weft__machine machine = *weft__machine_of(comm);
    machine.choose_grid = choose_by_rank;
    machine.max_blocks = 8;
    comm->hooks = &machine.hooks;
    CHECK_OK(weft_coll_create(comm, NULL, &coll));
    const int32_t blocks[NUM_KINDS] = {coll->direct_blocks[WEFT__WORK_PULL_TENSOR],
                                       coll->direct_blocks[WEFT__WORK_PUSH_TENSOR]};
    for (int kind = 0; kind < NUM_KINDS; kind++)
        CHECK(blocks[kind] == fewest[kind], "kind %d has %d blocks", kind, blocks[kind]);
    CHECK_OK(weft_coll_destroy(coll));
    comm->hooks = hooks;
    return 0;
}
