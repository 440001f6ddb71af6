/* SPDX-License-Identifier: MIT */
#include "oracle/coll_rank.h"

#include "harness/machine.h"

enum { KIB = 1024, DEFAULT_STAGING_BYTES = 8 << 20 };

#define CHOICE(collective, algorithm)                                                              \
    {                                                                                              \
        sizeof(weft_coll_choice), WEFT_##collective, WEFT_ALGORITHM_##algorithm                    \
    }
#define ALGORITHMS(all_reduce, reduce_scatter, all_gather, to_all, broadcast, reduce)              \
    (const weft_coll_choice[])                                                                     \
    {                                                                                              \
        CHOICE(ALL_REDUCE, all_reduce), CHOICE(REDUCE_SCATTER, reduce_scatter),                    \
            CHOICE(ALL_GATHER, all_gather), CHOICE(ALL_TO_ALL, to_all),                            \
            CHOICE(BROADCAST, broadcast), CHOICE(REDUCE, reduce), CHOICE(GATHER, to_all),          \
            CHOICE(SCATTER, to_all)                                                                \
    }

#define SETUP(name, packet_bytes, staging_bytes, num_blocks, num_warps, ...)                       \
    {                                                                                              \
        name, COLL_CONFIGURED,                                                                     \
        {                                                                                          \
            sizeof(weft_coll_config), packet_bytes, staging_bytes, __VA_ARGS__, NUM_COLLECTIVES,   \
                num_blocks, num_warps, 0, KIB, 2, 3                                                \
        }                                                                                          \
    }

static const struct coll_setup setups[COLL_NUM_SETUPS] = {
    {.name = "default", .kind = COLL_DEFAULT},
    SETUP("oneshot", 128 * KIB, 64 * KIB, 2, 2,
          ALGORITHMS(ONESHOT, ONESHOT, ONESHOT, ONESHOT, ONESHOT, ONESHOT)),
    SETUP("twoshot packets", 64 * KIB, 256 * KIB, 3, 1,
          ALGORITHMS(TWOSHOT_PACKETS, ONESHOT, PUSH, ONESHOT, PUSH, ONESHOT)),
    SETUP("oneshot pull", 16 * KIB, 64 * KIB, 1, 4,
          ALGORITHMS(ONESHOT_PULL, ONESHOT_PULL, PUSH, PUSH, PUSH, ONESHOT_PULL)),
    SETUP("twoshot", 16 * KIB, 1024 * KIB, 2, 3,
          ALGORITHMS(TWOSHOT, ONESHOT_PULL, PUSH, PUSH, ONESHOT, TWOSHOT)),
    SETUP("relays", 16 * KIB, 64 * KIB, 2, 3,
          ALGORITHMS(TWOSHOT, ONESHOT_PULL, PUSH, PUSH, RELAY, TWOSHOT)),
    SETUP("small buffers", 4 * KIB, 16 * KIB, 1, 1, ALGORITHMS(AUTO, AUTO, AUTO, AUTO, AUTO, AUTO)),
};

#define NODES_SETUP_OF(name, choices, num_choices, staging_bytes, num_blocks, num_warps,           \
                       slot_bytes, num_channels, num_slots)                                        \
    {                                                                                              \
        name, COLL_CONFIGURED,                                                                     \
        {                                                                                          \
            sizeof(weft_coll_config), 0, staging_bytes, choices, num_choices, num_blocks,          \
                num_warps, 0, slot_bytes, num_channels, num_slots                                  \
        }                                                                                          \
    }
#define NODES_SETUP(name, ...) NODES_SETUP_OF(name, NULL, 0, __VA_ARGS__)

static const weft_coll_choice trees[] = {CHOICE(ALL_REDUCE, TREE), CHOICE(BROADCAST, TREE),
                                         CHOICE(REDUCE, TREE)};
enum { NUM_TREES = sizeof trees / sizeof trees[0] };

/* Rings from the shortest on that there may be, and more channels than warps. */
static const struct coll_setup nodes_setups[COLL_NUM_SETUPS] = {
    {.name = "default", .kind = COLL_DEFAULT},
    NODES_SETUP("two short slots", 64 * KIB, 1, 1, 80, 1, 2),
    NODES_SETUP("three short slots", 16 * KIB, 2, 1, 144, 2, 3),
    NODES_SETUP("many channels", 256 * KIB, 1, 2, KIB, 5, 2),
    NODES_SETUP("one slot", 16 * KIB, 1, 3, 4 * KIB, 1, 1),
    NODES_SETUP_OF("trees of two slots", trees, NUM_TREES, 64 * KIB, 1, 2, 2 * KIB, 2, 2),
    NODES_SETUP_OF("trees of three short slots", trees, NUM_TREES, 32 * KIB, 2, 3, 144, 1, 3),
};

struct coll_setup coll_setup_of(int idx, int32_t num_ranks, const struct coll_nodes *nodes)
{
    enum { MAX_RANKS_BY_CHOICE = 4, FEW_BLOCKS = 2 };
    struct coll_setup setup = nodes->num_nodes > 0 ? nodes_setups[idx] : setups[idx];
    if (nodes->num_nodes == 1) /* of more ranks than packets are for: rails alone do it */
        setup.config.num_choices = 0;
    if (setup.kind == COLL_DEFAULT && tests_on_cuda() && num_ranks > MAX_RANKS_BY_CHOICE) {
        setup.kind = COLL_CONFIGURED;
        setup.config = (weft_coll_config)WEFT_INIT(weft_coll_config);
        setup.config.num_blocks = FEW_BLOCKS;
    }
    return setup;
}

