/* SPDX-License-Identifier: MIT */
/* The settings that suit each kind of machine, as measured on 2x H200, and on CPUs. */
#include "coll/coll.h"

static const struct weft__coll_defaults defaults[] = {
    [WEFT_MACHINE_CPU] =
        {
            .packet_bytes = 512 << 10,
            .chunk_bytes = 128 << 10,
            .group_slot_bytes = 64 << 10,
            /* Measured with operations one behind the other, among 2 to 8 ranks on 2 cores. Packets
             * cost a copy word by word, direct access a second signal. Staged rows would gain from
             * packets up to 8 KiB. */
            .all_reduce_packets_bytes = 3 << 10,
            .two_step_packets_bytes = 0,
            .broadcast_packets_bytes = 8 << 10,
            .other_packets_bytes = 3 << 10,
            .piece_bytes = 128 << 10,
            .relay_bytes = UINT64_MAX,
            /* Between 8 hosts with 0.5 ms from one to the other, broadcast and barrier of 256 bytes
             * to 32 KiB take 0.73 to 0.88 of what they take by rails, of 64 KiB 0.89; between 4
             * hosts 0.94 to 1.03. Where all 8 hosts share 2 cores and no time passes between them,
             * it is the messages that take time, of which there is one more: then up to 1.17. */
            .tree_least_nodes = 8,
            .tree_broadcast_bytes = 32 << 10,
        },
    [WEFT_MACHINE_CUDA] =
        {
            .packet_bytes = 16 << 20,
            .chunk_bytes = 8 << 10,
            .group_slot_bytes = 32 << 10,
            .all_reduce_packets_bytes = 768 << 10,
            /* Among 2: 8 MiB take 27.8 us in packets, 33.9 by direct access. */
            .two_step_packets_bytes = 12 << 20,
            .broadcast_packets_bytes = 6 << 20,
            .other_packets_bytes = 6 << 20, /* among 2, gathering 8 MiB: 16.8 us and 21.0 */
            /* A block waits until a piece has left, so pieces are long. */
            .piece_bytes = 256 << 10,
            /* Broadcasts among 4 take 36 us for 43 of 4 MiB, 90 for 146 of 16,
             * 271 for 555 of 64; among 3 32 for 32 of 4 MiB, 75 for 100 of 16. */
            .relay_bytes = 8 << 20,
            /* As of machine cpu: hops are the network's. */
            .tree_least_nodes = 8,
            .tree_broadcast_bytes = 32 << 10,
        },
};

const struct weft__coll_defaults *weft__coll_defaults(const weft_comm *comm)
{
    return &defaults[weft__machine_of(comm)->kind];
}
