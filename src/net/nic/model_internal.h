/* SPDX-License-Identifier: MIT */
/* The model's files share this. A queue's counts, each 64 bits:
 *
 *     told <= done <= started <= announced <= told + depth
 *
 * Units from `done` on, at most NIC_WINDOW of them, have an entry: what was fetched of a unit,
 * and how far its request is. */
#pragma once

#include "net/nic/model.h"

enum {
    NIC_WINDOW = 32,
    NIC_SEGMENTS = WEFT__NIC_UNIT_BYTES / WEFT__NIC_SEGMENT_BYTES,
    NIC_PIECES = 16 /* of a request that are told apart at a time */
};

/* A WQE that was found legal. */
struct nic_command {
    struct weft__nic_control control;
    struct weft__nic_remote remote;
    struct weft__nic_data data;
    uint32_t inline_word; /* where the bytes begin, if they are inline */
    uint64_t addend;
};

enum nic_state { NIC_UNCHECKED, NIC_CHECKED, NIC_STARTED };

struct nic_entry {
    struct weft__nic_unit unit;
    uint32_t fetched; /* a bit for each segment */
    enum nic_state state;
    enum weft__nic_syndrome syndrome;
    uint32_t vendor_syndrome;
    struct nic_command command;
    /* Pieces from `first_piece` on have a bit. */
    uint32_t piece_bytes, num_pieces, first_piece;
    uint32_t sent, answered;
    uint64_t digests[NIC_PIECES]; /* of the source's bytes that were sent */
    int is_change_told;
    uint32_t num_read_again;
};

struct nic_cq {
    struct weft__nic_cq_config config;
    uint64_t num_produced;
    int is_open; /* collapsed, and the tail is not written yet */
};

struct nic_queue {
    struct weft__nic_queue_config config;
    uint64_t announced, started, done;
    uint64_t told;     /* how many are done, as far as CQEs say */
    uint64_t doorbell; /* the last one */
    int is_rung, is_awake, has_failed;
    uint64_t first_error;    /* index; nothing behind it starts or is sent */
    uint64_t refused_record; /* the word, or UINT64_MAX */
    uint32_t num_reads;
    /* The peer's request that was refused; `index` is of the peer's queue. */
    struct nic_refusal {
        uint64_t index;
        enum weft__nic_syndrome syndrome; /* WEFT__NIC_NO_SYNDROME: none was */
        uint32_t vendor_syndrome;
    } refusal;
    uint8_t *ends_ring; /* of each place: a record that was seen ends with it */
    struct nic_entry entries[NIC_WINDOW];
    /* The oldest write to each kind of memory that no READ has flushed, made by the peer. */
    uint64_t unflushed[WEFT__NIC_NUM_KINDS];
    struct {
        int is_open;
        uint64_t address, end; /* `end`: it tells that the units before are done */
        struct weft__nic_unit cqe;
    } completion;
};

struct weft__nic_model {
    struct weft__nic_model_config config;
    struct weft__nic_region *regions;
    struct nic_cq *cqs;
    struct nic_queue **queues;
    uint32_t num_regions, num_cqs, num_queues;
};

/* True if the queue has this trouble by now. */
static inline int nic_has_trouble(const struct weft__nic_model *model,
                                  const struct nic_queue *queue, enum weft__nic_trouble_kind kind)
{
    return model->config.trouble.kind == kind && queue->done >= model->config.trouble.first;
}

struct nic_queue *weft__nic_find_queue(const struct weft__nic_model *model, uint32_t qp);
void weft__nic_tell(const struct weft__nic_model *model, const struct nic_queue *queue,
                    struct weft__nic_finding finding);

static inline uint32_t nic_draw(const struct weft__nic_model *model, uint32_t bound)
{
    return model->config.host.draw(model->config.host.context, bound);
}

static inline void nic_load(const struct weft__nic_model *model, enum weft__nic_load what, void *to,
                            uint64_t from, uint32_t num_bytes)
{
    model->config.host.load(model->config.host.context, what, to, from, num_bytes);
}

static inline void nic_store(const struct weft__nic_model *model, enum weft__nic_store what,
                             uint64_t to, const void *from, uint32_t num_bytes)
{
    model->config.host.store(model->config.host.context, what, to, from, num_bytes);
}

static inline struct nic_entry *nic_entry_at(struct nic_queue *queue, uint64_t index)
{
    return &queue->entries[index % NIC_WINDOW];
}

static inline uint64_t nic_unit_address(const struct nic_queue *queue, uint64_t index)
{
    return queue->config.units + index % queue->config.depth * WEFT__NIC_UNIT_BYTES;
}

static inline int nic_is_opcode(uint32_t opcode)
{
    return opcode == WEFT__NIC_NOP || opcode == WEFT__NIC_WRITE ||
           opcode == WEFT__NIC_WRITE_IMMEDIATE || opcode == WEFT__NIC_READ ||
           opcode == WEFT__NIC_FETCH_ADD || opcode == WEFT__NIC_DUMP;
}

/* READs and atomics keep their order at the target, and few of them are under way. */
static inline int nic_is_ordered(const struct nic_entry *entry)
{
    return entry->command.control.opcode == WEFT__NIC_READ ||
           entry->command.control.opcode == WEFT__NIC_FETCH_ADD;
}

static inline uint32_t nic_all_pieces(const struct nic_entry *entry)
{
    const uint32_t left = entry->num_pieces - entry->first_piece;
    return ((uint32_t)1 << (left < NIC_PIECES ? left : NIC_PIECES)) - 1;
}

static inline int nic_has_more(const struct nic_entry *entry)
{
    return entry->num_pieces - entry->first_piece > NIC_PIECES;
}

static inline int nic_is_sent(const struct nic_entry *entry)
{
    return entry->state == NIC_STARTED && !nic_has_more(entry) &&
           entry->sent == nic_all_pieces(entry);
}

static inline int nic_is_answered(const struct nic_entry *entry)
{
    return entry->state == NIC_STARTED && !nic_has_more(entry) &&
           entry->answered == nic_all_pieces(entry);
}

/* Returns what is wrong with the unit, or WEFT__NIC_FINE with its command. */
struct weft__nic_finding weft__nic_check(const struct weft__nic_model *model,
                                         const struct nic_queue *queue, uint64_t index,
                                         const struct weft__nic_unit *unit,
                                         struct nic_command *command);

/* The actions. Each returns 0 if there is nothing for it to do. */
int weft__nic_wake(struct weft__nic_model *model, struct nic_queue *queue);
int weft__nic_fetch(struct weft__nic_model *model, struct nic_queue *queue);
int weft__nic_start(struct weft__nic_model *model, struct nic_queue *queue);
int weft__nic_send(struct weft__nic_model *model, struct nic_queue *queue);
int weft__nic_read_again(struct weft__nic_model *model, struct nic_queue *queue);
int weft__nic_complete(struct weft__nic_model *model, struct nic_queue *queue);
int weft__nic_end_completion(struct weft__nic_model *model, struct nic_queue *queue);
