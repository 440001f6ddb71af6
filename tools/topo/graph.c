/* SPDX-License-Identifier: MIT */
#include "topo/graph.h"

#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"

const char *topo_kind_name(enum topo_kind kind)
{
    static const char *const names[] = {"GPU", "PCI", "NVS", "CPU", "NIC", "NET"};
    return names[kind];
}

const char *topo_type_name(enum topo_type type)
{
    static const char *const names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                        "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
    return names[type];
}

weft_result topo_add_node(struct topo *topo, const struct topo_node *values,
                          struct topo_node **node)
{
    struct topo_set *set = &topo->sets[values->kind];
    if (set->count == TOPO_MAX_NODES)
        return xml_error(values->origin, "there are more than %d nodes of kind %s", set->count,
                         topo_kind_name(values->kind));
    struct topo_node *new = malloc(sizeof *new);
    struct topo_node **nodes =
        realloc(set->nodes, ((size_t)set->count + 1) * sizeof(struct topo_node *));
    if (nodes != NULL)
        set->nodes = nodes;
    if (new == NULL || nodes == NULL) {
        free(new);
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for nodes of a topology");
    }
    *new = *values;
    new->index = set->count;
    nodes[set->count++] = new;
    *node = new;
    return WEFT_OK;
}

struct topo_node *topo_find(const struct topo *topo, enum topo_kind kind, int32_t host, uint64_t id)
{
    for (int32_t i = 0; i < topo_count(topo, kind); i++) {
        struct topo_node *node = topo_at(topo, kind, i);
        if (node->id == id && node->host == host)
            return node;
    }
    return NULL;
}

struct topo_node *topo_gpu_of_rank(const struct topo *topo, int32_t rank)
{
    int32_t index = 0;
    while (topo_at(topo, TOPO_GPU, index)->gpu.rank != rank)
        index++;
    return topo_at(topo, TOPO_GPU, index);
}

static void free_paths_of(const struct topo *topo, struct topo_node *node)
{
    for (int kind = 0; kind < TOPO_NUM_KINDS; kind++) {
        const int32_t count = topo->sets[kind].count;
        for (int32_t i = 0; node->paths[kind] != NULL && i < count; i++)
            free(node->paths[kind][i].links);
        free(node->paths[kind]);
        node->paths[kind] = NULL;
    }
}

void topo_free_paths(struct topo *topo)
{
    for (int kind = 0; kind < TOPO_NUM_KINDS; kind++)
        for (int32_t i = 0; i < topo->sets[kind].count; i++)
            free_paths_of(topo, topo->sets[kind].nodes[i]);
}

static void free_node(struct topo_node *node)
{
    if (node->kind == TOPO_GPU)
        free(node->gpu.nets);
    free(node->links);
    free(node);
}

void topo_cut(struct topo_node *from, int32_t link_idx)
{
    from->num_links--;
    memmove(&from->links[link_idx], &from->links[link_idx + 1],
            (size_t)(from->num_links - link_idx) * sizeof *from->links);
}

static void cut_all(struct topo *topo, const struct topo_node *gone)
{
    for (int kind = 0; kind < TOPO_NUM_KINDS; kind++)
        for (int32_t i = 0; i < topo->sets[kind].count; i++) {
            struct topo_node *node = topo->sets[kind].nodes[i];
            for (int32_t j = node->num_links - 1; j >= 0; j--)
                if (node->links[j].to == gone)
                    topo_cut(node, j);
        }
}

void topo_remove_node(struct topo *topo, struct topo_node *node)
{
    struct topo_set *set = &topo->sets[node->kind];
    topo_free_paths(topo);
    cut_all(topo, node);
    set->count--;
    for (int32_t i = node->index; i < set->count; i++) {
        set->nodes[i] = set->nodes[i + 1];
        set->nodes[i]->index = i;
    }
    free_node(node);
}

void topo_free(struct topo *topo)
{
    if (topo == NULL)
        return;
    topo_free_paths(topo);
    for (int kind = 0; kind < TOPO_NUM_KINDS; kind++)
        for (int32_t i = 0; i < topo->sets[kind].count; i++)
            free_node(topo->sets[kind].nodes[i]);
    for (int kind = 0; kind < TOPO_NUM_KINDS; kind++)
        free(topo->sets[kind].nodes);
    free(topo->host_hashes);
    free(topo);
}

weft_result topo_connect(struct topo_node *from, const struct topo_link *link)
{
    struct topo_link sum = *link;
    int32_t place = 0;
    while (place < from->num_links &&
           (from->links[place].to != link->to || from->links[place].type != link->type))
        place++;
    if (place < from->num_links) {
        sum.bw += from->links[place].bw;
    } else {
        struct topo_link *links = realloc(from->links, ((size_t)place + 1) * sizeof *from->links);
        if (links == NULL)
            return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for links of a topology");
        from->links = links;
        from->num_links++;
    }
    for (; place > 0 && from->links[place - 1].bw < sum.bw; place--)
        from->links[place] = from->links[place - 1];
    from->links[place] = sum;
    return WEFT_OK;
}

weft_result topo_connect_both(struct topo_node *a, struct topo_node *b, enum topo_type type,
                              float bw)
{
    const struct topo_link there = {.to = b, .type = type, .bw = bw};
    const struct topo_link back = {.to = a, .type = type, .bw = bw};
    WEFT__TRY(topo_connect(a, &there));
    return topo_connect(b, &back);
}

struct topo_link *topo_reverse_of(const struct topo_node *node, const struct topo_link *link)
{
    for (int32_t i = 0; i < link->to->num_links; i++)
        if (link->to->links[i].to == node && link->to->links[i].type == link->type)
            return &link->to->links[i];
    return NULL;
}
