/* SPDX-License-Identifier: MIT */
#include "party.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "workload/failure.h"

enum { HEAP_ARRAY_ALIGNMENT = 16 };

void party_complain(struct party *party, const char *format, ...)
{
    char *message = party->scenario->message;
    if (message[0] != '\0')
        return;
    const int length =
        snprintf(message, sizeof party->scenario->message, "rank %d of %d, %s: ", party->rank,
                 party->shape->num_ranks, scenario_op_names[party->shape->op]);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message + length, sizeof party->scenario->message - (size_t)length, format,
              arguments);
    va_end(arguments);
}

void party_tell(void *of, int is_right, const char *text)
{
    if (!is_right)
        party_complain(of, "%s", text);
}

void party_expect(struct party *party, const char *what, int32_t i, double found, double expected)
{
    if (found < expected || found > expected)
        party_complain(party, "%s[%d] is %g, not %g", what, i, found, expected);
}

/* ---------------------------------------------------------------- buffers */

static size_t padded(size_t num_bytes)
{
    return (num_bytes + HEAP_ARRAY_ALIGNMENT - 1) / HEAP_ARRAY_ALIGNMENT * HEAP_ARRAY_ALIGNMENT;
}

weft_result party_alloc(struct party *party, const struct party_array *arrays)
{
    for (; arrays->at != NULL; arrays++) {
        void *array = guarded_alloc(&party->scenario->memory, arrays->num_bytes);
        if (array == NULL)
            return LACKS_MEMORY("the arrays of a rank");
        memcpy(arrays->at, &array, sizeof array);
    }
    return WEFT_OK;
}

/* All of them in one block, with guards around each. */
weft_result party_alloc_in_heap(struct party *party, const struct party_array *arrays)
{
    size_t num_bytes = 0;
    for (int32_t i = 0; arrays[i].at != NULL; i++)
        num_bytes += padded(arrays[i].num_bytes) + 2 * (size_t)GUARD_BYTES;
    TRY(weft_heap_alloc(party->comm, num_bytes, &party->heap_block));
    char *next = party->heap_block;
    for (; arrays->at != NULL; arrays++) {
        struct heap_array *array = &party->heap_arrays[party->num_heap_arrays++];
        array->num_bytes = padded(arrays->num_bytes);
        array->inner = guarded_lay(next, array->num_bytes);
        memcpy(arrays->at, &array->inner, sizeof array->inner);
        next += array->num_bytes + 2 * (size_t)GUARD_BYTES;
    }
    return WEFT_OK;
}

enum { ROW_ARRAYS = 4 };

static void list_rows(const struct party *party, struct rows *rows,
                      struct party_array arrays[ROW_ARRAYS])
{
    const size_t capacity = (size_t)party->shape->capacity;
    const size_t choices_bytes = capacity * (size_t)party->shape->num_topk * sizeof(int32_t);
    arrays[0] = (struct party_array){&rows->x, capacity * SCENARIO_ROW_BYTES};
    arrays[1] = (struct party_array){&rows->topk_idx, choices_bytes};
    arrays[2] = (struct party_array){&rows->weights, choices_bytes};
    arrays[3] = (struct party_array){&rows->src_token, capacity * sizeof(int32_t)};
}

/* All ranks have rows in the heap. Some have others in place of them. */
static weft_result alloc_rows(struct party *party)
{
    struct party_array arrays[1 + PARTY_MAX_REPEATS * ROW_ARRAYS + 1] = {
        {&party->words, PARTY_NUM_WORDS * sizeof *party->words}};
    for (int32_t i = 0; i < party->shape->num_repeats; i++)
        list_rows(party, &party->recv[i], &arrays[1 + i * ROW_ARRAYS]);
    TRY(party_alloc_in_heap(party, arrays));
    for (int32_t i = 0; i < party->shape->num_repeats; i++) {
        struct party_array local[ROW_ARRAYS + 1] = {{0}};
        list_rows(party, &party->recv[i], local);
        if (party->shape->is_local[i][party->rank])
            TRY(party_alloc(party, local));
    }
    return WEFT_OK;
}

