/* SPDX-License-Identifier: MIT */
#include "oracle/ep_rank.h"

#include <string.h>

#include "harness/machine.h"
#include "oracle/ep_memory.h"
#include "workload/rng.h"

/* Enough for what tests give to operations besides rows in the arena. */
enum { RESERVE_BYTES = 128 << 20 };

int ep_rank_open_on(struct ep_rank *self, struct ranks_context *context, weft_comm *comm,
                    uint64_t arena_bytes)
{
    *self = (struct ep_rank){.context = context, .comm = comm, .memory = ep_memory_create()};
    CHECK_OK(weft_stream_create(comm, &self->stream));
    CHECK_OK(weft_arena_create(comm, arena_bytes, &self->arena));
    return ep_memory_reserve(self, RESERVE_BYTES);
}

int ep_rank_open_with(struct ep_rank *self, struct ranks_context *context,
                      const weft_comm_config *config, uint64_t arena_bytes)
{
    weft_comm *comm;
    CHECK_OK(ranks_comm_create(context, config, &comm));
    return ep_rank_open_on(self, context, comm, arena_bytes);
}

int ep_rank_open(struct ep_rank *self, struct ranks_context *context, int32_t num_nodes,
                 uint64_t arena_bytes)
{
    return ep_rank_open_with(self, context, WEFT_ARGS(weft_comm_config, .num_nodes = num_nodes),
                             arena_bytes);
}

int ep_rank_close(struct ep_rank *self)
{
    CHECK_OK(weft_stream_synchronize(self->stream));
    if (ep_memory_destroy(self))
        return 1;
    CHECK_OK(weft_arena_destroy(self->arena));
    CHECK_OK(weft_stream_destroy(self->stream));
    CHECK_OK(weft_comm_destroy(self->comm));
    return 0;
}

/* The library's choice is for ranks with a GPU each. Where several share one, the blocks of all
 * must fit at once. */
static int32_t num_blocks_of(const struct ep_case *spec)
{
    enum { MAX_RANKS_BY_CHOICE = 4, FEW_BLOCKS = 2 };
    if (spec->num_blocks == 0 && tests_on_cuda() && spec->num_ranks > MAX_RANKS_BY_CHOICE)
        return FEW_BLOCKS;
    return spec->num_blocks;
}

/* What weft_ep_create gets for this world on this rank. */
static weft_ep_config ep_config_of(const struct ep_world *world, int32_t rank)
{
    weft_ep_config config = WEFT_INIT(weft_ep_config);
    config.num_experts = world->spec.num_experts;
    config.max_topk = world->spec.seed % 2 == 0 ? 0 : world->spec.num_topk;
    if (world->spec.placement != EP_PLACEMENT_DEFAULT) {
        config.expert_offsets = world->experts.offsets;
        config.expert_ranks = world->experts.ranks;
    }
    if (world->spec.num_spare_experts > 0) {
        config.num_experts += world->spec.num_spare_experts;
        config.expert_offsets = world->ep_offsets;
        config.expert_ranks = world->ep_ranks;
    }
    config.num_blocks = num_blocks_of(&world->spec);
    config.num_warps = world->spec.num_warps;
    if (world->spec.grid == EP_GRID_DIFFERS_BY_RANK) {
        config.num_blocks = 1 + rank % 3;
        config.num_warps = 1 + 2 * rank % 5;
    }
    config.num_channels = world->spec.num_channels;
    config.num_staging_slots = world->spec.num_staging_slots;
    config.staging_slot_bytes = world->spec.staging_slot_bytes;
    config.staging_bytes = world->spec.staging_bytes;
    config.combine_wire = world->spec.wire;
    return config;
}

weft_ep_handle_config ep_rank_handle_config(const struct ep_world *world)
{
    weft_ep_handle_config config = WEFT_INIT(weft_ep_handle_config);
    config.max_tokens = world->spec.room == EP_ROOM_GROWS ? 0 : world->spec.max_tokens;
    config.num_topk = world->spec.num_topk;
    config.expert_alignment = world->spec.expert_alignment;
    config.order = world->spec.order;
    config.num_experts = world->spec.num_spare_experts > 0 ? world->spec.num_experts : 0;
    return config;
}

int32_t ep_rank_num_blocks(const struct ep_rank *self, uint64_t round)
{
    const int32_t most = ep_config_of(self->world, self->context->rank).num_blocks;
    struct rng rng = {rng_key(round, (uint64_t)self->context->rank)};
    return (int32_t)rng_below(&rng, (uint32_t)most + 1);
}

int ep_rank_enter(struct ep_rank *self, const struct ep_world *world)
{
    const int32_t rank = self->context->rank;
    const weft_ep_config config = ep_config_of(world, rank);
    const weft_ep_handle_config handle_config = ep_rank_handle_config(world);
    self->world = world;
    CHECK_OK(weft_ep_create(self->comm, &config, &self->ep));
    CHECK_OK(weft_ep_handle_create(self->ep, &handle_config, &self->handle));
    return 0;
}

int ep_rank_leave(struct ep_rank *self)
{
    CHECK_OK(weft_stream_synchronize(self->stream));
    CHECK_OK(weft_ep_handle_destroy(self->handle));
    /* Heap memory goes back: nobody may still be reading it. */
    CHECK_OK(weft_comm_host_barrier(self->comm));
    CHECK_OK(weft_ep_destroy(self->ep));
    self->handle = NULL;
    self->ep = NULL;
    return ep_memory_forget_inputs(self);
}

int ep_compare(struct ep_rank *self, const void *got, const void *expected, uint64_t bytes,
               const char *name, int64_t row_idx)
{
    const unsigned char *a = got;
    const unsigned char *b = expected;
    uint64_t i = 0;
    if (bytes == 0 || memcmp(a, b, bytes) == 0)
        return 0;
    while (a[i] == b[i])
        i++;
    CHECK(a[i] == b[i],
          "%s row %lld byte %llu of %llu: 0x%02x, expected 0x%02x (case seed %llu, %d ranks)", name,
          (long long)row_idx, (unsigned long long)i, (unsigned long long)bytes, a[i], b[i],
          (unsigned long long)self->world->spec.seed, self->context->num_ranks);
    return 0;
}
