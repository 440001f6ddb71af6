/* SPDX-License-Identifier: MIT */
/* The second pass over a file: links between nodes that are there. */
#include <stdlib.h>

#include "comm/host/error.h"
#include "comm/host/log.h"
#include "topo/build.h"

/* The processor that a device is below. */
static struct topo_node *cpu_above(const struct topo_node *node, const struct topo_node *from)
{
    struct topo_node *cpu = NULL;
    for (int32_t i = 0; i < node->num_links && cpu == NULL; i++) {
        struct topo_node *to = node->links[i].to;
        if (node->links[i].type != TOPO_PIX || to == from)
            continue;
        if (to->kind == TOPO_CPU)
            cpu = to;
        else if (to->kind == TOPO_PCI)
            cpu = cpu_above(to, node);
    }
    return cpu;
}

/* ------------------------------------------------------------------ links of GPUs */

static weft_result connect_gpus(struct topo *topo, struct topo_node *gpu, const struct xml *nvlink,
                                float bw)
{
    uint64_t target;
    if (xml_get(nvlink, "target") == NULL)
        return xml_error(nvlink, "attribute target is missing");
    WEFT__TRY(topo_bus_id(nvlink, "target", &target));
    const struct topo_link link = {
        .to = topo_find(topo, TOPO_GPU, gpu->host, target), .type = TOPO_NVL, .bw = bw};
    if (link.to == gpu) {
        (void)xml_error(nvlink, "its target is its own GPU: it connects nothing");
        weft__log(WEFT__LOG_WARN, WEFT__LOG_NO_RANK, "%s", weft__last_error());
    }
    return link.to != NULL ? topo_connect(gpu, &link) : WEFT_OK;
}

static weft_result find_nvs(struct topo *topo, const struct xml *nvlink, struct topo_node **nvs)
{
    const struct topo_node values = {.kind = TOPO_NVS, .origin = nvlink};
    if (topo_count(topo, TOPO_NVS) == 0)
        return topo_add_node(topo, &values, nvs);
    *nvs = topo_at(topo, TOPO_NVS, 0);
    return WEFT_OK;
}

static weft_result add_nvlink(struct topo *topo, struct topo_node *gpu, const struct xml *nvlink)
{
    const char *target_class = xml_get(nvlink, "tclass");
    struct topo_node *target = NULL;
    int32_t count;
    WEFT__TRY(xml_integer(nvlink, (struct xml_number){"count", 0, 1024}, &count));
    if (target_class == NULL)
        return xml_error(nvlink, "attribute tclass is missing");
    const enum topo_kind kind = topo_kind_of_class(target_class);
    const float bw = (float)count * topo_nvlink_bw(topo->constants, gpu->gpu.sm);
    if (kind == TOPO_GPU)
        return connect_gpus(topo, gpu, nvlink, bw);
    if (kind == TOPO_CPU)
        target = cpu_above(gpu, NULL);
    else
        WEFT__TRY(find_nvs(topo, nvlink, &target));
    return target != NULL ? topo_connect_both(gpu, target, TOPO_NVL, bw) : WEFT_OK;
}

static weft_result add_c2c(struct topo *topo, struct topo_node *gpu, const struct xml *c2c)
{
    struct topo_node *cpu = cpu_above(gpu, NULL);
    int32_t count, megabytes;
    (void)topo;
    WEFT__TRY(xml_integer(c2c, (struct xml_number){"count", 0, 1024}, &count));
    WEFT__TRY(xml_integer(c2c, (struct xml_number){"bw", 0, 1 << 20}, &megabytes));
    if (cpu == NULL)
        return WEFT_OK;
    return topo_connect_both(gpu, cpu, TOPO_C2C, (float)(megabytes * count / 1000.0));
}

/* ------------------------------------------------------------------ links of switches */

