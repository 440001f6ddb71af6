/* SPDX-License-Identifier: MIT */
#include "topo/complete.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "comm/host/error.h"

enum { MAX_NETS = 256, MAX_NUMA_NODES = 256 };

/* The state of a completion. */
struct completion {
    struct xml *system;
    const struct topo_facts *facts;
    const struct weft__sysfs *sysfs; /* NULL: none */
};

static weft_result set_if_missing(struct xml *element, const char *name, const char *value)
{
    return xml_get(element, name) == NULL ? xml_set(element, name, "%s", value) : WEFT_OK;
}

static weft_result set_number_if_missing(struct xml *element, const char *name, int32_t value)
{
    return xml_get(element, name) == NULL ? xml_set(element, name, "%" PRId32, value) : WEFT_OK;
}

/* ------------------------------------------------------------------ processors */

static const char *arch_of_host(void)
{
#if defined(__x86_64__)
    return "x86_64";
#elif defined(__aarch64__)
    return "arm64";
#elif defined(__PPC__)
    return "ppc64";
#else
    return "other";
#endif
}

/* As NCCL writes families: the part beyond 15 counts 16 times. */
static int32_t family_in_files(int32_t family)
{
    return family > 15 ? 15 + ((family - 15) << 4) : family;
}

static weft_result set_cpu_value(const struct completion *completion, struct xml *cpu,
                                 const char *attribute, const char *name)
{
    char text[WEFT__SYSFS_TEXT_BYTES];
    topo_cpu_value(completion->sysfs, name, text);
    if (text[0] == '\0')
        return WEFT_OK;
    if (strcmp(attribute, "vendor") == 0)
        return set_if_missing(cpu, attribute, text);
    const int32_t number = (int32_t)strtol(text, NULL, 10);
    return set_number_if_missing(
        cpu, attribute, strcmp(attribute, "familyid") == 0 ? family_in_files(number) : number);
}

static weft_result fill_cpu(const struct completion *completion, struct xml *cpu)
{
    char affinity[WEFT__SYSFS_TEXT_BYTES];
    if (completion->sysfs == NULL)
        return WEFT_OK;
    if (xml_get(cpu, "host_hash") == NULL)
        WEFT__TRY(xml_set(cpu, "host_hash", "%#" PRIx64, topo_host_hash(completion->sysfs)));
    weft__sysfs_text(affinity, "%s/devices/system/node/node%s/cpumap", completion->sysfs->sys,
                     xml_text(cpu, "numaid"));
    if (affinity[0] != '\0')
        WEFT__TRY(set_if_missing(cpu, "affinity", affinity));
    WEFT__TRY(set_if_missing(cpu, "arch", arch_of_host()));
    WEFT__TRY(set_cpu_value(completion, cpu, "vendor", "vendor_id"));
    WEFT__TRY(set_cpu_value(completion, cpu, "familyid", "cpu family"));
    return set_cpu_value(completion, cpu, "modelid", "model");
}

static weft_result ensure_cpu(const struct completion *completion, const char *numa,
                              struct xml **cpu)
{
    *cpu = xml_find(completion->system, "cpu", "numaid", numa);
    if (*cpu != NULL)
        return WEFT_OK;
    WEFT__TRY(xml_add(completion->system, "cpu", cpu));
    if (completion->sysfs != NULL)
        WEFT__TRY(xml_set(*cpu, "host_hash", "%#" PRIx64, topo_host_hash(completion->sysfs)));
    return xml_set(*cpu, "numaid", "%s", numa);
}

/* ------------------------------------------------------------------ PCI devices */

static struct xml *find_pci(struct xml *element, const char *bus_id)
{
    struct xml *found = NULL;
    if (xml_is(element, "pci") && strcasecmp(xml_text(element, "busid"), bus_id) == 0)
        return element;
    for (int32_t i = 0; i < element->num_children && found == NULL; i++)
        found = find_pci(element->children[i], bus_id);
    return found;
}

