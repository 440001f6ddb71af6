/* SPDX-License-Identifier: MIT */
#include "topo/channels_file.h"

#include <inttypes.h>

#include "comm/host/error.h"

static const struct xml_rule rules[] = {
    {"", "graphs", "version"},
    {"graphs", "graph",
     "id pattern crossnic nchannels speedintra speedinter latencyinter typeintra typeinter "
     "samechannels"},
    {"graph", "channel", ""},
    {"channel", "gpu", "dev rank"},
    {"channel", "net", "dev"},
};
const struct xml_format channels_format = {rules, sizeof rules / sizeof rules[0]};

/* How files call a device: its number, and from the first byte of 8 on its host. */
static uint64_t name_of(const struct topo_node *node)
{
    const int32_t dev = node->kind == TOPO_GPU ? node->gpu.dev : node->net.dev;
    return (uint64_t)node->host << 56 | (uint64_t)dev;
}

/* ------------------------------------------------------------------ writing */

static const struct topo_node *gpu_of_rank(const struct topo *topo, int32_t rank)
{
    int32_t index = 0;
    while (topo_at(topo, TOPO_GPU, index)->gpu.rank != rank)
        index++;
    return topo_at(topo, TOPO_GPU, index);
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
        WEFT__TRY(add_device(element, "gpu", gpu_of_rank(topo, channel->ranks[i]), &gpu));
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

/* ------------------------------------------------------------------ reading */

static weft_result find_device(const struct topo *topo, const struct xml *element,
                               enum topo_kind kind, const struct topo_node **node)
{
    uint64_t dev;
    if (*xml_text(element, "dev") == '\0')
        return xml_error(element, "attribute dev is missing");
    WEFT__TRY(xml_hex_or(element, "dev", 0, &dev));
    for (int32_t i = 0; i < topo_count(topo, kind); i++) {
        *node = topo_at(topo, kind, i);
        if (name_of(*node) == dev)
            return WEFT_OK;
    }
    return xml_error(element, "the topology has no device %.32s of that kind",
                     xml_text(element, "dev"));
}

/* By its rank, if the file says it, else by its device. */
static weft_result find_gpu(const struct topo *topo, const struct xml *element, int32_t *rank)
{
    const struct topo_node *node;
    WEFT__TRY(xml_integer_or(element, (struct xml_number){"rank", 0, INT32_MAX}, -1, rank));
    if (*rank == -1) {
        WEFT__TRY(find_device(topo, element, TOPO_GPU, &node));
        *rank = node->gpu.rank;
        return WEFT_OK;
    }
    for (int32_t i = 0; i < topo_count(topo, TOPO_GPU); i++)
        if (topo_at(topo, TOPO_GPU, i)->gpu.rank == *rank)
            return WEFT_OK;
    return xml_error(element, "the topology has no GPU of rank %" PRId32, *rank);
}

/* A channel while it is read. */
struct filling {
    const struct topo *topo;
    struct channel *channel;
    int32_t num_wanted, num_gpus, num_nets;
};

static weft_result add_read_gpu(struct filling *filling, const struct xml *element)
{
    int32_t rank;
    WEFT__TRY(find_gpu(filling->topo, element, &rank));
    if (filling->num_gpus == filling->num_wanted)
        return xml_error(element, "the channel has more than %" PRId32 " GPUs",
                         filling->num_wanted);
    for (int32_t i = 0; i < filling->num_gpus; i++)
        if (filling->channel->ranks[i] == rank)
            return xml_error(element, "the channel has rank %" PRId32 " twice", rank);
    filling->channel->ranks[filling->num_gpus++] = rank;
    return WEFT_OK;
}

static weft_result add_read_net(struct filling *filling, const struct xml *element)
{
    const struct topo_node *node;
    WEFT__TRY(find_device(filling->topo, element, TOPO_NET, &node));
    if (filling->num_nets == 2)
        return xml_error(element, "the channel has more than 2 ports");
    filling->channel->nets[filling->num_nets++] = node->index;
    return WEFT_OK;
}

static weft_result read_channel(struct filling *filling, const struct xml *element)
{
    for (int32_t i = 0; i < element->num_children; i++) {
        const struct xml *child = element->children[i];
        if (xml_is(child, "gpu"))
            WEFT__TRY(add_read_gpu(filling, child));
        else
            WEFT__TRY(add_read_net(filling, child));
    }
    if (filling->num_gpus != filling->num_wanted)
        return xml_error(element, "has %" PRId32 " GPUs, not %" PRId32, filling->num_gpus,
                         filling->num_wanted);
    if (filling->num_nets == 1)
        return xml_error(element, "has 1 port: allowed are 0 and 2");
    return WEFT_OK;
}

static weft_result read_type(const struct xml *graph, const char *name, enum topo_type *type)
{
    const int value = topo_type_of(xml_text(graph, name));
    if (value < 0)
        return xml_error(graph,
                         "%s is \"%.32s\", allowed are LOC, NVL, NVB, C2C, PIX, PXB, P2C, "
                         "PXN, PHB, SYS, NET and DIS",
                         name, xml_text(graph, name));
    *type = (enum topo_type)value;
    return WEFT_OK;
}

static weft_result read_values(const struct xml *graph, struct channels *channels)
{
    int32_t pattern;
    WEFT__TRY(xml_integer(graph, (struct xml_number){"pattern", 1, 6}, &pattern));
    WEFT__TRY(xml_integer(graph, (struct xml_number){"crossnic", 0, 2}, &channels->cross_nic));
    WEFT__TRY(xml_integer(graph, (struct xml_number){"nchannels", 0, TOPO_MAX_CHANNELS},
                          &channels->num_channels));
    WEFT__TRY(xml_real_or(graph, "speedintra", 0, &channels->bw_intra));
    WEFT__TRY(xml_real_or(graph, "speedinter", 0, &channels->bw_inter));
    WEFT__TRY(xml_real_or(graph, "latencyinter", 0, &channels->latency_inter));
    WEFT__TRY(read_type(graph, "typeintra", &channels->type_intra));
    WEFT__TRY(read_type(graph, "typeinter", &channels->type_inter));
    channels->pattern = (enum pattern)pattern;
    return xml_integer(graph, (struct xml_number){"samechannels", 0, 1}, &channels->same_channels);
}

static weft_result read_set(const struct topo *topo, const struct xml *graph,
                            struct channels *channels)
{
    WEFT__TRY(read_values(graph, channels));
    if (graph->num_children != channels->num_channels)
        return xml_error(graph, "nchannels is %" PRId32 ", but it has %" PRId32 " channels",
                         channels->num_channels, graph->num_children);
    for (int32_t i = 0; i < graph->num_children; i++) {
        struct filling filling = {.topo = topo,
                                  .channel = &channels->channel[i],
                                  .num_wanted =
                                      channels->id == CHANNELS_NVLS ? 1 : channels->num_gpus};
        WEFT__TRY(read_channel(&filling, graph->children[i]));
    }
    return WEFT_OK;
}

static weft_result read_graph(const struct topo *topo, const struct xml *graph,
                              struct channel_sets *sets)
{
    int32_t id;
    WEFT__TRY(xml_integer(graph, (struct xml_number){"id", 0, NUM_CHANNELS_IDS - 1}, &id));
    if (sets->of[id] != NULL)
        return xml_error(graph, "id %" PRId32 " is another's, too", id);
    WEFT__TRY(channels_create(topo_count(topo, TOPO_GPU), &sets->of[id]));
    sets->of[id]->id = (enum channels_id)id;
    return read_set(topo, graph, sets->of[id]);
}

weft_result channels_from_xml(const struct topo *topo, const struct xml *graphs,
                              struct channel_sets *sets)
{
    int32_t version;
    weft_result result = xml_integer(graphs, (struct xml_number){"version", 1, 1}, &version);
    for (int32_t i = 0; i < graphs->num_children && result == WEFT_OK; i++)
        result = read_graph(topo, graphs->children[i], sets);
    if (result != WEFT_OK)
        channel_sets_free(sets);
    return result;
}

weft_result channels_read(const struct topo *topo, const char *path, struct channel_sets *sets)
{
    struct xml *graphs = NULL;
    WEFT__TRY(xml_read(&channels_format, path, &graphs));
    const weft_result result = channels_from_xml(topo, graphs, sets);
    xml_remove(graphs);
    return result;
}
