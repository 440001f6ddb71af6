/* SPDX-License-Identifier: MIT */
#include "workload/collective.h"

#include <string.h>

const char *const collective_names[NUM_COLLECTIVES + 1] = {
    [WEFT_ALL_REDUCE] = "all_reduce", [WEFT_REDUCE_SCATTER] = "reduce_scatter",
    [WEFT_ALL_GATHER] = "all_gather", [WEFT_ALL_TO_ALL] = "all_to_all",
    [WEFT_BROADCAST] = "broadcast",   [WEFT_REDUCE] = "reduce",
    [WEFT_GATHER] = "gather",         [WEFT_SCATTER] = "scatter",
};

int collective_is_served(weft_collective kind, weft_algorithm algorithm)
{
    switch (algorithm) {
    case WEFT_ALGORITHM_TWOSHOT_PACKETS:
        return kind == WEFT_ALL_REDUCE;
    case WEFT_ALGORITHM_TWOSHOT:
        return kind == WEFT_ALL_REDUCE || kind == WEFT_REDUCE;
    case WEFT_ALGORITHM_ONESHOT_PULL:
        return collective_reduces(kind);
    case WEFT_ALGORITHM_PUSH:
        return !collective_reduces(kind);
    case WEFT_ALGORITHM_RAILS:
    case WEFT_ALGORITHM_TREE:
        return 0;
    case WEFT_ALGORITHM_RELAY:
        return kind == WEFT_BROADCAST;
    default:
        return 1;
    }
}

int collective_is_served_between_nodes(weft_collective kind, weft_algorithm algorithm)
{
    if (algorithm == WEFT_ALGORITHM_TREE)
        return kind == WEFT_ALL_REDUCE || kind == WEFT_BROADCAST || kind == WEFT_REDUCE;
    return algorithm == WEFT_ALGORITHM_AUTO || algorithm == WEFT_ALGORITHM_RAILS;
}

int32_t collective_num_rows(weft_collective kind, enum collective_array array, int32_t num_ranks)
{
    const weft_collective of_all = array == COLLECTIVE_SEND ? WEFT_REDUCE_SCATTER : WEFT_ALL_GATHER;
    const weft_collective of_root = array == COLLECTIVE_SEND ? WEFT_SCATTER : WEFT_GATHER;
    return kind == of_all || kind == of_root || kind == WEFT_ALL_TO_ALL ? num_ranks : 1;
}

int collective_is_ignored(weft_collective kind, enum collective_array array, int32_t root,
                          int32_t rank)
{
    const int is_of_root = array == COLLECTIVE_SEND ? kind == WEFT_BROADCAST || kind == WEFT_SCATTER
                                                    : kind == WEFT_REDUCE || kind == WEFT_GATHER;
    return is_of_root && rank != root;
}

struct collective_source collective_source_of(weft_collective kind, int32_t root, int32_t rank,
                                              int32_t row)
{
    switch (kind) {
    case WEFT_ALL_REDUCE:
    case WEFT_REDUCE:
        return (struct collective_source){-1, 0};
    case WEFT_REDUCE_SCATTER:
        return (struct collective_source){-1, rank};
    case WEFT_ALL_GATHER:
    case WEFT_GATHER:
        return (struct collective_source){row, 0};
    case WEFT_ALL_TO_ALL:
        return (struct collective_source){row, rank};
    case WEFT_SCATTER:
        return (struct collective_source){root, rank};
    default:
        return (struct collective_source){root, 0};
    }
}

int32_t collective_first_node(weft_collective kind, int32_t root, int32_t rank,
                              const struct element_ranks *ranks)
{
    if (kind == WEFT_ALL_REDUCE || ranks->num_nodes <= 1)
        return 0;
    return (ranks->node_of_rank[kind == WEFT_REDUCE ? root : rank] + 1) % ranks->num_nodes;
}

static uint64_t row_bytes(const struct collective *collective)
{
    return collective->count * dtype_bytes(collective->source.dtype);
}

/* Rows of the larger array. */
static uint64_t num_rows(const struct collective *collective)
{
    const weft_collective kind = collective->kind;
    const int32_t sent = collective_num_rows(kind, COLLECTIVE_SEND, collective->num_ranks);
    const int32_t received = collective_num_rows(kind, COLLECTIVE_RECV, collective->num_ranks);
    return (uint64_t)(sent > received ? sent : received);
}

uint64_t collective_count(const struct collective *collective, uint64_t bytes)
{
    return bytes / dtype_bytes(collective->source.dtype) / num_rows(collective);
}

uint64_t collective_bytes(const struct collective *collective)
{
    return num_rows(collective) * row_bytes(collective);
}

