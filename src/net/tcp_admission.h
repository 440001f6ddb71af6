/* SPDX-License-Identifier: MIT */
/*
 * How the two ends of a new connection prove to each other that they know the job's secret, which
 * is never sent:
 *
 *     dialer                                     acceptor
 *     hello: version, both ranks, a nonce  --->
 *                                          <---  challenge: a nonce
 *     proof                                --->
 *                                          <---  proof
 *
 * A proof is a MAC, under the secret of the communicator's network, of who of the two it is, both
 * ranks, and both nonces: so none that was overheard, on this connection or another, in this
 * communicator or another, is good for anything. Who does not know the secret is told a nonce, and
 * no more.
 */
#pragma once

#include "comm/rendezvous/meeting_point.h"
#include "net/mac.h"

enum { WEFT__TCP_NONCE_BYTES = 32 };
/* "wefttcp1" in the byte order of the ranks. */
#define WEFT__TCP_MAGIC UINT64_C(0x3170637474666577)

struct weft__tcp_hello {
    uint64_t magic;
    int32_t from, to;  /* ranks: the dialer and whom it looks for */
    int32_t num_ranks; /* of the communicator */
    uint32_t header_bytes;
    uint8_t nonce[WEFT__TCP_NONCE_BYTES];
};

struct weft__tcp_challenge {
    uint8_t nonce[WEFT__TCP_NONCE_BYTES];
};

enum weft__tcp_role { WEFT__TCP_DIALER, WEFT__TCP_ACCEPTOR };

/* The messages of both. */
struct weft__tcp_talk {
    struct weft__tcp_hello hello;
    struct weft__tcp_challenge challenge;
};

void weft__tcp_prove(const uint8_t secret[WEFT__NONCE_BYTES], enum weft__tcp_role who,
                     const struct weft__tcp_talk *talk, uint8_t proof[WEFT__MAC_BYTES]);
