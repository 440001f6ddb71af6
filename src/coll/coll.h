/* SPDX-License-Identifier: MIT */
/* Host side of the collectives: what a weft_coll has, and how its operations are put together. */
#pragma once

#include "coll/groups.h"
#include "coll/model.h"
#include "coll/tuning.h"
#include "launch/exchange_host.h"
#include "launch/names.h"
#include "programs/coll/direct.h"
#include "programs/copy.h"

enum { WEFT__COLL_MAX_BLOCKS = 1024 }; /* that a config or a table may ask for */

/* The rings, as the caller configured them; 0: the library chooses. */
struct weft__coll_asked {
    int32_t num_channels, num_slots;
    uint64_t slot_bytes;
};

struct weft_coll {
    weft_comm *comm;
    struct weft__exchange *exchange;
    struct wp_packet_area area;             /* as the programs have it; by rails no areas */
    struct weft__coll_internode *internode; /* by rails: several nodes, or many ranks; else NULL */
    char *staging;                          /* in the heap; by rails twice as many bytes */
    uint64_t staging_bytes;
    uint64_t chunk_bytes; /* of a row that a warp of the direct programs takes at a time */
    uint64_t piece_bytes; /* the most that a block relays at a time */
    weft_algorithm pinned[WEFT__NUM_COLLECTIVES]; /* or AUTO */
    int32_t num_blocks;                           /* 0: the machine's choice */
    int32_t num_warps;
    int32_t direct_blocks[WEFT__NUM_WORKS]; /* of direct programs: the same on all ranks */
    struct weft__coll_wire wire;            /* as all ranks have agreed */
    struct weft__tuning tuning;             /* rank 0's, and behind it what is shipped */
    char device[WEFT__TUNING_NAME_BYTES];   /* of all ranks; "": not the same, or not measured */
    weft_coll_record *capture;              /* that is going on, or NULL */
    struct weft__coll_groups groups;
    struct weft__coll_asked asked;
};

/* A call of any of the collectives, checked by the api. */
struct weft__coll_call {
    weft_coll *coll;
    weft_collective collective;
    const char *send;
    char *recv;
    uint64_t count; /* elements of a row */
    weft_dtype dtype;
    weft_reduce_op op;
    int32_t root;
    float factor;           /* of WEFT_PREMUL_SUM */
    const float *factor_at; /* NULL: factor */
    weft_stream *stream;
    enum {
        WEFT__ROWS_ALIKE,
        WEFT__ROWS_OF_ANY_LENGTH
    } rows;               /* of any length: weft_coll_all_to_all_v */
    uint64_t whole_count; /* of the call of which this is a piece; 0: it is none */
    int32_t num_blocks;   /* that were chosen with the algorithm; 0: none were, as of warps */
    int32_t num_warps;
};

static inline int weft__coll_has_root(weft_collective collective)
{
    return collective == WEFT_BROADCAST || collective == WEFT_REDUCE || collective == WEFT_GATHER ||
           collective == WEFT_SCATTER;
}

static inline int weft__coll_reduces(weft_collective collective)
{
    return collective == WEFT_ALL_REDUCE || collective == WEFT_REDUCE_SCATTER ||
           collective == WEFT_REDUCE;
}

/* The reduction, once inputs have been premultiplied. */
static inline enum wp_reduction_op weft__coll_reduction_op(const struct weft__coll_call *call)
{
    return call->op == WEFT_PREMUL_SUM ? WP_REDUCTION_SUM : (enum wp_reduction_op)call->op;
}

static inline uint64_t weft__coll_row_bytes(const struct weft__coll_call *call)
{
    return call->count * wp_dtype_bytes(call->dtype);
}

/* UNSUPPORTED where collectives are not for these ranks; told without the others. */
weft_result weft__coll_check_reach(weft_comm *comm);
weft_result weft__coll_create(weft_comm *comm, const weft_coll_config *config, weft_coll **coll);
void weft__coll_destroy(weft_coll *coll);

/* Rows of any length, [num_ranks] each. */
struct weft__coll_v_rows {
    struct wp_span *sent;
    struct wp_span *received;
};
/* operations.c: calls those below. */
weft_result weft__coll_run(const struct weft__coll_call *call);
weft_result weft__coll_exchange_v(const struct weft__coll_call *call,
                                  const struct weft__coll_v_rows *rows);
