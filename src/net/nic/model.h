/* SPDX-License-Identifier: MIT */
/*
 * A model of an mlx5 NIC: there is no NIC where weft is developed. What drives it gives it
 * doorbells, and memory by loads and stores; the model gives back completions, and
 * packets to other models.
 *
 * It does what hardware may do, drawn step by step: it hears doorbells late, sees a record newer
 * than the doorbell, fetches units ahead and in pieces, reads sources late and twice, sends
 * pieces in any order, and goes on while READs and atomics are under way. It checks every field,
 * and tells each finding (model_rules.h); it never ends the process.
 *
 * Not thread-safe: one thread steps a model, rings it and brings it answers.
 */
#pragma once

#include "net/nic/model_rules.h"
#include "net/nic/wqe.h"
#include "weft.h"

enum { WEFT__NIC_PIECE_BYTES = 256, WEFT__NIC_MAX_READS = 16, WEFT__NIC_NUM_KINDS = 4 };

/* ---------------------------------------------------------------- below it: memory and draws */

enum weft__nic_load {
    WEFT__NIC_LOAD_RECORD, /* 4 bytes; acquires what its store has released */
    WEFT__NIC_LOAD_UNIT,   /* a segment of 16 bytes, or several */
    WEFT__NIC_LOAD_SOURCE  /* of a write; or what a READ of another rank brings there */
};

enum weft__nic_store {
    WEFT__NIC_STORE_TARGET,
    WEFT__NIC_STORE_CQE, /* all but the last word */
    WEFT__NIC_STORE_TAIL /* the last word, 4 bytes; releases the target's bytes and the CQE's */
};

struct weft__nic_host {
    void *context;
    void (*load)(void *context, enum weft__nic_load what, void *to, uint64_t from,
                 uint32_t num_bytes);
    void (*store)(void *context, enum weft__nic_store what, uint64_t to, const void *from,
                  uint32_t num_bytes);
    /* Atomic, of 8 bytes in the order of the processor. Returns what was there. */
    uint64_t (*add)(void *context, uint64_t address, uint64_t addend);
    /* From 0 to bound - 1. */
    uint32_t (*draw)(void *context, uint32_t bound);
    void (*tell)(void *context, const struct weft__nic_finding *finding);
};

/* ---------------------------------------------------------------- beside it: the wire */

struct weft__nic_ticket {
    uint32_t qp, piece;
    uint64_t index;
};

/* A piece of a request. */
struct weft__nic_packet {
    struct weft__nic_ticket ticket;
    enum weft__nic_opcode opcode; /* WRITE, WRITE_IMMEDIATE, READ, FETCH_ADD */
    uint32_t target_qp, remote_key;
    uint64_t address;                          /* of the whole request, as are: */
    uint32_t request_bytes, offset, num_bytes; /* of the piece, as the offset in the request is */
    uint64_t addend;
    uint8_t bytes[WEFT__NIC_PIECE_BYTES]; /* of a write */
};

struct weft__nic_answer {
    struct weft__nic_ticket ticket;
    enum weft__nic_syndrome syndrome;
    uint32_t vendor_syndrome; /* the rule that was broken, or 0 */
    uint32_t num_bytes;       /* of a READ and a FETCH_ADD */
    uint8_t bytes[WEFT__NIC_PIECE_BYTES];
};

struct weft__nic_model;

struct weft__nic_wire {
    void *context;
    /* Brings a packet to `peer`. A READ or a FETCH_ADD takes place after all packets that were sent
     * before it on its QP; writes take place in any order. Each packet is answered once, by
     * weft__nic_model_answer, now or later: with WEFT__NIC_RETRIES if the peer is dead. */
    void (*send)(void *context, struct weft__nic_model *from, uint32_t peer,
                 const struct weft__nic_packet *packet);
};

/* ---------------------------------------------------------------- what software has made */

enum weft__nic_right {
    WEFT__NIC_LOCAL_WRITE = 1,
    WEFT__NIC_REMOTE_WRITE = 2,
    WEFT__NIC_REMOTE_READ = 4,
    WEFT__NIC_REMOTE_ATOMIC = 8
};

struct weft__nic_region {
    uint64_t address, num_bytes;
    uint32_t local_key, remote_key;
    uint32_t rights; /* enum weft__nic_right */
    /* Memory that the NIC reaches on a way of its own, as that of a GPU. No order holds between
     * two kinds. Less than WEFT__NIC_NUM_KINDS. */
    uint32_t kind;
};

enum weft__nic_cq_kind {
    WEFT__NIC_CQ_RING,
    WEFT__NIC_CQ_COLLAPSED /* each CQE goes to entry 0; the owner bit means nothing */
};

struct weft__nic_cq_config {
    enum weft__nic_cq_kind kind;
    uint64_t entries;     /* address; 0xff everywhere */
    uint32_t num_entries; /* a power of two */
    uint64_t record;      /* address of the consumer's count; 0: nothing is said of overruns */
};

