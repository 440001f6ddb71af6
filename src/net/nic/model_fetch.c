/* SPDX-License-Identifier: MIT */
/* Doorbells, records, and units that are fetched ahead. */
#include "net/nic/model_internal.h"

static void tell_of_queue(const struct weft__nic_model *model, const struct nic_queue *queue,
                          enum weft__nic_rule rule, uint64_t value, uint64_t allowed)
{
    weft__nic_tell(
        model, queue,
        (struct weft__nic_finding){
            .rule = rule, .index = queue->announced, .value = value, .allowed = allowed});
}

/* In the order of a control segment's bytes. libmlx5 stores those of the last WQE, GPU code only
 * the index of the next one. */
static struct weft__nic_control decode_doorbell(uint64_t value)
{
    uint32_t words[WEFT__NIC_SEGMENT_WORDS] = {0};
    memcpy(words, &value, sizeof value);
    return weft__nic_decode_control(words);
}

void weft__nic_model_ring(struct weft__nic_model *model, uint64_t value)
{
    const struct weft__nic_control bell = decode_doorbell(value);
    struct nic_queue *queue = weft__nic_find_queue(model, bell.qp);
    const uint32_t max_segments = bell.opcode == WEFT__NIC_NOP ? 1 : NIC_SEGMENTS;
    if (queue == NULL) {
        weft__nic_tell(model, NULL,
                       (struct weft__nic_finding){
                           .rule = WEFT__NIC_RULE_DOORBELL_QP, .qp = bell.qp, .value = bell.qp});
        return;
    }
    if (bell.opcode_modifier != 0)
        tell_of_queue(model, queue, WEFT__NIC_RULE_DOORBELL_MODIFIER, bell.opcode_modifier, 0);
    if (!nic_is_opcode(bell.opcode))
        tell_of_queue(model, queue, WEFT__NIC_RULE_DOORBELL_OPCODE, bell.opcode, 0);
    if (bell.num_segments > max_segments)
        tell_of_queue(model, queue, WEFT__NIC_RULE_DOORBELL_SEGMENTS, bell.num_segments,
                      max_segments);
    queue->doorbell = value;
    queue->is_rung = model->config.fault != WEFT__NIC_FAULT_DEAF || nic_draw(model, 4) != 0;
}

static void load_record(struct weft__nic_model *model, struct nic_queue *queue)
{
    uint32_t word;
    nic_load(model, WEFT__NIC_LOAD_RECORD, &word,
             queue->config.record + WEFT__NIC_RECORD_SEND_WORD * sizeof word, sizeof word);
    const uint32_t record = weft__nic_be32(word);
    const uint32_t ahead = (record - (uint32_t)(queue->announced & 0xffff)) & 0xffff;
    const uint64_t last = queue->told + queue->config.depth;
    enum weft__nic_rule rule = WEFT__NIC_FINE;
    uint64_t allowed = 0;
    if (record >> 16 != 0) {
        rule = WEFT__NIC_RULE_RECORD_UPPER;
    } else if (queue->announced + ahead > last) {
        const int is_back = ahead > WEFT__NIC_MAX_DEPTH;
        rule = is_back ? WEFT__NIC_RULE_RECORD_BACK : WEFT__NIC_RULE_RECORD_PASSES;
        allowed = (is_back ? queue->announced : last) & 0xffff;
    }
    if (rule != WEFT__NIC_FINE) { /* told once: the record is loaded often */
        if (word != queue->refused_record)
            tell_of_queue(model, queue, rule,
                          rule == WEFT__NIC_RULE_RECORD_UPPER ? record >> 16 : record, allowed);
        queue->refused_record = word;
        return;
    }
    queue->refused_record = UINT64_MAX;
    if (ahead == 0)
        return;
    queue->announced += ahead;
    queue->ends_ring[(queue->announced - 1) % queue->config.depth] = 1;
}

/* The doorbell is heard, late, and the last one only. */
int weft__nic_wake(struct weft__nic_model *model, struct nic_queue *queue)
{
    const struct weft__nic_control bell = decode_doorbell(queue->doorbell);
    if (!queue->is_rung)
        return 0;
    queue->is_rung = 0;
    queue->is_awake = 1;
    load_record(model, queue);
    const uint32_t next = bell.opcode == WEFT__NIC_NOP ? bell.index : bell.index + 1;
    const uint32_t ahead = (next - (uint32_t)(queue->announced & 0xffff)) & 0xffff;
    if (ahead != 0 && ahead < WEFT__NIC_MAX_DEPTH)
        tell_of_queue(model, queue, WEFT__NIC_RULE_DOORBELL_AHEAD, next & 0xffff,
                      queue->announced & 0xffff);
    return 1;
}

static void fetch_segment(struct weft__nic_model *model, struct nic_queue *queue, uint64_t index,
                          uint32_t segment)
{
    struct nic_entry *entry = nic_entry_at(queue, index);
    const size_t offset = segment * (size_t)WEFT__NIC_SEGMENT_BYTES;
    nic_load(model, WEFT__NIC_LOAD_UNIT, (char *)&entry->unit + offset,
             nic_unit_address(queue, index) + offset, WEFT__NIC_SEGMENT_BYTES);
    entry->fetched |= 1u << segment;
}

/* While the queue is awake: looks for news in its record, and fetches any segment of what is
 * announced. It may sleep at once when it has all. */
int weft__nic_fetch(struct weft__nic_model *model, struct nic_queue *queue)
{
    if (!queue->is_awake)
        return 0;
    load_record(model, queue);
    const uint64_t num_announced = queue->announced - queue->done;
    const uint32_t num_units = num_announced < NIC_WINDOW ? (uint32_t)num_announced : NIC_WINDOW;
    const uint32_t num_segments = queue->has_failed ? 0 : num_units * NIC_SEGMENTS;
    const uint32_t first = num_segments > 0 ? nic_draw(model, num_segments) : 0;
    for (uint32_t i = 0; i < num_segments; i++) {
        const uint32_t at = (first + i) % num_segments;
        const uint64_t index = queue->done + at / NIC_SEGMENTS;
        if (nic_entry_at(queue, index)->fetched >> at % NIC_SEGMENTS & 1)
            continue;
        fetch_segment(model, queue, index, at % NIC_SEGMENTS);
        return 1;
    }
    if (num_units < num_announced && !queue->has_failed)
        return 0; /* until one of the window is done */
    queue->is_awake = nic_draw(model, 2) != 0;
    return 1;
}