static weft_result alloc_local(struct party *party)
{
    const struct shape *shape = party->shape;
    const size_t num_tokens = (size_t)shape->max_tokens, num_ranks = (size_t)shape->num_ranks;
    const size_t choices_bytes = num_tokens * (size_t)shape->num_topk * sizeof(int32_t);
    const size_t out_bytes = num_tokens * SCENARIO_ROW_BYTES;
    const struct party_array arrays[] = {
        {&party->topk_idx, choices_bytes},
        {&party->weights, choices_bytes},
        {&party->tokens_to_ranks, num_tokens * num_ranks},
        {&party->selections, (size_t)shape->num_experts * sizeof(int32_t)},
        {&party->tokens_per_rank, num_ranks * sizeof(int32_t)},
        {&party->tokens_per_node, (size_t)shape->num_nodes * sizeof(int32_t)},
        {&party->tokens_per_expert, (size_t)shape->num_experts * sizeof(int32_t)},
        {&party->is_token_in_rank, num_tokens * num_ranks},
        {&party->bias[0], out_bytes},
        {&party->bias[1], out_bytes},
        {0}};
    for (int32_t i = 0; i < shape->num_repeats; i++)
        TRY(party_alloc(party,
                        (struct party_array[]){{&party->x[i], num_tokens * SCENARIO_ROW_BYTES},
                                               {&party->out[i], out_bytes},
                                               {&party->out_weights[i], choices_bytes},
                                               {0}}));
    return party_alloc(party, arrays);
}

/* ---------------------------------------------------------------- arrays of collectives */

static int32_t num_coll_arrays(const struct shape *shape)
{
    return 2 * shape->num_repeats + 1;
}

static size_t largest_array(const struct shape *shape)
{
    size_t largest = 0;
    for (int32_t round = 0; round < shape->num_rounds; round++) {
        for (int32_t i = 0; i < shape->num_repeats; i++) {
            const struct coll_call *call = &shape->calls[round][i];
            const size_t send = coll_array_bytes(shape, call, COLLECTIVE_SEND);
            const size_t recv = coll_array_bytes(shape, call, COLLECTIVE_RECV);
            largest = send > largest ? send : largest;
            largest = recv > largest ? recv : largest;
        }
    }
    return largest + COLL_MAX_OFFSET;
}

static weft_result alloc_coll_arrays(struct party *party)
{
    struct party_array in_heap[PARTY_NUM_COLL_ARRAYS + 1] = {{0}};
    const size_t num_bytes = padded(largest_array(party->shape));
    party->coll_array_bytes = num_bytes;
    for (int32_t i = 0; i < num_coll_arrays(party->shape); i++) {
        struct coll_arrays *arrays = &party->coll_arrays[i];
        in_heap[i] = (struct party_array){&arrays->memory[COLL_IN_HEAP], num_bytes};
        TRY(party_alloc(party, (struct party_array[]){{&arrays->memory[COLL_LOCAL], num_bytes},
                                                      {&arrays->mirrors[COLL_LOCAL], num_bytes},
                                                      {&arrays->mirrors[COLL_IN_HEAP], num_bytes},
                                                      {0}}));
    }
    return party_alloc_in_heap(party, in_heap);
}

/* ---------------------------------------------------------------- objects */

weft_ep_config party_ep_config(const struct party *party)
{
    const struct shape *shape = party->shape;
    weft_ep_config config = WEFT_INIT(weft_ep_config);
    config.num_experts = shape->num_experts;
    config.num_blocks = shape->num_blocks[party->rank];
    config.num_warps = shape->num_warps[party->rank];
    config.num_channels = shape->num_channels;
    config.num_staging_slots = shape->num_slots;
    config.staging_slot_bytes = shape->slot_bytes;
    config.combine_wire = shape->combine_wire;
    config.staging_bytes = shape->staging_bytes;
    return config;
}

static weft_result create_ep(struct party *party)
{
    const struct shape *shape = party->shape;
    const weft_ep_config config = party_ep_config(party);
    TRY(weft_ep_create(party->comm, &config, &party->ep));
    weft_ep_handle_config handle_config = WEFT_INIT(weft_ep_handle_config);
    handle_config.max_tokens = shape->max_tokens;
    handle_config.num_topk = shape->num_topk;
    handle_config.expert_alignment = shape->expert_alignment;
    handle_config.order = shape->order;
    for (int32_t i = 0; i < shape->num_handles; i++)
        TRY(weft_ep_handle_create(party->ep, &handle_config, &party->handles[i]));
    return WEFT_OK;
}

weft_result party_register(struct party *party, int32_t i)
{
    int32_t is_direct = 0;
    TRY(weft_memory_register(party->comm, party->coll_arrays[i].memory[COLL_LOCAL],
                             party->coll_array_bytes, &is_direct));
    if (!is_direct)
        party_complain(party, "array %d is not reached directly", i);
    return WEFT_OK;
}

