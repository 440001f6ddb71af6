/* SPDX-License-Identifier: MIT */
/* Completions: in the order of a queue's requests, the last word after all others. */
#include "net/nic/model_internal.h"

static struct nic_cq *cq_of(const struct weft__nic_model *model, const struct nic_queue *queue)
{
    return &model->cqs[queue->config.cq_idx];
}

static void check_overrun(const struct weft__nic_model *model, const struct nic_queue *queue,
                          const struct nic_cq *cq)
{
    enum { COUNT_MASK = 0xffffff };
    uint32_t word;
    if (cq->config.kind == WEFT__NIC_CQ_COLLAPSED || cq->config.record == 0)
        return;
    nic_load(model, WEFT__NIC_LOAD_RECORD, &word, cq->config.record, sizeof word);
    const uint32_t num_taken = weft__nic_be32(word) & COUNT_MASK;
    const uint32_t num_used = ((uint32_t)(cq->num_produced & COUNT_MASK) - num_taken) & COUNT_MASK;
    if (num_used >= cq->config.num_entries)
        weft__nic_tell(model, queue,
                       (struct weft__nic_finding){.rule = WEFT__NIC_RULE_CQ_OVERRUN,
                                                  .index = queue->done,
                                                  .value = num_used + (uint64_t)1,
                                                  .allowed = cq->config.num_entries});
}

/* Two queues share a collapsed entry one after the other. */
static int can_open(const struct weft__nic_model *model, const struct nic_queue *queue)
{
    return !queue->completion.is_open && !cq_of(model, queue)->is_open;
}

static void store_body(const struct weft__nic_model *model, struct nic_queue *queue)
{
    nic_store(model, WEFT__NIC_STORE_CQE, queue->completion.address, &queue->completion.cqe,
              WEFT__NIC_CQE_TAIL_WORD * sizeof(uint32_t));
}

static void store_tail(const struct weft__nic_model *model, struct nic_queue *queue)
{
    nic_store(model, WEFT__NIC_STORE_TAIL,
              queue->completion.address + WEFT__NIC_CQE_TAIL_WORD * sizeof(uint32_t),
              queue->completion.cqe.words + WEFT__NIC_CQE_TAIL_WORD, sizeof(uint32_t));
    queue->told = queue->completion.end;
}

static struct weft__nic_tail tail_of(const struct weft__nic_model *model,
                                     const struct nic_queue *queue, const struct nic_cq *cq,
                                     enum weft__nic_cqe_opcode opcode)
{
    const enum weft__nic_fault fault = model->config.fault;
    struct weft__nic_tail tail = {.counter = (uint32_t)(queue->done & 0xffff), .opcode = opcode};
    tail.owner = (uint32_t)(cq->num_produced / cq->config.num_entries % 2);
    if (cq->config.kind == WEFT__NIC_CQ_COLLAPSED) /* nobody may rely on it */
        tail.owner = nic_draw(model, 2);
    if (fault == WEFT__NIC_FAULT_OWNER)
        tail.owner = 0;
    if (fault == WEFT__NIC_FAULT_COUNTER)
        tail.counter = (tail.counter + 1) & 0xffff;
    if (fault == WEFT__NIC_FAULT_FORGETS_SYNDROME)
        tail.opcode = WEFT__NIC_CQE_REQUEST;
    return tail;
}

static void open_completion(struct weft__nic_model *model, struct nic_queue *queue,
                            struct weft__nic_cqe cqe)
{
    struct nic_cq *cq = cq_of(model, queue);
    const enum weft__nic_cqe_opcode opcode =
        cqe.syndrome == 0 ? WEFT__NIC_CQE_REQUEST : WEFT__NIC_CQE_REQUEST_ERROR;
    const struct weft__nic_tail tail = tail_of(model, queue, cq, opcode);
    const uint64_t at =
        cq->config.kind == WEFT__NIC_CQ_COLLAPSED ? 0 : cq->num_produced % cq->config.num_entries;
    check_overrun(model, queue, cq);
    cqe.user_index = queue->config.user_index;
    cqe.qp = queue->config.qp;
    weft__nic_encode_cqe(&cqe, &queue->completion.cqe);
    queue->completion.cqe.words[WEFT__NIC_CQE_TAIL_WORD] = weft__nic_encode_tail(&tail);
    queue->completion.address = cq->config.entries + at * WEFT__NIC_UNIT_BYTES;
    queue->completion.end = queue->done + 1;
    queue->completion.is_open = 1;
    cq->is_open = cq->config.kind == WEFT__NIC_CQ_COLLAPSED;
    cq->num_produced++;
    (model->config.fault == WEFT__NIC_FAULT_TAIL_FIRST ? store_tail : store_body)(model, queue);
}

