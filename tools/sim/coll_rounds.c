/* SPDX-License-Identifier: MIT */
/*
 * Rounds of calls of the collectives: all of a round are enqueued, then awaited. Each array has a
 * mirror, in which what the calls should do is done by the host; then every byte of both is the
 * same.
 */
#include <string.h>

#include "party.h"
#include "workload/transfers.h"

enum { POISON = 0x5a };

/* A call's argument: memory of this rank, and where it is in its array. */
struct argument {
    char *memory;
    char *mirror;
};

static struct argument argument_in(const struct party *party, int32_t array,
                                   enum coll_memory memory, size_t offset)
{
    const struct coll_arrays *arrays = &party->coll_arrays[array];
    return (struct argument){arrays->memory[memory] + offset, arrays->mirrors[memory] + offset};
}

struct arguments {
    struct argument send, recv;
};

/* In place, the shorter array is this rank's row of the longer one. */
static struct arguments arguments_in_place(const struct party *party, const struct coll_call *call,
                                           int32_t array, const struct coll_places *places)
{
    const struct argument all = argument_in(party, array, places->send, places->send_offset);
    const size_t row_offset = (size_t)coll_row_begin(call, party->rank) * coll_element_bytes(call);
    const struct argument row = {all.memory + row_offset, all.mirror + row_offset};
    const weft_collective collective = call->collective;
    return (struct arguments){
        collective == WEFT_ALL_GATHER || collective == WEFT_GATHER ? row : all,
        collective == WEFT_REDUCE_SCATTER || collective == WEFT_SCATTER ? row : all};
}

static struct arguments arguments_of(const struct party *party, const struct coll_call *call,
                                     int32_t i)
{
    const struct coll_places places = coll_places(party->shape, call, party->rank);
    if (places.is_in_place)
        return arguments_in_place(party, call, party->shape->num_repeats + 1 + i, &places);
    return (struct arguments){argument_in(party, i + 1, places.send, places.send_offset),
                              argument_in(party, i, places.recv, places.recv_offset)};
}

/* ---------------------------------------------------------------- memory */

typedef uint64_t element_fn(const struct shape *shape, const struct coll_call *call, int32_t rank,
                            int32_t row, int32_t i);

/* In the host's order of bytes, which is little-endian wherever weft runs. */
static void write_rows(const struct party *party, const struct coll_call *call,
                       enum collective_array array, char *memory, element_fn *element)
{
    const size_t element_bytes = coll_element_bytes(call);
    for (int32_t row = 0; row < coll_num_rows(party->shape, call, array); row++) {
        const int32_t count = coll_row_count(party->shape, call, array, party->rank, row);
        for (int32_t i = 0; i < count; i++) {
            const uint64_t bits = element(party->shape, call, party->rank, row, i);
            memcpy(memory + (size_t)(coll_row_begin(call, row) + i) * element_bytes, &bits,
                   element_bytes);
        }
    }
}

/* Host code says what it touches, so that its order with the lanes is checked too. */
static void touch_rows(const struct party *party, const struct coll_call *call,
                       enum collective_array array, const char *memory,
                       void (*touch)(const void *, size_t))
{
    const size_t element_bytes = coll_element_bytes(call);
    for (int32_t row = 0; row < coll_num_rows(party->shape, call, array); row++) {
        const int32_t count = coll_row_count(party->shape, call, array, party->rank, row);
        if (count > 0)
            touch(memory + (size_t)coll_row_begin(call, row) * element_bytes,
                  (size_t)count * element_bytes);
    }
}

/* Only what calls read or write has been written for the sim, unless one of them is not as
 * planned. */
static void poison_arrays(const struct party *party)
{
    for (int32_t i = 0; i < 2 * party->shape->num_repeats + 1; i++) {
        for (int kind = 0; kind < 2; kind++) {
            if (party->scenario->fault == WEFT__SIM_DISAGREE)
                weft__sim_host_writes(party->coll_arrays[i].memory[kind], party->coll_array_bytes);
            memset(party->coll_arrays[i].memory[kind], POISON, party->coll_array_bytes);
            memset(party->coll_arrays[i].mirrors[kind], POISON, party->coll_array_bytes);
        }
    }
}

