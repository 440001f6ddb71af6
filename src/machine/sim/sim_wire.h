/* SPDX-License-Identifier: MIT */
/* Accesses on their way to ranks of other nodes. */
#pragma once

#include "machine/sim/sim_comm.h"

struct sim_origin {
    struct weft__sim_place place;
    const void *code;
};

/* The state of an access that was posted. */
struct sim_completion {
    struct sim_completion *next;
    int is_done;
    struct sim_clock clock;
};

struct sim_parcel {
    struct sim_parcel *next;
    struct sim_parcel *next_known;
    struct weft__link *link;
    int32_t sender;     /* in the communicator */
    const char *source; /* of a put */
    struct wp_access access;
    struct sim_completion *completion; /* NULL: nobody waits for it */
    enum { SIM_PARCEL_UNUSED, SIM_PARCEL_UNDER_WAY } state;
    uint64_t number; /* the older, the lower */
    struct sim_clock past;
    struct sim_origin origin;
};

/* wire.c. */
/* Its past is what was ordered before it. */
void sim_wire_post(const weft_comm *comm, const struct wp_access *access,
                   struct sim_completion *completion, const struct sim_clock *past,
                   struct sim_origin origin);
/* Returns 0, and reports, if the access is not one that may be posted. */
int sim_wire_check(const weft_comm *comm, const struct wp_access *access, const void *code);
/* Its target, or its sender, is gone. */
int sim_wire_is_lost(const struct sim_parcel *parcel);
/* Where a place of its target is. */
char *sim_wire_target(const struct sim_parcel *parcel, uint64_t offset);
/* Whether the sender's parcels to the same rank that are older have all come. */
int sim_wire_have_older_come(const struct sim_parcel *parcel);
/* The effects of those that have come to the rank; never NULL. */
struct sim_clock *sim_wire_landed(const struct sim_parcel *parcel);

/* accesses.c, by the fiber that carries the parcel: */
/* From here on the put's source may change. */
void sim_access_take_source(struct sim_parcel *parcel);
/* Waits until all older ones to its rank have come. */
void sim_access_flush(const struct sim_parcel *parcel);
/* A get, fetch-add or flush. */
void sim_access_answer(const struct sim_parcel *parcel);
