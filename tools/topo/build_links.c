/* SPDX-License-Identifier: MIT */
/* The second pass over a file: links between nodes that are there. */
#include <stdlib.h>
#include <string.h>

#include "comm/error.h"
#include "comm/log.h"
#include "topo/build.h"

/* The processor that a device is below. */
static struct weft__topo_node *cpu_above(const struct weft__topo_node *node,
                                         const struct weft__topo_node *from)
{
    struct weft__topo_node *cpu = NULL;
    for (int32_t i = 0; i < node->num_links && cpu == NULL; i++) {
        struct weft__topo_node *to = node->links[i].to;
        if (node->links[i].type != WEFT__TOPO_PIX || to == from)
            continue;
        if (to->kind == WEFT__TOPO_CPU)
            cpu = to;
        else if (to->kind == WEFT__TOPO_PCI)
            cpu = cpu_above(to, node);
    }
    return cpu;
}

/* ------------------------------------------------------------------ links of GPUs */

static weft_result connect_gpus(struct weft__topo *topo, struct weft__topo_node *gpu,
                                const struct weft__xml *nvlink, float bw)
{
    uint64_t target;
    if (weft__xml_get(nvlink, "target") == NULL)
        return weft__xml_error(nvlink, "attribute target is missing");
    WEFT__TRY(weft__topo_bus_id(nvlink, "target", &target));
    const struct weft__topo_link link = {
        .to = weft__topo_find(topo, WEFT__TOPO_GPU, gpu->host, target),
        .type = WEFT__TOPO_NVL,
        .bw = bw};
    if (link.to == gpu) {
        (void)weft__xml_error(nvlink, "its target is its own GPU: it connects nothing");
        weft__log(WEFT__LOG_WARN, WEFT__LOG_NO_RANK, "%s", weft__last_error());
    }
    return link.to != NULL ? weft__topo_connect(gpu, &link) : WEFT_OK;
}

static weft_result find_nvs(struct weft__topo *topo, const struct weft__xml *nvlink,
                            struct weft__topo_node **nvs)
{
    const struct weft__topo_node values = {.kind = WEFT__TOPO_NVS, .origin = nvlink};
    if (weft__topo_count(topo, WEFT__TOPO_NVS) == 0)
        return weft__topo_add_node(topo, &values, nvs);
    *nvs = weft__topo_at(topo, WEFT__TOPO_NVS, 0);
    return WEFT_OK;
}

static weft_result add_nvlink(struct weft__topo *topo, struct weft__topo_node *gpu,
                              const struct weft__xml *nvlink)
{
    const char *target_class = weft__xml_get(nvlink, "tclass");
    struct weft__topo_node *target = NULL;
    int32_t count;
    WEFT__TRY(weft__xml_integer(nvlink, (struct weft__xml_number){"count", 0, 1024}, &count));
    if (target_class == NULL)
        return weft__xml_error(nvlink, "attribute tclass is missing");
    const enum weft__topo_kind kind = weft__topo_kind_of_class(target_class);
    const float bw = (float)count * weft__topo_nvlink_bw(topo->constants, gpu->gpu.sm);
    if (kind == WEFT__TOPO_GPU)
        return connect_gpus(topo, gpu, nvlink, bw);
    if (kind == WEFT__TOPO_CPU)
        target = cpu_above(gpu, NULL);
    else
        WEFT__TRY(find_nvs(topo, nvlink, &target));
    return target != NULL ? weft__topo_connect_both(gpu, target, WEFT__TOPO_NVL, bw) : WEFT_OK;
}

static weft_result add_c2c(struct weft__topo *topo, struct weft__topo_node *gpu,
                           const struct weft__xml *c2c)
{
    struct weft__topo_node *cpu = cpu_above(gpu, NULL);
    int32_t count, megabytes;
    (void)topo;
    WEFT__TRY(weft__xml_integer(c2c, (struct weft__xml_number){"count", 0, 1024}, &count));
    WEFT__TRY(weft__xml_integer(c2c, (struct weft__xml_number){"bw", 0, 1 << 20}, &megabytes));
    if (cpu == NULL)
        return WEFT_OK;
    return weft__topo_connect_both(gpu, cpu, WEFT__TOPO_C2C, (float)(megabytes * count / 1000.0));
}

/* ------------------------------------------------------------------ links of switches */

