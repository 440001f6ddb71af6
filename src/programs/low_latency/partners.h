/* SPDX-License-Identifier: MIT */
/* Which ranks low latency reaches through partners of theirs: whose rows and answers are relayed, by whom, and who tells of
 * what (low_latency/relay.h). */
#pragma once

#include "programs/low_latency/near.h"

/* Without nodes, nothing is loaded for this. */
WP_FN int wp_ll_is_remote(const struct wp_low_latency *ll, int32_t rank)
{
    return WP_LL_HAS_NODES(&ll->plan) && ll->exchange.bases[rank] == NULL;
}

/* Whether what `source` is answered stays here, where it reads it. */
WP_FN int wp_ll_stays(const struct wp_low_latency *ll, int32_t source)
{
    return ll->plan.answers_stay && !wp_ll_is_remote(ll, source);
}

/* Whether rows between this rank and another one are relayed in the node that they are for. */
WP_FN int wp_ll_is_relayed(const struct wp_low_latency *ll, int32_t rank)
{
    return WP_LL_HAS_NODES(&ll->plan) && ll->plan.message.num_sources > 0 &&
           wp_ll_is_remote(ll, rank);
}

/* The same of answers, where the node is that they come from. */
WP_FN int wp_ll_is_summed(const struct wp_low_latency *ll, int32_t rank)
{
    return wp_ll_is_relayed(ll, rank) && wp_ll_has_node_sums(&ll->plan);
}

/* Whether the partner alone tells of a rank's mail. */
WP_FN int wp_ll_is_brought(const struct wp_low_latency *ll, enum wp_ll_mail mail, int32_t rank)
{
    return mail == WP_LL_ROWS && wp_ll_is_relayed(ll, rank);
}

/* Whether what comes of a rank's mail is told in a word of the network. */
WP_FN int wp_ll_is_put(const struct wp_low_latency *ll, enum wp_ll_mail mail, int32_t rank)
{
    return wp_ll_is_remote(ll, rank) && !wp_ll_is_brought(ll, mail, rank);
}

/* Who relays in a node what a rank of another one sends, and answers it: the rank with the same index; where there are
 * fewer ranks, they take turns. */
WP_FN int32_t wp_ll_partner(const struct wp_low_latency *ll, int32_t rank, int32_t node)
{
    const struct wp_nodes *nodes = &ll->network.nodes;
    return wp_node_rank(nodes, node, nodes->local_idxs[rank] % nodes->sizes[node]);
}

/* Who relays to this one what a rank of another node sends. */
WP_FN int32_t wp_ll_bringer(const struct wp_low_latency *ll, int32_t rank)
{
    return wp_ll_partner(ll, rank, ll->network.nodes.node);
}

/* Whether it is this one. */
WP_FN int wp_ll_relays_for(const struct wp_low_latency *ll, int32_t rank)
{
    return wp_ll_bringer(ll, rank) == ll->exchange.rank;
}

/* Whether `rank` of another node relays what this one sends. */
WP_FN int wp_ll_is_relayed_by(const struct wp_low_latency *ll, int32_t rank)
{
    return wp_ll_partner(ll, ll->exchange.rank, ll->network.node_of_rank[rank]) == rank;
}

/* Whether partners alone get or send a mail of ranks of other nodes. */
WP_FN int wp_ll_is_of_partners(const struct wp_low_latency *ll, enum wp_ll_mail mail, int32_t rank)
{
    return mail == WP_LL_ANSWERS ? wp_ll_is_summed(ll, rank) : wp_ll_is_relayed(ll, rank);
}

/* Whether this rank puts mail to another one of another node: rows to those who relay them, sums of answers to those
 * whose rows it has relayed. */
WP_FN int wp_ll_puts_to(const struct wp_low_latency *ll, enum wp_ll_mail mail, int32_t rank)
{
    if (!wp_ll_is_of_partners(ll, mail, rank))
        return 1;
    return mail == WP_LL_ANSWERS ? wp_ll_relays_for(ll, rank) : wp_ll_is_relayed_by(ll, rank);
}

/* Whether the other one puts to this rank. */
WP_FN int wp_ll_gets_puts_of(const struct wp_low_latency *ll, enum wp_ll_mail mail, int32_t rank)
{
    if (!wp_ll_is_of_partners(ll, mail, rank))
        return 1;
    return mail == WP_LL_ANSWERS ? wp_ll_is_relayed_by(ll, rank) : wp_ll_relays_for(ll, rank);
}

/* Whether a rank tells this one of such at all. */
WP_FN int wp_ll_is_told_by(const struct wp_low_latency *ll, enum wp_ll_words words,
                           enum wp_ll_mail mail, int32_t rank)
{
    const int is_remote = wp_ll_is_remote(ll, rank);
    if (words == WP_LL_ROOM)
        return wp_ll_puts_to(ll, mail, rank);
    if (words == WP_LL_ARRIVED && mail != WP_LL_ROWS) /* rows come of all, some by partners */
        return (is_remote || mail != WP_LL_RELAYS) && wp_ll_gets_puts_of(ll, mail, rank);
    return 1;
}

/* Who tells this rank that a rank's mail has come. */
WP_FN int32_t wp_ll_teller(const struct wp_low_latency *ll, enum wp_ll_mail mail, int32_t rank)
{
    return wp_ll_is_brought(ll, mail, rank) ? wp_ll_bringer(ll, rank) : rank;
}
