/* SPDX-License-Identifier: MIT */
/* Requests start in their order; their pieces leave, and answers come, in any. */
#include "net/nic/model_internal.h"

static void fail_entry(struct nic_queue *queue, uint64_t index, enum weft__nic_syndrome syndrome,
                       uint32_t vendor_syndrome)
{
    struct nic_entry *entry = nic_entry_at(queue, index);
    entry->syndrome = syndrome;
    entry->vendor_syndrome = vendor_syndrome;
    if (index < queue->first_error)
        queue->first_error = index;
}

static void check_entry(struct weft__nic_model *model, struct nic_queue *queue, uint64_t index)
{
    struct nic_entry *entry = nic_entry_at(queue, index);
    struct weft__nic_finding finding =
        weft__nic_check(model, queue, index, &entry->unit, &entry->command);
    uint8_t *ends_ring = &queue->ends_ring[index % queue->config.depth];
    entry->state = NIC_CHECKED;
    finding.index = index;
    if (finding.rule != WEFT__NIC_FINE) {
        weft__nic_tell(model, queue, finding);
        fail_entry(queue, index, weft__nic_rule_syndrome(finding.rule), finding.rule);
    } else if (*ends_ring && queue->config.last == WEFT__NIC_LAST_IS_SIGNALLED &&
               entry->command.control.completion != WEFT__NIC_ALWAYS) {
        finding.rule = WEFT__NIC_RULE_LAST_SILENT;
        finding.value = entry->command.control.completion;
        finding.allowed = WEFT__NIC_ALWAYS;
        weft__nic_tell(model, queue, finding);
    }
    *ends_ring = 0;
}

static int may_start(const struct weft__nic_model *model, const struct nic_queue *queue,
                     const struct nic_entry *entry)
{
    const int is_fenced = entry->command.control.fence == WEFT__NIC_FENCE;
    if (is_fenced && queue->num_reads > 0 && model->config.fault != WEFT__NIC_FAULT_IGNORES_FENCE)
        return 0;
    return !nic_is_ordered(entry) || queue->num_reads < WEFT__NIC_MAX_READS ||
           model->config.fault == WEFT__NIC_FAULT_ANY_NUMBER_OF_READS;
}

/* Without a fence it does not see what they bring. */
static void check_dump(const struct weft__nic_model *model, const struct nic_queue *queue,
                       const struct nic_entry *entry)
{
    if (entry->command.control.opcode == WEFT__NIC_DUMP &&
        entry->command.control.fence == WEFT__NIC_NO_FENCE && queue->num_reads > 0)
        weft__nic_tell(model, queue,
                       (struct weft__nic_finding){.rule = WEFT__NIC_RULE_DUMP_EARLY,
                                                  .index = queue->started,
                                                  .value = queue->num_reads});
}

int weft__nic_start(struct weft__nic_model *model, struct nic_queue *queue)
{
    struct nic_entry *entry = nic_entry_at(queue, queue->started);
    if (queue->has_failed || queue->started >= queue->announced ||
        queue->started >= queue->done + NIC_WINDOW || queue->started >= queue->first_error ||
        entry->fetched != (1u << NIC_SEGMENTS) - 1)
        return 0;
    if (entry->state == NIC_UNCHECKED) {
        check_entry(model, queue, queue->started);
        return 1;
    }
    if (!may_start(model, queue, entry))
        return 0;
    check_dump(model, queue, entry);
    enum { LOG2_LEAST_PIECE = 3, NUM_SIZES = 6 }; /* 8 to 256 bytes */
    entry->state = NIC_STARTED;
    entry->piece_bytes = 1u << (LOG2_LEAST_PIECE + nic_draw(model, NUM_SIZES));
    entry->num_pieces =
        (entry->command.data.num_bytes + entry->piece_bytes - 1) / entry->piece_bytes;
    queue->num_reads += (uint32_t)nic_is_ordered(entry);
    queue->started++;
    return 1;
}

/* ---------------------------------------------------------------- pieces */

struct piece {
    uint32_t number, offset, num_bytes;
};

