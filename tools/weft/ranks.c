/* SPDX-License-Identifier: MIT */
/* Where the ranks of a job are. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "job.h"
#include "workload/failure.h"

struct place {
    int32_t pid, device_idx;
    char host[64], device[128];
};

static void find_own_place(const weft_comm *comm, struct place *place)
{
    weft_device_info device = WEFT_INIT(weft_device_info);
    *place = (struct place){.pid = getpid(), .device_idx = weft_comm_device(comm)};
    gethostname(place->host, sizeof place->host - 1);
    (void)weft_device_query(weft_comm_machine(comm), place->device_idx, &device);
    snprintf(place->device, sizeof place->device, "%s", device.name);
}

weft_result job_print_ranks(weft_comm *comm)
{
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    struct place own = {0}, *places = calloc((size_t)num_ranks, sizeof *places);
    if (!places)
        return LACKS_MEMORY("the places of %d ranks", num_ranks);
    find_own_place(comm, &own);
    const weft_result result = weft_comm_host_all_gather(comm, &own, sizeof own, places);
    if (result == WEFT_OK && weft_comm_rank(comm) == 0) {
        puts("# Using devices");
        for (int32_t rank = 0; rank < num_ranks; rank++)
            printf("#  Rank %2d Pid %6d on %10s device %2d %s\n", rank, places[rank].pid,
                   places[rank].host, places[rank].device_idx, places[rank].device);
        puts("#");
    }
    free(places);
    return result;
}
