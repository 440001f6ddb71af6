/* SPDX-License-Identifier: MIT */
/* What weft topo has found out, and the ways to show it. */
#pragma once

#include "topo/connect.h"
#include "topo/paths.h"
#include "topo_times.h"

struct topo_view {
    const char *name; /* the file; "this machine" */
    struct weft__xml *system;
    struct weft__topo *topo;
    int32_t num_nodes; /* equal ones */
    struct weft__channel_sets sets;
    int is_connected; /* whether there are rings and trees over all nodes */
    struct weft__connections connections;
    struct topo_times times;
};

/* In the order in which they are shown. */
enum { TOPO_NUM_SETS = 5 };
extern const enum weft__channels_id topo_set_order[TOPO_NUM_SETS];

/* Those that there are; NULL: none. */
const struct weft__channels *topo_view_set(const struct topo_view *view, enum weft__channels_id id);

/* Whether somebody asks for times, and there are rings to have them of. */
int topo_view_has_times(const struct topo_view *view);
/* Why somebody asks in vain; NULL: nobody does. */
const char *topo_view_why_no_times(const struct topo_view *view);

const char *topo_set_name(enum weft__channels_id id);
/* Bus ids as files have them. */
void topo_bus_id_text(uint64_t id, char text[32]);
/* "GPU 3", "CPU 0", "NIC 0000:3b:00.0", "net mlx5_0" and the like. */
void topo_node_text(const struct topo_view *view, const struct weft__topo_node *node,
                    char text[64]);
struct weft__topo_node *topo_gpu_of_rank(const struct weft__topo *topo, int32_t rank);

/* All print to standard output, and return 0, or -1 if that could not be written. */
int topo_print_text(const struct topo_view *view);
int topo_print_json(const struct topo_view *view);
/* 0, or -1 with the reason told. */
int topo_write_svg(const struct topo_view *view, const char *path);