/* The slower of what the device and the port that it is plugged in can do. */
static weft_result set_link(struct xml *pci, const char *path)
{
    char device[WEFT__SYSFS_TEXT_BYTES] = "", port[WEFT__SYSFS_TEXT_BYTES] = "";
    char own[WEFT__SYSFS_TEXT_BYTES] = "", other[WEFT__SYSFS_TEXT_BYTES] = "";
    if (*path != '\0') {
        weft__sysfs_text(device, "%s/max_link_speed", path);
        weft__sysfs_text(port, "%s/../max_link_speed", path);
        weft__sysfs_text(own, "%s/max_link_width", path);
        weft__sysfs_text(other, "%s/../max_link_width", path);
    }
    const float device_speed = device[0] != '\0' ? strtof(device, NULL) : FLT_MAX;
    const float port_speed = port[0] != '\0' ? strtof(port, NULL) : FLT_MAX;
    WEFT__TRY(set_if_missing(pci, "link_speed", port_speed < device_speed ? port : device));
    if (*path == '\0')
        return set_if_missing(pci, "link_width", "");
    const long own_width = strtol(own, NULL, 10), other_width = strtol(other, NULL, 10);
    const long width = own_width < other_width ? own_width : other_width;
    return set_number_if_missing(pci, "link_width", width > 0 && width < 256 ? (int32_t)width : 0);
}

static weft_result fill_pci(const struct completion *completion, struct xml *pci)
{
    static const char *const names[] = {"vendor", "device", "subsystem_vendor", "subsystem_device"};
    char path[WEFT__SYSFS_PATH_BYTES] = "", text[WEFT__SYSFS_TEXT_BYTES];
    if (completion->sysfs != NULL)
        topo_pci_folder(completion->sysfs, xml_text(pci, "busid"), path);
    if (path[0] != '\0') {
        weft__sysfs_text(text, "%s/class", path);
        if (text[0] != '\0')
            WEFT__TRY(xml_set(pci, "class", "%s", text));
        for (int i = 0; i < 4; i++) {
            weft__sysfs_text(text, "%s/%s", path, names[i]);
            if (text[0] != '\0')
                WEFT__TRY(set_if_missing(pci, names[i], text));
        }
    }
    return set_link(pci, path);
}

static weft_result fill_above(const struct completion *completion, struct xml *element)
{
    for (; element->parent != NULL; element = element->parent) {
        if (xml_is(element, "pci"))
            WEFT__TRY(fill_pci(completion, element));
        else if (xml_is(element, "cpu"))
            WEFT__TRY(fill_cpu(completion, element));
    }
    return WEFT_OK;
}

/* Devices of a switch are in the order of their bus ids. */
static void sort_in(struct xml *pci)
{
    const struct xml *parent = pci->parent;
    for (int32_t i = 0; i < parent->num_children; i++) {
        const char *other = xml_get(parent->children[i], "busid");
        if (other != NULL && strcmp(xml_text(pci, "busid"), other) < 0) {
            xml_move(pci, i);
            return;
        }
    }
}

static weft_result ensure_pci(const struct completion *completion, const char *bus_id,
                              struct xml **pci);

/* Where the system says that a device is, else below processor -1. */
static weft_result ensure_parent(const struct completion *completion, const char *bus_id,
                                 struct xml **parent)
{
    char path[WEFT__SYSFS_PATH_BYTES] = "", above[WEFT__SYSFS_ID_BYTES] = "";
    char numa[WEFT__SYSFS_TEXT_BYTES] = "";
    if (completion->sysfs != NULL)
        topo_pci_folder(completion->sysfs, bus_id, path);
    if (path[0] != '\0') {
        topo_switch_above(path, above);
        weft__sysfs_text(numa, "%s/numa_node", path);
    }
    if (above[0] != '\0' && strcmp(above, bus_id) != 0)
        return ensure_pci(completion, above, parent);
    return ensure_cpu(completion, numa[0] != '\0' ? numa : "-1", parent);
}

static weft_result ensure_pci(const struct completion *completion, const char *bus_id,
                              struct xml **pci)
{
    struct xml *parent;
    *pci = find_pci(completion->system, bus_id);
    if (*pci != NULL)
        return WEFT_OK;
    WEFT__TRY(ensure_parent(completion, bus_id, &parent));
    WEFT__TRY(xml_add(parent, "pci", pci));
    WEFT__TRY(xml_set(*pci, "busid", "%s", bus_id));
    sort_in(*pci);
    return WEFT_OK;
}

/* ------------------------------------------------------------------ GPUs */

