/* SPDX-License-Identifier: MIT */
#include "comm/host/cores.h"

#include "comm/comm.h"

struct shared_cores {
    int32_t num_ranks, num_cores;
};

int weft__processors_of_thread(struct weft__processors *processors)
{
    return sched_getaffinity(0, sizeof processors->sets, processors->sets);
}

static struct shared_cores count(const weft_comm *comm)
{
    const struct weft__identity *own = &comm->identities[comm->rank];
    struct weft__processors processors;
    struct shared_cores shared = {0, 1};
    if (weft__processors_of_thread(&processors) == 0)
        shared.num_cores = CPU_COUNT_S(sizeof processors.sets, processors.sets);
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        shared.num_ranks += comm->identities[rank].cores_key == own->cores_key;
    return shared;
}

enum weft__cores weft__count_cores(const weft_comm *comm)
{
    const struct shared_cores shared = count(comm);
    if (2 * shared.num_ranks <= shared.num_cores)
        return WEFT__TWO_CORES_FOR_EACH_RANK;
    return shared.num_ranks <= shared.num_cores ? WEFT__CORE_FOR_EACH_RANK
                                                : WEFT__FEWER_CORES_THAN_RANKS;
}

double weft__ranks_per_core(const weft_comm *comm)
{
    const struct shared_cores shared = count(comm);
    return (double)shared.num_ranks / shared.num_cores;
}
