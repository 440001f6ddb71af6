/* SPDX-License-Identifier: MIT */
#include "topo/channels_file.h"

#include <inttypes.h>

#include "comm/error.h"

static const struct weft__xml_rule rules[] = {
    {"", "graphs", "version"},
    {"graphs", "graph",
     "id pattern crossnic nchannels speedintra speedinter latencyinter typeintra typeinter "
     "samechannels"},
    {"graph", "channel", ""},
    {"channel", "gpu", "dev rank"},
    {"channel", "net", "dev"},
};
const struct weft__xml_format weft__channels_format = {rules, sizeof rules / sizeof rules[0]};

/* How files call a device: its number, and from the first byte of 8 on its host. */
static uint64_t name_of(const struct weft__topo_node *node)
{
    const int32_t dev = node->kind == WEFT__TOPO_GPU ? node->gpu.dev : node->net.dev;
    return (uint64_t)node->host << 56 | (uint64_t)dev;
}

/* ------------------------------------------------------------------ writing */

static const struct weft__topo_node *gpu_of_rank(const struct weft__topo *topo, int32_t rank)
{
    int32_t index = 0;
    while (weft__topo_at(topo, WEFT__TOPO_GPU, index)->gpu.rank != rank)
        index++;
    return weft__topo_at(topo, WEFT__TOPO_GPU, index);
}

static weft_result add_device(struct weft__xml *channel, const char *element,
                              const struct weft__topo_node *node, struct weft__xml **device)
{
    WEFT__TRY(weft__xml_add(channel, element, device));
    if (node == NULL)
        return weft__xml_set(*device, "dev", "%#" PRIx64, UINT64_MAX);
    return weft__xml_set(*device, "dev", "%#" PRIx64, name_of(node));
}

static weft_result add_net(const struct weft__topo *topo, int32_t net, struct weft__xml *channel)
{
    struct weft__xml *device;
    return add_device(channel, "net", net >= 0 ? weft__topo_at(topo, WEFT__TOPO_NET, net) : NULL,
                      &device);
}

static weft_result add_channel(const struct weft__topo *topo, const struct weft__channels *channels,
                               const struct weft__channel *channel, enum weft__topo_reach reach,
                               struct weft__xml *graph)
{
    const int32_t num_gpus = channels->id == WEFT__CHANNELS_NVLS ? 1 : channels->num_gpus;
    struct weft__xml *element, *gpu;
    WEFT__TRY(weft__xml_add(graph, "channel", &element));
    if (reach == WEFT__TOPO_SEVERAL_NODES)
        WEFT__TRY(add_net(topo, channel->nets[0], element));
    for (int32_t i = 0; i < num_gpus; i++) {
        WEFT__TRY(add_device(element, "gpu", gpu_of_rank(topo, channel->ranks[i]), &gpu));
        if (topo->constants->dialect == WEFT__TOPO_DIALECT_RANKS)
            WEFT__TRY(weft__xml_set(gpu, "rank", "%" PRId32, channel->ranks[i]));
    }
    if (reach == WEFT__TOPO_SEVERAL_NODES)
        WEFT__TRY(add_net(topo, channel->nets[1], element));
    return WEFT_OK;
}

static weft_result set_values(struct weft__xml *graph, const struct weft__channels *channels)
{
    const struct {
        const char *name;
        int32_t value;
    } first[] = {{"id", (int32_t)channels->id},
                 {"pattern", (int32_t)channels->pattern},
                 {"crossnic", channels->cross_nic},
                 {"nchannels", channels->num_channels}};
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++)
        WEFT__TRY(weft__xml_set(graph, first[i].name, "%" PRId32, first[i].value));
    WEFT__TRY(weft__xml_set(graph, "speedintra", "%g", (double)channels->bw_intra));
    WEFT__TRY(weft__xml_set(graph, "speedinter", "%g", (double)channels->bw_inter));
    WEFT__TRY(weft__xml_set(graph, "latencyinter", "%g", (double)channels->latency_inter));
    WEFT__TRY(weft__xml_set(graph, "typeintra", "%s", weft__topo_type_name(channels->type_intra)));
    WEFT__TRY(weft__xml_set(graph, "typeinter", "%s", weft__topo_type_name(channels->type_inter)));
    return weft__xml_set(graph, "samechannels", "%" PRId32, channels->same_channels);
}

static weft_result add_set(const struct weft__topo *topo, const struct weft__channels *channels,
                           enum weft__topo_reach reach, struct weft__xml *graphs)
{
    struct weft__xml *graph;
    WEFT__TRY(weft__xml_add(graphs, "graph", &graph));
    WEFT__TRY(set_values(graph, channels));
    for (int32_t i = 0; i < channels->num_channels; i++)
        WEFT__TRY(add_channel(topo, channels, &channels->channel[i], reach, graph));
    return WEFT_OK;
}