static weft_result add_nvlink(const struct completion *completion, struct xml *gpu,
                              const struct topo_nvlink *facts)
{
    static const char not_visible[] = "fffffff:ffff:ff", nvswitch[] = "0x068000";
    char path[WEFT__SYSFS_PATH_BYTES] = "", target_class[WEFT__SYSFS_TEXT_BYTES];
    struct xml *nvlink;
    snprintf(target_class, sizeof target_class, "%s", facts->target_class);
    if (target_class[0] == '\0' && completion->sysfs != NULL) {
        topo_pci_folder(completion->sysfs, facts->target, path);
        if (path[0] != '\0')
            weft__sysfs_text(target_class, "%s/class", path);
    }
    WEFT__TRY(xml_add(gpu, "nvlink", &nvlink));
    WEFT__TRY(
        xml_set(nvlink, "target", "%s", facts->target[0] != '\0' ? facts->target : not_visible));
    WEFT__TRY(xml_set(nvlink, "count", "%" PRId32, facts->count));
    return xml_set(nvlink, "tclass", "%s", target_class[0] != '\0' ? target_class : nvswitch);
}

static weft_result add_links(const struct completion *completion, struct xml *gpu,
                             const struct topo_gpu_facts *facts)
{
    const int has_nvlinks = xml_find(gpu, "nvlink", NULL, NULL) != NULL;
    struct xml *c2c;
    for (int32_t i = 0; i < facts->num_nvlinks && !has_nvlinks; i++)
        WEFT__TRY(add_nvlink(completion, gpu, &facts->nvlinks[i]));
    if (facts->num_c2c == 0 || xml_find(gpu, "c2c", NULL, NULL) != NULL)
        return WEFT_OK;
    WEFT__TRY(xml_add(gpu, "c2c", &c2c));
    WEFT__TRY(xml_set(c2c, "bw", "%" PRId32, facts->c2c_megabytes));
    return xml_set(c2c, "count", "%" PRId32, facts->num_c2c);
}

static weft_result add_gpu(const struct completion *completion, const struct topo_gpu_facts *facts)
{
    struct xml *pci, *gpu;
    WEFT__TRY(ensure_pci(completion, facts->bus_id, &pci));
    WEFT__TRY(set_if_missing(pci, "class", "0x03"));
    WEFT__TRY(fill_above(completion, pci));
    gpu = xml_find(pci, "gpu", NULL, NULL);
    if (gpu == NULL)
        WEFT__TRY(xml_add(pci, "gpu", &gpu));
    WEFT__TRY(set_number_if_missing(gpu, "dev", facts->dev));
    WEFT__TRY(set_number_if_missing(gpu, "sm", facts->sm));
    WEFT__TRY(xml_set(gpu, "rank", "%" PRId32, facts->rank));
    WEFT__TRY(set_number_if_missing(gpu, "gdr", facts->has_gdr));
    return add_links(completion, gpu, facts);
}

/* ------------------------------------------------------------------ ports of the network */

static struct xml *find_net(struct xml *element, const char *name)
{
    struct xml *found = NULL;
    if (xml_is(element, "net") && strcmp(xml_text(element, "name"), name) == 0)
        return element;
    for (int32_t i = 0; i < element->num_children && found == NULL; i++)
        found = find_net(element->children[i], name);
    return found;
}

/* The parent of a port: a PCI device, else the first processor. */
static weft_result ensure_nic(const struct completion *completion, const char *bus_id,
                              struct xml **nic)
{
    struct xml *parent = xml_find(completion->system, "cpu", NULL, NULL);
    if (bus_id[0] != '\0') {
        WEFT__TRY(ensure_pci(completion, bus_id, &parent));
        WEFT__TRY(set_if_missing(parent, "class", "0x02"));
    } else if (parent == NULL) {
        WEFT__TRY(ensure_cpu(completion, "0", &parent));
    }
    WEFT__TRY(fill_above(completion, parent));
    *nic = xml_find(parent, "nic", NULL, NULL);
    return *nic != NULL ? WEFT_OK : xml_add(parent, "nic", nic);
}

