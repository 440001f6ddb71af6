/* SPDX-License-Identifier: MIT */
#include "oracle/ep_memory.h"

#include <string.h>

#include "harness/memory.h"
#include "workload/rng.h"

enum { GUARD_BYTES = 128, ALIGNMENT = 256 };

struct world_inputs {
    const struct ep_world *world;
    struct ep_array topk_idx, topk_weights, tokens_to_ranks, selections;
    struct world_inputs *next;
};

/* A rank has one, which the copies of its struct ep_rank share. */
struct ep_memory {
    /* On a GPU, allocating and freeing may wait for all kernels, also for those of a rank of the
     * same process, which wait for this one: so the tests do neither between operations. */
    char *pool; /* NULL: weft_memory_alloc is asked each time */
    uint64_t pool_bytes, used_bytes;
    int64_t num_allocated; /* from the pool, which is empty again at 0 */
    int is_registered;
    struct world_inputs *inputs;
};

struct ep_memory *ep_memory_create(void)
{
    return tests_alloc(sizeof(struct ep_memory));
}

int ep_memory_reserve(struct ep_rank *self, uint64_t bytes)
{
    void *pool;
    if (weft_comm_machine(self->comm) == WEFT_MACHINE_CPU)
        return 0;
    CHECK_OK(weft_memory_alloc(self->comm, bytes, &pool));
    self->memory->pool = pool;
    self->memory->pool_bytes = bytes;
    return 0;
}

int ep_memory_register(struct ep_rank *self, uint64_t bytes)
{
    struct ep_memory *memory = self->memory;
    void *pool = memory->pool;
    if (pool == NULL)
        CHECK_OK(weft_memory_alloc(self->comm, bytes, &pool));
    memory->pool = pool;
    memory->pool_bytes = bytes > memory->pool_bytes ? bytes : memory->pool_bytes;
    CHECK_OK(weft_memory_register(self->comm, pool, memory->pool_bytes, NULL));
    memory->is_registered = 1;
    return 0;
}

int ep_memory_destroy(struct ep_rank *self)
{
    if (ep_memory_forget_inputs(self))
        return 1;
    if (self->memory->is_registered)
        CHECK_OK(weft_memory_unregister(self->comm, self->memory->pool));
    CHECK_OK(weft_memory_free(self->comm, self->memory->pool));
    tests_free(self->memory);
    self->memory = NULL;
    return 0;
}

/* ---------------------------------------------------------------- arrays */

static int own_alloc(struct ep_rank *self, uint64_t bytes, void **block)
{
    struct ep_memory *memory = self->memory;
    if (memory->pool == NULL) {
        CHECK_OK(weft_memory_alloc(self->comm, bytes, block));
        CHECK((uintptr_t)*block % ALIGNMENT == 0, "%p is not aligned", *block);
        return 0;
    }
    const uint64_t rounded_bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    CHECK(rounded_bytes <= memory->pool_bytes - memory->used_bytes,
          "the pool of %llu bytes is too small", (unsigned long long)memory->pool_bytes);
    *block = memory->pool + memory->used_bytes;
    memory->used_bytes += rounded_bytes;
    memory->num_allocated++;
    return 0;
}

static int own_free(struct ep_rank *self, void *block)
{
    struct ep_memory *memory = self->memory;
    if (memory->pool == NULL)
        CHECK_OK(weft_memory_free(self->comm, block));
    else if (--memory->num_allocated == 0)
        memory->used_bytes = 0;
    return 0;
}

enum ep_place ep_reach_place(const struct ep_rank *self, uint64_t round, int32_t which)
{
    const struct ep_case *spec = &self->world->spec;
    struct rng rng = {rng_key(rng_key(spec->seed + round, (uint64_t)self->context->rank),
                              2000 + (uint64_t)which)};
    if (spec->reach == EP_REACH_DIFFERS)
        return rng_below(&rng, 2) == 0 ? EP_HEAP : EP_OWN;
    return spec->reach == EP_REACH_OWN ? EP_OWN : EP_HEAP;
}

int ep_array_alloc(struct ep_rank *self, struct ep_array *array, enum ep_place place,
                   uint64_t bytes, uint64_t misalign_bytes)
{
    const uint64_t guard_bytes = place == EP_INPUT ? 0 : GUARD_BYTES;
    const uint64_t data_offset = guard_bytes + misalign_bytes;
    void *block = NULL;
    *array = (struct ep_array){
        .bytes = bytes, .place = place, .block_bytes = data_offset + bytes + guard_bytes};
    if (array->block_bytes == 0)
        return 0;
    if (place == EP_HEAP)
        CHECK_OK(weft_arena_alloc(self->arena, array->block_bytes, &block));
    else if (own_alloc(self, array->block_bytes, &block))
        return 1;
    array->block = block;
    array->host_block = tests_alloc(array->block_bytes);
    memset(array->host_block, EP_GUARD, array->block_bytes);
    CHECK_OK(weft_memory_copy(self->comm, block, array->host_block, array->block_bytes));
    if (bytes > 0) {
        array->data = array->block + data_offset;
        array->host = array->host_block + data_offset;
    }
    return 0;
}

int ep_array_free(struct ep_rank *self, struct ep_array *array)
{
    int failed = 0;
    if (array->block != NULL && array->place == EP_HEAP)
        CHECK_OK(weft_arena_free(self->arena, array->block));
    else if (array->block != NULL)
        failed = own_free(self, array->block);
    tests_free(array->host_block);
    *array = (struct ep_array){0};
    return failed;
}

