/* SPDX-License-Identifier: MIT */
/* The network of a communicator that has several nodes: the heaps are its region 0, and its
 * peers are the ranks of other nodes. What fails here fails the communicator, and the other way
 * round. */
#pragma once

#include "comm/comm.h"
#include "net/devices.h"
#include "net/nic/adapter.h"
#include "net/progress.h"

/* Regions of a communicator's network. */
enum { WEFT__NET_HEAP_REGION = 0, WEFT__NET_PINNED_REGION = 1 };

/* comm->network. */
struct weft__network {
    struct weft__net *net; /* the progress thread's once there is one */
    struct weft__progress *progress;
    struct weft__work_queue *device_queue; /* NULL: none */
    struct weft__nic_adapter *nic;         /* programs post to it; NULL: to the queues above */
    const char *engine;
    int has_writes;           /* the engine, on any rank: so all tell of their memory */
    uint32_t num_steps;       /* of region 0 that the engine or the NIC knows, as on all ranks */
    uint64_t heap_bytes;      /* that are in them, or could not be */
    const char *gpu_obstacle; /* to the registration of GPUs' memory; NULL: none */
    char devices[WEFT__NET_DEVICES_BYTES];
    char transport[WEFT__NET_TRANSPORT_BYTES];
    double round_trip_us;                /* to another node; 0: not known, as the next */
    double port_gbps;                    /* of this host's ports that are used */
    char reason[WEFT__NET_REASON_BYTES]; /* why this engine */
};

/* The memory of this rank that the network reaches where the net cannot access the heap itself. */
struct weft__net_memory {
    const struct weft__net_accessor *heap; /* copied */
    char *pinned;                          /* the region beside it, of the host */
    uint64_t max_pinned_bytes;
    const _Atomic uint64_t *num_pinned_bytes; /* so many are there */
    struct weft__work_queue *device_queue;    /* as struct weft__progress_options */
    uint32_t num_device_slots;
};

/* Collective, when the heap is up; fills comm->network, unless there is one node only. The
 * settings choose the engine; by default UCX uses the interface towards the rendezvous, and RDMA
 * devices. */
weft_result weft__net_attach(weft_comm *comm);
/* The same of a device's memory. */
weft_result weft__net_attach_memory(weft_comm *comm, const struct weft__net_memory *memory);
/* The reverse. Ranks that leave are no failure, in whatever order they do. */
void weft__net_detach(weft_comm *comm);

/* Until what this rank has posted has come, unless something fails first. Without a network
 * there is nothing. */
void weft__net_drain(weft_comm *comm);

/* Memory of this rank to which others put and it puts from, and which does not grow. */
struct weft__net_part {
    void *memory; /* NULL: this rank has none */
    uint64_t num_bytes;
    enum weft__net_memory_kind kind;
};
/* Collective, with the same kind and bytes, in a communicator that has a network: makes it a
 * region, `place` of which, for puts, is the same on all ranks. UNSUPPORTED on all ranks, with
 * the reason as the last error, if one has none, or the network does not take it; then nothing
 * has changed, *place neither. */
weft_result weft__net_add_region(weft_comm *comm, const struct weft__net_part *part,
                                 uint64_t *place);
/* The same of memory of the host that is in another region already, at *place: if the network
 * does not take it, it stays there. */
weft_result weft__net_add_staging(weft_comm *comm, void *memory, uint64_t num_bytes,
                                  uint64_t *place);
/* Collective: makes what the heap, memory of the host, has more than at the last call a step of
 * region 0, for writes by the engine and the NIC. If a rank cannot register it, all log why, and
 * there it goes in messages, as without; but a NIC has none, and all fail. */
weft_result weft__net_add_step(weft_comm *comm);
/* This rank's part of the reverse, when nobody puts there any more. Nothing if it is no
 * region's. */
void weft__net_remove_region(weft_comm *comm, const void *memory);
/* As weft_net_query; *info is zero. */
weft_result weft__net_describe(const weft_comm *comm, weft_net_info *info);