static struct piece piece_at(const struct nic_entry *entry, uint32_t bit)
{
    struct piece piece = {.number = entry->first_piece + bit, .num_bytes = entry->piece_bytes};
    piece.offset = piece.number * entry->piece_bytes;
    if (piece.number + 1 == entry->num_pieces)
        piece.num_bytes = entry->command.data.num_bytes - piece.offset;
    return piece;
}

static int has_source(const struct nic_entry *entry)
{
    return !nic_is_ordered(entry) && !entry->command.data.is_inline;
}

static uint64_t load_source(const struct weft__nic_model *model, const struct nic_entry *entry,
                            const struct piece *piece, uint8_t *bytes)
{
    uint64_t digest = 0xcbf29ce484222325; /* FNV-1a */
    nic_load(model, WEFT__NIC_LOAD_SOURCE, bytes, entry->command.data.address + piece->offset,
             piece->num_bytes);
    for (uint32_t i = 0; i < piece->num_bytes; i++)
        digest = (digest ^ bytes[i]) * 0x100000001b3;
    return digest;
}

/* Returns a drawn one of the bits, or -1. */
static int draw_bit(const struct weft__nic_model *model, uint32_t bits)
{
    if (bits == 0)
        return -1;
    for (int skipped = (int)nic_draw(model, (uint32_t)__builtin_popcount(bits)); skipped > 0;
         skipped--)
        bits &= bits - 1;
    return __builtin_ctz(bits);
}

static void slide(struct nic_entry *entry)
{
    while (nic_has_more(entry) && entry->answered & 1) {
        entry->sent >>= 1;
        entry->answered >>= 1;
        entry->first_piece++;
    }
}

static void send_piece(struct weft__nic_model *model, struct nic_queue *queue, uint64_t index,
                       uint32_t bit)
{
    struct nic_entry *entry = nic_entry_at(queue, index);
    const struct nic_command *command = &entry->command;
    const struct piece piece = piece_at(entry, bit);
    struct weft__nic_packet packet = {
        .ticket = {.qp = queue->config.qp, .piece = piece.number, .index = index},
        .opcode = (enum weft__nic_opcode)command->control.opcode,
        .target_qp = queue->config.peer_qp,
        .remote_key = command->remote.key,
        .address = command->remote.address,
        .request_bytes = command->data.num_bytes,
        .offset = piece.offset,
        .num_bytes = piece.num_bytes,
        .addend = command->addend};
    if (has_source(entry)) {
        enum { ONE_IS_LOST_OF = 8 };
        entry->digests[piece.number % NIC_PIECES] = load_source(model, entry, &piece, packet.bytes);
        if (nic_draw(model, ONE_IS_LOST_OF) == 0) /* it will be read and sent again */
            return;
    } else if (command->data.is_inline) {
        memcpy(packet.bytes,
               (const uint8_t *)(entry->unit.words + command->inline_word) + piece.offset,
               piece.num_bytes);
    }
    entry->sent |= 1u << bit;
    const int is_last = piece.number > 0 && piece.number + 1 == entry->num_pieces;
    if (command->control.opcode == WEFT__NIC_DUMP ||
        (is_last && model->config.fault == WEFT__NIC_FAULT_DROPS_PIECE)) {
        entry->answered |= 1u << bit;
        slide(entry);
        return;
    }
    if (command->control.opcode == WEFT__NIC_FETCH_ADD &&
        model->config.fault == WEFT__NIC_FAULT_ADDS_TWICE)
        model->config.wire.send(model->config.wire.context, model, queue->config.peer, &packet);
    model->config.wire.send(model->config.wire.context, model, queue->config.peer, &packet);
}

/* Those that are done do not count. */
static uint32_t count_started(const struct nic_queue *queue)
{
    return queue->has_failed ? 0 : (uint32_t)(queue->started - queue->done);
}

static int are_earlier_sent(struct nic_queue *queue, uint64_t index)
{
    for (uint64_t i = queue->done; i < index; i++)
        if (!nic_is_sent(nic_entry_at(queue, i)))
            return 0;
    return 1;
}

