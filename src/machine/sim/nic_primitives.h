/* SPDX-License-Identifier: MIT */
/* Primitives of machine/nic_post.h for programs that post themselves, in the sim. */
#pragma once

#include "machine/machine.h"
#include "machine/sim/nic_words.h"
#include "net/nic/queue.h"

struct wp_nic_wait {
    struct wp_warp *warp;
    const uint64_t *news; /* of the channel */
    const struct wp_wait_site *site;
    uint64_t seen;         /* of the news, before the waiter looked at the queue */
    enum wp_status status; /* of the last pause */
    int is_over;
};

/* Until the channel has news. */
enum wp_status sim_nic_pause(struct wp_nic_wait *wait);
#define wp_nic_pause(wait, queue) ((void)(queue), sim_nic_pause(wait))