enum weft__nic_last {
    WEFT__NIC_LAST_IS_SIGNALLED, /* weft: what a record announces ends with a signalled WQE */
    WEFT__NIC_LAST_MAY_BE_SILENT
};

struct weft__nic_queue_config {
    uint32_t qp, user_index;
    uint32_t cq_idx;
    uint32_t peer, peer_qp; /* `peer` as the wire knows it */
    uint64_t units;         /* address, aligned to 64 */
    uint32_t depth;         /* a power of two, up to WEFT__NIC_MAX_DEPTH */
    uint64_t record;        /* address of the doorbell record, aligned to 8 */
    uint64_t first;         /* index; 0 in hardware. The record holds its low bits */
    enum weft__nic_last last;
};

/* Until when a request's bytes must stay as they are. A retry reads them again, but a target drops
 * bytes that it has. So a sender may go by the target's word that they came: it need not wait for
 * the completion. */
enum weft__nic_source { WEFT__NIC_SOURCE_UNTIL_ANSWERED, WEFT__NIC_SOURCE_UNTIL_ARRIVED };

/* A model that breaks its promises: tests of drivers must see each. */
enum weft__nic_fault {
    WEFT__NIC_NO_FAULT,
    WEFT__NIC_FAULT_COMPLETES_EARLY,
    WEFT__NIC_FAULT_TAIL_FIRST,
    WEFT__NIC_FAULT_COUNTER,
    WEFT__NIC_FAULT_OWNER,
    WEFT__NIC_FAULT_ALWAYS_COMPLETES,
    WEFT__NIC_FAULT_FORGETS_SYNDROME,
    WEFT__NIC_FAULT_FORGETS_FLUSH,
    WEFT__NIC_FAULT_ADD_PASSES_WRITES,
    WEFT__NIC_FAULT_IGNORES_FENCE,
    WEFT__NIC_FAULT_ANY_NUMBER_OF_READS,
    WEFT__NIC_FAULT_DROPS_PIECE,
    WEFT__NIC_FAULT_ADDS_TWICE,
    WEFT__NIC_FAULT_DEAF,
    WEFT__NIC_NUM_FAULTS
};

/* This may happen to a NIC that keeps its promises, when a queue has done `first` units. */
struct weft__nic_trouble {
    enum weft__nic_trouble_kind {
        WEFT__NIC_NO_TROUBLE,
        WEFT__NIC_TROUBLE_FAILS,       /* with the syndrome */
        WEFT__NIC_TROUBLE_IS_LATE,     /* completes long after it is done */
        WEFT__NIC_TROUBLE_IS_SILENT,   /* completes nothing more */
        WEFT__NIC_TROUBLE_STANDS_STILL /* does nothing more; but it answers others */
    } kind;
    enum weft__nic_syndrome syndrome;
    uint64_t first;
};

struct weft__nic_model_config {
    struct weft__nic_host host;
    struct weft__nic_wire wire;
    enum weft__nic_source source;
    enum weft__nic_fault fault;
    struct weft__nic_trouble trouble;
};

/* Errors: WEFT_ERROR_OUT_OF_MEMORY; WEFT_ERROR_INVALID_ARGUMENT with what is wrong. */
weft_result weft__nic_model_create(const struct weft__nic_model_config *config,
                                   struct weft__nic_model **model);
void weft__nic_model_destroy(struct weft__nic_model *model); /* NULL is legal */
weft_result weft__nic_model_add_region(struct weft__nic_model *model,
                                       const struct weft__nic_region *region);
/* When no request names it any more. */
void weft__nic_model_remove_region(struct weft__nic_model *model, uint32_t local_key);
weft_result weft__nic_model_add_cq(struct weft__nic_model *model,
                                   const struct weft__nic_cq_config *config, uint32_t *cq_idx);
weft_result weft__nic_model_add_queue(struct weft__nic_model *model,
                                      const struct weft__nic_queue_config *config);

/* ---------------------------------------------------------------- running it */

/* A doorbell: the 8 bytes of a store to the register. */
void weft__nic_model_ring(struct weft__nic_model *model, uint64_t value);
/* One small action of one queue. Returns 0 if none is possible before a doorbell or an answer. */
int weft__nic_model_step(struct weft__nic_model *model);
/* A packet comes to the target. */
void weft__nic_model_respond(struct weft__nic_model *model, const struct weft__nic_packet *packet,
                             struct weft__nic_answer *answer);
/* The answer comes to the initiator. */
void weft__nic_model_answer(struct weft__nic_model *model, const struct weft__nic_answer *answer);
/* The peer is dead: what was sent there and is not answered has failed. */
void weft__nic_model_cut(struct weft__nic_model *model, uint32_t peer);