static weft_result add_sets(const struct weft__topo *topo, const struct weft__channel_sets *sets,
                            enum weft__topo_reach reach, struct weft__xml *graphs)
{
    static const struct weft__channels none[] = {
        {.id = WEFT__CHANNELS_RING, .pattern = WEFT__PATTERN_RING},
        {.id = WEFT__CHANNELS_TREE, .pattern = WEFT__PATTERN_BALANCED_TREE},
        {.id = WEFT__CHANNELS_COLLNET_DIRECT, .pattern = WEFT__PATTERN_COLLNET_DIRECT},
        {.id = WEFT__CHANNELS_COLLNET_CHAIN, .pattern = WEFT__PATTERN_TREE},
        {.id = WEFT__CHANNELS_NVLS, .pattern = WEFT__PATTERN_NVLS}};
    WEFT__TRY(weft__xml_set(graphs, "version", "1"));
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        const struct weft__channels *found = sets->of[none[i].id];
        const int is_there = found != NULL && found->num_channels > 0;
        WEFT__TRY(add_set(topo, is_there ? found : &none[i], reach, graphs));
    }
    return WEFT_OK;
}

weft_result weft__channels_to_xml(const struct weft__topo *topo,
                                  const struct weft__channel_sets *sets,
                                  enum weft__topo_reach reach, struct weft__xml **graphs)
{
    WEFT__TRY(weft__xml_add(NULL, "graphs", graphs));
    const weft_result result = add_sets(topo, sets, reach, *graphs);
    if (result != WEFT_OK) {
        weft__xml_remove(*graphs);
        *graphs = NULL;
    }
    return result;
}

/* ------------------------------------------------------------------ reading */

static weft_result find_device(const struct weft__topo *topo, const struct weft__xml *element,
                               enum weft__topo_kind kind, const struct weft__topo_node **node)
{
    uint64_t dev;
    if (*weft__xml_text(element, "dev") == '\0')
        return weft__xml_error(element, "attribute dev is missing");
    WEFT__TRY(weft__xml_hex_or(element, "dev", 0, &dev));
    for (int32_t i = 0; i < weft__topo_count(topo, kind); i++) {
        *node = weft__topo_at(topo, kind, i);
        if (name_of(*node) == dev)
            return WEFT_OK;
    }
    return weft__xml_error(element, "the topology has no device %.32s of that kind",
                           weft__xml_text(element, "dev"));
}

/* By its rank, if the file says it, else by its device. */
static weft_result find_gpu(const struct weft__topo *topo, const struct weft__xml *element,
                            int32_t *rank)
{
    const struct weft__topo_node *node;
    WEFT__TRY(
        weft__xml_integer_or(element, (struct weft__xml_number){"rank", 0, INT32_MAX}, -1, rank));
    if (*rank == -1) {
        WEFT__TRY(find_device(topo, element, WEFT__TOPO_GPU, &node));
        *rank = node->gpu.rank;
        return WEFT_OK;
    }
    for (int32_t i = 0; i < weft__topo_count(topo, WEFT__TOPO_GPU); i++)
        if (weft__topo_at(topo, WEFT__TOPO_GPU, i)->gpu.rank == *rank)
            return WEFT_OK;
    return weft__xml_error(element, "the topology has no GPU of rank %" PRId32, *rank);
}

/* A channel while it is read. */
struct filling {
    const struct weft__topo *topo;
    struct weft__channel *channel;
    int32_t num_wanted, num_gpus, num_nets;
};

static weft_result add_read_gpu(struct filling *filling, const struct weft__xml *element)
{
    int32_t rank;
    WEFT__TRY(find_gpu(filling->topo, element, &rank));
    if (filling->num_gpus == filling->num_wanted)
        return weft__xml_error(element, "the channel has more than %" PRId32 " GPUs",
                               filling->num_wanted);
    for (int32_t i = 0; i < filling->num_gpus; i++)
        if (filling->channel->ranks[i] == rank)
            return weft__xml_error(element, "the channel has rank %" PRId32 " twice", rank);
    filling->channel->ranks[filling->num_gpus++] = rank;
    return WEFT_OK;
}

static weft_result add_read_net(struct filling *filling, const struct weft__xml *element)
{
    const struct weft__topo_node *node;
    WEFT__TRY(find_device(filling->topo, element, WEFT__TOPO_NET, &node));
    if (filling->num_nets == 2)
        return weft__xml_error(element, "the channel has more than 2 ports");
    filling->channel->nets[filling->num_nets++] = node->index;
    return WEFT_OK;
}

