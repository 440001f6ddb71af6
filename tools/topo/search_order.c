/* SPDX-License-Identifier: MIT */
/* In which order a search tries GPUs and ports: the order decides what is found before the steps
 * are used up. */
#include <stdlib.h>
#include <string.h>

#include "topo/search_internal.h"

/* ------------------------------------------------------------------ GPUs */

struct score {
    int32_t gpu;
    int32_t net_bw, net_pci_bw, net_hops; /* to the port: counts only for the GPU that goes there */
    int32_t bw, hops;                     /* from the GPU before */
    int32_t distance;                     /* in the order of the file */
};

static int compare(const void *a_pointer, const void *b_pointer)
{
    const struct score *a = a_pointer, *b = b_pointer;
    if (a->net_bw != b->net_bw)
        return b->net_bw - a->net_bw;
    if (a->net_pci_bw != b->net_pci_bw)
        return b->net_pci_bw - a->net_pci_bw;
    if (a->net_hops != b->net_hops)
        return a->net_hops - b->net_hops;
    if (a->bw != b->bw)
        return b->bw - a->bw;
    if (a->hops != b->hops)
        return a->hops - b->hops;
    return a->distance - b->distance;
}

/* The slower way of the PCI link of a GPU; -1: it has none. */
static int32_t pci_bw_of(const struct topo_node *gpu)
{
    for (int32_t i = 0; i < gpu->num_links; i++) {
        const struct topo_link *up = &gpu->links[i];
        for (int32_t j = 0; up->type == TOPO_PIX && j < up->to->num_links; j++) {
            const struct topo_link *down = &up->to->links[j];
            if (down->to == gpu)
                return (int32_t)(up->bw < down->bw ? up->bw : down->bw);
        }
    }
    return -1;
}

static struct score score_of(const struct search *search, const struct topo_node *from,
                             const struct topo_node *to, enum net_use use)
{
    const struct topo_path *path = &from->paths[TOPO_GPU][to->index];
    struct score score = {.gpu = to->index, .bw = (int32_t)path->bw, .hops = path->num_links};
    if (use != NET_UNUSED) {
        const int32_t port = search_channel(search)->nets[0];
        const struct topo_path *net_path =
            &topo_at(search->topo, TOPO_NET, port)->paths[TOPO_GPU][to->index];
        score.net_bw = (int32_t)net_path->bw;
        score.net_pci_bw = pci_bw_of(to);
        score.net_hops = net_path->num_links;
    }
    return score;
}

static int are_equally_near(const struct score *scores, int32_t count)
{
    for (int32_t i = 1; i < count; i++)
        if (scores[i].bw != scores[0].bw || scores[i].hops != scores[0].hops)
            return 0;
    return 1;
}

/* Puts a GPU first, if it is there. */
static int bring_forward(int32_t *next, int32_t count, int32_t gpu)
{
    int32_t place = 0;
    while (place < count && next[place] != gpu)
        place++;
    if (place == count)
        return 0;
    memmove(next + 1, next, (size_t)place * sizeof *next);
    next[0] = gpu;
    return 1;
}

/* NVSwitches do best with few partners: only neighbours. The number of those that are left. */
static int32_t keep_neighbours(const struct search *search, int32_t gpu, int32_t *next,
                               int32_t count)
{
    const int32_t before = (gpu + search->num_gpus - 1) % search->num_gpus;
    const int32_t after = (gpu + 1) % search->num_gpus;
    const enum pattern pattern = search->now->pattern;
    const int is_ring = pattern == PATTERN_RING;
    const int takes_both = is_ring || pattern == PATTERN_BALANCED_TREE;
    const int32_t first = !takes_both || is_ring ? after : before;
    const int32_t second = is_ring ? before : after;
    int32_t num_kept = bring_forward(next, count, first);
    if (takes_both && before != after)
        num_kept += bring_forward(next, count, second);
    return num_kept;
}

int32_t search_order_gpus(struct search *search, const struct topo_node *gpu, enum net_use use,
                          int32_t *next)
{
    const uint64_t bit = (uint64_t)1 << search->now->num_channels;
    struct score scores[TOPO_MAX_NODES];
    int32_t count = 0;
    for (int32_t distance = 1; distance < search->num_gpus; distance++) {
        const int32_t other = (gpu->index + distance) % search->num_gpus;
        if (gpu->paths[TOPO_GPU][other].num_links == 0 || search->used[other] & bit)
            continue;
        scores[count] = score_of(search, gpu, search_gpu(search, other), use);
        scores[count++].distance = distance;
    }
    qsort(scores, (size_t)count, sizeof scores[0], compare);
    const int is_reversed = use == NET_LATER && are_equally_near(scores, count);
    for (int32_t i = 0; i < count; i++)
        next[i] = scores[is_reversed ? count - 1 - i : i].gpu;
    if (topo_count(search->topo, TOPO_NVS) > 0)
        count = keep_neighbours(search, gpu->index, next, count);
    return count;
}

/* ------------------------------------------------------------------ ports */

static void add_net(struct net_list *list, int32_t net)
{
    for (int32_t i = 0; i < list->count; i++)
        if (list->indices[i] == net)
            return;
    list->indices[list->count++] = net;
}

/* The ports that a GPU's channels take. */
static void add_own_nets(struct net_list *list, const struct topo_node *gpu)
{
    for (int32_t i = 0; i < gpu->gpu.num_nets; i++)
        add_net(list, gpu->gpu.nets[i]);
}

/* Where there are several hosts, the first of each GPU, then the second, and so on. */
static void add_own_nets_in_turn(struct search *search, struct net_list *list)
{
    for (int32_t channel = 0; channel < TOPO_MAX_CHANNELS; channel++)
        for (int32_t i = 0; i < search->num_gpus; i++) {
            const struct topo_gpu *gpu = &search_gpu(search, i)->gpu;
            if (channel < gpu->num_nets)
                add_net(list, gpu->nets[channel]);
        }
}

static void add_nets_of_type(const struct search *search, struct net_list *list,
                             const struct topo_node *gpu, enum topo_type type)
{
    const int32_t count = topo_count(search->topo, TOPO_NET);
    for (int32_t i = 0; i < count && i < TOPO_MAX_CHANNELS; i++)
        if (gpu->paths[TOPO_NET][i].type == type)
            add_net(list, i);
}

void search_list_nets(struct search *search, enum topo_type type_inter)
{
    search->net_list.count = 0;
    if (search->topo->num_hosts > 1)
        add_own_nets_in_turn(search, &search->net_list);
    for (int32_t g = 0; g < search->num_gpus; g++) {
        search->net_list_of[g].count = 0;
        add_own_nets(&search->net_list, search_gpu(search, g));
        add_own_nets(&search->net_list_of[g], search_gpu(search, g));
    }
    for (int type = 0; type <= (int)type_inter; type++)
        for (int32_t g = 0; g < search->num_gpus; g++) {
            const struct topo_node *gpu = search_gpu(search, g);
            add_nets_of_type(search, &search->net_list, gpu, (enum topo_type)type);
            add_nets_of_type(search, &search->net_list_of[g], gpu, (enum topo_type)type);
        }
}
