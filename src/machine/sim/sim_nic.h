/* SPDX-License-Identifier: MIT */
/*
 * Accesses that programs post to a NIC themselves, in the sim (WEFT__SIM_BY_NIC): by the protocol
 * of machine/nic_post.h, to the model of the NIC (net/nic/model.h).
 *
 * Each pair of ranks of two nodes has a model for either direction, with one queue, and a fiber of
 * its own: so nothing orders accesses to one rank with those to another. The fiber knows what the
 * records that it has read have brought, and nothing else.
 */
#pragma once

#include "machine/sim/sim_comm.h"
#include "net/nic/model.h"
#include "net/nic/model_cable.h"
#include "net/nic/queue.h"

enum { SIM_NIC_MAX_DEPTH = 16 };

/* The way from a rank to a peer. */
struct sim_nic_pair {
    _Alignas(64) struct weft__nic_unit units[SIM_NIC_MAX_DEPTH];
    _Alignas(64) struct weft__nic_unit cqe;
    _Alignas(8) uint32_t record[2];
    const void *sink; /* the rank's */
    struct weft__link *link;
    int32_t rank, peer;
    struct weft__nic_channel *channel;
    struct weft__nic_model *model;
    struct weft__nic_cable cable; /* to the model of the way back */
    uint64_t num_done;            /* units, by the CQEs */
    int is_open, has_failed;
    struct sim_nic_pair *next; /* all of the link */
};

/* The NICs of a communicator. Heaps do not grow: they have one step. */
struct sim_nics {
    struct weft__nic_step *heap;
    struct weft__nic_port *ports; /* [num_ranks]; without channels before the rank's first access */
    struct sim_nic_pair *pairs;
};

/* sim_nic.c. */
/* When all ranks have joined. */
void sim_nics_make(const weft_comm *comm);
void sim_nics_free(struct weft__link *link);
/* By one lane of the warp; `past` is what was ordered before the access. Returns its number. */
uint64_t sim_nic_post(struct wp_warp *warp, const struct wp_access *access,
                      const struct sim_clock *past);
int sim_nic_has_number(uint64_t number);
/* Acquires what the access has brought, unless it is weakened. */
enum wp_status sim_nic_await(struct wp_warp *warp, uint64_t number, const struct wp_wait_site *site,
                             int is_weakened);
/* True if every posted request of the rank is done, or has failed. */
int sim_nic_is_idle(const struct weft__link *link, int32_t rank);

/* nic_fiber.c. */
weft_result sim_nic_open(struct sim_nic_pair *pair); /* makes its model */
/* Starts its fiber. `back` is the pair of the way back, which has a model, too. */
weft_result sim_nic_start(struct sim_nic_pair *pair, const struct sim_nic_pair *back);
