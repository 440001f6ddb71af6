/* SPDX-License-Identifier: MIT */
#include "coll_call.h"

#include "machine/machine.h"
#include "shape.h"

weft_collective coll_collective(enum scenario_op op)
{
    return op == SCENARIO_GROUP ? WEFT_ALL_TO_ALL : (weft_collective)(op - SCENARIO_ALL_REDUCE);
}

/* ---------------------------------------------------------------- what the seed draws */

static int draw(struct rng *rng, int32_t bound)
{
    return (int)rng_below(rng, (uint32_t)bound);
}

/* As little packet and staging memory as there may be, or twice that, and short chunks: so that
 * short rows need several pieces. */
void coll_draw_terms(struct coll_terms *terms, struct rng *rng)
{
    enum { PACKET_BYTES = 256, STAGING_BYTES = 512, TWO_STREAMS_ONE_IN = 4, REGISTERED_ONE_IN = 3 };
    static const uint64_t chunk_bytes[] = {32, 128, 4096};
    static const uint64_t piece_bytes[] = {16, 16, 48, 4096};
    terms->packet_bytes = PACKET_BYTES * (uint64_t)(1 + draw(rng, 2));
    terms->staging_bytes = STAGING_BYTES * (uint64_t)(1 + draw(rng, 2));
    terms->chunk_bytes = chunk_bytes[draw(rng, 3)];
    terms->piece_bytes = piece_bytes[draw(rng, 4)];
    terms->num_streams = draw(rng, TWO_STREAMS_ONE_IN) == 0 ? 2 : 1;
    terms->registration = draw(rng, REGISTERED_ONE_IN) == 0 ? COLL_REGISTERED : COLL_NOT_REGISTERED;
}

int coll_is_premultiplied(const struct coll_call *call)
{
    return collective_reduces(call->collective) && call->op == WEFT_SUM && call->key / 2 % 2 == 0 &&
           call->dtype >= WEFT_BF16 && call->dtype <= WEFT_FP32;
}

float coll_factor(const struct coll_call *call, int32_t rank)
{
    static const float factors[] = {0.5f, 1.0f / 3, -3.0f, 1.0f};
    return factors[rng_key(call->key, (uint64_t)rank) % 4];
}

static weft_algorithm draw_algorithm(weft_collective collective, struct rng *rng)
{
    weft_algorithm algorithm;
    do
        algorithm = (weft_algorithm)draw(rng, NUM_ALGORITHMS);
    while (!collective_is_served(collective, algorithm));
    return algorithm;
}

static struct coll_places draw_places(struct rng *rng)
{
    enum { ALIGNED_ONE_IN = 2, IN_PLACE_ONE_IN = 4 };
    struct coll_places places = {.is_in_place = draw(rng, IN_PLACE_ONE_IN) == 0};
    places.send = draw(rng, 2) == 0 ? COLL_IN_HEAP : COLL_LOCAL;
    places.recv = draw(rng, 2) == 0 ? COLL_IN_HEAP : COLL_LOCAL;
    if (draw(rng, ALIGNED_ONE_IN) == 0)
        return places;
    places.send_offset = (size_t)draw(rng, COLL_MAX_OFFSET + 1);
    places.recv_offset = (size_t)draw(rng, COLL_MAX_OFFSET + 1);
    return places;
}

/* As its weft_coll goes. */
static int goes_by_rails(const struct shape *shape)
{
    return shape->num_nodes > 1 || shape->num_ranks > WEFT_COLL_MAX_RANKS;
}

/* Sends and receives in a group have a warp each: those of all pairs of many ranks are more than
 * the sim has. */
static enum coll_rows draw_rows(const struct shape *shape, struct rng *rng)
{
    enum { MAX_RANKS_IN_GROUP = 20 };
    if (shape->op == SCENARIO_GROUP)
        return COLL_ROWS_IN_GROUP;
    const enum coll_rows rows = (enum coll_rows)draw(rng, COLL_ROWS_IN_GROUP + 1);
    return rows == COLL_ROWS_IN_GROUP && shape->num_ranks > MAX_RANKS_IN_GROUP ? COLL_UNEVEN_ROWS
                                                                               : rows;
}

void coll_draw_call(struct coll_call *call, const struct shape *shape, struct rng *rng,
                    int32_t max_count)
{
    enum { OTHER_ONE_IN = 4, LONG_ONE_IN = 3, SHORT_PART = 4, FEW_RANKS = 64 };
    call->collective = draw(rng, OTHER_ONE_IN) == 0 ? (weft_collective)draw(rng, NUM_COLLECTIVES)
                                                    : coll_collective(shape->op);
    call->algorithm = draw_algorithm(call->collective, rng);
    call->dtype = (weft_dtype)(1 + draw(rng, WEFT_FP8_E4M3));
    call->op = (weft_reduce_op)draw(rng, WEFT_AVG + 1);
    if (!reduce_op_takes(call->op, call->dtype))
        call->op = WEFT_SUM;
    call->rows = COLL_EVEN_ROWS;
    if (call->collective == WEFT_ALL_TO_ALL)
        call->rows = draw_rows(shape, rng);
    call->root = draw(rng, shape->num_ranks);
    call->count = draw(rng, 1 + (draw(rng, LONG_ONE_IN) == 0 ? max_count : max_count / SHORT_PART));
    call->key = rng_next(rng);
    call->num_direct_blocks = 1 + draw(rng, shape->num_blocks[0]);
    struct rng more = {call->key}; /* of larger jobs, so that the others stay as they were */
    for (int32_t rank = 0; rank < shape->num_ranks || rank < FEW_RANKS; rank++) {
        struct rng *of_rank = rank < FEW_RANKS ? rng : &more;
        call->num_blocks[rank] = 1 + draw(of_rank, shape->num_blocks[0]);
        call->places[rank] = draw_places(of_rank);
    }
}

