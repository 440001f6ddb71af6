/* SPDX-License-Identifier: MIT */
/* The findings of weft topo, and the ways to show them. */
#pragma once

#include "topo/paths.h"
#include "topo/search.h"

struct topo_view {
    char name[320]; /* the file; "this machine"; of a job, of which host */
    struct xml *system;
    struct topo *topo;
    int32_t num_alike; /* nodes that are such a machine */
    int32_t num_nodes; /* all that there are */
    struct channel_sets sets;
};

/* Machines with a network between: nodes follow each other as the machines do. */
struct topo_job {
    int32_t num_machines;
    struct topo_view *machines;
};

/* In the order in which they are shown. */
enum { TOPO_NUM_SETS = 3 };
extern const enum channels_id topo_set_order[TOPO_NUM_SETS];

/* Those that there are; NULL: none. */
const struct channels *topo_view_set(const struct topo_view *view, enum channels_id id);

enum topo_end { TOPO_COMES, TOPO_GOES };
/* The index of the port by which a channel comes from the network or goes to it; -1: none. */
int32_t topo_port_of(const struct topo_view *view, const struct channels *channels, int32_t c,
                     enum topo_end end);

int topo_channels_are_same(const struct channels *channels, int32_t a, int32_t b);
const char *topo_set_name(enum channels_id id);
/* Bus ids as files have them. */
void topo_bus_id_text(uint64_t id, char text[32]);
/* Tells if a link goes down in the tree of a processor, where `from` is above the link's node. */
int topo_is_below(const struct topo_link *link, const struct topo_node *from);
/* "GPU 3", "CPU 0", "NIC 0000:3b:00.0", "net mlx5_0" and the like. */
void topo_node_text(const struct topo_node *node, char text[64]);

/* All print to standard output, and return 0, or -1 if that could not be written. */
int topo_print_text(const struct topo_job *job);
int topo_print_json(const struct topo_job *job);
/* 0, or -1 with the reason told. */
int topo_write_svg(const struct topo_view *view, const char *path);