static weft_result create_coll(struct party *party)
{
    static const weft_coll_choice tree = {sizeof tree, WEFT_BROADCAST, WEFT_ALGORITHM_TREE};
    const struct shape *shape = party->shape;
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    config.packet_bytes = shape->coll_terms.packet_bytes;
    config.staging_bytes = shape->coll_terms.staging_bytes;
    config.num_blocks = shape->num_blocks[0]; /* the same on all ranks */
    config.num_warps = shape->num_warps[party->rank];
    config.num_channels = shape->num_channels;
    config.num_staging_slots = shape->num_slots;
    config.staging_slot_bytes = shape->slot_bytes;
    config.choices = &tree; /* what may be pinned later is made at first */
    config.num_choices = shape->num_nodes > 1;
    TRY(weft_coll_create(party->comm, &config, &party->coll));
    party->coll->chunk_bytes = shape->coll_terms.chunk_bytes;
    party->coll->piece_bytes = shape->coll_terms.piece_bytes;
    if (shape->coll_terms.registration == COLL_REGISTERED)
        for (int32_t i = 0; i < num_coll_arrays(shape); i++)
            TRY(party_register(party, i));
    return shape->coll_terms.num_streams > 1
               ? weft_stream_create(party->comm, &party->second_stream)
               : WEFT_OK;
}

static weft_result open_coll(struct party *party)
{
    TRY(alloc_coll_arrays(party));
    TRY(weft_stream_create(party->comm, &party->stream));
    return create_coll(party);
}

static weft_result open_ep(struct party *party)
{
    TRY(alloc_rows(party));
    TRY(alloc_local(party));
    if (party->shape->op == SCENARIO_DISPATCH)
        TRY(party_alloc_expanded(party));
    TRY(weft_stream_create(party->comm, &party->stream));
    return party->shape->op == SCENARIO_BARRIER ? WEFT_OK : create_ep(party);
}

weft_result party_open(struct party *party)
{
    const enum scenario_op op = party->shape->op;
    if (scenario_is_collective(op))
        return open_coll(party);
    if (scenario_is_low_latency(op))
        return party_open_ll(party);
    switch (op) {
    case SCENARIO_GATE:
        return party_open_gate(party);
    case SCENARIO_MOVE_EXPERTS:
        return party_open_move(party);
    case SCENARIO_COPIES:
        return party_open_copies(party);
    default:
        return open_ep(party);
    }
}

weft_result party_synchronize(const struct party *party)
{
    if (party->stream != NULL)
        TRY(weft_stream_synchronize(party->stream));
    return party->second_stream != NULL ? weft_stream_synchronize(party->second_stream) : WEFT_OK;
}

static void expect_destroyed(struct party *party, const char *what, weft_result result)
{
    if (result != WEFT_OK)
        party_complain(party, "the %s could not be destroyed: %s", what, weft_last_error());
}

void party_close(struct party *party)
{
    for (int32_t i = 0; i < party->num_heap_arrays && party->heap_block != NULL; i++) {
        const struct heap_array *array = &party->heap_arrays[i];
        if (!guarded_is_intact(array->inner, array->num_bytes))
            party_complain(party, "heap memory beside array %d was overwritten", i);
    }
    if (party->stream != NULL)
        expect_destroyed(party, "stream", weft_stream_destroy(party->stream));
    if (party->second_stream != NULL)
        expect_destroyed(party, "second stream", weft_stream_destroy(party->second_stream));
    if (party->ll != NULL)
        expect_destroyed(party, "weft_ll", weft_ll_destroy(party->ll));
    for (int32_t i = 0; i < 2; i++) {
        if (party->handles[i] != NULL)
            expect_destroyed(party, "handle", weft_ep_handle_destroy(party->handles[i]));
    }
    if (party->next_ep != NULL)
        expect_destroyed(party, "next weft_ep", weft_ep_destroy(party->next_ep));
    if (party->ep != NULL)
        expect_destroyed(party, "weft_ep", weft_ep_destroy(party->ep));
    if (party->coll != NULL)
        expect_destroyed(party, "weft_coll", weft_coll_destroy(party->coll));
    if (party->heap_block != NULL)
        expect_destroyed(party, "heap block", weft_heap_free(party->comm, party->heap_block));
    if (party->comm != NULL)
        expect_destroyed(party, "communicator", weft_comm_destroy(party->comm));
}
