/* SPDX-License-Identifier: MIT */
/* Two nets of engine tcp in one process: rank 1, who is dialed, and rank 0, who dials. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "net/net.h"
#include "net/tcp_address.h"

enum { NUM_RANKS = 2, HEAP_BYTES = 1 << 16, NUM_WORDS = 8, WORD = 1 };

struct pair {
    struct weft__net *nets[NUM_RANKS]; /* NULL: a test plays that rank */
    struct weft__net_blob blobs[NUM_RANKS];
    unsigned char *heap; /* of rank 1: pages that can be taken away */
    _Atomic uint64_t words[NUM_WORDS];
};

/* Of both. */
extern const uint8_t secret[WEFT__NONCE_BYTES];

/* A secret that begins otherwise is another one. */
struct weft__net *open_net(int32_t rank, uint8_t first_of_secret);
void open_pair(struct pair *pair);
/* And registers what rank 1 has. */
void connect_rank(struct pair *pair, int32_t rank);
void close_pair(struct pair *pair);
struct weft__tcp_address address_of(const struct pair *pair, int32_t rank);

/* Until rank 0's signal has come to rank 1. */
void expect_to_meet(struct pair *pair);
/* Until the net has lost its peer. */
void expect_failure(struct weft__net *net, int32_t peer, const char *reason);
/* Of this process. */
int num_descriptors(void);
