/* SPDX-License-Identifier: MIT */
/* A wire between models of one process: a packet takes place at its target at once, and answers
 * come back late, in any order. */
#pragma once

#include "net/nic/model.h"

enum { WEFT__NIC_MAX_ENDS = 16, WEFT__NIC_MAX_ANSWERS = 512 };

/* Zeroed at first. */
struct weft__nic_cable {
    struct weft__nic_model *ends[WEFT__NIC_MAX_ENDS]; /* by number of the peer */
    int is_dead[WEFT__NIC_MAX_ENDS];
    uint32_t (*draw)(void *context, uint32_t bound);
    void *context; /* of draw */
    uint32_t num_answers;
    struct {
        struct weft__nic_model *initiator;
        uint32_t peer;
        struct weft__nic_answer answer;
    } answers[WEFT__NIC_MAX_ANSWERS];
};

struct weft__nic_wire weft__nic_cable_wire(struct weft__nic_cable *cable);
/* Brings one answer. Returns 0 if there is none. */
int weft__nic_cable_step(struct weft__nic_cable *cable);
/* The peer is dead: packets to it fail, and so do those that it has not answered. */
void weft__nic_cable_cut(struct weft__nic_cable *cable, uint32_t peer);