int weft__nic_end_completion(struct weft__nic_model *model, struct nic_queue *queue)
{
    if (!queue->completion.is_open)
        return 0;
    (model->config.fault == WEFT__NIC_FAULT_TAIL_FIRST ? store_body : store_tail)(model, queue);
    queue->completion.is_open = 0;
    cq_of(model, queue)->is_open = 0;
    return 1;
}

/* Who writes a slot before its completion is told, although the copy was good. */
static void compare_unit(struct weft__nic_model *model, const struct nic_queue *queue,
                         const struct nic_entry *entry)
{
    struct weft__nic_unit now;
    const uint32_t num_segments = entry->command.control.num_segments;
    nic_load(model, WEFT__NIC_LOAD_UNIT, &now, nic_unit_address(queue, queue->done),
             num_segments * WEFT__NIC_SEGMENT_BYTES);
    for (uint32_t i = 0; i < num_segments; i++) {
        const uint32_t at = i * WEFT__NIC_SEGMENT_WORDS;
        if (memcmp(now.words + at, entry->unit.words + at, WEFT__NIC_SEGMENT_BYTES) == 0)
            continue;
        weft__nic_tell(model, queue,
                       (struct weft__nic_finding){
                           .rule = WEFT__NIC_RULE_UNIT_CHANGED, .index = queue->done, .value = i});
        return;
    }
}

/* All behind a failed request, whether they asked for completions or not. */
static int flush(struct weft__nic_model *model, struct nic_queue *queue)
{
    uint32_t words[WEFT__NIC_SEGMENT_WORDS];
    if (queue->done == queue->announced || model->config.fault == WEFT__NIC_FAULT_FORGETS_FLUSH)
        return 0;
    nic_load(model, WEFT__NIC_LOAD_UNIT, words, nic_unit_address(queue, queue->done), sizeof words);
    open_completion(model, queue,
                    (struct weft__nic_cqe){.syndrome = WEFT__NIC_FLUSHED,
                                           .request_opcode = weft__nic_be32(words[0]) & 0xff});
    queue->done++;
    return 1;
}

static int is_complete(const struct weft__nic_model *model, const struct nic_queue *queue,
                       const struct nic_entry *entry)
{
    return queue->done < queue->started &&
           (nic_is_answered(entry) || model->config.fault == WEFT__NIC_FAULT_COMPLETES_EARLY);
}

/* A request that is done otherwise. */
static void make_fail(const struct weft__nic_model *model, const struct nic_queue *queue,
                      struct nic_entry *entry)
{
    enum { VENDOR_SYNDROME = 0x81 };
    if (entry->syndrome != WEFT__NIC_NO_SYNDROME ||
        !nic_has_trouble(model, queue, WEFT__NIC_TROUBLE_FAILS))
        return;
    entry->syndrome = model->config.trouble.syndrome;
    entry->vendor_syndrome = VENDOR_SYNDROME;
}

int weft__nic_complete(struct weft__nic_model *model, struct nic_queue *queue)
{
    enum { LATE_DRAWS = 4096 };
    struct nic_entry *entry = nic_entry_at(queue, queue->done);
    const struct weft__nic_control *control = &entry->command.control;
    if (!can_open(model, queue))
        return 0;
    if (queue->has_failed)
        return flush(model, queue);
    if (entry->syndrome == WEFT__NIC_NO_SYNDROME && !is_complete(model, queue, entry))
        return 0;
    if (nic_has_trouble(model, queue, WEFT__NIC_TROUBLE_IS_SILENT))
        return 0;
    if (nic_has_trouble(model, queue, WEFT__NIC_TROUBLE_IS_LATE) &&
        nic_draw(model, LATE_DRAWS) != 0)
        return 1;
    make_fail(model, queue, entry);
    if (entry->syndrome == WEFT__NIC_NO_SYNDROME)
        compare_unit(model, queue, entry);
    queue->has_failed = entry->syndrome != WEFT__NIC_NO_SYNDROME;
    if (queue->has_failed || control->completion == WEFT__NIC_ALWAYS ||
        model->config.fault == WEFT__NIC_FAULT_ALWAYS_COMPLETES)
        open_completion(model, queue,
                        (struct weft__nic_cqe){.num_bytes = entry->command.data.num_bytes,
                                               .request_opcode = control->opcode,
                                               .syndrome = entry->syndrome,
                                               .vendor_syndrome = entry->vendor_syndrome});
    memset(entry, 0, sizeof *entry);
    queue->done++;
    return 1;
}