/* Where memory must be staged, perhaps more than there is for it. */
static int is_in_pieces(const struct shape *shape, const struct coll_call *call)
{
    return (uint64_t)shape->num_ranks * (uint64_t)call->count * coll_element_bytes(call) >
           shape->coll_terms.staging_bytes;
}

/* Every other time perhaps by just the last piece, so that all pieces before it are alike. */
static int32_t lower_count(int32_t count, struct rng *rng)
{
    enum { OF_A_PIECE = 16 };
    const int32_t lower = draw(rng, count);
    return draw(rng, 2) == 0 ? lower : (count - 1) / OF_A_PIECE * OF_A_PIECE;
}

struct coll_call coll_disagreeing(const struct shape *shape, const struct coll_call *call)
{
    enum { OTHER_COUNT, OTHER_OP_OR_ROOT, OTHER_COLLECTIVE, OTHER_DTYPE };
    struct coll_call other = *call;
    struct rng rng = {call->key};
    const int difference = is_in_pieces(shape, call) ? OTHER_COUNT : draw(&rng, OTHER_DTYPE + 1);
    if (difference == OTHER_COUNT && call->rows == COLL_EVEN_ROWS && call->count > 0) {
        other.count = lower_count(call->count, &rng);
    } else if (difference == OTHER_OP_OR_ROOT && collective_reduces(call->collective)) {
        other.op = (weft_reduce_op)((call->op + 1) % (WEFT_AVG + 1));
    } else if (difference == OTHER_OP_OR_ROOT && collective_has_root(call->collective)) {
        other.root = (coll_root(shape, call) + 1) % shape->num_ranks;
    } else if (difference == OTHER_COLLECTIVE && call->collective != WEFT_ALL_REDUCE) {
        other.collective = WEFT_ALL_REDUCE;
        other.rows = COLL_EVEN_ROWS;
        other.algorithm = WEFT_ALGORITHM_AUTO;
    } else {
        other.dtype = call->dtype == WEFT_UINT8 ? WEFT_FP8_E4M3 : WEFT_UINT8;
    }
    if (!reduce_op_takes(other.op, other.dtype))
        other.op = WEFT_SUM;
    return other;
}

/* ---------------------------------------------------------------- what follows from that */

int32_t coll_root(const struct shape *shape, const struct coll_call *call)
{
    return call->root % shape->num_ranks;
}

size_t coll_element_bytes(const struct coll_call *call)
{
    return wp_dtype_bytes(call->dtype);
}

weft_algorithm coll_algorithm(const struct shape *shape, const struct coll_call *call)
{
    const uint64_t row_bytes = (uint64_t)call->count * coll_element_bytes(call);
    const uint64_t packet_bytes = shape->coll_terms.packet_bytes;
    if (goes_by_rails(shape)) /* every other time */
        return shape->num_nodes > 1 && call->algorithm % 2 == 0 &&
                       collective_is_served_between_nodes(call->collective, WEFT_ALGORITHM_TREE)
                   ? WEFT_ALGORITHM_TREE
                   : WEFT_ALGORITHM_AUTO;
    if (call->algorithm == WEFT_ALGORITHM_ONESHOT && row_bytes > packet_bytes)
        return WEFT_ALGORITHM_AUTO;
    if (call->algorithm == WEFT_ALGORITHM_TWOSHOT_PACKETS &&
        row_bytes > packet_bytes / 2 * (uint64_t)shape->num_ranks)
        return WEFT_ALGORITHM_AUTO;
    return call->algorithm;
}

/* Where memory must be staged in pieces, all ranks have as many of them, and rows of any length
 * must fit. */
struct coll_places coll_places(const struct shape *shape, const struct coll_call *call,
                               int32_t rank)
{
    const int is_large = is_in_pieces(shape, call);
    struct coll_places places = call->places[is_large ? 0 : rank];
    if (call->collective == WEFT_ALL_TO_ALL)
        places.is_in_place = 0;
    if (is_large && (call->collective == WEFT_REDUCE || call->collective == WEFT_GATHER ||
                     call->collective == WEFT_SCATTER))
        places.send = places.recv;                  /* only the root has both */
    if (is_large && call->rows == COLL_UNEVEN_ROWS) /* no group needs that */
        places.recv = COLL_IN_HEAP;
    return places;
}

int32_t coll_num_rows(const struct shape *shape, const struct coll_call *call,
                      enum collective_array array)
{
    return collective_num_rows(call->collective, array, shape->num_ranks);
}

static int32_t uneven_count(const struct coll_call *call, int32_t from, int32_t to)
{
    const uint64_t pair = (uint64_t)from * SCENARIO_MAX_RANKS + (uint64_t)to;
    return (int32_t)(rng_key(call->key, pair) % ((uint64_t)call->count + 1));
}

int32_t coll_row_count(const struct shape *shape, const struct coll_call *call,
                       enum collective_array array, int32_t rank, int32_t row)
{
    if (call->rows != COLL_EVEN_ROWS)
        return array == COLLECTIVE_SEND ? uneven_count(call, rank, row)
                                        : uneven_count(call, row, rank);
    return collective_is_ignored(call->collective, array, coll_root(shape, call), rank)
               ? 0
               : call->count;
}

int32_t coll_row_begin(const struct coll_call *call, int32_t row)
{
    return row * (call->count + (call->rows != COLL_EVEN_ROWS));
}

size_t coll_array_bytes(const struct shape *shape, const struct coll_call *call,
                        enum collective_array array)
{
    return (size_t)coll_row_begin(call, coll_num_rows(shape, call, array)) *
           coll_element_bytes(call);
}
