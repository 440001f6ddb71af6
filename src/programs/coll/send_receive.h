/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/coll/grants.h"
#include "programs/relay.h"

/* Where a slot has what is sent: behind the word that says what it is a part of. */
enum { WP_TRANSFER_HEADER_BYTES = 16 };

/* One send or receive: its bytes, whether it is a collective's, and its dtype. */
enum { WP_TRANSFER_OPERATION_BIT = 52, WP_TRANSFER_DTYPE_BIT = 56 };

struct wp_transfer {
    char *memory;
    uint64_t word;
};

/* Those of an operation with one peer in one direction, in order. To itself a rank has pairs, a
 * send and its receive. */
enum wp_direction { WP_DIRECTION_SEND, WP_DIRECTION_RECEIVE, WP_DIRECTION_SELF };

struct wp_transfer_list {
    int32_t peer;
    int32_t first, num; /* of the transfers */
    uint16_t direction; /* enum wp_direction */
    uint16_t set;       /* of the slots that it uses */
};

/* Who meets first. */
enum wp_transfer_operation {
    WP_TRANSFERS_OF_A_GROUP,     /* nobody */
    WP_TRANSFERS_OF_A_COLLECTIVE /* the ranks of the node, and lists are in the same order on all
                                    ranks */
};

/* That fit the arguments. */
enum { WP_MAX_TRANSFERS = 128, WP_MAX_TRANSFER_LISTS = 64 };

/* Line i is channel i % num_channels of list i / num_channels. Warp w does lines w, w + num_warps
 * ... */
struct wp_send_receive_args {
    struct wp_exchange exchange; /* has as many blocks as there are channels, or more */
    struct wp_message message;   /* of a collective, */
    struct wp_rings rings;       /* by which nodes tell each other what they have called */
    struct wp_rings tree;        /* of these it uses none: others of the exchange do */
    struct wp_grants grants;
    enum wp_transfer_operation operation;
    int32_t num_lists;
    int32_t num_warps;
    int32_t num_slots; /* of each line */
    /* Elsewhere; NULL: here. */
    const struct wp_transfer_list *table_of_lists;
    const struct wp_transfer *table_of_transfers;
    struct wp_transfer_list lists[WP_MAX_TRANSFER_LISTS];
    struct wp_transfer transfers[WP_MAX_TRANSFERS];
};
