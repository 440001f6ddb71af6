/* SPDX-License-Identifier: MIT */
/* A machine as a graph: what is in it, and the links between, with their bandwidths. The order of nodes and links is
 * that of the file, and decides between paths and channels that are equally good. */
#pragma once

#include <stdint.h>

#include "topo/constants.h"
#include "topo/xml.h"
#include "weft.h"

enum { WEFT__TOPO_MAX_NODES = 256 }; /* of a kind */

enum weft__topo_kind {
    WEFT__TOPO_GPU,
    WEFT__TOPO_PCI, /* a switch */
    WEFT__TOPO_NVS, /* all NVSwitches together: one */
    WEFT__TOPO_CPU, /* a NUMA node */
    WEFT__TOPO_NIC, /* the device */
    WEFT__TOPO_NET, /* a port of it */
    WEFT__TOPO_NUM_KINDS
};

/* Of a link, and the worst of a path; from near to far. */
enum weft__topo_type {
    WEFT__TOPO_LOC,    /* the device itself */
    WEFT__TOPO_NVL,    /* NVLink */
    WEFT__TOPO_NVB,    /* NVLink by way of another GPU */
    WEFT__TOPO_C2C,    /* the link of a GPU to the processor it is built with */
    WEFT__TOPO_PIX,    /* PCI, a switch at most; as a link: PCI */
    WEFT__TOPO_PXB,    /* several PCI switches */
    WEFT__TOPO_P2C,    /* C2C to the processor, then PCI to a NIC */
    WEFT__TOPO_PXN,    /* NVLink to another GPU, then PCI to a NIC near that */
    WEFT__TOPO_PHB,    /* PCI and a processor */
    WEFT__TOPO_SYS,    /* from processor to processor */
    WEFT__TOPO_REMOTE, /* the network; NCCL calls it NET */
    WEFT__TOPO_DIS,    /* none */
    WEFT__TOPO_NUM_TYPES
};

struct weft__topo_node;

struct weft__topo_link {
    struct weft__topo_node *to;
    enum weft__topo_type type;
    float bw; /* a search takes of it, and gives back */
};

/* From a node to another. */
struct weft__topo_path {
    struct weft__topo_link **links;
    int32_t num_links;
    float bw; /* of the slowest link */
    enum weft__topo_type type;
};

struct weft__topo_gpu {
    int32_t dev, rank, sm, has_gdr;
    int32_t *nets; /* its local ports, in the order in which channels take them */
    int32_t num_nets;
};

struct weft__topo_net {
    int32_t dev, port, has_gdr, has_collectives, rail, plane;
    uint64_t guid;
    float bw, latency;
    int32_t local_gpu; /* the index of the GPU that uses it first; -1: none */
};

struct weft__topo_node {
    enum weft__topo_kind kind;
    int32_t index; /* among its kind */
    int32_t host;  /* whose it is */
    uint64_t id;   /* a bus id, a device's or NUMA node's number */
    union {
        struct weft__topo_gpu gpu;
        struct weft__topo_net net;
        struct weft__topo_cpu cpu;
        uint64_t pci_device; /* vendor, device and both of the subsystem, 16 bits each */
    };
    const struct weft__xml *origin; /* where messages say it is; valid while the graph is built */
    struct weft__topo_link *links;
    int32_t num_links;
    struct weft__topo_path
        *paths[WEFT__TOPO_NUM_KINDS]; /* to each node of a kind; NULL: not asked */
};

struct weft__topo_set {
    struct weft__topo_node **nodes;
    int32_t count;
};

struct weft__topo {
    const struct weft__topo_constants *constants;
    struct weft__topo_set sets[WEFT__TOPO_NUM_KINDS];
    uint64_t *host_hashes;
    int32_t num_hosts;
};

const char *weft__topo_kind_name(enum weft__topo_kind kind);
const char *weft__topo_type_name(enum weft__topo_type type);
/* -1: no type has that name. */
int weft__topo_type_of(const char *name);

/* Builds the graph that a file describes, without paths. */
weft_result weft__topo_build(const struct weft__xml *system,
                             const struct weft__topo_constants *constants,
                             struct weft__topo **topo);
/* NULL is allowed. */
void weft__topo_free(struct weft__topo *topo);

/* ------------------------------------------------------------------ for those that build */

weft_result weft__topo_add_node(struct weft__topo *topo, const struct weft__topo_node *values,
                                struct weft__topo_node **node);
/* NULL: there is none. */
struct weft__topo_node *weft__topo_find(const struct weft__topo *topo, enum weft__topo_kind kind,
                                        int32_t host, uint64_t id);
/* With all links to it, and all paths of the graph. */
void weft__topo_remove_node(struct weft__topo *topo, struct weft__topo_node *node);
/* One way. Links of the same type between the same two add up; fast ones come first. */
weft_result weft__topo_connect(struct weft__topo_node *from, const struct weft__topo_link *link);
void weft__topo_cut(struct weft__topo_node *from, int32_t link_idx);
void weft__topo_free_paths(struct weft__topo *topo);
/* Both ways. */
weft_result weft__topo_connect_both(struct weft__topo_node *a, struct weft__topo_node *b,
                                    enum weft__topo_type type, float bw);
/* The link of the same type back to `node`, which `link` leaves. NULL: there is none. */
struct weft__topo_link *weft__topo_reverse_of(const struct weft__topo_node *node,
                                              const struct weft__topo_link *link);

static inline struct weft__topo_node *weft__topo_at(const struct weft__topo *topo,
                                                    enum weft__topo_kind kind, int32_t index)
{
    return topo->sets[kind].nodes[index];
}
static inline int32_t weft__topo_count(const struct weft__topo *topo, enum weft__topo_kind kind)
{
    return topo->sets[kind].count;
}
