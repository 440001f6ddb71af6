/* SPDX-License-Identifier: MIT */
#include <jansson.h>

#include "topo_view.h"
#include "workload/output.h"

static json_t *node_as_json(const struct topo_node *node)
{
    char name[64], bus_id[32];
    topo_node_text(node, name);
    topo_bus_id_text(node->id, bus_id);
    json_t *object = json_pack("{s:s, s:s, s:i}", "kind", topo_kind_name(node->kind), "name", name,
                               "index", node->index);
    if (node->kind == TOPO_GPU)
        json_object_update_new(object,
                               json_pack("{s:i, s:i, s:i, s:s}", "rank", node->gpu.rank, "dev",
                                         node->gpu.dev, "sm", node->gpu.sm, "bus_id", bus_id));
    if (node->kind == TOPO_NET)
        json_object_update_new(object, json_pack("{s:i, s:i, s:f, s:b}", "dev", node->net.dev,
                                                 "port", node->net.port, "gb_per_s",
                                                 (double)node->net.bw, "gdr", node->net.has_gdr));
    return object;
}

static json_t *links_as_json(const struct topo_node *node)
{
    json_t *links = json_array();
    for (int32_t i = 0; i < node->num_links; i++) {
        const struct topo_link *link = &node->links[i];
        json_array_append_new(
            links, json_pack("{s:s, s:i, s:s, s:f}", "to_kind", topo_kind_name(link->to->kind),
                             "to_index", link->to->index, "type",
                             link->type == TOPO_PIX ? "PCI" : topo_type_name(link->type),
                             "gb_per_s", (double)link->bw));
    }
    return links;
}

static json_t *nodes_as_json(const struct topo_view *view)
{
    json_t *nodes = json_array();
    for (int kind = 0; kind < TOPO_NUM_KINDS; kind++)
        for (int32_t i = 0; i < topo_count(view->topo, (enum topo_kind)kind); i++) {
            const struct topo_node *node = topo_at(view->topo, (enum topo_kind)kind, i);
            json_t *object = node_as_json(node);
            json_object_set_new(object, "links", links_as_json(node));
            json_array_append_new(nodes, object);
        }
    return nodes;
}

/* [GPU][node of the kind] */
static json_t *paths_as_json(const struct topo_view *view, enum topo_kind kind)
{
    json_t *rows = json_array();
    for (int32_t g = 0; g < topo_count(view->topo, TOPO_GPU); g++) {
        json_t *row = json_array();
        for (int32_t i = 0; i < topo_count(view->topo, kind); i++) {
            const struct topo_path *path = &topo_at(view->topo, TOPO_GPU, g)->paths[kind][i];
            json_array_append_new(row,
                                  json_pack("{s:s, s:f, s:i}", "type", topo_type_name(path->type),
                                            "gb_per_s", (double)path->bw, "hops", path->num_links));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *integers(const int32_t *values, int32_t count)
{
    json_t *array = json_array();
    for (int32_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer(values[i]));
    return array;
}

/* null if nothing was found. */
static json_t *gbps_as_json(int is_found, double gbps)
{
    return is_found ? json_real(gbps) : json_null();
}

static json_t *channels_as_json(const struct topo_view *view, const struct channels *channels)
{
    const int32_t num_gpus = channels->id == CHANNELS_NVLS ? 1 : channels->num_gpus;
    const int is_found = channels_were_found(channels);
    json_t *list = json_array();
    for (int32_t c = 0; c < channels->num_channels; c++) {
        const struct channel *channel = &channels->channel[c];
        json_t *object = json_pack("{s:o}", "ranks", integers(channel->ranks, num_gpus));
        if (topo_port_of(view, channels, c, TOPO_COMES) >= 0)
            json_object_set_new(object, "ports", integers(channel->nets, 2));
        json_array_append_new(list, object);
    }
    return json_pack("{s:s, s:s, s:b, s:o, s:o, s:s, s:s, s:i, s:b, s:o}", "set",
                     topo_set_name(channels->id), "pattern", pattern_name(channels->pattern),
                     "found", is_found, "gb_per_s",
                     gbps_as_json(is_found, (double)channels->bw_intra), "network_gb_per_s",
                     gbps_as_json(is_found, (double)channels->bw_inter), "type",
                     topo_type_name(channels->type_intra), "network_type",
                     topo_type_name(channels->type_inter), "cross_nic", channels->cross_nic,
                     "same_channels", channels->same_channels, "channels", list);
}

static json_t *sets_as_json(const struct topo_view *view)
{
    json_t *sets = json_array();
    for (int i = 0; i < TOPO_NUM_SETS; i++) {
        const struct channels *channels = topo_view_set(view, topo_set_order[i]);
        if (channels != NULL)
            json_array_append_new(sets, channels_as_json(view, channels));
    }
    return sets;
}

static json_t *machine_as_json(const struct topo_view *view)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "kind", "topology", "name", view->name,
                     "nccl_version", view->topo->constants->nccl_version, "nodes",
                     nodes_as_json(view), "gpu_paths", paths_as_json(view, TOPO_GPU), "port_paths",
                     paths_as_json(view, TOPO_NET), "sets", sets_as_json(view));
}

/* A list, if there are several machines. */
static json_t *job_as_json(const struct topo_job *job)
{
    json_t *machines = json_array();
    if (job->num_machines == 1) {
        json_decref(machines);
        return machine_as_json(&job->machines[0]);
    }
    for (int32_t i = 0; i < job->num_machines; i++)
        json_array_append_new(machines, machine_as_json(&job->machines[i]));
    return json_pack("{s:s, s:o}", "kind", "topologies", "machines", machines);
}

int topo_print_json(const struct topo_job *job)
{
    return output_json(job_as_json(job), NULL);
}
