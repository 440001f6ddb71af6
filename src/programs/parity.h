/* SPDX-License-Identifier: MIT */
/*
 * Memory that operations use in turn: it has two buffers, and operation n uses buffer n % 2.
 * Whatever is used in turn keeps the following rules, so that the proof stands here alone.
 *
 * Operations are numbered, and a rank's launches of them run one after the other. Peers are the
 * ranks that touch the same memory. What an operation touches of its buffer, on whichever rank, it
 * touches in its own launches; puts through the network count, since their target waits for them.
 * But
 *
 *   (a) a launch may prepare the other buffer on its own rank for the next operation;
 *   (b) a launch that ends well has taken a greeting of the same operation from each peer.
 *
 * Claim: when operation n begins on a rank, nobody touches buffer n % 2 on behalf of operation n -
 * 2 any more, here or at a peer, and what was done there is ordered before what operation n does.
 *
 * Proof: operation n begins only if n - 1 has ended well on this rank (wp_operation_begin). By
 * (b) its launch has taken a greeting that each peer's launch of n - 1 sent, and that began when
 * the peer's launch of n - 2 had ended. So had this rank's own. Each step is ordered, since
 * launches begin and end with fences (docs/memory-model.md, "Packets"). What (a) prepares was
 * written by launch n - 1 of this rank, which has ended.
 *
 * An operation in rounds (rounds.h) meets several times, and has a number for each meeting: an odd
 * number of them, the first of which is the operation's here, so that the next operation has the
 * other buffer. Its meetings are greetings of all blocks, so that the counter of units may be used
 * in turn by its parts.
 *
 * So operation n may overwrite what operation n - 2 has left in the buffer, here and at its peers,
 * before it has heard of anybody. One buffer would not do: peers may still be in operation n - 1.
 *
 *     memory                              greeting                          where
 *     messages                            the messages                      exchange.h
 *     counter of units that are taken     none is needed: one rank's, (a)   exchange.h
 *     slots of packets and escape words   headers                           packet_area.h
 *     counts of notify                    messages                          counts.h
 *     chunks that rings have carried      none is needed: one rank's, (a)   ring.h
 *     counts for partners                 these; notifies are numbered      internode_notify.h
 */
#pragma once

#include "machine/machine.h"

enum { WP_NUM_BUFFERS = 2 };

/* Which buffer an operation uses. */
WP_FN uint64_t wp_parity(uint64_t sequence)
{
    return sequence % WP_NUM_BUFFERS;
}
