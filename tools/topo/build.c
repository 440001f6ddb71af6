/* SPDX-License-Identifier: MIT */
#include "topo/build.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"

/* Where in the tree an element is. */
struct place {
    struct topo *topo;
    struct topo_node *parent; /* a switch or a processor */
    int32_t host;
};

/* ------------------------------------------------------------------ values */

weft_result topo_bus_id(const struct xml *element, const char *attribute, uint64_t *id)
{
    const char *text = xml_text(element, attribute);
    int num_digits = 0;
    *id = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == ':' || *at == '.')
            continue;
        if (!isxdigit((unsigned char)*at) || ++num_digits > 14)
            num_digits = 99;
        *id =
            *id << 4 | (uint64_t)(isdigit((unsigned char)*at) ? *at - '0' : (*at | 32) - 'a' + 10);
    }
    if (num_digits > 0 && num_digits <= 14)
        return WEFT_OK;
    return xml_error(element, "%s is \"%.64s\", which is no bus id, such as 0000:3b:00.0",
                     attribute, text);
}

enum topo_kind topo_kind_of_class(const char *class_text)
{
    static const struct {
        const char *prefix;
        enum topo_kind kind;
    } classes[] = {{"0x060400", TOPO_PCI}, {"0x080100", TOPO_PCI}, {"0x068000", TOPO_NVS},
                   {"0x068001", TOPO_CPU}, {"0x03", TOPO_GPU},     {"0x02", TOPO_NIC}};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (strncmp(class_text, classes[i].prefix, strlen(classes[i].prefix)) == 0)
            return classes[i].kind;
    return TOPO_PCI;
}

static weft_result pci_device_of(const struct xml *pci, uint64_t *device)
{
    static const char *const names[] = {"vendor", "device", "subsystem_vendor", "subsystem_device"};
    *device = 0;
    for (int i = 0; i < 4; i++) {
        int32_t part;
        WEFT__TRY(xml_integer_or(pci, (struct xml_number){names[i], 0, 0xffff}, 0, &part));
        *device = *device << 16 | (uint64_t)part;
    }
    return WEFT_OK;
}

/* ------------------------------------------------------------------ ports of the network */

static weft_result read_net(const struct xml *element, struct topo_net *net)
{
    const struct {
        const char *name;
        int32_t usual, *value;
    } numbers[] = {{"port", 0, &net->port},
                   {"gdr", 0, &net->has_gdr},
                   {"coll", 0, &net->has_collectives},
                   {"rail", -1, &net->rail},
                   {"plane", -1, &net->plane}};
    int32_t megabits;
    const struct xml_number speed = {"speed", INT32_MIN, INT32_MAX};
    WEFT__TRY(xml_integer(element, (struct xml_number){"dev", 0, INT32_MAX}, &net->dev));
    WEFT__TRY(xml_integer_or(element, speed, 0, &megabits));
    WEFT__TRY(xml_real_or(element, "latency", 0, &net->latency));
    WEFT__TRY(xml_hex_or(element, "guid", (uint64_t)net->dev, &net->guid));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const struct xml_number number = {numbers[i].name, INT32_MIN, INT32_MAX};
        WEFT__TRY(xml_integer_or(element, number, numbers[i].usual, numbers[i].value));
    }
    net->bw = (float)((megabits <= 0 ? 10000 : megabits) / 8000.0);
    return WEFT_OK;
}

/* The GPU of a nic: those without dev are nobody's. */
static weft_result add_nets(const struct place *place, const struct xml *nic,
                            struct topo_node *nic_node)
{
    for (int32_t i = 0; i < nic->num_children; i++) {
        const struct xml *element = nic->children[i];
        struct topo_node values = {.kind = TOPO_NET, .host = place->host, .origin = element};
        struct topo_node *node;
        int32_t is_net;
        WEFT__TRY(xml_integer_or(element, (struct xml_number){"net", 0, 1}, 1, &is_net));
        if (xml_get(element, "dev") == NULL || !is_net)
            continue;
        WEFT__TRY(read_net(element, &values.net));
        values.id = (uint64_t)values.net.dev;
        WEFT__TRY(topo_add_node(place->topo, &values, &node));
        WEFT__TRY(topo_connect_both(nic_node, node, TOPO_REMOTE, node->net.bw));
    }
    return WEFT_OK;
}

/* One that is no PCI device. All of a processor are one. */
static weft_result add_nic_of_cpu(const struct place *place, const struct xml *nic)
{
    const struct topo_node values = {
        .kind = TOPO_NIC, .host = place->host, .id = UINT64_MAX - place->parent->id, .origin = nic};
    struct topo_node *node = topo_find(place->topo, TOPO_NIC, place->host, values.id);
    if (node == NULL) {
        WEFT__TRY(topo_add_node(place->topo, &values, &node));
        WEFT__TRY(topo_connect_both(place->parent, node, TOPO_PIX, TOPO_LOCAL_BW));
    }
    return add_nets(place, nic, node);
}