static weft_result add_pci_link(struct weft__topo *topo, struct weft__topo_node *pci,
                                const struct weft__xml *link_element)
{
    uint64_t target;
    WEFT__TRY(weft__topo_bus_id(link_element, "target", &target));
    const struct weft__topo_link link = {
        .to = weft__topo_find(topo, WEFT__TOPO_PCI, pci->host, target),
        .type = WEFT__TOPO_LOC,
        .bw = WEFT__TOPO_LOCAL_BW};
    return link.to != NULL ? weft__topo_connect(pci, &link) : WEFT_OK;
}

/* ------------------------------------------------------------------ the walk */

/* A kind of link, and the node that has elements of it: what is in a pci or gpu element is of the pci's node. */
struct link_kind {
    const char *element;
    enum weft__topo_kind owner;
    weft_result (*add)(struct weft__topo *topo, struct weft__topo_node *owner,
                       const struct weft__xml *element);
};

static weft_result walk(struct weft__topo *topo, const struct link_kind *kind,
                        const struct weft__xml *element, struct weft__topo_node *owner,
                        int32_t host)
{
    uint64_t id;
    if (weft__xml_is(element, kind->element))
        return owner != NULL ? kind->add(topo, owner, element) : WEFT_OK;
    if (weft__xml_is(element, "cpu"))
        WEFT__TRY(weft__topo_host_of(topo, element, &host));
    if (weft__xml_is(element, "pci")) {
        WEFT__TRY(weft__topo_bus_id(element, "busid", &id));
        owner = weft__topo_find(topo, kind->owner, host, id);
    }
    for (int32_t i = 0; i < element->num_children; i++)
        WEFT__TRY(walk(topo, kind, element->children[i], owner, host));
    return WEFT_OK;
}

weft_result weft__topo_add_links(struct weft__topo *topo, const struct weft__xml *system)
{
    static const struct link_kind kinds[] = {{"nvlink", WEFT__TOPO_GPU, add_nvlink},
                                             {"c2c", WEFT__TOPO_GPU, add_c2c},
                                             {"pcilink", WEFT__TOPO_PCI, add_pci_link}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        WEFT__TRY(walk(topo, &kinds[i], system, NULL, 0));
    return WEFT_OK;
}

/* ------------------------------------------------------------------ Broadcom's switches */

/* These show themselves as switches below a switch, though all ports have the full rate. The generation, or 0. */
static int broadcom_generation(const struct weft__topo_node *pci, uint64_t level)
{
    const uint64_t device = pci->pci_device & ~(uint64_t)0xfff;
    if (device == 0x1000c0101000a000)
        return 4;
    return device == (0x1000c03010000000 | level << 12) ? 5 : 0;
}

/* What was below `lower` is below `upper`, which no longer has a link to it. */
static weft_result adopt(struct weft__topo_node *upper, struct weft__topo_node *lower)
{
    struct weft__topo_link *links =
        realloc(upper->links, (size_t)(upper->num_links + lower->num_links) * sizeof *links);
    if (links == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for links of a topology");
    upper->links = links;
    for (int32_t i = 0; i < lower->num_links; i++) {
        struct weft__topo_node *below = lower->links[i].to;
        if (below == upper)
            continue;
        links[upper->num_links++] = lower->links[i];
        for (int32_t j = 0; j < below->num_links; j++)
            if (below->links[j].to == lower && below->links[j].type == lower->links[i].type) {
                below->links[j].to = upper;
                break;
            }
    }
    return WEFT_OK;
}

static weft_result flatten(struct weft__topo *topo, struct weft__topo_node *upper, int generation)
{
    int32_t num_own = upper->num_links; /* without those that it adopts */
    for (int32_t i = 0; i < num_own; i++) {
        struct weft__topo_node *lower = upper->links[i].to;
        if (upper->links[i].type != WEFT__TOPO_PIX || lower->kind != WEFT__TOPO_PCI ||
            broadcom_generation(lower, 1) != generation)
            continue;
        weft__topo_cut(upper, i--);
        num_own--;
        WEFT__TRY(adopt(upper, lower));
        weft__topo_remove_node(topo, lower);
    }
    upper->pci_device |= 0xffff; /* it is flat now */
    return WEFT_OK;
}

weft_result weft__topo_flatten_switches(struct weft__topo *topo)
{
    int32_t i = 0;
    while (i < weft__topo_count(topo, WEFT__TOPO_PCI)) {
        struct weft__topo_node *upper = weft__topo_at(topo, WEFT__TOPO_PCI, i++);
        const int generation = broadcom_generation(upper, 0);
        if (generation == 0)
            continue;
        WEFT__TRY(flatten(topo, upper, generation));
        i = 0; /* others have moved */
    }
    return WEFT_OK;
}
