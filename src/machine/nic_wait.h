/* SPDX-License-Identifier: MIT */
/* The wait of a program at a NIC's queue, where it sleeps until the channel has news. */
#pragma once

#include "machine/machine.h"

struct wp_nic_wait {
    struct wp_warp *warp;
    const uint64_t *news; /* of the channel */
    const struct wp_wait_site *site;
    uint64_t seen;         /* of the news, before the waiter looked at the queue */
    enum wp_status status; /* of the last pause */
    int is_over;
};

/* The first pause is none: what it would wait for may be there already. `num_news` is what the
 * channel has. */
static inline struct wp_nic_wait wp_nic_begin_wait(struct wp_warp *warp, const uint64_t *news,
                                                   uint64_t num_news,
                                                   const struct wp_wait_site *site)
{
    return (struct wp_nic_wait){.warp = warp, .news = news, .site = site, .seen = num_news - 1};
}