/* ------------------------------------------------------------------ PCI */

static int has_rank(const struct topo *topo, int32_t rank)
{
    for (int32_t i = 0; i < topo_count(topo, TOPO_GPU); i++)
        if (topo_at(topo, TOPO_GPU, i)->gpu.rank == rank)
            return 1;
    return 0;
}

static weft_result read_gpu(const struct place *place, const struct xml *gpu,
                            struct topo_gpu *values)
{
    WEFT__TRY(xml_integer(gpu, (struct xml_number){"rank", 0, INT32_MAX}, &values->rank));
    WEFT__TRY(xml_integer(gpu, (struct xml_number){"sm", 10, 999}, &values->sm));
    WEFT__TRY(xml_integer(gpu, (struct xml_number){"dev", 0, INT32_MAX}, &values->dev));
    WEFT__TRY(xml_integer(gpu, (struct xml_number){"gdr", 0, 1}, &values->has_gdr));
    if (has_rank(place->topo, values->rank))
        return xml_error(gpu, "rank %d is another GPU's, too", (int)values->rank);
    return WEFT_OK;
}

static weft_result find_gpu_element(const struct xml *pci, const struct xml **gpu)
{
    *gpu = NULL;
    for (int32_t i = 0; i < pci->num_children; i++) {
        if (!xml_is(pci->children[i], "gpu"))
            continue;
        if (*gpu != NULL)
            return xml_error(pci->children[i],
                             "is the second of a device: a GPU has one rank here");
        *gpu = pci->children[i];
    }
    return WEFT_OK;
}

static weft_result add_pci(const struct place *place, const struct xml *pci);

static weft_result add_switch(const struct place *place, const struct xml *pci,
                              struct topo_node *values, struct topo_node **node)
{
    WEFT__TRY(pci_device_of(pci, &values->pci_device));
    WEFT__TRY(topo_add_node(place->topo, values, node));
    const struct place below = {place->topo, *node, place->host};
    for (int32_t i = 0; i < pci->num_children; i++)
        if (xml_is(pci->children[i], "pci"))
            WEFT__TRY(add_pci(&below, pci->children[i]));
    return WEFT_OK;
}

/* *node remains NULL for one that is there. */
static weft_result add_nic(const struct place *place, const struct xml *nic,
                           struct topo_node *values, struct topo_node **node)
{
    struct topo_node *nic_node = topo_find(place->topo, TOPO_NIC, place->host, values->id);
    values->kind = TOPO_NIC;
    if (nic_node == NULL) {
        WEFT__TRY(topo_add_node(place->topo, values, &nic_node));
        *node = nic_node;
    }
    return add_nets(place, nic, nic_node);
}

static weft_result add_gpu(const struct place *place, const struct xml *gpu,
                           struct topo_node *values, struct topo_node **node)
{
    if (xml_get(gpu, "rank") == NULL)
        return WEFT_OK; /* nobody uses it */
    values->kind = TOPO_GPU;
    WEFT__TRY(read_gpu(place, gpu, &values->gpu));
    if (topo_find(place->topo, TOPO_GPU, place->host, values->id) != NULL)
        return xml_error(gpu, "has the bus id of another GPU");
    return topo_add_node(place->topo, values, node);
}

/* A GPU, a NIC or a switch with all that is behind it, and its link up. */
static weft_result add_pci(const struct place *place, const struct xml *pci)
{
    struct topo_node values = {.host = place->host, .origin = pci}, *node = NULL;
    const struct xml *nic = xml_find(pci, "nic", NULL, NULL), *gpu;
    int32_t width;
    WEFT__TRY(topo_bus_id(pci, "busid", &values.id));
    WEFT__TRY(xml_integer_or(pci, (struct xml_number){"link_width", 0, 1024}, 0, &width));
    values.kind = topo_kind_of_class(xml_text(pci, "class"));
    WEFT__TRY(find_gpu_element(pci, &gpu));
    if (gpu != NULL)
        WEFT__TRY(add_gpu(place, gpu, &values, &node));
    else if (nic != NULL)
        WEFT__TRY(add_nic(place, nic, &values, &node));
    else if (values.kind == TOPO_PCI)
        WEFT__TRY(add_switch(place, pci, &values, &node));
    if (node == NULL)
        return WEFT_OK;
    return topo_connect_both(node, place->parent, TOPO_PIX,
                             topo_pci_bw(xml_text(pci, "link_speed"), width));
}

/* ------------------------------------------------------------------ processors */