static int is_guard(const char *begin, const char *end)
{
    for (const char *byte = begin; byte < end; byte++)
        if ((unsigned char)*byte != EP_GUARD)
            return 0;
    return 1;
}

int ep_array_check_and_free(struct ep_rank *self, struct ep_array *array, const char *name)
{
    if (array->block == NULL)
        return 0;
    if (ep_array_pull(self, array))
        return 1;
    const char *block_end = array->host_block + array->block_bytes;
    const char *begin = array->bytes == 0 ? block_end : array->host;
    const char *end = begin + array->bytes;
    CHECK(is_guard(array->host_block, begin), "written before %s", name);
    CHECK(is_guard(end, block_end), "written after %s", name);
    return ep_array_free(self, array);
}

int ep_array_push(struct ep_rank *self, const struct ep_array *array)
{
    CHECK_OK(weft_memory_copy(self->comm, array->data, array->host, array->bytes));
    return 0;
}

int ep_array_pull(struct ep_rank *self, struct ep_array *array)
{
    CHECK_OK(weft_memory_copy(self->comm, array->host_block, array->block, array->block_bytes));
    return 0;
}

int ep_array_untouched(const struct ep_array *array, uint64_t begin, const char *name)
{
    const char *host = array->host;
    if (begin < array->bytes)
        CHECK(is_guard(host + begin, host + array->bytes), "%s was written after its byte %llu",
              name, (unsigned long long)begin);
    return 0;
}

/* ---------------------------------------------------------------- inputs of worlds */

static int make_input(struct ep_rank *self, struct ep_array *array, const void *content,
                      uint64_t bytes)
{
    if (ep_array_alloc(self, array, EP_INPUT, bytes, 0))
        return 1;
    CHECK_OK(weft_memory_copy(self->comm, array->data, content, bytes));
    return 0;
}

static int make_table(struct ep_rank *self, struct world_inputs *inputs)
{
    const struct ep_problem *problem = &inputs->world->problem;
    const struct ep_experts *experts = &inputs->world->experts;
    const int32_t rank = self->context->rank;
    const uint64_t table_bytes =
        (uint64_t)ep_oracle_num_tokens(problem, rank) * (uint64_t)problem->num_ranks;
    const uint64_t selections_bytes = 4 * (uint64_t)experts->offsets[experts->num_experts];
    const struct ep_table table = {tests_alloc(table_bytes), tests_alloc(selections_bytes)};
    ep_experts_fill_table(experts, problem, rank, &table);
    const int failed =
        make_input(self, &inputs->tokens_to_ranks, table.tokens_to_ranks, table_bytes) ||
        make_input(self, &inputs->selections, table.selections, selections_bytes);
    tests_free(table.tokens_to_ranks);
    tests_free(table.selections);
    return failed;
}

static int make_inputs(struct ep_rank *self, struct world_inputs *inputs)
{
    const struct ep_world *world = inputs->world;
    const int32_t rank = self->context->rank;
    const struct ep_chosen *tokens = &world->chosen[rank];
    const uint64_t num_choices = (uint64_t)tokens->num_tokens * (uint64_t)world->spec.num_topk;
    const uint64_t index_bytes = world->spec.index_type == WEFT_INT32 ? 4 : 8;
    return make_input(self, &inputs->topk_idx, world->topk_idx[rank], num_choices * index_bytes) ||
           make_input(self, &inputs->topk_weights, tokens->topk_weights, num_choices * 4) ||
           make_table(self, inputs);
}

int ep_rank_inputs(struct ep_rank *self, struct ep_inputs *inputs)
{
    struct world_inputs *of_world = self->memory->inputs;
    while (of_world != NULL && of_world->world != self->world)
        of_world = of_world->next;
    if (of_world == NULL) {
        of_world = tests_alloc(sizeof *of_world);
        of_world->world = self->world;
        of_world->next = self->memory->inputs;
        self->memory->inputs = of_world;
        if (make_inputs(self, of_world))
            return 1;
    }
    *inputs = (struct ep_inputs){of_world->topk_idx.data, of_world->topk_weights.data,
                                 of_world->tokens_to_ranks.data, of_world->selections.data};
    return 0;
}

int ep_memory_forget_inputs(struct ep_rank *self)
{
    struct world_inputs *inputs = self->memory->inputs;
    while (inputs != NULL) {
        struct world_inputs *next = inputs->next;
        if (ep_array_free(self, &inputs->topk_idx) || ep_array_free(self, &inputs->topk_weights) ||
            ep_array_free(self, &inputs->tokens_to_ranks) ||
            ep_array_free(self, &inputs->selections))
            return 1;
        tests_free(inputs);
        inputs = next;
    }
    self->memory->inputs = NULL;
    return 0;
}

/* ---------------------------------------------------------------- calls */

int ep_rank_call(struct ep_rank *self, void (*function)(void *argument), void *argument)
{
    if (weft_comm_machine(self->comm) == WEFT_MACHINE_CPU) {
        CHECK_OK(weft_stream_call(self->stream, function, argument));
        return 0;
    }
    CHECK_OK(weft_stream_synchronize(self->stream));
    function(argument);
    return 0;
}

weft_result ep_rank_copy(struct ep_rank *self, void *dst, const void *src, size_t bytes)
{
    if (weft_comm_machine(self->comm) != WEFT_MACHINE_CPU)
        return weft_memory_copy(self->comm, dst, src, bytes);
    /* A stream's call, beside the host's calls of the library. */
    if (bytes > 0)
        memcpy(dst, src, bytes);
    return WEFT_OK;
}
