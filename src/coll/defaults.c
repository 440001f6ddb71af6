/* SPDX-License-Identifier: MIT */
/* What suits each kind of machine, as measured on 2x H200, and on CPUs. */
#include "coll/coll.h"

static const struct weft__coll_defaults defaults[] = {
    [WEFT_MACHINE_CPU] =
        {
            .packet_bytes = 128 << 10,
            .chunk_bytes = 128 << 10,
            .max_blocks = 1,
            .all_reduce_packets_bytes = 8 << 10,
            .two_step_packets_bytes = 8 << 10,
            .other_packets_bytes = 8 << 10,
        },
    [WEFT_MACHINE_CUDA] =
        {
            .packet_bytes = 1 << 20,
            .chunk_bytes = 8 << 10,
            .max_blocks = 256,
            .all_reduce_packets_bytes = 768 << 10,
            .two_step_packets_bytes = 3 << 20,
            .other_packets_bytes = 1536 << 10,
        },
};

const struct weft__coll_defaults *weft__coll_defaults(const weft_comm *comm)
{
    return &defaults[weft__machine_of(comm)->kind];
}