static weft_result add_net(const struct completion *completion, const struct weft__net_port *facts)
{
    struct xml *net = find_net(completion->system, facts->name), *nic;
    if (net == NULL) {
        WEFT__TRY(ensure_nic(completion, facts->bus_id, &nic));
        WEFT__TRY(xml_add(nic, "net", &net));
        WEFT__TRY(xml_set(net, "name", "%s", facts->name));
    }
    WEFT__TRY(set_number_if_missing(net, "dev", facts->dev));
    WEFT__TRY(set_if_missing(net, "latency", "0"));
    WEFT__TRY(set_number_if_missing(net, "speed", facts->megabits));
    WEFT__TRY(set_number_if_missing(net, "port", facts->port));
    if (xml_get(net, "guid") == NULL)
        WEFT__TRY(xml_set(net, "guid", "0x%" PRIx64, facts->guid));
    WEFT__TRY(set_number_if_missing(net, "maxconn", facts->max_connections));
    return set_number_if_missing(net, "gdr", facts->has_gdr);
}

/* ------------------------------------------------------------------ branches that nobody uses */

static int is_of_facts(const struct topo_facts *facts, const struct xml *element)
{
    for (int32_t i = 0; xml_is(element, "gpu") && i < facts->num_gpus; i++)
        if (strcasecmp(xml_text(element->parent, "busid"), facts->gpus[i].bus_id) == 0)
            return 1;
    for (int32_t i = 0; xml_is(element, "net") && i < facts->num_nets; i++)
        if (strcmp(xml_text(element, "name"), facts->nets[i].name) == 0)
            return 1;
    return 0;
}

/* Whether the element stays. */
static int trim(const struct topo_facts *facts, struct xml *element)
{
    int stays = is_of_facts(facts, element);
    if (stays || xml_is(element, "gpu"))
        return stays;
    for (int32_t i = element->num_children - 1; i >= 0; i--) {
        struct xml *child = element->children[i];
        const int child_stays = trim(facts, child);
        const int is_branch = xml_is(child, "pci") || xml_is(child, "cpu") ||
                              xml_is(child, "nic") || xml_is(child, "net");
        if (!child_stays && is_branch)
            xml_remove(child);
        stays |= child_stays;
    }
    return stays;
}

/* ------------------------------------------------------------------ the whole */

weft_result topo_complete(struct xml *system, const struct topo_facts *facts,
                          const struct weft__sysfs *sysfs)
{
    const struct completion completion = {system, facts, sysfs};
    for (int32_t i = 0; i < facts->num_gpus; i++)
        WEFT__TRY(add_gpu(&completion, &facts->gpus[i]));
    for (int32_t i = 0; i < facts->num_nets; i++)
        WEFT__TRY(add_net(&completion, &facts->nets[i]));
    (void)trim(facts, system);
    return WEFT_OK;
}

static weft_result begin(const char *path, struct xml **system)
{
    if (path != NULL)
        return topo_read(path, system);
    WEFT__TRY(xml_add(NULL, "system", system));
    return xml_set(*system, "version", "1");
}

static weft_result add_processors(const struct completion *completion)
{
    int32_t nodes[MAX_NUMA_NODES];
    const int32_t count = topo_find_numa_nodes(completion->sysfs, nodes, MAX_NUMA_NODES);
    for (int32_t i = 0; i < count || i == 0; i++) {
        char numa[16];
        struct xml *cpu;
        snprintf(numa, sizeof numa, "%" PRId32, count > 0 ? nodes[i] : 0);
        WEFT__TRY(ensure_cpu(completion, numa, &cpu));
        WEFT__TRY(fill_cpu(completion, cpu));
    }
    return WEFT_OK;
}

weft_result topo_detect(const char *path, const struct topo_gpu_facts *gpus, int32_t num_gpus,
                        const struct weft__sysfs *sysfs, struct xml **system)
{
    struct weft__net_port *nets = calloc(MAX_NETS, sizeof *nets);
    struct topo_facts facts = {.gpus = gpus, .num_gpus = num_gpus, .nets = nets};
    struct xml *new = NULL;
    if (nets == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for ports of the network");
    facts.num_nets = weft__net_find_ports(sysfs, nets, MAX_NETS);
    weft_result result = begin(path, &new);
    if (result == WEFT_OK)
        result = topo_complete(new, &facts, sysfs);
    const struct completion completion = {new, &facts, sysfs};
    if (result == WEFT_OK && new->num_children == 0)
        result = add_processors(&completion);
    free(nets);
    if (result == WEFT_OK)
        *system = new;
    else
        xml_remove(new);
    return result;
}