/* A piece of any request that has started: READs and atomics after all earlier ones. */
int weft__nic_send(struct weft__nic_model *model, struct nic_queue *queue)
{
    const uint32_t num_started = count_started(queue);
    const uint32_t first = num_started > 0 ? nic_draw(model, num_started) : 0;
    for (uint32_t i = 0; i < num_started; i++) {
        const uint64_t index = queue->done + (first + i) % num_started;
        struct nic_entry *entry = nic_entry_at(queue, index);
        const int bit = draw_bit(model, nic_all_pieces(entry) & ~entry->sent);
        if (bit < 0 || index > queue->first_error)
            continue;
        if (nic_is_ordered(entry) && !are_earlier_sent(queue, index) &&
            model->config.fault != WEFT__NIC_FAULT_ADD_PASSES_WRITES)
            continue;
        send_piece(model, queue, index, (uint32_t)bit);
        return 1;
    }
    return 0;
}

/* Once more, as for a retry, though nothing was lost: the source must be what it was until its
 * piece is answered. Some times, or a target that is silent would keep the model busy. */
int weft__nic_read_again(struct weft__nic_model *model, struct nic_queue *queue)
{
    enum { OF_DRAWS = 4, MOST_OF_REQUEST = 64 };
    const uint32_t num_started = count_started(queue);
    if (model->config.source == WEFT__NIC_SOURCE_UNTIL_ARRIVED || num_started == 0 ||
        nic_draw(model, OF_DRAWS) != 0)
        return 0;
    const uint64_t index = queue->done + nic_draw(model, num_started);
    struct nic_entry *entry = nic_entry_at(queue, index);
    const int bit = has_source(entry) && entry->num_read_again < MOST_OF_REQUEST
                        ? draw_bit(model, entry->sent & ~entry->answered)
                        : -1;
    if (bit < 0)
        return 0;
    entry->num_read_again++;
    uint8_t bytes[WEFT__NIC_PIECE_BYTES];
    const struct piece piece = piece_at(entry, (uint32_t)bit);
    if (load_source(model, entry, &piece, bytes) == entry->digests[piece.number % NIC_PIECES] ||
        entry->is_change_told)
        return 1;
    entry->is_change_told = 1;
    weft__nic_tell(model, queue,
                   (struct weft__nic_finding){.rule = WEFT__NIC_RULE_SOURCE_CHANGED,
                                              .index = index,
                                              .value = entry->command.data.address + piece.offset});
    return 1;
}

/* ---------------------------------------------------------------- answers */

void weft__nic_model_answer(struct weft__nic_model *model, const struct weft__nic_answer *answer)
{
    const struct weft__nic_ticket *ticket = &answer->ticket;
    struct nic_queue *queue = weft__nic_find_queue(model, ticket->qp);
    if (queue == NULL || queue->has_failed || ticket->index < queue->done ||
        ticket->index >= queue->started)
        return; /* of a request that has failed already */
    struct nic_entry *entry = nic_entry_at(queue, ticket->index);
    const uint32_t bit = ticket->piece - entry->first_piece;
    if (bit >= NIC_PIECES || entry->answered >> bit & 1)
        return;
    const struct piece piece = piece_at(entry, bit);
    if (answer->syndrome != WEFT__NIC_NO_SYNDROME) {
        fail_entry(queue, ticket->index, answer->syndrome, answer->vendor_syndrome);
        return;
    }
    if (answer->num_bytes != (nic_is_ordered(entry) ? piece.num_bytes : 0)) {
        fail_entry(queue, ticket->index, WEFT__NIC_BAD_RESPONSE, 0);
        return;
    }
    if (answer->num_bytes > 0)
        nic_store(model, WEFT__NIC_STORE_TARGET, entry->command.data.address + piece.offset,
                  answer->bytes, answer->num_bytes);
    entry->answered |= 1u << bit;
    slide(entry);
    if (nic_is_ordered(entry) && nic_is_answered(entry))
        queue->num_reads--;
}

void weft__nic_model_cut(struct weft__nic_model *model, uint32_t peer)
{
    for (uint32_t i = 0; i < model->num_queues; i++) {
        struct nic_queue *queue = model->queues[i];
        if (queue->config.peer != peer || queue->has_failed)
            continue;
        for (uint64_t index = queue->done; index < queue->started; index++) {
            const struct nic_entry *entry = nic_entry_at(queue, index);
            if ((entry->sent & ~entry->answered) == 0)
                continue;
            fail_entry(queue, index, WEFT__NIC_RETRIES, 0);
            break;
        }
    }
}
