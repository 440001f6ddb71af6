/* SPDX-License-Identifier: MIT */
/* Bandwidth that channels take of links. */
#include <math.h>

#include "topo/search_internal.h"

/* How much of a link's bandwidth a path of a channel takes: PCI's may be more, since transfers
 * between GPUs over an Intel processor are cut into small packets. */
static float bw_of_pci(const struct topo_path *path, const struct topo_node *from, float bw)
{
    if (path->type != TOPO_PHB || from->kind != TOPO_GPU)
        return bw;
    for (int32_t i = 0; i < path->num_links; i++) {
        const struct topo_node *node = path->links[i]->to;
        if (node->kind == TOPO_CPU && node->cpu.arch == TOPO_ARCH_X86 &&
            node->cpu.vendor == TOPO_VENDOR_INTEL)
            return bw * 6 / 5;
    }
    return bw;
}

/* Traffic to an old GPU, or over NVLink to a POWER processor, takes something of the way
 * back. */
static float bw_of_reverse(const struct topo_node *from, const struct topo_link *link, float bw)
{
    float reverse = 0;
    if (link->to->kind == TOPO_GPU && link->to->gpu.sm < 80 && from->kind != TOPO_GPU)
        reverse += bw / 8;
    if (link->to->kind == TOPO_CPU && link->to->cpu.arch == TOPO_ARCH_POWER &&
        link->type == TOPO_NVL)
        reverse += bw;
    return reverse;
}

/* Sums of many fractions would not come back to what they were. */
static void subtract(struct topo_link *link, float bw)
{
    link->bw = roundf((link->bw - bw) * 1000) / 1000;
}

/* The number of links, from the first, of which `bw` could be taken, at most num_links. */
static int32_t follow(const struct topo_path *path, struct topo_node *from, int32_t num_links,
                      float bw)
{
    const float pci_bw = bw_of_pci(path, from, bw);
    struct topo_node *node = from;
    for (int32_t i = 0; i < num_links; i++) {
        struct topo_link *link = path->links[i];
        const float forward_bw = link->type == TOPO_PIX ? pci_bw : bw;
        const float reverse_bw = bw_of_reverse(from, link, forward_bw);
        struct topo_link *reverse = reverse_bw != 0 ? topo_reverse_of(node, link) : NULL;
        if (link->bw < forward_bw || (reverse != NULL && reverse->bw < reverse_bw))
            return i;
        subtract(link, forward_bw);
        if (reverse != NULL)
            subtract(reverse, reverse_bw);
        node = link->to;
    }
    return num_links;
}

static int is_in_node(const struct topo_node *node)
{
    return node->kind == TOPO_GPU || node->kind == TOPO_NVS;
}

static int is_tree(enum pattern pattern)
{
    return pattern == PATTERN_BALANCED_TREE || pattern == PATTERN_TREE;
}

/* Whether the path is of a type that may be used; trees use it both ways. */
static int is_near_enough(const struct search *search, struct topo_node *from, struct topo_node *to)
{
    const struct channels *now = search->now;
    const enum topo_type most =
        is_in_node(from) && is_in_node(to) ? now->type_intra : now->type_inter;
    return topo_path(from, to)->type <= most &&
           (!is_tree(now->pattern) || topo_path(to, from)->type <= most);
}

static float bw_between(const struct search *search, const struct topo_node *from,
                        const struct topo_node *to)
{
    return is_in_node(from) && is_in_node(to) ? search->now->bw_intra : search->now->bw_inter;
}

int search_take(struct search *search, struct topo_node *from, struct topo_node *to, float times)
{
    const struct topo_path *path = topo_path(from, to);
    const float bw = bw_between(search, from, to) * times;
    if (path->type >= TOPO_DIS || (times == 1 && !is_near_enough(search, from, to)))
        return 0;
    const int32_t num_taken = follow(path, from, path->num_links, bw);
    if (num_taken < path->num_links) {
        follow(path, from, num_taken, -bw);
        return 0;
    }
    search->now->num_hops += (int32_t)times * path->num_links;
    return 1;
}

void search_give_back(struct search *search, struct topo_node *from, struct topo_node *to,
                      float times)
{
    const struct topo_path *path = topo_path(from, to);
    follow(path, from, path->num_links, -bw_between(search, from, to) * times);
    search->now->num_hops -= (int32_t)times * path->num_links;
}