static uint64_t array_bytes(const struct collective *collective, enum collective_array array,
                            int32_t rank)
{
    const weft_collective kind = collective->kind;
    if (collective_is_ignored(kind, array, collective->root, rank))
        return 0;
    return (uint64_t)collective_num_rows(kind, array, collective->num_ranks) *
           row_bytes(collective);
}

uint64_t collective_send_bytes(const struct collective *collective, int32_t rank)
{
    return array_bytes(collective, COLLECTIVE_SEND, rank);
}

uint64_t collective_recv_bytes(const struct collective *collective, int32_t rank)
{
    return array_bytes(collective, COLLECTIVE_RECV, rank);
}

uint64_t collective_algorithm_bytes(const struct collective *collective)
{
    return row_bytes(collective);
}

double collective_bus_factor(const struct collective *collective)
{
    const double num_ranks = collective->num_ranks;
    if (collective->kind == WEFT_BROADCAST || collective->kind == WEFT_REDUCE)
        return 1;
    return (collective->kind == WEFT_ALL_REDUCE ? 2 : 1) * (num_ranks - 1) / num_ranks;
}

/* The reduction: of a premultiplied sum the products, as a sum. */
struct reduced {
    struct element_source source;
    weft_reduce_op redop;
};

static struct reduced reduced_of(const struct collective *collective)
{
    struct reduced reduced = {collective->source, collective->redop};
    if (collective->redop == WEFT_PREMUL_SUM) {
        reduced.source.factors = collective->factors;
        reduced.redop = WEFT_SUM;
    }
    return reduced;
}

/* `count` elements, in the inputs of all ranks from element `begin` on. */
static void expect_reduced(const struct collective *collective, int32_t rank, uint64_t begin,
                           uint64_t count, void *expected)
{
    const struct reduced reduced = reduced_of(collective);
    const struct element_source *source = &reduced.source;
    struct element_ranks ranks = {collective->num_ranks, collective->num_nodes,
                                  collective->node_of_rank, 0, 0};
    ranks.first_node = collective_first_node(collective->kind, collective->root, rank, &ranks);
    if (collective->order == REDUCED_UP_A_TREE)
        elements_reduce_up_nodes(source, reduced.redop, &ranks, begin, count, expected);
    else
        elements_reduce_over_nodes(source, reduced.redop, &ranks, begin, count, expected);
}

/* Elements first .. first + count - 1 of one row of the output. */
static void expect_row(const struct collective *collective, int32_t rank, int32_t row,
                       uint64_t first, uint64_t count, void *expected)
{
    const struct collective_source source =
        collective_source_of(collective->kind, collective->root, rank, row);
    const uint64_t begin = (uint64_t)source.row * collective->count + first;
    if (source.rank < 0)
        expect_reduced(collective, rank, begin, count, expected);
    else
        elements_fill(&collective->source, source.rank, begin, count, expected);
}

void collective_expect(const struct collective *collective, int32_t rank, uint64_t offset,
                       uint64_t bytes, void *expected)
{
    const uint64_t element_bytes = dtype_bytes(collective->source.dtype);
    uint64_t first = offset / element_bytes, end = (offset + bytes) / element_bytes;
    char *out = expected;
    while (first < end) {
        const uint64_t row = first / collective->count;
        const uint64_t row_end = (row + 1) * collective->count;
        const uint64_t count = (row_end < end ? row_end : end) - first;
        expect_row(collective, rank, (int32_t)row, first % collective->count, count, out);
        out += count * element_bytes;
        first += count;
    }
}

uint64_t elements_count_wrong(weft_dtype dtype, const void *elements, const void *expected,
                              uint64_t count, uint64_t *first_wrong)
{
    const size_t bytes = dtype_bytes(dtype);
    const char *left = elements, *right = expected;
    uint64_t num_wrong = 0;
    if (memcmp(left, right, count * bytes) == 0)
        return 0;
    for (uint64_t i = 0; i < count; i++) {
        if (memcmp(left + i * bytes, right + i * bytes, bytes) == 0)
            continue;
        if (num_wrong++ == 0)
            *first_wrong = i;
    }
    return num_wrong;
}

struct collective_places collective_in_place(const struct collective *collective, int32_t rank)
{
    const uint64_t own_row = (uint64_t)rank * row_bytes(collective);
    struct collective_places places = {0, 0};
    if (collective->kind == WEFT_REDUCE_SCATTER || collective->kind == WEFT_SCATTER)
        places.recv_offset = own_row;
    else if (collective->kind == WEFT_ALL_GATHER || collective->kind == WEFT_GATHER)
        places.send_offset = own_row;
    return places;
}
