/* SPDX-License-Identifier: MIT */
#include "net/nic/model.h"

#include <stdlib.h>

#include "comm/host/error.h"
#include "net/nic/model_internal.h"

weft_result weft__nic_model_create(const struct weft__nic_model_config *config,
                                   struct weft__nic_model **model)
{
    struct weft__nic_model *made = calloc(1, sizeof *made);
    if (made == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a model of a NIC");
    made->config = *config;
    *model = made;
    return WEFT_OK;
}

void weft__nic_model_destroy(struct weft__nic_model *model)
{
    if (model == NULL)
        return;
    for (uint32_t i = 0; i < model->num_queues; i++) {
        free(model->queues[i]->ends_ring);
        free(model->queues[i]);
    }
    free(model->queues);
    free(model->cqs);
    free(model->regions);
    free(model);
}

/* Returns the array with room for one element more. */
static void *grow(void *array, uint32_t num_elements, size_t element_bytes)
{
    void *longer = realloc(array, (num_elements + 1) * element_bytes);
    if (longer == NULL)
        (void)weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for an object of a model of a NIC");
    return longer;
}

weft_result weft__nic_model_add_region(struct weft__nic_model *model,
                                       const struct weft__nic_region *region)
{
    for (uint32_t i = 0; i < model->num_regions; i++)
        if (model->regions[i].local_key == region->local_key ||
            model->regions[i].remote_key == region->remote_key)
            return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "keys 0x%x and 0x%x: one is in use",
                               region->local_key, region->remote_key);
    if (region->kind >= WEFT__NIC_NUM_KINDS)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "kind of memory is %u, not 0..%d",
                           region->kind, WEFT__NIC_NUM_KINDS - 1);
    struct weft__nic_region *longer = grow(model->regions, model->num_regions, sizeof *longer);
    if (longer == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    model->regions = longer;
    longer[model->num_regions++] = *region;
    return WEFT_OK;
}

void weft__nic_model_remove_region(struct weft__nic_model *model, uint32_t local_key)
{
    for (uint32_t i = 0; i < model->num_regions; i++)
        if (model->regions[i].local_key == local_key)
            model->regions[i] = model->regions[--model->num_regions];
}

static int is_power_of_two(uint32_t number)
{
    return number != 0 && (number & (number - 1)) == 0;
}

/* A ring's entries must be invalid; libmlx5 leaves the other bits 0. Readers of a collapsed queue
 * take its counter for the last request that is done, so that it has to be 0xffff. */
static void check_first_cqe(const struct weft__nic_model *model,
                            const struct weft__nic_cq_config *config, uint32_t entry_idx)
{
    struct weft__nic_unit entry;
    nic_load(model, WEFT__NIC_LOAD_UNIT, &entry,
             config->entries + (uint64_t)entry_idx * WEFT__NIC_UNIT_BYTES, sizeof entry);
    const uint32_t word = entry.words[WEFT__NIC_CQE_TAIL_WORD];
    const int is_valid = config->kind == WEFT__NIC_CQ_COLLAPSED
                             ? word != UINT32_MAX
                             : weft__nic_decode_tail(word).opcode != WEFT__NIC_CQE_INVALID;
    if (is_valid)
        weft__nic_tell(model, NULL,
                       (struct weft__nic_finding){.rule = WEFT__NIC_RULE_FIRST_CQE,
                                                  .index = entry_idx,
                                                  .value = weft__nic_be32(word),
                                                  .allowed = UINT32_MAX});
}

weft_result weft__nic_model_add_cq(struct weft__nic_model *model,
                                   const struct weft__nic_cq_config *config, uint32_t *cq_idx)
{
    if (!is_power_of_two(config->num_entries))
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "num_entries is %u, not a power of two",
                           config->num_entries);
    struct nic_cq *longer = grow(model->cqs, model->num_cqs, sizeof *longer);
    if (longer == NULL)
        return WEFT_ERROR_OUT_OF_MEMORY;
    model->cqs = longer;
    *cq_idx = model->num_cqs++;
    longer[*cq_idx] = (struct nic_cq){.config = *config};
    for (uint32_t i = 0; i < config->num_entries; i++)
        check_first_cqe(model, config, i);
    return WEFT_OK;
}

