/* SPDX-License-Identifier: MIT */
/* A WQE's fields, one by one. */
#include "net/nic/model_internal.h"

struct field {
    enum weft__nic_rule rule;
    uint64_t value, allowed;
};

static struct weft__nic_finding finding_of(struct field field)
{
    return (struct weft__nic_finding){
        .rule = field.rule, .value = field.value, .allowed = field.allowed};
}

static const struct weft__nic_finding fine = {.rule = WEFT__NIC_FINE};

/* Returns the first that has not the one value that it may have. */
static struct weft__nic_finding check_equal(const struct field *fields, size_t num_fields)
{
    for (size_t i = 0; i < num_fields; i++)
        if (fields[i].value != fields[i].allowed)
            return finding_of(fields[i]);
    return fine;
}

static int is_write(uint32_t opcode)
{
    return opcode == WEFT__NIC_WRITE || opcode == WEFT__NIC_WRITE_IMMEDIATE;
}

static struct weft__nic_finding check_control(const struct nic_queue *queue, uint64_t index,
                                              const struct weft__nic_control *control)
{
    const int has_immediate = control->opcode == WEFT__NIC_WRITE_IMMEDIATE;
    const struct field fields[] = {
        {WEFT__NIC_RULE_INDEX, control->index, index & 0xffff},
        {WEFT__NIC_RULE_MODIFIER, control->opcode_modifier, 0},
        {WEFT__NIC_RULE_QP, control->qp, queue->config.qp},
        {WEFT__NIC_RULE_SIGNATURE, control->signature, 0},
        {WEFT__NIC_RULE_STREAM, control->stream, 0},
        {WEFT__NIC_RULE_FLAGS, control->unused_flags, 0},
        {WEFT__NIC_RULE_SOLICITED, control->solicited, 0},
        {WEFT__NIC_RULE_IMMEDIATE, has_immediate ? 0 : control->immediate, 0}};
    if (!nic_is_opcode(control->opcode))
        return finding_of((struct field){WEFT__NIC_RULE_OPCODE, control->opcode, 0});
    if (control->fence != WEFT__NIC_NO_FENCE && control->fence != WEFT__NIC_FENCE)
        return finding_of((struct field){WEFT__NIC_RULE_FENCE, control->fence, 0});
    if (control->completion != WEFT__NIC_ON_ERROR && control->completion != WEFT__NIC_ALWAYS)
        return finding_of((struct field){WEFT__NIC_RULE_COMPLETION, control->completion, 0});
    return check_equal(fields, sizeof fields / sizeof *fields);
}

static uint32_t right_for(uint32_t opcode)
{
    return opcode == WEFT__NIC_READ || opcode == WEFT__NIC_FETCH_ADD ? WEFT__NIC_LOCAL_WRITE : 0;
}

static struct weft__nic_finding check_local(const struct weft__nic_model *model, uint32_t opcode,
                                            const struct weft__nic_data *data)
{
    for (uint32_t i = 0; i < model->num_regions; i++) {
        const struct weft__nic_region *region = &model->regions[i];
        const uint64_t offset = data->address - region->address;
        const uint32_t right = right_for(opcode);
        if (region->local_key != data->key)
            continue;
        if (offset > region->num_bytes || data->num_bytes > region->num_bytes - offset)
            return finding_of(
                (struct field){WEFT__NIC_RULE_LOCAL_RANGE, data->address, region->address});
        if ((region->rights & right) != right)
            return finding_of((struct field){WEFT__NIC_RULE_LOCAL_RIGHTS, right, region->rights});
        return fine;
    }
    return finding_of((struct field){WEFT__NIC_RULE_LOCAL_KEY, data->key, 0});
}

/* The last segment. */
static struct weft__nic_finding check_data(const struct weft__nic_model *model,
                                           const struct nic_command *command)
{
    const struct weft__nic_data *data = &command->data;
    const uint32_t opcode = command->control.opcode;
    if (data->is_inline && !is_write(opcode))
        return finding_of((struct field){WEFT__NIC_RULE_INLINE, 1, 0});
    if (data->is_inline)
        return fine; /* the count was wanted before, for the number of segments */
    if (opcode == WEFT__NIC_FETCH_ADD && data->num_bytes != WEFT__NIC_ATOMIC_BYTES)
        return finding_of(
            (struct field){WEFT__NIC_RULE_SINK_BYTES, data->num_bytes, WEFT__NIC_ATOMIC_BYTES});
    if (data->num_bytes == 0 || data->num_bytes > WEFT__NIC_MAX_MESSAGE_BYTES)
        return finding_of(
            (struct field){WEFT__NIC_RULE_BYTES, data->num_bytes, WEFT__NIC_MAX_MESSAGE_BYTES});
    return check_local(model, opcode, data);
}

/* Where the data segment is, in words. */
static uint32_t place_of_data(uint32_t opcode)
{
    const uint32_t num_before = 1 + (opcode != WEFT__NIC_DUMP) + (opcode == WEFT__NIC_FETCH_ADD);
    return num_before * WEFT__NIC_SEGMENT_WORDS;
}

static struct weft__nic_finding check_segments(const struct nic_command *command)
{
    const struct weft__nic_control *control = &command->control;
    const uint32_t count = command->data.num_bytes;
    uint32_t needed = 1;
    if (control->opcode != WEFT__NIC_NOP)
        needed = place_of_data(control->opcode) / WEFT__NIC_SEGMENT_WORDS + 1;
    if (command->data.is_inline && is_write(control->opcode)) {
        if (count == 0 || count > WEFT__NIC_MAX_INLINE_BYTES)
            return finding_of(
                (struct field){WEFT__NIC_RULE_INLINE_BYTES, count, WEFT__NIC_MAX_INLINE_BYTES});
        needed = 2 + (4 + count + WEFT__NIC_SEGMENT_BYTES - 1) / WEFT__NIC_SEGMENT_BYTES;
    }
    return check_equal(&(struct field){WEFT__NIC_RULE_SEGMENTS, control->num_segments, needed}, 1);
}

struct weft__nic_finding weft__nic_check(const struct weft__nic_model *model,
                                         const struct nic_queue *queue, uint64_t index,
                                         const struct weft__nic_unit *unit,
                                         struct nic_command *command)
{
    *command = (struct nic_command){.control = weft__nic_decode_control(unit->words)};
    const uint32_t opcode = command->control.opcode;
    struct weft__nic_finding finding = check_control(queue, index, &command->control);
    if (finding.rule != WEFT__NIC_FINE)
        return finding;
    if (opcode == WEFT__NIC_NOP)
        return check_segments(command);
    const uint32_t at = place_of_data(opcode);
    command->data = weft__nic_decode_data(unit->words + at);
    command->inline_word = at + 1;
    if (opcode == WEFT__NIC_FETCH_ADD) /* its second operand means nothing: libmlx5 leaves it */
        command->addend = weft__nic_get64(unit->words + at - WEFT__NIC_SEGMENT_WORDS);
    finding = check_segments(command);
    if (finding.rule != WEFT__NIC_FINE)
        return finding;
    if (opcode != WEFT__NIC_DUMP) {
        command->remote = weft__nic_decode_remote(unit->words + WEFT__NIC_REMOTE);
        finding = check_equal(
            &(struct field){WEFT__NIC_RULE_REMOTE_UNUSED, command->remote.unused, 0}, 1);
    }
    return finding.rule != WEFT__NIC_FINE ? finding : check_data(model, command);
}
