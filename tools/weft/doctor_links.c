/* SPDX-License-Identifier: MIT */
#include "doctor_links.h"

#include <stdlib.h>
#include <string.h>

/* Both ways between ranks first < second; or of one rank to itself, if they are the same. The figures
 * of a link are noted by its sender. `own` is [num_ranks]. */
static weft_result measure_pair(weft_comm *comm, int32_t first, int32_t second,
                                struct link_figures *own)
{
    const int32_t rank = weft_comm_rank(comm);
    const int is_member = rank == first || rank == second;
    weft_comm *pair;
    weft_result result = weft_comm_split(comm, is_member ? 0 : -1, 0, NULL, &pair);
    if (result != WEFT_OK || !is_member)
        return result;
    for (int32_t sender = 0; sender < weft_comm_num_ranks(pair) && result == WEFT_OK; sender++) {
        struct link_figures figures;
        result = link_measure(pair, sender, &figures);
        if (result == WEFT_OK && sender == weft_comm_rank(pair))
            own[rank == first ? second : first] = figures;
    }
    if (result != WEFT_OK)
        weft_comm_abort(pair);
    weft_comm_destroy(pair);
    return result;
}

weft_result doctor_measure_links(weft_comm *comm, struct link_figures *links)
{
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    const size_t own_bytes = (size_t)num_ranks * sizeof *links;
    struct link_figures *own = calloc((size_t)num_ranks, sizeof *own);
    weft_result result = own ? WEFT_OK : WEFT_ERROR_OUT_OF_MEMORY;
    for (int32_t first = 0; first < num_ranks; first++)
        for (int32_t second = first; second < num_ranks && result == WEFT_OK; second++)
            result = measure_pair(comm, first, second, own);
    if (result == WEFT_OK)
        result = weft_host_all_gather(comm, own, own_bytes, links);
    free(own);
    return result;
}
