/* SPDX-License-Identifier: MIT */
/* A rank of a named job, under any launcher. Prints its rank and job, and fails if another rank
 * belongs to another job.
 * usage: job_member NAME [SECONDS]: stays for SECONDS, then ends without a goodbye */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weft.h"

static int fail(const char *call)
{
    printf("failed: %s: %s\n", call, weft_last_error());
    return 1;
}

/* All ranks of a communicator must name this job. */
static int compare(weft_comm *comm, const char *job)
{
    enum { MAX_RANKS = 64 };
    char mine[32] = "", all[MAX_RANKS][sizeof(mine)];
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    snprintf(mine, sizeof(mine), "%s", job);
    if (num_ranks > MAX_RANKS ||
        weft_comm_host_all_gather(comm, mine, sizeof(mine), all) != WEFT_OK)
        return fail("weft_comm_host_all_gather");
    for (int32_t rank = 0; rank < num_ranks; rank++)
        if (strcmp(all[rank], mine) != 0) {
            printf("failed: rank %d is of job %s, not %s\n", rank, all[rank], mine);
            return 1;
        }
    return 0;
}

int main(int argc, char **argv)
{
    const char *job = argc > 1 ? argv[1] : "";
    weft_comm *comms[2];
    for (int i = 0; i < 2; i++)
        if (weft_comm_create_from_env(NULL, &comms[i]) != WEFT_OK)
            return fail("weft_comm_create_from_env");
    for (int i = 0; i < 2; i++)
        if (compare(comms[i], job) != 0)
            return 1;
    printf("rank %d of %d of job %s\n", weft_comm_rank(comms[0]), weft_comm_num_ranks(comms[0]),
           job);
    fflush(stdout);
    if (argc > 2) {
        sleep((unsigned)atoi(argv[2]));
        _exit(0);
    }
    for (int i = 0; i < 2; i++)
        if (weft_comm_destroy(comms[i]) != WEFT_OK)
            return fail("weft_comm_destroy");
    return 0;
}
