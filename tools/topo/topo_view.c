/* SPDX-License-Identifier: MIT */
#include "topo_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const enum channels_id topo_set_order[TOPO_NUM_SETS] = {CHANNELS_RING, CHANNELS_TREE,
                                                        CHANNELS_NVLS};

const struct channels *topo_view_set(const struct topo_view *view, enum channels_id id)
{
    const struct channels *set = view->sets.of[id];
    return set != NULL && set->num_channels > 0 ? set : NULL;
}

int32_t topo_port_of(const struct topo_view *view, const struct channels *channels, int32_t c,
                     enum topo_end end)
{
    return channels_were_found(channels) || view->num_nodes > 1 ? channels->channel[c].nets[end]
                                                                : -1;
}

int topo_channels_are_same(const struct channels *channels, int32_t a, int32_t b)
{
    const struct channel *one = &channels->channel[a], *other = &channels->channel[b];
    const size_t num_shown = channels->id == CHANNELS_NVLS ? 1 : (size_t)channels->num_gpus;
    return memcmp(one->nets, other->nets, sizeof one->nets) == 0 &&
           memcmp(one->ranks, other->ranks, num_shown * sizeof *one->ranks) == 0;
}

const char *topo_set_name(enum channels_id id)
{
    static const char *const names[] = {
        [CHANNELS_RING] = "rings", [CHANNELS_TREE] = "trees", [CHANNELS_NVLS] = "NVLS"};
    return names[id];
}

void topo_bus_id_text(uint64_t id, char text[32])
{
    snprintf(text, 32, "%04" PRIx64 ":%02" PRIx64 ":%02" PRIx64 ".%" PRIx64, id >> 20,
             id >> 12 & 0xff, id >> 4 & 0xff, id & 0xf);
}

int topo_is_below(const struct topo_link *link, const struct topo_node *from)
{
    return link->to != from && link->to->kind != TOPO_CPU &&
           (link->type == TOPO_PIX || link->to->kind == TOPO_NET);
}

void topo_node_text(const struct topo_node *node, char text[64])
{
    char bus_id[32];
    topo_bus_id_text(node->id, bus_id);
    switch (node->kind) {
    case TOPO_GPU:
        snprintf(text, 64, "GPU %" PRId32, node->gpu.rank);
        break;
    case TOPO_NET:
        snprintf(text, 64, "port %" PRId32, node->net.dev);
        break;
    case TOPO_CPU:
        snprintf(text, 64, "CPU %" PRId32, (int32_t)node->id);
        break;
    case TOPO_NVS:
        snprintf(text, 64, "NVSwitch");
        break;
    case TOPO_NIC:
        snprintf(text, 64, node->id >> 60 != 0 ? "NIC of the processor" : "NIC %s", bus_id);
        break;
    default:
        snprintf(text, 64, "PCI switch %s", bus_id);
    }
}
