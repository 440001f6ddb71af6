/* SPDX-License-Identifier: MIT */
#include "oracle/coll_case.h"

#include "harness/memory.h"
#include "oracle/coll_data.h"
#include "workload/rng.h"

/* Names of independent draws from a case's seed. */
enum salt {
    SALT_CASE = 11,
    SALT_PLACE,
    SALT_MISALIGN,
    SALT_COUNT,
    SALT_GAP,
    SALT_ROW,
    SALT_FACTOR
};

int coll_is_premultiplied(const struct coll_case *spec)
{
    return spec->factor != COLL_NO_FACTOR && collective_reduces(coll_collective(spec->operation)) &&
           spec->op == WEFT_SUM && spec->dtype >= WEFT_BF16 && spec->dtype <= WEFT_FP32;
}

float coll_factor_of(const struct coll_case *spec, int32_t rank)
{
    static const float factors[] = {0.25f, 1.0f / 3, -1.7f, 3e-39f, 1.0f, 12345.678f, -0.0f};
    const uint64_t draw = rng_key(rng_key(spec->seed, SALT_FACTOR), (uint64_t)rank);
    return factors[draw % (sizeof factors / sizeof *factors)];
}

struct coll_case coll_case_random(uint64_t seed, int32_t num_ranks, enum coll_operation operation,
                                  weft_dtype dtype, weft_reduce_op op, uint64_t count)
{
    struct rng rng = {rng_key(seed, SALT_CASE)};
    return (struct coll_case){
        .seed = seed,
        .num_ranks = num_ranks,
        .operation = operation,
        .dtype = dtype,
        .op = reduce_op_takes(op, dtype) ? op : WEFT_SUM,
        .count = count,
        .root = (int32_t)rng_below(&rng, (uint32_t)num_ranks),
        .factor = (enum coll_factor)(rng_key(seed, SALT_FACTOR) % COLL_NUM_FACTORS),
        .values = (enum coll_values)rng_below(&rng, COLL_NUM_VALUES),
        .form = (enum coll_form)(rng_below(&rng, 3) == 0),
        .send_place = (enum coll_place)rng_below(&rng, COLL_NUM_PLACES),
        .recv_place = (enum coll_place)rng_below(&rng, COLL_NUM_PLACES),
        .send_alignment = (enum coll_alignment)rng_below(&rng, COLL_NUM_ALIGNMENTS),
        .recv_alignment = (enum coll_alignment)rng_below(&rng, COLL_NUM_ALIGNMENTS)};
}

int32_t coll_node_of(const struct coll_nodes *nodes, int32_t rank)
{
    if (nodes->num_nodes == 0)
        return 0;
    return nodes->order == COLL_NODES_IN_TURN
               ? rank % nodes->num_nodes
               : (nodes->first + rank) / nodes->num_local - nodes->first / nodes->num_local;
}

static int32_t num_nodes_of(const struct coll_nodes *nodes, int32_t num_ranks)
{
    return nodes->order == COLL_NODES_IN_TURN ? nodes->num_nodes
                                              : coll_node_of(nodes, num_ranks - 1) + 1;
}

const char *coll_operation_name(enum coll_operation operation)
{
    static const char *const names[] = {
        "all_reduce", "reduce_scatter", "all_gather", "all_to_all",   "broadcast",
        "reduce",     "gather",         "scatter",    "all_to_all_v", "group"};
    return names[operation];
}

/* COLL_ALL_TO_ALL_V and COLL_GROUP. */
static int has_uneven_rows(enum coll_operation operation)
{
    return operation == COLL_ALL_TO_ALL_V || operation == COLL_GROUP;
}

weft_collective coll_collective(enum coll_operation operation)
{
    return has_uneven_rows(operation) ? WEFT_ALL_TO_ALL : (weft_collective)operation;
}

int coll_is_in_place(const struct coll_case *spec)
{
    return spec->form == COLL_IN_PLACE && spec->operation != COLL_ALL_TO_ALL &&
           !has_uneven_rows(spec->operation);
}

uint64_t coll_row_bytes(const struct coll_case *spec)
{
    return spec->count * dtype_bytes(spec->dtype);
}

void coll_describe(const struct coll_case *spec, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes,
             "%s%s of %llu %s, %s, factor %d, root %d, values %d, %d ranks on %d nodes, seed %llu",
             coll_operation_name(spec->operation), coll_is_in_place(spec) ? " in place" : "",
             (unsigned long long)spec->count, dtype_names[spec->dtype], reduce_op_names[spec->op],
             coll_is_premultiplied(spec) ? (int)spec->factor : 0, spec->root, (int)spec->values,
             spec->num_ranks, num_nodes_of(&spec->nodes, spec->num_ranks),
             (unsigned long long)spec->seed);
}

enum ep_place coll_place_of(const struct coll_case *spec, enum coll_place place, int32_t rank)
{
    const uint64_t draw = rng_key(rng_key(spec->seed, SALT_PLACE), (uint64_t)rank);
    if (place == COLL_PLACE_DIFFERS)
        return draw % 2 == 0 ? EP_HEAP : EP_OWN;
    return place == COLL_IN_HEAP ? EP_HEAP : EP_OWN;
}

uint64_t coll_misalign_bytes(const struct coll_case *spec, enum coll_alignment alignment,
                             int32_t rank, uint64_t salt)
{
    const uint64_t key = rng_key(rng_key(spec->seed, SALT_MISALIGN), salt);
    if (alignment == COLL_ALIGNED)
        return 0;
    if (alignment == COLL_MISALIGNED)
        return 1 + key % 15;
    return rng_key(key, (uint64_t)rank) % 16;
}

/* ---------------------------------------------------------------- rows */

