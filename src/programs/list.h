/* SPDX-License-Identifier: MIT */
/* Every warp program. Its source is <name>.c, here or in a folder, or a row of variants.def. */
#pragma once

#define WP_PROGRAM_LIST(X)                                                                         \
    X(layout)                                                                                      \
    X(notify)                                                                                      \
    X(dispatch)                                                                                    \
    X(combine)                                                                                     \
    X(staged_dispatch)                                                                             \
    X(staged_combine)                                                                              \
    X(quantised_dispatch)                                                                          \
    X(place_choices)                                                                               \
    X(expand_rows)                                                                                 \
    X(reduce_rows)                                                                                 \
    X(choose_replicas)                                                                             \
    X(add_copies)                                                                                  \
    X(barrier)                                                                                     \
    X(internode_notify)                                                                            \
    X(internode_dispatch)                                                                          \
    X(internode_combine)                                                                           \
    X(internode_quantised_dispatch)                                                                \
    X(internode_barrier)                                                                           \
    X(internode_collective)                                                                        \
    X(packet_reduce)                                                                               \
    X(packet_two_step)                                                                             \
    X(packet_exchange)                                                                             \
    X(direct_reduce)                                                                               \
    X(direct_push)                                                                                 \
    X(send_receive)                                                                                \
    X(relayed_broadcast)                                                                           \
    X(copy)                                                                                        \
    X(premultiply)                                                                                 \
    X(quantise)                                                                                    \
    X(gate)                                                                                        \
    X(gate_backward)                                                                               \
    X(gate_balance)                                                                                \
    X(mapped_access)                                                                               \
    X(remote_access)                                                                               \
    X(wait_until)                                                                                  \
    X(low_latency_dispatch)                                                                        \
    X(low_latency_combine)                                                                         \
    X(low_latency_release)                                                                         \
    X(low_latency_mask)                                                                            \
    X(low_latency_unmask)                                                                          \
    X(packet_low_latency_dispatch)                                                                 \
    X(packet_low_latency_combine)                                                                  \
    X(told_low_latency_dispatch)
#define WP_PROGRAM_ENUM(name) WP_PROGRAM_##name,
enum wp_program {
#define X(name, ...) WP_PROGRAM_ENUM(name)
#include "programs/low_latency/variants.def"
    WP_PROGRAM_LIST(WP_PROGRAM_ENUM) WP_NUM_PROGRAMS
};
#undef WP_PROGRAM_ENUM
