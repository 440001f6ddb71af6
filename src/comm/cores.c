/* SPDX-License-Identifier: MIT */
#include "comm/cores.h"

#include <sched.h>

#include "comm/comm.h"

enum weft__cores weft__count_cores(const weft_comm *comm)
{
    const struct weft__identity *own = &comm->identities[comm->rank];
    int32_t num_here = 0;
    cpu_set_t set;
    const int num_cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        num_here += comm->identities[rank].host_key == own->host_key &&
                    comm->identities[rank].cores_key == own->cores_key;
    if (2 * num_here <= num_cores)
        return WEFT__TWO_CORES_FOR_EACH_RANK;
    return num_here <= num_cores ? WEFT__CORE_FOR_EACH_RANK : WEFT__FEWER_CORES_THAN_RANKS;
}