/* premultiplied.c: calls the next. */
weft_result weft__coll_run_premultiplied(const struct weft__coll_call *call,
                                         weft_algorithm algorithm);
/* by_algorithm.c: by one that can do it; of a premultiplied sum the input is the products. */
weft_result weft__coll_run_by(const struct weft__coll_call *call, weft_algorithm algorithm);
weft_result weft__coll_exchange_v_by(const struct weft__coll_call *call,
                                     const struct weft__coll_v_rows *rows,
                                     weft_algorithm algorithm);
/* transfers.c: by rails. */
weft_result weft__coll_groups_exchange_v(const struct weft__coll_call *call,
                                         const struct weft__coll_v_rows *rows);

/* defaults.c. */
struct weft__coll_defaults {
    uint64_t packet_bytes; /* of the regions of all ranks together */
    uint64_t chunk_bytes;
    uint64_t group_slot_bytes; /* of sends and receives, if the staging block has enough of them */
    /* Up to where packets are faster, in bytes that a rank sends: of an all-reduce in one shot, in
     * two steps, of broadcasts, and of the others. */
    uint64_t all_reduce_packets_bytes;
    uint64_t two_step_packets_bytes;
    uint64_t broadcast_packets_bytes;
    uint64_t other_packets_bytes;
    uint64_t piece_bytes; /* the most that a block relays at a time */
    /* From where on broadcasts are faster by relays, in bytes that the root sends less so. */
    uint64_t relay_bytes;
    /* From how many nodes on, and up to where, a tree of them is faster than rails: of broadcasts,
     * whose bits are the same. */
    int32_t tree_least_nodes;
    uint64_t tree_broadcast_bytes;
};
const struct weft__coll_defaults *weft__coll_defaults(const weft_comm *comm);

/* choose.c. */
struct weft__coll_choice {
    weft_algorithm algorithm;
    int32_t num_blocks; /* 0: as without a table */
    int32_t num_warps;
    weft_coll_reason reason;
    const struct weft__tuning_row *row; /* NULL: no table has chosen */
};
struct weft__coll_choice weft__coll_choose(const weft_coll *coll, weft_collective collective,
                                           uint64_t row_bytes);
/* Whether it is pinned for a collective, or in a row of the table: the same on all ranks. */
int weft__coll_is_asked_for(const weft_coll *coll, weft_algorithm algorithm);
/* Whether small broadcasts go by the tree of so many nodes, unless something else is pinned. */
int weft__coll_chooses_trees(const weft_comm *comm);
/* 1 if the algorithm is one for this collective. */
int weft__coll_can(weft_collective collective, weft_algorithm algorithm);
/* 1 if its sums are in an order of its own, so that nothing but a pin chooses it. */
int weft__coll_has_own_order(weft_algorithm algorithm);
/* Whether the algorithm can do it at all; else the error says why. */
weft_result weft__coll_check_algorithm(const weft_coll *coll, weft_collective collective,
                                       weft_algorithm algorithm, uint64_t row_bytes);
/* The size of each of num_parts of a row that they share, but for the last ones. */
uint64_t weft__coll_part_bytes(uint64_t row_bytes, int32_t num_parts);
struct weft__grid weft__coll_grid(const struct weft__coll_call *call,
                                  const struct weft__work *work);

/* between.c: what this rank knows. */
struct weft__coll_wire weft__coll_own_wire(const weft_comm *comm);
/* Ranks agree on what only another one knows. */
void weft__coll_add_wire(struct weft__coll_wire *agreed, const struct weft__coll_wire *wire);
/* Over several nodes; 0: the model does not know it. */
int weft__coll_expect_by(const weft_coll *coll, const struct weft__coll_work *work,
                         struct weft__coll_expectation *expectation);

/* explain.c; semantics: weft_coll_explain. *explanation is zero. */
weft_result weft__coll_explain(const weft_coll *coll, weft_collective collective,
                               weft_algorithm algorithm, uint64_t row_bytes,
                               weft_coll_explanation *explanation);