static weft_result check_queue(const struct weft__nic_model *model,
                               const struct weft__nic_queue_config *config)
{
    if (!is_power_of_two(config->depth) || config->depth > WEFT__NIC_MAX_DEPTH)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "depth is %u, not a power of two up to %d",
                           config->depth, WEFT__NIC_MAX_DEPTH);
    if (config->units % WEFT__NIC_UNIT_BYTES != 0 || config->record % (2 * sizeof(uint32_t)) != 0)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "units are at 0x%llx, record at 0x%llx: not multiples of 64 and 8",
                           (unsigned long long)config->units, (unsigned long long)config->record);
    if (config->cq_idx >= model->num_cqs)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "cq_idx is %u of %u", config->cq_idx,
                           model->num_cqs);
    if (config->qp > WEFT__NIC_MAX_QP || weft__nic_find_queue(model, config->qp) != NULL)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "qp is 0x%x: in use, or above 0x%x",
                           config->qp, WEFT__NIC_MAX_QP);
    return WEFT_OK;
}

/* The words of receives and of sends. */
static void check_first_record(const struct weft__nic_model *model, const struct nic_queue *queue)
{
    uint32_t words[2];
    nic_load(model, WEFT__NIC_LOAD_RECORD, words, queue->config.record, sizeof *words);
    nic_load(model, WEFT__NIC_LOAD_RECORD, words + 1, queue->config.record + sizeof *words,
             sizeof *words);
    for (int i = 0; i < 2; i++) {
        const uint32_t allowed =
            i == WEFT__NIC_RECORD_SEND_WORD ? (uint32_t)(queue->config.first & 0xffff) : 0;
        if (weft__nic_be32(words[i]) != allowed)
            weft__nic_tell(model, queue,
                           (struct weft__nic_finding){.rule = WEFT__NIC_RULE_FIRST_RECORD,
                                                      .value = weft__nic_be32(words[i]),
                                                      .allowed = allowed});
    }
}

weft_result weft__nic_model_add_queue(struct weft__nic_model *model,
                                      const struct weft__nic_queue_config *config)
{
    WEFT__TRY(check_queue(model, config));
    struct nic_queue *queue = calloc(1, sizeof *queue);
    uint8_t *ends_ring = calloc(config->depth, sizeof *ends_ring);
    struct nic_queue **longer = NULL;
    if (queue != NULL && ends_ring != NULL)
        longer = grow(model->queues, model->num_queues, sizeof *longer);
    if (longer == NULL) {
        free(ends_ring);
        free(queue);
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a queue of %u units",
                           config->depth);
    }
    queue->config = *config;
    queue->ends_ring = ends_ring;
    queue->announced = queue->started = queue->done = queue->told = config->first;
    queue->first_error = queue->refused_record = UINT64_MAX;
    for (int kind = 0; kind < WEFT__NIC_NUM_KINDS; kind++)
        queue->unflushed[kind] = UINT64_MAX;
    model->queues = longer;
    longer[model->num_queues++] = queue;
    check_first_record(model, queue);
    return WEFT_OK;
}

struct nic_queue *weft__nic_find_queue(const struct weft__nic_model *model, uint32_t qp)
{
    for (uint32_t i = 0; i < model->num_queues; i++)
        if (model->queues[i]->config.qp == qp)
            return model->queues[i];
    return NULL;
}

void weft__nic_tell(const struct weft__nic_model *model, const struct nic_queue *queue,
                    struct weft__nic_finding finding)
{
    if (queue != NULL)
        finding.qp = queue->config.qp;
    model->config.host.tell(model->config.host.context, &finding);
}

int weft__nic_model_step(struct weft__nic_model *model)
{
    typedef int action(struct weft__nic_model *, struct nic_queue *);
    static action *const actions[] = {
        weft__nic_wake,       weft__nic_fetch,    weft__nic_start,         weft__nic_send,
        weft__nic_read_again, weft__nic_complete, weft__nic_end_completion};
    enum { NUM_ACTIONS = sizeof actions / sizeof *actions };
    const uint32_t first_queue = model->num_queues > 0 ? nic_draw(model, model->num_queues) : 0;
    const uint32_t first_action = nic_draw(model, NUM_ACTIONS);
    for (uint32_t i = 0; i < model->num_queues; i++) {
        struct nic_queue *queue = model->queues[(first_queue + i) % model->num_queues];
        if (nic_has_trouble(model, queue, WEFT__NIC_TROUBLE_STANDS_STILL))
            continue;
        for (uint32_t k = 0; k < NUM_ACTIONS; k++)
            if (actions[(first_action + k) % NUM_ACTIONS](model, queue))
                return 1;
    }
    return 0;
}