static weft_result read_channel(struct filling *filling, const struct weft__xml *element)
{
    for (int32_t i = 0; i < element->num_children; i++) {
        const struct weft__xml *child = element->children[i];
        if (weft__xml_is(child, "gpu"))
            WEFT__TRY(add_read_gpu(filling, child));
        else
            WEFT__TRY(add_read_net(filling, child));
    }
    if (filling->num_gpus != filling->num_wanted)
        return weft__xml_error(element, "has %" PRId32 " GPUs, not %" PRId32, filling->num_gpus,
                               filling->num_wanted);
    if (filling->num_nets == 1)
        return weft__xml_error(element, "has 1 port: allowed are 0 and 2");
    return WEFT_OK;
}

static weft_result read_type(const struct weft__xml *graph, const char *name,
                             enum weft__topo_type *type)
{
    const int value = weft__topo_type_of(weft__xml_text(graph, name));
    if (value < 0)
        return weft__xml_error(graph,
                               "%s is \"%.32s\", allowed are LOC, NVL, NVB, C2C, PIX, PXB, P2C, "
                               "PXN, PHB, SYS, NET and DIS",
                               name, weft__xml_text(graph, name));
    *type = (enum weft__topo_type)value;
    return WEFT_OK;
}

static weft_result read_values(const struct weft__xml *graph, struct weft__channels *channels)
{
    int32_t pattern;
    WEFT__TRY(weft__xml_integer(graph, (struct weft__xml_number){"pattern", 1, 6}, &pattern));
    WEFT__TRY(weft__xml_integer(graph, (struct weft__xml_number){"crossnic", 0, 2},
                                &channels->cross_nic));
    WEFT__TRY(weft__xml_integer(graph,
                                (struct weft__xml_number){"nchannels", 0, WEFT__MAX_CHANNELS},
                                &channels->num_channels));
    WEFT__TRY(weft__xml_real_or(graph, "speedintra", 0, &channels->bw_intra));
    WEFT__TRY(weft__xml_real_or(graph, "speedinter", 0, &channels->bw_inter));
    WEFT__TRY(weft__xml_real_or(graph, "latencyinter", 0, &channels->latency_inter));
    WEFT__TRY(read_type(graph, "typeintra", &channels->type_intra));
    WEFT__TRY(read_type(graph, "typeinter", &channels->type_inter));
    channels->pattern = (enum weft__pattern)pattern;
    return weft__xml_integer(graph, (struct weft__xml_number){"samechannels", 0, 1},
                             &channels->same_channels);
}

static weft_result read_set(const struct weft__topo *topo, const struct weft__xml *graph,
                            struct weft__channels *channels)
{
    WEFT__TRY(read_values(graph, channels));
    if (graph->num_children != channels->num_channels)
        return weft__xml_error(graph, "nchannels is %" PRId32 ", but it has %" PRId32 " channels",
                               channels->num_channels, graph->num_children);
    for (int32_t i = 0; i < graph->num_children; i++) {
        struct filling filling = {.topo = topo,
                                  .channel = &channels->channel[i],
                                  .num_wanted =
                                      channels->id == WEFT__CHANNELS_NVLS ? 1 : channels->num_gpus};
        WEFT__TRY(read_channel(&filling, graph->children[i]));
    }
    return WEFT_OK;
}

static weft_result read_graph(const struct weft__topo *topo, const struct weft__xml *graph,
                              struct weft__channel_sets *sets)
{
    int32_t id;
    WEFT__TRY(weft__xml_integer(
        graph, (struct weft__xml_number){"id", 0, WEFT__NUM_CHANNELS_IDS - 1}, &id));
    if (sets->of[id] != NULL)
        return weft__xml_error(graph, "id %" PRId32 " is another's, too", id);
    WEFT__TRY(weft__channels_create(weft__topo_count(topo, WEFT__TOPO_GPU), &sets->of[id]));
    sets->of[id]->id = (enum weft__channels_id)id;
    return read_set(topo, graph, sets->of[id]);
}

weft_result weft__channels_from_xml(const struct weft__topo *topo, const struct weft__xml *graphs,
                                    struct weft__channel_sets *sets)
{
    int32_t version;
    weft_result result =
        weft__xml_integer(graphs, (struct weft__xml_number){"version", 1, 1}, &version);
    for (int32_t i = 0; i < graphs->num_children && result == WEFT_OK; i++)
        result = read_graph(topo, graphs->children[i], sets);
    if (result != WEFT_OK)
        weft__channel_sets_free(sets);
    return result;
}

weft_result weft__channels_read(const struct weft__topo *topo, const char *path,
                                struct weft__channel_sets *sets)
{
    struct weft__xml *graphs = NULL;
    WEFT__TRY(weft__xml_read(&weft__channels_format, path, &graphs));
    const weft_result result = weft__channels_from_xml(topo, graphs, sets);
    weft__xml_remove(graphs);
    return result;
}
