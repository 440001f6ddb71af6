/* SPDX-License-Identifier: MIT */
#include "topo_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "harness/cmocka.h"
#include "topo/complete.h"
#include "topo/paths.h"

char *topo_file_bytes(const char *name, size_t *num_bytes)
{
    enum { MOST = 1 << 20 };
    char path[512], *bytes = malloc(MOST);
    snprintf(path, sizeof path, "%s/%s", WEFT_TOPOLOGY_DIR, name);
    FILE *file = fopen(path, "re");
    if (file == NULL || bytes == NULL)
        fail_msg("cannot read %s", path);
    *num_bytes = fread(bytes, 1, MOST - 1, file);
    bytes[*num_bytes] = '\0';
    fclose(file);
    return bytes;
}

static struct xml *must_be_read(weft_result result, struct xml *system)
{
    if (result != WEFT_OK)
        fail_msg("%s", weft__last_error());
    return system;
}

struct xml *topo_file_read(const char *name)
{
    char path[512];
    struct xml *system = NULL;
    snprintf(path, sizeof path, "%s/%s", WEFT_TOPOLOGY_DIR, name);
    const weft_result result = topo_read(path, &system);
    return must_be_read(result, system);
}

struct xml *topo_text_read(const char *text)
{
    struct xml *system = NULL;
    const weft_result result = topo_parse("text", text, strlen(text), &system);
    return must_be_read(result, system);
}

char *topo_print(const struct xml *root)
{
    char *text;
    size_t num_bytes;
    assert_ok(xml_print(root, &text, &num_bytes));
    return text;
}

struct topo *topo_graph(const struct xml *system, const char *nccl_version)
{
    const struct topo_constants *constants;
    struct topo *topo = NULL;
    weft_result result = topo_constants_of(nccl_version, &constants);
    if (result == WEFT_OK)
        result = topo_build(system, constants, &topo);
    if (result == WEFT_OK)
        result = topo_compute_paths(topo, TOPO_P2P_AUTO);
    if (result != WEFT_OK)
        fail_msg("%s", weft__last_error());
    return topo;
}

/* ---------------------------------------------------------------- machines */

enum { MAX_DEVICES = 16 };

struct devices {
    struct topo_gpu_facts gpus[MAX_DEVICES];
    struct weft__net_port nets[MAX_DEVICES];
    int num_gpus, num_nets;
};

static void add_gpu(struct devices *devices, const char *bus_id, const struct topo_machine *machine)
{
    struct topo_gpu_facts *gpu = &devices->gpus[devices->num_gpus++];
    snprintf(gpu->bus_id, sizeof gpu->bus_id, "%s", bus_id);
    gpu->sm = machine->sm;
    gpu->has_gdr = 1;
    gpu->num_nvlinks = 1;
    snprintf(gpu->nvlinks[0].target, sizeof gpu->nvlinks[0].target, "fffffff:ff:ff.0");
    snprintf(gpu->nvlinks[0].target_class, sizeof gpu->nvlinks[0].target_class, "0x068000");
    gpu->nvlinks[0].count = machine->num_nvlinks;
}

static void add_net(struct devices *devices, const char *bus_id, const struct topo_machine *machine)
{
    struct weft__net_port *net = &devices->nets[devices->num_nets++];
    snprintf(net->bus_id, sizeof net->bus_id, "%s", bus_id);
    snprintf(net->name, sizeof net->name, "net_%s", bus_id);
    net->megabits = machine->megabits;
    net->port = 1;
    net->has_gdr = 1;
}

static void collect(struct devices *devices, const struct xml *element,
                    const struct topo_machine *machine)
{
    const char *class_text = xml_text(element, "class");
    const char *bus_id = xml_text(element, "busid");
    if (strncmp(class_text, "0x0302", 6) == 0)
        add_gpu(devices, bus_id, machine);
    else if (strncmp(class_text, "0x02", 4) == 0)
        add_net(devices, bus_id, machine);
    for (int32_t i = 0; i < element->num_children; i++)
        collect(devices, element->children[i], machine);
}

static int compare_gpus(const void *a, const void *b)
{
    return strcmp(((const struct topo_gpu_facts *)a)->bus_id,
                  ((const struct topo_gpu_facts *)b)->bus_id);
}
static int compare_nets(const void *a, const void *b)
{
    return strcmp(((const struct weft__net_port *)a)->bus_id,
                  ((const struct weft__net_port *)b)->bus_id);
}

/* Numbers them and completes the file in the order of the numbers. */
struct xml *topo_completed(const struct topo_machine *machine)
{
    struct devices devices = {.num_gpus = 0};
    struct xml *system = topo_file_read(machine->file);
    collect(&devices, system, machine);
    if (machine->order == TOPO_ORDER_OF_BUS_IDS) {
        qsort(devices.gpus, (size_t)devices.num_gpus, sizeof devices.gpus[0], compare_gpus);
        qsort(devices.nets, (size_t)devices.num_nets, sizeof devices.nets[0], compare_nets);
    }
    for (int i = 0; i < devices.num_gpus; i++)
        devices.gpus[i].dev = devices.gpus[i].rank = i;
    for (int i = 0; i < devices.num_nets; i++) {
        devices.nets[i].dev = i;
        devices.nets[i].guid = 0x100 + (uint64_t)i;
    }
    const struct topo_facts facts = {devices.gpus, devices.num_gpus, devices.nets,
                                     devices.num_nets};
    assert_ok(topo_complete(system, &facts, NULL));
    return system;
}

static void drop_gpus(struct xml *element, int num_gpus)
{
    for (int32_t i = element->num_children - 1; i >= 0; i--) {
        struct xml *child = element->children[i];
        if (xml_is(child, "gpu") && atoi(xml_text(child, "rank")) >= num_gpus)
            xml_remove(child);
        else
            drop_gpus(child, num_gpus);
    }
}

void topo_keep_gpus(struct xml *system, int num_gpus)
{
    drop_gpus(system, num_gpus);
}

static int describe_channel(const struct topo *topo, const struct channels *channels,
                            const struct channel *channel, char *text, size_t num_bytes)
{
    const int num_gpus = channels->id == CHANNELS_NVLS ? 1 : channels->num_gpus;
    int length = snprintf(text, num_bytes, "\n");
    for (int end = 0; end < 2; end++) {
        if (channel->nets[end] >= 0)
            length += snprintf(text + length, num_bytes - (size_t)length, "NET%d ",
                               (int)topo_at(topo, TOPO_NET, channel->nets[end])->net.dev);
        for (int i = 0; end == 0 && i < num_gpus; i++)
            length +=
                snprintf(text + length, num_bytes - (size_t)length, "%d ", (int)channel->ranks[i]);
    }
    text[--length] = '\0';
    return length;
}

void topo_describe(const struct topo *topo, const struct channels *channels, char *text,
                   size_t num_bytes)
{
    int length = snprintf(text, num_bytes, "%dx%g/%g %s/%s pattern %d cross %d same %d",
                          (int)channels->num_channels, (double)channels->bw_intra,
                          (double)channels->bw_inter, topo_type_name(channels->type_intra),
                          topo_type_name(channels->type_inter), (int)channels->pattern,
                          (int)channels->cross_nic, (int)channels->same_channels);
    for (int i = 0; i < channels->num_channels; i++)
        length += describe_channel(topo, channels, &channels->channel[i], text + length,
                                   num_bytes - (size_t)length);
}
