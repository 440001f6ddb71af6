/* SPDX-License-Identifier: MIT */
/* How ranks learn who they are and where they meet: unique ids, and the environments of
 * launchers. */
#pragma once

#include "comm/rendezvous/meeting_point.h"
#include "weft.h"

enum weft__launcher {
    WEFT__LAUNCHER_NONE, /* one rank alone */
    WEFT__LAUNCHER_WEFT,
    WEFT__LAUNCHER_TORCHRUN,
    WEFT__LAUNCHER_OPEN_MPI,
    WEFT__LAUNCHER_SLURM,
    WEFT__LAUNCHER_PMI
};

struct weft__bootstrap {
    enum weft__launcher launcher;
    const char *launcher_name;              /* NULL: none */
    const char *rank_name, *num_ranks_name; /* variables of the launcher */
    int32_t rank, num_ranks;
    struct weft__meeting_point point; /* unless there is only one rank */
    enum {
        WEFT__TRUST_SECRET, /* of 128 bits, or there is only one host */
        WEFT__TRUST_JOB     /* on several hosts, by no more than the id of the job */
    } trust;
    enum {
        WEFT__RENDEZVOUS_ELSEWHERE, /* the launcher serves it */
        WEFT__RENDEZVOUS_AT_RANK_0
    } rendezvous;
};

/* Reads the environment, and nothing but it. */
weft_result weft__bootstrap_read(struct weft__bootstrap *bootstrap);

/* Starts the rendezvous if it is this rank's to serve, and tells the key of the next communicator
 * of this environment: the first has 0, as all ranks count the same. */
weft_result weft__bootstrap_start(struct weft__bootstrap *bootstrap, uint32_t timeout_ms,
                                  uint64_t *key);

/* The work behind weft_unique_id_create and weft_rendezvous_serve. */
weft_result weft__unique_id_create(weft_unique_id *id);
weft_result weft__unique_id_serve(const weft_unique_id *id);