static weft_algorithm pinned_algorithm(const weft_coll_config *config, weft_collective collective)
{
    for (int32_t i = 0; i < config->num_choices; i++)
        if (config->choices[i].collective == collective)
            return config->choices[i].algorithm;
    return WEFT_ALGORITHM_AUTO;
}

void coll_setup_order(const struct coll_setup *setup, struct coll_case *spec)
{
    spec->order =
        elements_order_of(pinned_algorithm(&setup->config, coll_collective(spec->operation)));
}

int coll_setup_fits(const struct coll_setup *setup, const struct coll_case *spec)
{
    const weft_algorithm pinned =
        pinned_algorithm(&setup->config, coll_collective(spec->operation));
    const int is_by_packets =
        pinned == WEFT_ALGORITHM_ONESHOT || pinned == WEFT_ALGORITHM_TWOSHOT_PACKETS;
    enum { MOST_CHUNKS_OF_A_ROW = 40, HEADER_BYTES = 64 };
    const uint64_t slot_bytes = setup->config.staging_slot_bytes;
    if (slot_bytes > 0 && coll_row_bytes(spec) > MOST_CHUNKS_OF_A_ROW * (slot_bytes - HEADER_BYTES))
        return 0;
    return !is_by_packets || coll_row_bytes(spec) <= setup->config.packet_bytes;
}

static enum coll_place same_everywhere(enum coll_place place, uint64_t seed)
{
    if (place == COLL_PLACE_DIFFERS)
        return seed % 2 == 0 ? COLL_IN_HEAP : COLL_ELSEWHERE;
    return place;
}

void coll_setup_adapt(const struct coll_setup *setup, struct coll_case *spec)
{
    const uint64_t staging_bytes =
        setup->config.staging_bytes == 0 ? DEFAULT_STAGING_BYTES : setup->config.staging_bytes;
    coll_setup_order(setup, spec);
    if (coll_row_bytes(spec) * (uint64_t)spec->num_ranks <= staging_bytes)
        return;
    spec->send_place = same_everywhere(spec->send_place, spec->seed);
    spec->recv_place = same_everywhere(spec->recv_place, spec->seed);
    if (spec->operation == COLL_ALL_TO_ALL_V)
        spec->recv_place = COLL_IN_HEAP;
    const int is_scattered_over_nodes =
        spec->operation == COLL_SCATTER && spec->nodes.num_nodes > 0;
    if (spec->operation == COLL_REDUCE || spec->operation == COLL_GATHER || is_scattered_over_nodes)
        spec->send_place = spec->recv_place; /* only the root has both */
}

weft_result coll_setup_create(weft_comm *comm, const struct coll_setup *setup, weft_coll **coll)
{
    return weft_coll_create(comm, setup->kind == COLL_DEFAULT ? NULL : &setup->config, coll);
}

int coll_rank_open_on(struct coll_rank *self, struct ranks_context *context, weft_comm *comm,
                      const struct coll_nodes *nodes, uint64_t arena_bytes)
{
    *self = (struct coll_rank){.base = {0}};
    if (ep_rank_open_on(&self->base, context, comm, arena_bytes))
        return 1;
    for (int i = 0; i < COLL_NUM_SETUPS; i++) {
        self->setups[i] = coll_setup_of(i, weft_comm_num_ranks(comm), nodes);
        CHECK_OK(coll_setup_create(comm, &self->setups[i], &self->colls[i]));
    }
    return 0;
}

int coll_rank_open(struct coll_rank *self, struct ranks_context *context)
{
    static const struct coll_nodes one_node;
    weft_comm *comm;
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    return coll_rank_open_on(self, context, comm, &one_node, COLL_ARENA_BYTES);
}

int coll_nodes_open(struct ranks_context *context, const struct coll_nodes *nodes,
                    int32_t num_ranks, weft_comm **comm)
{
    weft_comm *world;
    CHECK_OK(ranks_comm_create(context, WEFT_ARGS(weft_comm_config, .num_nodes = nodes->num_nodes),
                               &world));
    const int32_t rank = context->rank;
    const int is_in_turn = nodes->order == COLL_NODES_IN_TURN;
    const int32_t key =
        is_in_turn ? rank % nodes->num_local * nodes->num_nodes + rank / nodes->num_local : rank;
    const int is_member = rank >= nodes->first && rank < nodes->first + num_ranks;
    CHECK_OK(weft_comm_split(world, is_member ? 0 : -1, key, NULL, comm));
    CHECK_OK(weft_comm_destroy(world));
    if (!is_member)
        return 0;
    context->rank = weft_comm_rank(*comm);
    context->num_ranks = num_ranks;
    for (int32_t other = 0; other < num_ranks; other++)
        CHECK(weft_comm_node(*comm, other) == coll_node_of(nodes, other), "rank %d is on node %d",
              other, weft_comm_node(*comm, other));
    return 0;
}

int coll_rank_close(struct coll_rank *self)
{
    CHECK_OK(weft_stream_synchronize(self->base.stream));
    /* Heap memory goes back: nobody may still be reading it. */
    CHECK_OK(weft_comm_host_barrier(self->base.comm));
    for (int i = 0; i < COLL_NUM_SETUPS; i++)
        CHECK_OK(weft_coll_destroy(self->colls[i]));
    return ep_rank_close(&self->base);
}