static weft_result add_pci_link(struct topo *topo, struct topo_node *pci,
                                const struct xml *link_element)
{
    uint64_t target;
    WEFT__TRY(topo_bus_id(link_element, "target", &target));
    const struct topo_link link = {
        .to = topo_find(topo, TOPO_PCI, pci->host, target), .type = TOPO_LOC, .bw = TOPO_LOCAL_BW};
    return link.to != NULL ? topo_connect(pci, &link) : WEFT_OK;
}

/* ------------------------------------------------------------------ the walk */

/* A kind of link, and the node that has elements of it: what is in a pci or gpu element is of the
 * pci's node. */
struct link_kind {
    const char *element;
    enum topo_kind owner;
    weft_result (*add)(struct topo *topo, struct topo_node *owner, const struct xml *element);
};

static weft_result walk(struct topo *topo, const struct link_kind *kind, const struct xml *element,
                        struct topo_node *owner, int32_t host)
{
    uint64_t id;
    if (xml_is(element, kind->element))
        return owner != NULL ? kind->add(topo, owner, element) : WEFT_OK;
    if (xml_is(element, "cpu"))
        WEFT__TRY(topo_host_of(topo, element, &host));
    if (xml_is(element, "pci")) {
        WEFT__TRY(topo_bus_id(element, "busid", &id));
        owner = topo_find(topo, kind->owner, host, id);
    }
    for (int32_t i = 0; i < element->num_children; i++)
        WEFT__TRY(walk(topo, kind, element->children[i], owner, host));
    return WEFT_OK;
}

weft_result topo_add_links(struct topo *topo, const struct xml *system)
{
    static const struct link_kind kinds[] = {{"nvlink", TOPO_GPU, add_nvlink},
                                             {"c2c", TOPO_GPU, add_c2c},
                                             {"pcilink", TOPO_PCI, add_pci_link}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        WEFT__TRY(walk(topo, &kinds[i], system, NULL, 0));
    return WEFT_OK;
}

/* ------------------------------------------------------------------ Broadcom's switches */

/* These show themselves as switches below a switch, though all ports have the full rate. The
 * generation, or 0. */
static int broadcom_generation(const struct topo_node *pci, uint64_t level)
{
    const uint64_t device = pci->pci_device & ~(uint64_t)0xfff;
    if (device == 0x1000c0101000a000)
        return 4;
    return device == (0x1000c03010000000 | level << 12) ? 5 : 0;
}

/* Moves all that was below `lower` below `upper`, which no longer has a link to it. */
static weft_result adopt(struct topo_node *upper, struct topo_node *lower)
{
    struct topo_link *links =
        realloc(upper->links, (size_t)(upper->num_links + lower->num_links) * sizeof *links);
    if (links == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for links of a topology");
    upper->links = links;
    for (int32_t i = 0; i < lower->num_links; i++) {
        struct topo_node *below = lower->links[i].to;
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

static weft_result flatten(struct topo *topo, struct topo_node *upper, int generation)
{
    int32_t num_own = upper->num_links; /* without those that it adopts */
    for (int32_t i = 0; i < num_own; i++) {
        struct topo_node *lower = upper->links[i].to;
        if (upper->links[i].type != TOPO_PIX || lower->kind != TOPO_PCI ||
            broadcom_generation(lower, 1) != generation)
            continue;
        topo_cut(upper, i--);
        num_own--;
        WEFT__TRY(adopt(upper, lower));
        topo_remove_node(topo, lower);
    }
    upper->pci_device |= 0xffff; /* it is flat now */
    return WEFT_OK;
}

weft_result topo_flatten_switches(struct topo *topo)
{
    int32_t i = 0;
    while (i < topo_count(topo, TOPO_PCI)) {
        struct topo_node *upper = topo_at(topo, TOPO_PCI, i++);
        const int generation = broadcom_generation(upper, 0);
        if (generation == 0)
            continue;
        WEFT__TRY(flatten(topo, upper, generation));
        i = 0; /* others have moved */
    }
    return WEFT_OK;
}
