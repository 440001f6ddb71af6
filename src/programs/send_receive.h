/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_SEND_RECEIVE_H
#define WEFT_PROGRAMS_SEND_RECEIVE_H

#include "programs/fifo.h"
#include "programs/share.h"

/* Where a slot has what is sent: behind the word that says what it is a part of. */
enum { WP_TRANSFER_HEADER_BYTES = 16 };

/* Of one send or receive: its bytes and, in the highest bits, its dtype. */
enum { WP_TRANSFER_DTYPE_BIT = 56 };

struct wp_transfer {
    char *memory;
    uint64_t word;
};

/* Those of a group with one peer in one direction, in order. To itself a rank has pairs, a send and its receive. */
enum wp_direction { WP_DIRECTION_SEND, WP_DIRECTION_RECEIVE, WP_DIRECTION_SELF };

struct wp_transfer_list {
    uint16_t peer;
    uint16_t direction; /* enum wp_direction */
    uint16_t first;     /* of the transfers */
    uint16_t num;
};

enum { WP_MAX_TRANSFERS = WEFT_COLL_MAX_GROUP, WP_MAX_TRANSFER_LISTS = 2 * WEFT_COLL_MAX_RANKS };

/* Warp w of the launch is channel w % num_channels of list w / num_channels. */
struct wp_send_receive_args {
    struct wp_exchange exchange; /* has as many blocks as there are channels, or more */
    struct wp_fifos fifos;
    int32_t num_channels;
    int32_t num_lists;
    struct wp_transfer_list lists[WP_MAX_TRANSFER_LISTS];
    struct wp_transfer transfers[WP_MAX_TRANSFERS];
};

#endif
