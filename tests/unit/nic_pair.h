/* SPDX-License-Identifier: MIT */
/* Two models of a NIC with memory of their own, joined by a wire, and a small driver for each. All
 * is drawn from a seed. */
#pragma once

#include "net/nic/model.h"
#include "net/nic/model_cable.h"
#include "workload/rng.h"

enum {
    NIC_PAIR_MAX_DEPTH = 64,
    NIC_PAIR_QUEUES = 2,
    NIC_PAIR_MEMORY = 1 << 16,
    NIC_PAIR_KINDS = 2,
    NIC_PAIR_FIRST_QP = 0xabc00, /* then one for each queue of side 0, then of side 1 */
    NIC_PAIR_USER_INDEX = 0x700,
    /* Keys of the memory of kind 0; the other kinds' follow. */
    NIC_PAIR_LOCAL_KEY = 0x100,
    NIC_PAIR_REMOTE_KEY = 0x200,
    /* Those of the memory of kind 0, without any right. */
    NIC_PAIR_BARE_LOCAL_KEY = 0x180,
    NIC_PAIR_BARE_REMOTE_KEY = 0x280
};

struct nic_pair_config {
    uint64_t seed, first;
    uint32_t depth; /* also the length of the completion queues */
    enum weft__nic_fault fault;
    enum weft__nic_cq_kind cq_kind;
    enum weft__nic_last last;
    int num_cqs;         /* of a side: 1, which its queues share, or NIC_PAIR_QUEUES */
    uint32_t wire_delay; /* the wire moves once in so many steps; 0: as often as models do */
};

struct nic_side {
    _Alignas(64) uint8_t memory[NIC_PAIR_KINDS][NIC_PAIR_MEMORY];
    _Alignas(64) struct weft__nic_unit units[NIC_PAIR_QUEUES][NIC_PAIR_MAX_DEPTH];
    _Alignas(64) struct weft__nic_unit cqes[NIC_PAIR_QUEUES][NIC_PAIR_MAX_DEPTH];
    _Alignas(8) uint32_t records[NIC_PAIR_QUEUES][2], cq_records[NIC_PAIR_QUEUES][2];
    struct weft__nic_model *model;
    uint64_t num_posted[NIC_PAIR_QUEUES]; /* index of the next unit */
    uint64_t num_taken[NIC_PAIR_QUEUES];  /* of each CQ */
};

struct nic_pair {
    struct nic_pair_config config;
    struct rng rng;
    struct nic_side sides[2];
    struct weft__nic_cable cable;
    int num_stray; /* loads and stores of memory that the model has no business with */
    int findings[WEFT__NIC_NUM_RULES];
    struct weft__nic_finding last_finding;
    /* The test sees these, unless they are NULL. */
    void *context;
    void (*on_add)(void *context, uint64_t address);
    void (*on_store)(void *context, enum weft__nic_store what, uint64_t to, uint32_t num_bytes);
    void (*on_load)(void *context, enum weft__nic_load what, uint64_t from);
};

void nic_pair_open(struct nic_pair *pair, const struct nic_pair_config *config);
void nic_pair_close(struct nic_pair *pair);

/* The request has the pair's QP, index, and keys of kind 0. Offsets are in that memory of this side
 * and of the other one. */
struct weft__nic_request nic_pair_request(struct nic_pair *pair, int side, int queue,
                                          enum weft__nic_opcode opcode, uint32_t local_offset,
                                          uint32_t remote_offset, uint32_t num_bytes);
/* Writes the next unit; nobody hears of it. */
void nic_pair_write(struct nic_pair *pair, int side, int queue,
                    const struct weft__nic_request *request);
void nic_pair_store_record(struct nic_pair *pair, int side, int queue);
void nic_pair_ring(struct nic_pair *pair, int side, int queue); /* the record, then the doorbell */
struct weft__nic_unit *nic_pair_unit(struct nic_pair *pair, int side, int queue, uint64_t index);

/* One step of a model or of the wire. Returns 0 if all are idle. */
int nic_pair_step(struct nic_pair *pair);
void nic_pair_settle(struct nic_pair *pair); /* until all are idle */
/* Takes the next completion of a ring, and spoils its entry. Returns 0 if there is none. */
int nic_pair_poll(struct nic_pair *pair, int side, int cq, struct weft__nic_cqe *cqe,
                  struct weft__nic_tail *tail);
int nic_pair_num_findings(const struct nic_pair *pair);