/* The device of this rank, if it has that to itself and its links were measured; else "". */
void weft__coll_measured_device(const weft_comm *comm, char name[WEFT__TUNING_NAME_BYTES]);

/* The grid of a direct program. */
struct weft__grid weft__coll_tensor_grid(const struct weft__coll_call *call,
                                         enum weft__work_kind kind);
/* With as many warps in all as are wanted, or as many as a block can have on this machine. */
struct weft__grid weft__coll_widen_grid(const weft_coll *coll, struct weft__grid grid,
                                        int32_t num_wanted);
/* How many blocks direct programs would have here, by their kind of work. */
void weft__coll_choose_direct_blocks(weft_coll *coll, int32_t blocks[WEFT__NUM_WORKS]);
/* A message about the call for the other ranks; num_bytes go between two ranks. */
struct wp_call_header weft__coll_header(const struct weft__coll_call *call,
                                        weft_algorithm algorithm, uint64_t num_bytes);

/* packets.c. */
weft_result weft__coll_packets_reduce(const struct weft__coll_call *call);
weft_result weft__coll_packets_two_step(const struct weft__coll_call *call);
weft_result weft__coll_packets_exchange(const struct weft__coll_call *call,
                                        const struct wp_exchanged_rows *rows);

/* direct.c: with inputs and outputs at places that all ranks reach (programs/window.h). */
struct weft__coll_places {
    uint64_t input;
    uint64_t output;
    char *out; /* the output, of pushes, where this rank has it */
};
/* All ranks compare this: rows that are equally long on all of them; others are compared by those
 * between which they go. A piece tells the bytes of its whole row, so that a call with fewer pieces
 * differs from the first one on. */
uint64_t weft__coll_told_bytes(const struct weft__coll_call *call);
/* How many bytes of a row of row_bytes a warp takes at a time: so many chunks as programs can
 * count. */
uint64_t weft__coll_chunk_bytes(const weft_coll *coll, uint64_t row_bytes);
uint64_t weft__coll_longest_row(const struct wp_span *rows, int32_t num_rows);
weft_result weft__coll_direct_reduce(const struct weft__coll_call *call,
                                     const struct weft__coll_places *places,
                                     weft_algorithm algorithm);
weft_result weft__coll_direct_push(const struct weft__coll_call *call,
                                   const struct weft__coll_places *places,
                                   const struct wp_exchanged_rows *rows);

weft_result weft__coll_relay(const struct weft__coll_call *call,
                             const struct weft__coll_places *places);

/* staging.c: what weft__coll_direct_* and weft__coll_relay do, with memory that peers cannot
 * access, too. */
weft_result weft__coll_rows_anywhere(const struct weft__coll_call *call, weft_algorithm algorithm);
weft_result weft__coll_push_anywhere(const struct weft__coll_call *call,
                                     const struct wp_exchanged_rows *rows);
uint64_t weft__coll_staging_place(const weft_coll *coll);
void weft__coll_add_copy(struct wp_copy_args *copies, char *dst, const char *src, uint64_t bytes);
/* In the order of the operations, as they use the staging block too. */
weft_result weft__coll_launch_copies(const struct weft__coll_call *call,
                                     struct wp_copy_args *copies);

/* capture.c: semantics in weft.h. */
weft_result weft__capture_begin(weft_coll *coll, weft_coll_record **capture);
weft_result weft__capture_end(weft_coll_record *capture);
/* Collective: *result is that of closing what all ranks have opened. 1: nothing keeps the capture
 * from going. */
int weft__capture_close(weft_coll_record *capture, weft_result *result);
/* This rank's alone. The windows that all ranks have opened, and not closed, stay open until the
 * communicator ends. */
void weft__capture_free(weft_coll_record *capture);
/* 1 if others reach the bytes, in the heap, registered, or by the time that what a capture records
 * runs: *place is then theirs. */
int weft__coll_find_place(const struct weft__coll_call *call, const void *ptr, uint64_t bytes,
                          uint64_t *place);
/* Notes every operation that is launched, for a capture to compare. */
void weft__coll_note(const struct weft__coll_call *call, enum wp_program program);
