/* SPDX-License-Identifier: MIT */
/* The target's half of a request: its keys, its memory, and what its adds count. */
#include "net/nic/model_internal.h"

static uint32_t right_for(enum weft__nic_opcode opcode)
{
    switch (opcode) {
    case WEFT__NIC_READ:
        return WEFT__NIC_REMOTE_READ;
    case WEFT__NIC_FETCH_ADD:
        return WEFT__NIC_REMOTE_ATOMIC;
    default:
        return WEFT__NIC_REMOTE_WRITE;
    }
}

static const struct weft__nic_region *find_region(const struct weft__nic_model *model, uint32_t key)
{
    for (uint32_t i = 0; i < model->num_regions; i++)
        if (model->regions[i].remote_key == key)
            return &model->regions[i];
    return NULL;
}

static struct weft__nic_finding check(const struct weft__nic_region *region,
                                      const struct weft__nic_packet *packet)
{
    struct weft__nic_finding finding = {.rule = WEFT__NIC_FINE, .index = packet->ticket.index};
    const uint32_t right = right_for(packet->opcode);
    if (region == NULL) {
        finding.rule = WEFT__NIC_RULE_REMOTE_KEY;
        finding.value = packet->remote_key;
        return finding;
    }
    const uint64_t offset = packet->address - region->address;
    finding.value = packet->address;
    if (offset > region->num_bytes || packet->request_bytes > region->num_bytes - offset) {
        finding.rule = WEFT__NIC_RULE_REMOTE_RANGE;
        finding.allowed = region->address;
    } else if ((region->rights & right) == 0) {
        finding.rule = WEFT__NIC_RULE_REMOTE_RIGHTS;
        finding.value = right;
        finding.allowed = region->rights;
    } else if (packet->opcode == WEFT__NIC_FETCH_ADD &&
               packet->address % WEFT__NIC_ATOMIC_BYTES != 0) {
        finding.rule = WEFT__NIC_RULE_ALIGNMENT;
        finding.allowed = WEFT__NIC_ATOMIC_BYTES;
    } else if (packet->opcode == WEFT__NIC_WRITE_IMMEDIATE) {
        finding.rule = WEFT__NIC_RULE_RECEIVE;
        finding.value = packet->opcode;
    }
    return finding;
}

/* Writes to one kind of memory may be seen after an add to another kind, unless a READ between the
 * two has flushed them. */
static void check_kinds(const struct weft__nic_model *model, const struct nic_queue *queue,
                        const struct weft__nic_packet *packet, uint32_t kind)
{
    for (uint32_t other = 0; other < WEFT__NIC_NUM_KINDS; other++)
        if (other != kind && queue->unflushed[other] < packet->ticket.index)
            weft__nic_tell(model, queue,
                           (struct weft__nic_finding){.rule = WEFT__NIC_RULE_KINDS,
                                                      .index = packet->ticket.index,
                                                      .value = other,
                                                      .allowed = kind});
}

static void execute(struct weft__nic_model *model, struct nic_queue *queue,
                    const struct weft__nic_packet *packet, uint32_t kind,
                    struct weft__nic_answer *answer)
{
    const uint64_t address = packet->address + packet->offset;
    uint64_t before;
    switch (packet->opcode) {
    case WEFT__NIC_READ:
        nic_load(model, WEFT__NIC_LOAD_SOURCE, answer->bytes, address, packet->num_bytes);
        answer->num_bytes = packet->num_bytes;
        queue->unflushed[kind] = UINT64_MAX;
        break;
    case WEFT__NIC_FETCH_ADD:
        check_kinds(model, queue, packet, kind);
        before = model->config.host.add(model->config.host.context, address, packet->addend);
        memcpy(answer->bytes, &before, sizeof before);
        answer->num_bytes = sizeof before;
        break;
    default:
        nic_store(model, WEFT__NIC_STORE_TARGET, address, packet->bytes, packet->num_bytes);
        if (packet->ticket.index < queue->unflushed[kind])
            queue->unflushed[kind] = packet->ticket.index;
        break;
    }
}

/* A NIC that refuses a request fails the queue that got it. It goes on with requests that were sent
 * before: on a real wire they have come before. A target without a receive goes on, too: the
 * initiator tries again. */
static void refuse(struct weft__nic_model *model, struct nic_queue *queue,
                   struct weft__nic_finding finding)
{
    const enum weft__nic_syndrome syndrome = weft__nic_rule_syndrome(finding.rule);
    weft__nic_tell(model, queue, finding);
    queue->refusal = (struct nic_refusal){finding.index, syndrome, finding.rule};
    queue->has_failed |= syndrome != WEFT__NIC_RECEIVER_RETRIES;
}

/* 1: the queue has failed and does not answer, so that the initiator gives up. */
static int is_silent(const struct nic_queue *queue, uint64_t index)
{
    const struct nic_refusal *refusal = &queue->refusal;
    return queue->has_failed &&
           (refusal->syndrome == WEFT__NIC_NO_SYNDROME || index > refusal->index);
}

void weft__nic_model_respond(struct weft__nic_model *model, const struct weft__nic_packet *packet,
                             struct weft__nic_answer *answer)
{
    struct nic_queue *queue = weft__nic_find_queue(model, packet->target_qp);
    answer->ticket = packet->ticket;
    answer->num_bytes = 0;
    answer->vendor_syndrome = 0;
    answer->syndrome = WEFT__NIC_RETRIES;
    if (queue == NULL || is_silent(queue, packet->ticket.index))
        return;
    if (queue->refusal.syndrome != WEFT__NIC_NO_SYNDROME &&
        queue->refusal.index == packet->ticket.index) { /* another piece of the same request */
        answer->syndrome = queue->refusal.syndrome;
        answer->vendor_syndrome = queue->refusal.vendor_syndrome;
        return;
    }
    const struct weft__nic_region *region = find_region(model, packet->remote_key);
    const struct weft__nic_finding finding = check(region, packet);
    answer->syndrome = weft__nic_rule_syndrome(finding.rule);
    answer->vendor_syndrome = finding.rule;
    if (finding.rule == WEFT__NIC_FINE)
        execute(model, queue, packet, region->kind, answer);
    else
        refuse(model, queue, finding);
}
