/* SPDX-License-Identifier: MIT */
#include "topo/channels_file.h"

#include <inttypes.h>

#include "comm/host/error.h"

/* How files call a device: its number, and from the first byte of 8 on its host. */
static uint64_t name_of(const struct topo_node *node)
{
    const int32_t dev = node->kind == TOPO_GPU ? node->gpu.dev : node->net.dev;
    return (uint64_t)node->host << 56 | (uint64_t)dev;
}

static weft_result add_device(struct xml *channel, const char *element,
                              const struct topo_node *node, struct xml **device)
{
    WEFT__TRY(xml_add(channel, element, device));
    if (node == NULL)
        return xml_set(*device, "dev", "%#" PRIx64, UINT64_MAX);
    return xml_set(*device, "dev", "%#" PRIx64, name_of(node));
}

static weft_result add_net(const struct topo *topo, int32_t net, struct xml *channel)
{
    struct xml *device;
    return add_device(channel, "net", net >= 0 ? topo_at(topo, TOPO_NET, net) : NULL, &device);
}

static weft_result add_channel(const struct topo *topo, const struct channels *channels,
                               const struct channel *channel, enum topo_reach reach,
                               struct xml *graph)
{
    const int32_t num_gpus = channels->id == CHANNELS_NVLS ? 1 : channels->num_gpus;
    struct xml *element, *gpu;
    WEFT__TRY(xml_add(graph, "channel", &element));
    if (reach == TOPO_SEVERAL_NODES)
        WEFT__TRY(add_net(topo, channel->nets[0], element));
    for (int32_t i = 0; i < num_gpus; i++) {
        WEFT__TRY(add_device(element, "gpu", topo_gpu_of_rank(topo, channel->ranks[i]), &gpu));
        if (topo->constants->dialect == TOPO_DIALECT_RANKS)
            WEFT__TRY(xml_set(gpu, "rank", "%" PRId32, channel->ranks[i]));
    }
    if (reach == TOPO_SEVERAL_NODES)
        WEFT__TRY(add_net(topo, channel->nets[1], element));
    return WEFT_OK;
}

static weft_result set_values(struct xml *graph, const struct channels *channels)
{
    const struct {
        const char *name;
        int32_t value;
    } first[] = {{"id", (int32_t)channels->id},
                 {"pattern", (int32_t)channels->pattern},
                 {"crossnic", channels->cross_nic},
                 {"nchannels", channels->num_channels}};
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
        WEFT__TRY(xml_set(graph, first[i].name, "%" PRId32, first[i].value));
    WEFT__TRY(xml_set(graph, "speedintra", "%g", (double)channels->bw_intra));
    WEFT__TRY(xml_set(graph, "speedinter", "%g", (double)channels->bw_inter));
    WEFT__TRY(xml_set(graph, "latencyinter", "%g", (double)channels->latency_inter));
    WEFT__TRY(xml_set(graph, "typeintra", "%s", topo_type_name(channels->type_intra)));
    WEFT__TRY(xml_set(graph, "typeinter", "%s", topo_type_name(channels->type_inter)));
    return xml_set(graph, "samechannels", "%" PRId32, channels->same_channels);
}

static weft_result add_set(const struct topo *topo, const struct channels *channels,
                           enum topo_reach reach, struct xml *graphs)
{
    struct xml *graph;
    WEFT__TRY(xml_add(graphs, "graph", &graph));
    WEFT__TRY(set_values(graph, channels));
    for (int32_t i = 0; i < channels->num_channels; i++)
        WEFT__TRY(add_channel(topo, channels, &channels->channel[i], reach, graph));
    return WEFT_OK;
}

static weft_result add_sets(const struct topo *topo, const struct channel_sets *sets,
                            enum topo_reach reach, struct xml *graphs)
{
    static const struct channels none[] = {
        {.id = CHANNELS_RING, .pattern = PATTERN_RING},
        {.id = CHANNELS_TREE, .pattern = PATTERN_BALANCED_TREE},
        {.id = CHANNELS_COLLNET_DIRECT, .pattern = PATTERN_COLLNET_DIRECT},
        {.id = CHANNELS_COLLNET_CHAIN, .pattern = PATTERN_TREE},
        {.id = CHANNELS_NVLS, .pattern = PATTERN_NVLS}};
    WEFT__TRY(xml_set(graphs, "version", "1"));
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        const struct channels *found = sets->of[none[i].id];
        const int is_there = found != NULL && found->num_channels > 0;
        WEFT__TRY(add_set(topo, is_there ? found : &none[i], reach, graphs));
    }
    return WEFT_OK;
}

weft_result channels_to_xml(const struct topo *topo, const struct channel_sets *sets,
                            enum topo_reach reach, struct xml **graphs)
{
    WEFT__TRY(xml_add(NULL, "graphs", graphs));
    const weft_result result = add_sets(topo, sets, reach, *graphs);
    if (result != WEFT_OK) {
        xml_remove(*graphs);
        *graphs = NULL;
    }
    return result;
}