static int index_of(const char *text, const char *const *names, int count)
{
    for (int i = 1; i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    return 0;
}

static weft_result read_cpu(const struct xml *element, struct topo_cpu *cpu)
{
    static const char *const archs[] = {"", "x86_64", "ppc64", "arm64"};
    static const char *const vendors[] = {"", "GenuineIntel", "AuthenticAMD", "CentaurHauls"};
    const struct xml_number family = {"familyid", 0, INT32_MAX};
    const struct xml_number model = {"modelid", 0, INT32_MAX};
    const char *vendor = xml_text(element, "vendor");
    cpu->arch = (enum topo_arch)index_of(xml_text(element, "arch"), archs, 4);
    if (cpu->arch != TOPO_ARCH_X86)
        return WEFT_OK;
    cpu->vendor = strcmp(vendor, "  Shanghai  ") == 0
                      ? TOPO_VENDOR_ZHAOXIN
                      : (enum topo_vendor)index_of(vendor, vendors, 4);
    if (cpu->vendor == TOPO_VENDOR_INTEL) {
        WEFT__TRY(xml_integer(element, family, &cpu->family));
        return xml_integer(element, model, &cpu->model);
    }
    WEFT__TRY(xml_integer_or(element, family, 0, &cpu->family));
    return xml_integer_or(element, model, 0, &cpu->model);
}

weft_result topo_host_of(struct topo *topo, const struct xml *cpu, int32_t *host)
{
    uint64_t hash, *hashes;
    WEFT__TRY(xml_hex_or(cpu, "host_hash", 0, &hash));
    for (*host = 0; *host < topo->num_hosts; (*host)++)
        if (topo->host_hashes[*host] == hash)
            return WEFT_OK;
    hashes = realloc(topo->host_hashes, ((size_t)*host + 1) * sizeof *hashes);
    if (hashes == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for hosts of a topology");
    hashes[topo->num_hosts++] = hash;
    topo->host_hashes = hashes;
    return WEFT_OK;
}

static weft_result add_cpu(struct topo *topo, const struct xml *element)
{
    struct topo_node values = {.kind = TOPO_CPU, .origin = element}, *node;
    int32_t numa;
    WEFT__TRY(xml_integer(element, (struct xml_number){"numaid", -1, INT32_MAX}, &numa));
    values.id = (uint64_t)(uint32_t)numa;
    WEFT__TRY(topo_host_of(topo, element, &values.host));
    WEFT__TRY(read_cpu(element, &values.cpu));
    if (topo_find(topo, TOPO_CPU, values.host, values.id) != NULL)
        return xml_error(element, "numaid %d is another's, too", (int)numa);
    WEFT__TRY(topo_add_node(topo, &values, &node));
    const struct place place = {topo, node, values.host};
    for (int32_t i = 0; i < element->num_children; i++) {
        if (xml_is(element->children[i], "pci"))
            WEFT__TRY(add_pci(&place, element->children[i]));
        else
            WEFT__TRY(add_nic_of_cpu(&place, element->children[i]));
    }
    return WEFT_OK;
}

/* ------------------------------------------------------------------ the whole */

/* The link up comes last, and of links down those of PCI keep their order. */
static void sort_links(struct topo_node *node, const struct topo_node *parent)
{
    int32_t up = 0;
    while (parent != NULL && node->links[up].to != parent)
        up++;
    const struct topo_link link_up = node->num_links > 0 ? node->links[up] : (struct topo_link){0};
    for (int32_t i = up; parent != NULL && i + 1 < node->num_links; i++)
        node->links[i] = node->links[i + 1];
    if (parent != NULL)
        node->links[node->num_links - 1] = link_up;
    for (int32_t i = 0; i < node->num_links; i++)
        if (node->links[i].type == TOPO_PIX && node->links[i].to != parent)
            sort_links(node->links[i].to, node);
}

static weft_result connect_cpus(struct topo *topo)
{
    const int32_t count = topo_count(topo, TOPO_CPU);
    for (int32_t i = 0; i < count; i++)
        for (int32_t j = 0; j < count; j++) {
            struct topo_node *from = topo_at(topo, TOPO_CPU, i);
            const struct topo_link link = {
                .to = topo_at(topo, TOPO_CPU, j), .type = TOPO_SYS, .bw = topo_cpu_bw(&from->cpu)};
            if (i != j && from->host == link.to->host)
                WEFT__TRY(topo_connect(from, &link));
        }
    return WEFT_OK;
}

static weft_result build(struct topo *topo, const struct xml *system)
{
    for (int32_t i = 0; i < system->num_children; i++)
        WEFT__TRY(add_cpu(topo, system->children[i]));
    if (topo_count(topo, TOPO_CPU) == 0)
        return xml_error(system, "has no element cpu");
    WEFT__TRY(topo_add_links(topo, system));
    WEFT__TRY(topo_flatten_switches(topo));
    WEFT__TRY(connect_cpus(topo));
    for (int32_t i = 0; i < topo_count(topo, TOPO_CPU); i++)
        sort_links(topo_at(topo, TOPO_CPU, i), NULL);
    return WEFT_OK;
}

weft_result topo_build(const struct xml *system, const struct topo_constants *constants,
                       struct topo **topo)
{
    struct topo *new = calloc(1, sizeof *new);
    if (new == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a topology");
    new->constants = constants;
    const weft_result result = build(new, system);
    if (result == WEFT_OK)
        *topo = new;
    else
        topo_free(new);
    return result;
}