static void fill_arrays(const struct party *party, const struct coll_call *calls)
{
    poison_arrays(party);
    for (int32_t i = 0; i < party->shape->num_repeats; i++) {
        const struct arguments arguments = arguments_of(party, &calls[i], i);
        touch_rows(party, &calls[i], COLLECTIVE_SEND, arguments.send.memory, weft__sim_host_writes);
        touch_rows(party, &calls[i], COLLECTIVE_RECV, arguments.recv.memory, weft__sim_host_writes);
        write_rows(party, &calls[i], COLLECTIVE_SEND, arguments.send.memory, coll_sent);
        write_rows(party, &calls[i], COLLECTIVE_SEND, arguments.send.mirror, coll_sent);
    }
}

static void complain_of_byte(struct party *party, int32_t round, int32_t array,
                             enum coll_memory memory, size_t byte)
{
    const struct coll_arrays *arrays = &party->coll_arrays[array];
    const struct coll_call *call = &party->shape->calls[round][0];
    static const char *const names[] = {[COLL_IN_HEAP] = "heap", [COLL_LOCAL] = "local"};
    party_complain(
        party, "round %d of %d calls, the first by %s: byte %zu of %s array %d is %#x, not %#x",
        round, party->shape->num_repeats,
        weft_coll_algorithm_name(coll_algorithm(party->shape, call)), byte, names[memory], array,
        (unsigned char)arrays->memory[memory][byte], (unsigned char)arrays->mirrors[memory][byte]);
}

static void compare_array(struct party *party, int32_t round, int32_t array,
                          enum coll_memory memory)
{
    const struct coll_arrays *arrays = &party->coll_arrays[array];
    size_t byte = 0;
    if (memcmp(arrays->memory[memory], arrays->mirrors[memory], party->coll_array_bytes) == 0)
        return;
    while (arrays->memory[memory][byte] == arrays->mirrors[memory][byte])
        byte++;
    complain_of_byte(party, round, array, memory, byte);
}

static void check_arrays(struct party *party, int32_t round)
{
    const struct coll_call *calls = party->shape->calls[round];
    for (int32_t i = 0; i < party->shape->num_repeats; i++) {
        const struct arguments arguments = arguments_of(party, &calls[i], i);
        touch_rows(party, &calls[i], COLLECTIVE_RECV, arguments.recv.memory, weft__sim_host_reads);
        write_rows(party, &calls[i], COLLECTIVE_RECV, arguments.recv.mirror, coll_received);
    }
    for (int32_t i = 0; i < 2 * party->shape->num_repeats + 1; i++) {
        compare_array(party, round, i, COLL_IN_HEAP);
        compare_array(party, round, i, COLL_LOCAL);
    }
}

/* ---------------------------------------------------------------- calls */

static weft_result enqueue_uneven(struct party *party, const struct coll_call *call,
                                  const struct arguments *arguments, weft_stream *stream)
{
    const struct shape *shape = party->shape;
    int64_t send_counts[SCENARIO_MAX_RANKS], recv_counts[SCENARIO_MAX_RANKS];
    int64_t offsets[SCENARIO_MAX_RANKS];
    for (int32_t row = 0; row < shape->num_ranks; row++) {
        send_counts[row] = coll_row_count(shape, call, COLLECTIVE_SEND, party->rank, row);
        recv_counts[row] = coll_row_count(shape, call, COLLECTIVE_RECV, party->rank, row);
        offsets[row] = coll_row_begin(call, row);
    }
    if (call->rows == COLL_ROWS_IN_GROUP)
        return transfers_issue(
            &(struct transfers){call->key,
                                party->rank,
                                shape->num_ranks,
                                {send_counts, offsets},
                                {recv_counts, offsets}},
            &(struct transfer_arrays){arguments->send.memory, arguments->recv.memory, call->dtype},
            party->coll, stream);
    weft_coll_all_to_all_v_args args = WEFT_INIT(weft_coll_all_to_all_v_args);
    args.send = arguments->send.memory;
    args.recv = arguments->recv.memory;
    args.dtype = call->dtype;
    args.send_counts = send_counts;
    args.send_offsets = offsets;
    args.recv_counts = recv_counts;
    args.recv_offsets = offsets;
    return weft_coll_all_to_all_v(party->coll, &args, stream);
}

