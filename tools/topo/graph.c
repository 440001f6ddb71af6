/* SPDX-License-Identifier: MIT */
#include "topo/graph.h"

#include <stdlib.h>
#include <string.h>

#include "comm/error.h"

const char *weft__topo_kind_name(enum weft__topo_kind kind)
{
    static const char *const names[] = {"GPU", "PCI", "NVS", "CPU", "NIC", "NET"};
    return names[kind];
}

static const char *const type_names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                         "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};

const char *weft__topo_type_name(enum weft__topo_type type)
{
    return type_names[type];
}

int weft__topo_type_of(const char *name)
{
    for (int i = 0; i < WEFT__TOPO_NUM_TYPES; i++)
        if (strcmp(name, type_names[i]) == 0)
            return i;
    return -1;
}

weft_result weft__topo_add_node(struct weft__topo *topo, const struct weft__topo_node *values,
                                struct weft__topo_node **node)
{
    struct weft__topo_set *set = &topo->sets[values->kind];
    if (set->count == WEFT__TOPO_MAX_NODES)
        return weft__xml_error(values->origin, "there are more than %d nodes of kind %s",
                               set->count, weft__topo_kind_name(values->kind));
    struct weft__topo_node *new = malloc(sizeof *new);
    struct weft__topo_node **nodes =
        realloc(set->nodes, ((size_t)set->count + 1) * sizeof(struct weft__topo_node *));
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

struct weft__topo_node *weft__topo_find(const struct weft__topo *topo, enum weft__topo_kind kind,
                                        int32_t host, uint64_t id)
{
    for (int32_t i = 0; i < weft__topo_count(topo, kind); i++) {
        struct weft__topo_node *node = weft__topo_at(topo, kind, i);
        if (node->id == id && node->host == host)
            return node;
    }
    return NULL;
}

static void free_paths_of(const struct weft__topo *topo, struct weft__topo_node *node)
{
    for (int kind = 0; kind < WEFT__TOPO_NUM_KINDS; kind++) {
        const int32_t count = topo->sets[kind].count;
        for (int32_t i = 0; node->paths[kind] != NULL && i < count; i++)
            free(node->paths[kind][i].links);
        free(node->paths[kind]);
        node->paths[kind] = NULL;
    }
}

void weft__topo_free_paths(struct weft__topo *topo)
{
    for (int kind = 0; kind < WEFT__TOPO_NUM_KINDS; kind++)
        for (int32_t i = 0; i < topo->sets[kind].count; i++)
            free_paths_of(topo, topo->sets[kind].nodes[i]);
}

static void free_node(struct weft__topo_node *node)
{
    if (node->kind == WEFT__TOPO_GPU)
        free(node->gpu.nets);
    free(node->links);
    free(node);
}

void weft__topo_cut(struct weft__topo_node *from, int32_t link_idx)
{
    from->num_links--;
    memmove(&from->links[link_idx], &from->links[link_idx + 1],
            (size_t)(from->num_links - link_idx) * sizeof *from->links);
}

static void cut_all(struct weft__topo *topo, const struct weft__topo_node *gone)
{
    for (int kind = 0; kind < WEFT__TOPO_NUM_KINDS; kind++)
        for (int32_t i = 0; i < topo->sets[kind].count; i++) {
            struct weft__topo_node *node = topo->sets[kind].nodes[i];
            for (int32_t j = node->num_links - 1; j >= 0; j--)
                if (node->links[j].to == gone)
                    weft__topo_cut(node, j);
        }
}

void weft__topo_remove_node(struct weft__topo *topo, struct weft__topo_node *node)
{
    struct weft__topo_set *set = &topo->sets[node->kind];
    weft__topo_free_paths(topo);
    cut_all(topo, node);
    set->count--;
    for (int32_t i = node->index; i < set->count; i++) {
        set->nodes[i] = set->nodes[i + 1];
        set->nodes[i]->index = i;
    }
    free_node(node);
}

void weft__topo_free(struct weft__topo *topo)
{
    if (topo == NULL)
        return;
    weft__topo_free_paths(topo);
    for (int kind = 0; kind < WEFT__TOPO_NUM_KINDS; kind++)
        for (int32_t i = 0; i < topo->sets[kind].count; i++)
            free_node(topo->sets[kind].nodes[i]);
    for (int kind = 0; kind < WEFT__TOPO_NUM_KINDS; kind++)
        free(topo->sets[kind].nodes);
    free(topo->host_hashes);
    free(topo);
}

weft_result weft__topo_connect(struct weft__topo_node *from, const struct weft__topo_link *link)
{
    struct weft__topo_link sum = *link;
    int32_t place = 0;
    while (place < from->num_links &&
           (from->links[place].to != link->to || from->links[place].type != link->type))
        place++;
    if (place < from->num_links) {
        sum.bw += from->links[place].bw;
    } else {
        struct weft__topo_link *links =
            realloc(from->links, ((size_t)place + 1) * sizeof *from->links);
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

weft_result weft__topo_connect_both(struct weft__topo_node *a, struct weft__topo_node *b,
                                    enum weft__topo_type type, float bw)
{
    const struct weft__topo_link there = {.to = b, .type = type, .bw = bw};
    const struct weft__topo_link back = {.to = a, .type = type, .bw = bw};
    WEFT__TRY(weft__topo_connect(a, &there));
    return weft__topo_connect(b, &back);
}

struct weft__topo_link *weft__topo_reverse_of(const struct weft__topo_node *node,
                                              const struct weft__topo_link *link)
{
    for (int32_t i = 0; i < link->to->num_links; i++)
        if (link->to->links[i].to == node && link->to->links[i].type == link->type)
            return &link->to->links[i];
    return NULL;
}
