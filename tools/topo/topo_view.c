/* SPDX-License-Identifier: MIT */
#include "topo_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

const enum weft__channels_id topo_set_order[TOPO_NUM_SETS] = {
    WEFT__CHANNELS_RING, WEFT__CHANNELS_TREE, WEFT__CHANNELS_NVLS, WEFT__CHANNELS_COLLNET_CHAIN,
    WEFT__CHANNELS_COLLNET_DIRECT};

const struct weft__channels *topo_view_set(const struct topo_view *view, enum weft__channels_id id)
{
    const struct weft__channels *set = view->sets.of[id];
    return set != NULL && set->num_channels > 0 ? set : NULL;
}

double topo_slowest_ring_gbps(const struct topo_job *job)
{
    double least = INFINITY;
    for (int32_t i = 0; i < job->num_machines; i++) {
        const struct weft__channels *rings = topo_view_set(&job->machines[i], WEFT__CHANNELS_RING);
        if (rings == NULL || !weft__channels_were_found(rings))
            return 0;
        least = (double)rings->bw_inter < least ? (double)rings->bw_inter : least;
    }
    return least;
}

int topo_view_has_times(const struct topo_view *view)
{
    const struct weft__channels *rings = topo_view_set(view, WEFT__CHANNELS_RING);
    return view->times.op != TOPO_NO_TIMES && rings != NULL && weft__channels_were_found(rings);
}

const char *topo_view_why_no_times(const struct topo_view *view)
{
    if (view->times.op == TOPO_NO_TIMES || topo_view_has_times(view))
        return NULL;
    if (weft__topo_count(view->topo, WEFT__TOPO_GPU) == 0)
        return "the model is of GPUs, and none here has a rank; weft coll --explain tells of CPUs";
    return view->sets.of[WEFT__CHANNELS_RING] == NULL
               ? "they are as fast as the rings together, and none were looked for (--pattern ring)"
               : "they are as fast as the rings together, and there are none";
}

int32_t topo_port_of(const struct topo_view *view, const struct weft__channels *channels, int32_t c,
                     enum topo_end end)
{
    return weft__channels_were_found(channels) || view->num_nodes > 1
               ? channels->channel[c].nets[end]
               : -1;
}

const char *topo_set_name(enum weft__channels_id id)
{
    static const char *const names[] = {"rings", "trees", "collnet chains", "NVLS",
                                        "collnet direct"};
    return names[id];
}

void topo_bus_id_text(uint64_t id, char text[32])
{
    snprintf(text, 32, "%04" PRIx64 ":%02" PRIx64 ":%02" PRIx64 ".%" PRIx64, id >> 20,
             id >> 12 & 0xff, id >> 4 & 0xff, id & 0xf);
}

struct weft__topo_node *topo_gpu_of_rank(const struct weft__topo *topo, int32_t rank)
{
    int32_t index = 0;
    while (weft__topo_at(topo, WEFT__TOPO_GPU, index)->gpu.rank != rank)
        index++;
    return weft__topo_at(topo, WEFT__TOPO_GPU, index);
}

void topo_node_text(const struct topo_view *view, const struct weft__topo_node *node, char text[64])
{
    char bus_id[32];
    topo_bus_id_text(node->id, bus_id);
    (void)view;
    switch (node->kind) {
    case WEFT__TOPO_GPU:
        snprintf(text, 64, "GPU %" PRId32, node->gpu.rank);
        break;
    case WEFT__TOPO_NET:
        snprintf(text, 64, "port %" PRId32, node->net.dev);
        break;
    case WEFT__TOPO_CPU:
        snprintf(text, 64, "CPU %" PRId32, (int32_t)node->id);
        break;
    case WEFT__TOPO_NVS:
        snprintf(text, 64, "NVSwitch");
        break;
    case WEFT__TOPO_NIC:
        snprintf(text, 64, node->id >> 60 != 0 ? "NIC of the processor" : "NIC %s", bus_id);
        break;
    default:
        snprintf(text, 64, "PCI switch %s", bus_id);
    }
}