/* Once; with every other seed in the last call, after which nothing else tells that they do not
 * fit. Of a group those ranks alone find out that receive from the one. */
static int must_disagree(const struct party *party, int32_t round, int32_t i)
{
    const struct scenario *scenario = party->scenario;
    const struct shape *shape = party->shape;
    const int is_last = round == shape->num_rounds - 1 && i == shape->num_repeats - 1;
    return shape->calls[round][i].rows != COLL_ROWS_IN_GROUP &&
           scenario->fault == WEFT__SIM_DISAGREE && !scenario->has_disagreed &&
           shape == &scenario->shape && party->rank == scenario->fault_rank &&
           weft__sim_fault_has_struck() && (is_last || shape->seed % 2 == 0);
}

/* Every call has an algorithm and a grid of its own, so that all of them use the same buffers. */
static void prepare_coll(const struct party *party, const struct coll_call *call)
{
    weft_coll *coll = party->coll;
    coll->pinned[call->collective] = coll_algorithm(party->shape, call);
    coll->num_blocks = call->num_blocks[party->rank];
    for (int kind = 0; kind < WEFT__NUM_WORKS; kind++)
        coll->direct_blocks[kind] = call->num_direct_blocks;
}

/* Nothing, now and then, where it is ignored. */
static char *given(const struct party *party, const struct coll_call *call,
                   enum collective_array array, const struct arguments *arguments)
{
    if (call->key % 2 == 0 &&
        collective_is_ignored(call->collective, array, coll_root(party->shape, call), party->rank))
        return NULL;
    return array == COLLECTIVE_SEND ? arguments->send.memory : arguments->recv.memory;
}

/* By value, or where the launch reads it. */
static void set_factor(struct party *party, const struct coll_call *call, int32_t i,
                       weft_coll_args *args)
{
    const float factor = coll_factor(call, party->rank);
    args->op = WEFT_PREMUL_SUM;
    if (call->key / 4 % 2 == 0) {
        args->factor = factor;
        return;
    }
    weft__sim_host_writes(&party->factors[i], sizeof factor);
    party->factors[i] = factor;
    args->factor_at = &party->factors[i];
}

static weft_result enqueue_call(struct party *party, const struct coll_call *call, int32_t i)
{
    weft_coll *coll = party->coll;
    weft_stream *stream =
        i % 2 == 1 && party->second_stream != NULL ? party->second_stream : party->stream;
    const struct arguments arguments = arguments_of(party, call, i);
    prepare_coll(party, call);
    if (call->rows != COLL_EVEN_ROWS)
        return enqueue_uneven(party, call, &arguments, stream);
    weft_coll_args args = WEFT_INIT(weft_coll_args);
    args.send = given(party, call, COLLECTIVE_SEND, &arguments);
    args.recv = given(party, call, COLLECTIVE_RECV, &arguments);
    args.count = call->count;
    args.dtype = call->dtype;
    args.op = call->op;
    args.root = coll_root(party->shape, call);
    if (coll_is_premultiplied(call))
        set_factor(party, call, i, &args);
    return collective_call(call->collective, coll, &args, stream);
}

/* One array at another window: while the others stay where they are. */
static weft_result register_again(struct party *party, int32_t i)
{
    TRY(weft_memory_unregister(party->comm, party->coll_arrays[i].memory[COLL_LOCAL]));
    return party_register(party, i);
}

weft_result party_run_calls(struct party *party, int32_t round)
{
    const struct coll_call *calls = party->shape->calls[round];
    fill_arrays(party, calls);
    for (int32_t i = 0; i < party->shape->num_repeats; i++) {
        struct coll_call call = calls[i];
        if (must_disagree(party, round, i)) {
            party->scenario->has_disagreed = 1;
            call = coll_disagreeing(party->shape, &calls[i]);
        }
        TRY(enqueue_call(party, &call, i));
    }
    TRY(party_synchronize(party));
    check_arrays(party, round);
    return party->shape->coll_terms.registration == COLL_REGISTERED ? register_again(party, 0)
                                                                    : WEFT_OK;
}