static uint64_t pair_count(const struct coll_case *spec, int32_t from, int32_t to)
{
    const uint64_t key =
        rng_key(rng_key(spec->seed, SALT_COUNT), 64 * (uint64_t)from + (uint64_t)to);
    struct rng rng = {key};
    if (!has_uneven_rows(spec->operation))
        return spec->count;
    switch (rng_below(&rng, 4)) {
    case 0:
        return 0;
    case 1:
        return spec->count;
    default:
        return rng_next(&rng) % (spec->count + 1);
    }
}

/* One after the other; of all_to_all_v in an order of their own, and with gaps. */
static void place_rows(const struct coll_case *spec, uint64_t key, struct coll_rows *rows)
{
    struct rng rng = {rng_key(key, SALT_GAP)};
    const int has_gaps = has_uneven_rows(spec->operation);
    const int32_t first = has_gaps ? (int32_t)rng_below(&rng, (uint32_t)rows->num_rows) : 0;
    for (int32_t i = 0; i < rows->num_rows; i++) {
        const int32_t row = (first + i) % rows->num_rows;
        rows->total += has_gaps && rng_below(&rng, 2) == 0 ? rng_below(&rng, 40) : 0;
        rows->offsets[row] = rows->total;
        rows->total += rows->counts[row];
    }
    rows->total += has_gaps ? rng_below(&rng, 40) : 0;
}

struct coll_rows coll_rows_of(const struct coll_case *spec, enum collective_array array,
                              int32_t rank)
{
    const weft_collective kind = coll_collective(spec->operation);
    const int is_sent = array == COLLECTIVE_SEND;
    struct coll_rows rows = {0};
    if (!collective_is_ignored(kind, array, spec->root, rank))
        rows.num_rows = collective_num_rows(kind, array, spec->num_ranks);
    for (int32_t row = 0; row < rows.num_rows; row++)
        rows.counts[row] = pair_count(spec, is_sent ? rank : row, is_sent ? row : rank);
    place_rows(spec, rng_key(spec->seed, (is_sent ? 0 : 64) + (uint64_t)rank), &rows);
    return rows;
}

/* ---------------------------------------------------------------- contents */

static void input_piece(const struct coll_case *spec, int32_t rank, int32_t row, uint64_t piece,
                        uint64_t count, void *out)
{
    const uint64_t key = rng_key(rng_key(spec->seed, SALT_ROW), (uint64_t)row);
    coll_data_fill(key, spec->values, rank, piece, spec->dtype, out, count);
}

void coll_reduce(const struct coll_case *spec, int32_t row, const void **rows, uint64_t count,
                 void *out)
{
    int32_t nodes[COLL_CASE_MAX_RANKS];
    struct element_ranks ranks = {spec->num_ranks, num_nodes_of(&spec->nodes, spec->num_ranks),
                                  nodes, 0, 0};
    for (int32_t rank = 0; rank < spec->num_ranks; rank++)
        nodes[rank] = coll_node_of(&spec->nodes, rank);
    ranks.first_node =
        collective_first_node(coll_collective(spec->operation), spec->root, row, &ranks);
    if (spec->order == REDUCED_UP_A_TREE)
        elements_reduce_rows_up_nodes(spec->dtype, spec->op, &ranks, rows, count, out);
    else
        elements_reduce_rows_over_nodes(spec->dtype, spec->op, &ranks, rows, count, out);
}

/* Row `row` of every rank, reduced. */
static void reduced_piece(const struct coll_case *spec, int32_t row, uint64_t piece, uint64_t count,
                          void *out)
{
    const uint64_t piece_bytes = count * dtype_bytes(spec->dtype);
    const void *rows[COLL_CASE_MAX_RANKS];
    char *pieces = tests_alloc((uint64_t)spec->num_ranks * piece_bytes);
    for (int32_t rank = 0; rank < spec->num_ranks; rank++) {
        char *input = pieces + (uint64_t)rank * piece_bytes;
        input_piece(spec, rank, row, piece, count, input);
        if (coll_is_premultiplied(spec))
            elements_premultiply(spec->dtype, coll_factor_of(spec, rank), input, count, input);
        rows[rank] = input;
    }
    coll_reduce(spec, row, rows, count, out);
    tests_free(pieces);
}

static void expected_piece(const struct coll_case *spec, int32_t rank, int32_t row, uint64_t piece,
                           uint64_t count, void *out)
{
    const struct collective_source source =
        collective_source_of(coll_collective(spec->operation), spec->root, rank, row);
    if (source.rank < 0)
        reduced_piece(spec, source.row, piece, count, out);
    else
        input_piece(spec, source.rank, source.row, piece, count, out);
}

typedef void make_piece(const struct coll_case *spec, int32_t rank, int32_t row, uint64_t piece,
                        uint64_t count, void *out);

static void make_row(make_piece *make, const struct coll_case *spec, int32_t rank, int32_t row,
                     uint64_t count, void *out)
{
    const uint64_t piece_bytes = COLL_DATA_PIECE * dtype_bytes(spec->dtype);
    for (uint64_t piece = 0; piece * COLL_DATA_PIECE < count; piece++) {
        const uint64_t rest = count - piece * COLL_DATA_PIECE;
        make(spec, rank, row, piece, rest < COLL_DATA_PIECE ? rest : COLL_DATA_PIECE,
             (char *)out + piece * piece_bytes);
    }
}

void coll_input_row(const struct coll_case *spec, int32_t rank, int32_t row, uint64_t count,
                    void *out)
{
    make_row(input_piece, spec, rank, row, count, out);
}

void coll_expected_row(const struct coll_case *spec, int32_t rank, int32_t row, uint64_t count,
                       void *out)
{
    make_row(expected_piece, spec, rank, row, count, out);
}
