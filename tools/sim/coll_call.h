/* SPDX-License-Identifier: MIT */
/*
 * A call of a collective in a scenario: what the seed draws of it, and what its arrays hold before
 * and after, element by element, computed from the seed without communication.
 *
 * Arrays consist of rows, of equal length and one after the other but for weft_coll_all_to_all_v,
 * and sends and receives, which leave a gap of one element behind each.
 */
#pragma once

#include "scenario.h"
#include "workload/collective.h"
#include "workload/rng.h"

struct shape;

enum coll_rows {
    COLL_EVEN_ROWS,
    COLL_UNEVEN_ROWS,  /* weft_coll_all_to_all_v */
    COLL_ROWS_IN_GROUP /* the same, by sends and receives */
};

enum { COLL_MAX_OFFSET = 15 };
enum coll_memory { COLL_IN_HEAP, COLL_LOCAL };

/* Where the arrays of a rank are. */
struct coll_places {
    int is_in_place; /* where the collective allows it */
    enum coll_memory send, recv;
    size_t send_offset, recv_offset; /* bytes off an alignment of 16 */
};

struct coll_call {
    weft_collective collective;
    weft_algorithm algorithm; /* as drawn: see coll_algorithm */
    weft_dtype dtype;
    weft_reduce_op op;
    enum coll_rows rows;
    int32_t root;  /* as drawn: see coll_root */
    int32_t count; /* of uneven rows, the most */
    uint64_t key;  /* of the values */
    /* As a machine may choose them by size: of all ranks' direct programs, and of each rank's
     * others. */
    int32_t num_direct_blocks;
    int32_t num_blocks[SCENARIO_MAX_RANKS];
    struct coll_places places[SCENARIO_MAX_RANKS];
};

/* Shared by a scenario's calls. */
struct coll_terms {
    uint64_t packet_bytes, staging_bytes, chunk_bytes, piece_bytes;
    int32_t num_streams;
    enum coll_registration {
        COLL_NOT_REGISTERED,
        COLL_REGISTERED
    } registration; /* of local arrays */
};

weft_collective coll_collective(enum scenario_op op);
/* Every other sum that may be is premultiplied. */
int coll_is_premultiplied(const struct coll_call *call);
float coll_factor(const struct coll_call *call, int32_t rank);
void coll_draw_terms(struct coll_terms *terms, struct rng *rng);
void coll_draw_call(struct coll_call *call, const struct shape *shape, struct rng *rng,
                    int32_t max_count);

/* The same with a difference that is not allowed, in arrays of the same size. */
struct coll_call coll_disagreeing(const struct shape *shape, const struct coll_call *call);

/* The one drawn, or AUTO if that cannot do it. */
weft_algorithm coll_algorithm(const struct shape *shape, const struct coll_call *call);
/* The root is one of the ranks that are left. */
int32_t coll_root(const struct shape *shape, const struct coll_call *call);
/* As drawn, within what the ranks must have in common. */
struct coll_places coll_places(const struct shape *shape, const struct coll_call *call,
                               int32_t rank);

size_t coll_element_bytes(const struct coll_call *call);

/* The rows of a rank's array, in elements where they begin and how long they are. */
int32_t coll_num_rows(const struct shape *shape, const struct coll_call *call,
                      enum collective_array array);
int32_t coll_row_count(const struct shape *shape, const struct coll_call *call,
                       enum collective_array array, int32_t rank, int32_t row);
int32_t coll_row_begin(const struct coll_call *call, int32_t row);
size_t coll_array_bytes(const struct shape *shape, const struct coll_call *call,
                        enum collective_array array);

/* The bits of an element. */
uint64_t coll_sent(const struct shape *shape, const struct coll_call *call, int32_t rank,
                   int32_t row, int32_t i);
uint64_t coll_received(const struct shape *shape, const struct coll_call *call, int32_t rank,
                       int32_t row, int32_t i);
