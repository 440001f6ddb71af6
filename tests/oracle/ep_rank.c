/* SPDX-License-Identifier: MIT */
#include "oracle/ep_rank.h"

#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_alloc.h"

enum { GUARD_BYTES = 128, GUARD = 0xa5 };

int ep_rank_open(struct ep_rank *self, struct ranks_context *context, int32_t num_nodes,
                 uint64_t arena_bytes)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    *self = (struct ep_rank){.context = context};
    config.num_nodes = num_nodes;
    RANK_CHECK_OK(context, weft_comm_create(&context->id, context->rank, context->num_ranks,
                                            &config, &self->comm));
    RANK_CHECK_OK(context, weft_stream_create(self->comm, &self->stream));
    RANK_CHECK_OK(context, weft_arena_create(self->comm, arena_bytes, &self->arena));
    return 0;
}

int ep_rank_close(struct ep_rank *self)
{
    RANK_CHECK_OK(self->context, weft_stream_synchronize(self->stream));
    RANK_CHECK_OK(self->context, weft_arena_destroy(self->arena));
    RANK_CHECK_OK(self->context, weft_stream_destroy(self->stream));
    RANK_CHECK_OK(self->context, weft_comm_destroy(self->comm));
    return 0;
}

weft_ep_config ep_rank_config(const struct ep_world *world, int32_t rank)
{
    weft_ep_config config = WEFT_INIT(weft_ep_config);
    config.num_experts = world->spec.num_experts;
    config.max_topk = world->spec.seed % 2 == 0 ? 0 : world->spec.num_topk;
    if (world->spec.placement != EP_PLACEMENT_DEFAULT) {
        config.expert_offsets = world->problem.expert_offsets;
        config.expert_ranks = world->problem.expert_ranks;
    }
    config.num_blocks = world->spec.num_blocks;
    config.num_warps = world->spec.num_warps;
    if (world->spec.grid == EP_GRID_DIFFERS_BY_RANK) {
        config.num_blocks = 1 + rank % 3;
        config.num_warps = 1 + 2 * rank % 5;
    }
    return config;
}

weft_ep_handle_config ep_rank_handle_config(const struct ep_world *world)
{
    weft_ep_handle_config config = WEFT_INIT(weft_ep_handle_config);
    config.max_tokens = world->spec.max_tokens;
    config.num_topk = world->spec.num_topk;
    config.expert_alignment = world->spec.expert_alignment;
    return config;
}

int ep_rank_enter(struct ep_rank *self, const struct ep_world *world)
{
    const int32_t rank = self->context->rank;
    const weft_ep_config config = ep_rank_config(world, rank);
    const weft_ep_handle_config handle_config = ep_rank_handle_config(world);
    self->world = world;
    RANK_CHECK_OK(self->context, weft_ep_create(self->comm, &config, &self->ep));
    RANK_CHECK_OK(self->context, weft_ep_handle_create(self->ep, &handle_config, &self->handle));
    return 0;
}

int ep_rank_leave(struct ep_rank *self)
{
    RANK_CHECK_OK(self->context, weft_stream_synchronize(self->stream));
    RANK_CHECK_OK(self->context, weft_ep_handle_destroy(self->handle));
    /* Heap memory goes back: nobody may still be reading it. */
    RANK_CHECK_OK(self->context, weft_host_barrier(self->comm));
    RANK_CHECK_OK(self->context, weft_ep_destroy(self->ep));
    self->handle = NULL;
    self->ep = NULL;
    return 0;
}

int ep_output_alloc(struct ep_rank *self, struct ep_output *output, enum ep_memory memory,
                    uint64_t bytes, uint64_t misalign_bytes)
{
    const uint64_t block_bytes = 2 * GUARD_BYTES + 64 + bytes;
    void *block = NULL;
    *output = (struct ep_output){.bytes = bytes, .memory = memory};
    if (memory == EP_MEMORY_HEAP)
        RANK_CHECK_OK(self->context, weft_arena_alloc(self->arena, block_bytes, &block));
    else
        RANK_CHECK(self->context, posix_memalign(&block, 64, block_bytes) == 0, "out of memory");
    output->block = block;
    memset(block, GUARD, block_bytes);
    if (bytes > 0)
        output->data = output->block + GUARD_BYTES + misalign_bytes;
    return 0;
}

static int is_guard(const char *begin, const char *end)
{
    for (const char *byte = begin; byte < end; byte++)
        if ((unsigned char)*byte != GUARD)
            return 0;
    return 1;
}

int ep_output_free(struct ep_rank *self, struct ep_output *output, const char *name)
{
    const char *block_end = output->block + 2 * GUARD_BYTES + 64 + output->bytes;
    const char *begin = output->data == NULL ? block_end : output->data;
    const char *end = output->data == NULL ? block_end : begin + output->bytes;
    RANK_CHECK(self->context, is_guard(output->block, begin), "written before %s", name);
    RANK_CHECK(self->context, is_guard(end, block_end), "written after %s", name);
    if (output->memory == EP_MEMORY_HEAP)
        RANK_CHECK_OK(self->context, weft_arena_free(self->arena, output->block));
    else
        free(output->block);
    *output = (struct ep_output){0};
    return 0;
}

int ep_output_untouched(struct ep_rank *self, const struct ep_output *output, uint64_t begin,
                        const char *name)
{
    const char *data = output->data;
    if (begin < output->bytes)
        RANK_CHECK(self->context, is_guard(data + begin, data + output->bytes),
                   "%s was written after its byte %llu", name, (unsigned long long)begin);
    return 0;
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
    RANK_CHECK(self->context, a[i] == b[i],
               "%s row %lld byte %llu of %llu: 0x%02x, expected 0x%02x (case seed %llu, %d ranks)",
               name, (long long)row_idx, (unsigned long long)i, (unsigned long long)bytes, a[i],
               b[i], (unsigned long long)self->world->spec.seed, self->context->num_ranks);
    return 0;
}
