/* SPDX-License-Identifier: MIT */
/* A machine as a graph: what is in it, and the links between, with their bandwidths. The order of
 * nodes and links is that of the file, and decides between paths and channels that are equally
 * good. */
#pragma once

#include <stdint.h>

#include "topo/constants.h"
#include "topo/xml.h"
#include "weft.h"

enum { TOPO_MAX_NODES = 256 }; /* of a kind */

enum topo_kind {
    TOPO_GPU,
    TOPO_PCI, /* a switch */
    TOPO_NVS, /* all NVSwitches together: one */
    TOPO_CPU, /* a NUMA node */
    TOPO_NIC, /* the device */
    TOPO_NET, /* a port of it */
    TOPO_NUM_KINDS
};

/* The type of a link, and the worst of a path; from near to far. */
enum topo_type {
    TOPO_LOC,    /* the device itself */
    TOPO_NVL,    /* NVLink */
    TOPO_NVB,    /* NVLink by way of another GPU */
    TOPO_C2C,    /* the link of a GPU to the processor it is built with */
    TOPO_PIX,    /* PCI, a switch at most; as a link: PCI */
    TOPO_PXB,    /* several PCI switches */
    TOPO_P2C,    /* C2C to the processor, then PCI to a NIC */
    TOPO_PXN,    /* NVLink to another GPU, then PCI to a NIC near that */
    TOPO_PHB,    /* PCI and a processor */
    TOPO_SYS,    /* from processor to processor */
    TOPO_REMOTE, /* the network; NCCL calls it NET */
    TOPO_DIS,    /* none */
    TOPO_NUM_TYPES
};

struct topo_node;

struct topo_link {
    struct topo_node *to;
    enum topo_type type;
    float bw; /* a search takes of it, and gives back */
};

/* From a node to another. */
struct topo_path {
    struct topo_link **links;
    int32_t num_links;
    float bw; /* of the slowest link */
    enum topo_type type;
};

struct topo_gpu {
    int32_t dev, rank, sm, has_gdr;
    int32_t *nets; /* its local ports, in the order in which channels take them */
    int32_t num_nets;
};

struct topo_net {
    int32_t dev, port, has_gdr, has_collectives, rail, plane;
    uint64_t guid;
    float bw, latency;
    int32_t local_gpu; /* the index of the GPU that uses it first; -1: none */
};

struct topo_node {
    enum topo_kind kind;
    int32_t index; /* among its kind */
    int32_t host;  /* whose it is */
    uint64_t id;   /* a bus id, a device's or NUMA node's number */
    union {
        struct topo_gpu gpu;
        struct topo_net net;
        struct topo_cpu cpu;
        uint64_t pci_device; /* vendor, device and both of the subsystem, 16 bits each */
    };
    const struct xml *origin; /* where messages say it is; valid while the graph is built */
    struct topo_link *links;
    int32_t num_links;
    struct topo_path *paths[TOPO_NUM_KINDS]; /* to each node of a kind; NULL: not asked */
};

struct topo_set {
    struct topo_node **nodes;
    int32_t count;
};

struct topo {
    const struct topo_constants *constants;
    struct topo_set sets[TOPO_NUM_KINDS];
    uint64_t *host_hashes;
    int32_t num_hosts;
};

const char *topo_kind_name(enum topo_kind kind);
const char *topo_type_name(enum topo_type type);

/* There is one. */
struct topo_node *topo_gpu_of_rank(const struct topo *topo, int32_t rank);

/* Builds the graph that a file describes, without paths. */
weft_result topo_build(const struct xml *system, const struct topo_constants *constants,
                       struct topo **topo);
/* NULL is allowed. */
void topo_free(struct topo *topo);

/* ------------------------------------------------------------------ for those that build */

weft_result topo_add_node(struct topo *topo, const struct topo_node *values,
                          struct topo_node **node);
/* NULL: there is none. */
struct topo_node *topo_find(const struct topo *topo, enum topo_kind kind, int32_t host,
                            uint64_t id);
/* With all links to it, and all paths of the graph. */
void topo_remove_node(struct topo *topo, struct topo_node *node);
/* One way. Links of the same type between the same two add up; fast ones come first. */
weft_result topo_connect(struct topo_node *from, const struct topo_link *link);
void topo_cut(struct topo_node *from, int32_t link_idx);
void topo_free_paths(struct topo *topo);
/* Both ways. */
weft_result topo_connect_both(struct topo_node *a, struct topo_node *b, enum topo_type type,
                              float bw);
/* The link of the same type back to `node`, which `link` leaves. NULL: there is none. */
struct topo_link *topo_reverse_of(const struct topo_node *node, const struct topo_link *link);

static inline struct topo_node *topo_at(const struct topo *topo, enum topo_kind kind, int32_t index)
{
    return topo->sets[kind].nodes[index];
}
static inline int32_t topo_count(const struct topo *topo, enum topo_kind kind)
{
    return topo->sets[kind].count;
}
