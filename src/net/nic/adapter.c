/* SPDX-License-Identifier: MIT */
#include "net/nic/adapter_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "net/nic/message.h"

enum {
    DEFAULT_DEPTH = 1024,
    BATCH = 1,
    MAX_STEPS_OF_ROUND = 256,
    SINK_KEY = 0x100, /* then those of the heap's steps */
    FIRST_STEP_KEY
};

/* ---------------------------------------------------------------- below the model */

static void *memory_at(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static void load(void *context, enum weft__nic_load what, void *to, uint64_t from,
                 uint32_t num_bytes)
{
    (void)context;
    if (what == WEFT__NIC_LOAD_SOURCE && num_bytes == WEFT__NIC_ATOMIC_BYTES &&
        from % WEFT__NIC_ATOMIC_BYTES == 0) {
        /* Whole, as a NIC's is: a flush reads a word that others may be storing. */
        const uint64_t value = __atomic_load_n((uint64_t *)memory_at(from), __ATOMIC_RELAXED);
        memcpy(to, &value, sizeof value);
        return;
    }
    if (what != WEFT__NIC_LOAD_RECORD) {
        memcpy(to, memory_at(from), num_bytes);
        return;
    }
    const uint32_t word = __atomic_load_n((uint32_t *)memory_at(from), __ATOMIC_ACQUIRE);
    memcpy(to, &word, sizeof word);
}

/* The host listens to each completion, so that the first cause is known, however soon flushes are
 * written over it. */
static void hear(struct weft__nic_adapter *adapter, int32_t peer)
{
    struct nic_listener *listener = &adapter->listeners[peer];
    const struct weft__nic_unit *entry = &adapter->cqes[peer];
    const struct weft__nic_tail tail = weft__nic_decode_tail(entry->words[WEFT__NIC_CQE_TAIL_WORD]);
    const uint64_t done = weft__nic_count_done(listener->done, tail.counter, adapter->config.depth);
    __atomic_store_n(&listener->done, done, __ATOMIC_RELAXED);
    if (tail.opcode != WEFT__NIC_CQE_REQUEST && !listener->has_failed) {
        listener->failed_unit = done - 1;
        listener->cqe = weft__nic_decode_cqe(entry);
        __atomic_store_n(&listener->has_failed, 1, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&adapter->port.channels[peer].num_news, 1, __ATOMIC_RELEASE);
    adapter->has_news = 1;
}

static void store(void *context, enum weft__nic_store what, uint64_t to, const void *from,
                  uint32_t num_bytes)
{
    struct weft__nic_adapter *adapter = context;
    if (what == WEFT__NIC_STORE_TARGET) {
        memcpy(memory_at(to), from, num_bytes);
        return;
    }
    for (uint32_t i = 0; i < num_bytes / sizeof(uint32_t); i++) {
        uint32_t word;
        memcpy(&word, (const char *)from + i * sizeof word, sizeof word);
        __atomic_store_n((uint32_t *)memory_at(to) + i, word, __ATOMIC_RELEASE);
    }
    if (what == WEFT__NIC_STORE_TAIL)
        hear(adapter, (int32_t)((to - (uintptr_t)adapter->cqes) / WEFT__NIC_UNIT_BYTES));
}

/* Atomic among the adds of NICs alone, as a NIC's are. */
static uint64_t add(void *context, uint64_t address, uint64_t addend)
{
    const struct weft__nic_adapter *adapter = context;
    const struct weft__nic_adapter_config *config = &adapter->config;
    uint64_t *word = memory_at(address);
    const uint64_t offset = address - (uintptr_t)config->heap;
    const uint64_t before = __atomic_load_n(word, __ATOMIC_RELAXED);
    __atomic_store_n(word, before + addend, __ATOMIC_RELEASE);
    weft__net_note_added(config->net, offset < config->max_heap_bytes ? offset : WEFT__ANY_WORD);
    return before;
}

static uint32_t draw(void *context, uint32_t bound)
{
    struct weft__nic_adapter *adapter = context;
    adapter->random ^= adapter->random << 13; /* xorshift */
    adapter->random ^= adapter->random >> 7;
    adapter->random ^= adapter->random << 17;
    return (uint32_t)((adapter->random >> 32) * bound >> 32);
}

/* Who posted it is to blame: this rank, or the one whose packet the target's model refuses. */
static void tell(void *context, const struct weft__nic_finding *finding)
{
    struct weft__nic_adapter *adapter = context;
    char text[WEFT__NIC_FINDING_BYTES];
    if (adapter->finding_state != NO_FINDING)
        return;
    weft__nic_finding_text(finding, text);
    adapter->finding_state = FINDING;
    adapter->finding.peer = adapter->sender;
    adapter->finding.result = WEFT_ERROR_SYSTEM;
    snprintf(adapter->finding.message, sizeof adapter->finding.message,
             "the model of the NIC: %.220s", text);
}

/* ---------------------------------------------------------------- the wire */

static int send_message(struct weft__nic_adapter *adapter, int32_t peer,
                        const struct weft__nic_message *message)
{
    return weft__net_send_packet(adapter->config.net, peer, message,
                                 weft__nic_message_bytes(message));
}

static void send_packet(void *context, struct weft__nic_model *from, uint32_t peer,
                        const struct weft__nic_packet *packet)
{
    struct weft__nic_adapter *adapter = context;
    const struct weft__nic_message message = {.kind = WEFT__NIC_REQUEST, .packet = *packet};
    if ((int32_t)peer == adapter->config.rank) {
        struct weft__nic_answer answer;
        weft__nic_model_respond(from, packet, &answer);
        weft__nic_model_answer(from, &answer);
        return;
    }
    (void)send_message(adapter, (int32_t)peer, &message); /* else `cut` tells */
}

/* As far as the model relies on it. */
static int is_sound(const struct weft__nic_message *message, int32_t peer)
{
    const struct weft__nic_packet *packet = &message->packet;
    if (message->kind == WEFT__NIC_ANSWER)
        return message->answer.ticket.qp == nic_qp_of(peer);
    const int is_add = packet->opcode == WEFT__NIC_FETCH_ADD;
    return (weft__nic_is_write(packet) || is_add || packet->opcode == WEFT__NIC_READ) &&
           packet->target_qp == nic_qp_of(peer) && packet->num_bytes <= WEFT__NIC_PIECE_BYTES &&
           packet->offset <= packet->request_bytes &&
           packet->num_bytes <= packet->request_bytes - packet->offset &&
           (!is_add || packet->num_bytes == WEFT__NIC_ATOMIC_BYTES);
}

static const char *take(void *context, int32_t peer, const void *bytes, size_t num_bytes)
{
    struct weft__nic_adapter *adapter = context;
    struct weft__nic_message message, answer = {.kind = WEFT__NIC_ANSWER};
    if (!weft__nic_read_message(bytes, num_bytes, &message) || !is_sound(&message, peer))
        return "it is no packet of a NIC";
    if (message.kind == WEFT__NIC_ANSWER) {
        weft__nic_model_answer(adapter->model, &message.answer);
        return NULL;
    }
    adapter->sender = peer;
    weft__nic_model_respond(adapter->model, &message.packet, &answer.answer);
    adapter->sender = -1;
    if (weft__nic_is_write(&message.packet))
        weft__net_add_traffic(
            adapter->config.net, peer,
            (struct weft__peer_traffic){.received_bytes = message.packet.num_bytes});
    (void)send_message(adapter, peer, &answer);
    return NULL;
}

/* ---------------------------------------------------------------- life */

static weft_result allocate(struct weft__nic_adapter *adapter)
{
    const size_t num_ranks = (size_t)adapter->config.num_ranks, depth = adapter->config.depth;
    struct weft__nic_port *port = &adapter->port;
    port->channels = calloc(num_ranks, sizeof *port->channels);
    port->rank = adapter->config.rank;
    adapter->listeners = calloc(num_ranks, sizeof *adapter->listeners);
    adapter->records = calloc(num_ranks, sizeof *adapter->records);
    adapter->units =
        aligned_alloc(WEFT__NIC_UNIT_BYTES, num_ranks * depth * sizeof *adapter->units);
    adapter->cqes = aligned_alloc(WEFT__NIC_UNIT_BYTES, num_ranks * sizeof *adapter->cqes);
    if (port->channels == NULL || adapter->listeners == NULL || adapter->records == NULL ||
        adapter->units == NULL || adapter->cqes == NULL)
        return weft__no_memory("no memory for the queues to %d ranks", adapter->config.num_ranks);
    memset(adapter->units, 0, num_ranks * depth * sizeof *adapter->units);
    memset(adapter->cqes, 0xff, num_ranks * sizeof *adapter->cqes);
    return WEFT_OK;
}

static weft_result add_region(struct weft__nic_adapter *adapter, const void *memory,
                              uint64_t num_bytes, uint32_t key, uint32_t rights)
{
    const struct weft__nic_region region = {.address = (uintptr_t)memory,
                                            .num_bytes = num_bytes,
                                            .local_key = key,
                                            .remote_key = key,
                                            .rights = rights};
    return weft__nic_model_add_region(adapter->model, &region);
}

/* Both ends can tell the numbers of the queues that face each other. */
static weft_result add_queue(struct weft__nic_adapter *adapter, int32_t peer)
{
    struct weft__nic_channel *channel = &adapter->port.channels[peer];
    const uint32_t depth = adapter->config.depth;
    struct weft__nic_unit *units = &adapter->units[(size_t)peer * depth];
    const struct weft__nic_cq_config cq = {.kind = WEFT__NIC_CQ_COLLAPSED,
                                           .entries = (uintptr_t)&adapter->cqes[peer],
                                           .num_entries = 1};
    struct weft__nic_queue_config queue = {.qp = nic_qp_of(peer),
                                           .peer = (uint32_t)peer,
                                           .peer_qp = nic_qp_of(adapter->config.rank),
                                           .units = (uintptr_t)units,
                                           .depth = depth,
                                           .record = (uintptr_t)adapter->records[peer]};
    channel->queue = (struct weft__nic_queue){.units = units,
                                              .record = adapter->records[peer],
                                              .doorbell = &channel->doorbell,
                                              .cqe = &adapter->cqes[peer],
                                              .qp = queue.qp,
                                              .depth = depth,
                                              .batch = BATCH};
    WEFT__TRY(weft__nic_model_add_cq(adapter->model, &cq, &queue.cq_idx));
    return weft__nic_model_add_queue(adapter->model, &queue);
}

static weft_result make(struct weft__nic_adapter *adapter)
{
    const struct weft__nic_adapter_config *config = &adapter->config;
    const struct weft__nic_model_config model = {.host = {.context = adapter,
                                                          .load = load,
                                                          .store = store,
                                                          .add = add,
                                                          .draw = draw,
                                                          .tell = tell},
                                                 .wire = {.context = adapter, .send = send_packet},
                                                 .trouble = config->trouble};
    WEFT__TRY(allocate(adapter));
    WEFT__TRY(weft__nic_model_create(&model, &adapter->model));
    WEFT__TRY(
        add_region(adapter, &adapter->sink, sizeof adapter->sink, SINK_KEY, WEFT__NIC_LOCAL_WRITE));
    adapter->port.sink = (struct weft__nic_key){(uintptr_t)&adapter->sink, SINK_KEY};
    for (int32_t peer = 0; peer < config->num_ranks; peer++)
        if (peer == config->rank || config->net->peers[peer].state != WEFT__NET_NO_PEER)
            WEFT__TRY(add_queue(adapter, peer));
    return WEFT_OK;
}

weft_result weft__nic_adapter_create(const struct weft__nic_adapter_config *config,
                                     struct weft__nic_adapter **created)
{
    struct weft__nic_adapter *adapter = calloc(1, sizeof *adapter);
    WEFT__CHECK_MEMORY(adapter, "no memory for a NIC");
    adapter->config = *config;
    if (config->depth == 0)
        adapter->config.depth = DEFAULT_DEPTH;
    adapter->sender = -1;
    adapter->random = UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)config->rank;
    const weft_result result = make(adapter);
    if (result != WEFT_OK) {
        weft__nic_adapter_destroy(adapter);
        return result;
    }
    const struct weft__net_packets packets = {.context = adapter, .take = take};
    weft__net_set_packets(config->net, &packets);
    *created = adapter;
    return WEFT_OK;
}

static void free_steps(struct weft__nic_step *step)
{
    while (step != NULL) {
        struct weft__nic_step *before = step->before;
        free(step);
        step = before;
    }
}

void weft__nic_adapter_destroy(struct weft__nic_adapter *adapter)
{
    if (adapter == NULL)
        return;
    weft__nic_model_destroy(adapter->model);
    free(adapter->new_step);
    free_steps(adapter->port.last_step);
    free(adapter->cqes);
    free(adapter->units);
    free(adapter->records);
    free(adapter->listeners);
    free(adapter->port.channels);
    free(adapter);
}

struct weft__nic_port *weft__nic_adapter_port(struct weft__nic_adapter *adapter)
{
    return &adapter->port;
}

/* ---------------------------------------------------------------- the heap */

weft_result weft__nic_adapter_add_step(struct weft__nic_adapter *adapter, uint64_t begin,
                                       uint64_t num_bytes, struct weft__nic_key *own)
{
    const char *memory = adapter->config.heap + begin;
    const size_t num_ranks = (size_t)adapter->config.num_ranks;
    struct weft__nic_step *step = calloc(1, sizeof *step + num_ranks * sizeof *step->keys);
    WEFT__CHECK_MEMORY(step, "no memory for the keys of %d ranks", adapter->config.num_ranks);
    *own = (struct weft__nic_key){(uintptr_t)memory, FIRST_STEP_KEY + adapter->num_keys};
    const weft_result result = add_region(adapter, memory, num_bytes, own->key,
                                          WEFT__NIC_LOCAL_WRITE | WEFT__NIC_REMOTE_WRITE |
                                              WEFT__NIC_REMOTE_READ | WEFT__NIC_REMOTE_ATOMIC);
    if (result != WEFT_OK) {
        free(step);
        return result;
    }
    step->before = adapter->port.last_step;
    step->begin = begin;
    step->end = begin + num_bytes;
    step->keys[adapter->config.rank] = *own;
    adapter->new_step = step;
    adapter->num_keys++;
    return WEFT_OK;
}

void weft__nic_adapter_learn_key(struct weft__nic_adapter *adapter, int32_t rank,
                                 const struct weft__nic_key *key)
{
    adapter->new_step->keys[rank] = *key;
}

void weft__nic_adapter_open_step(struct weft__nic_adapter *adapter)
{
    __atomic_store_n(&adapter->port.last_step, adapter->new_step, __ATOMIC_RELEASE);
    adapter->new_step = NULL;
}

void weft__nic_adapter_drop_step(struct weft__nic_adapter *adapter)
{
    weft__nic_model_remove_region(adapter->model,
                                  adapter->new_step->keys[adapter->config.rank].key);
    free(adapter->new_step);
    adapter->new_step = NULL;
}

/* ---------------------------------------------------------------- running it */

int weft__nic_adapter_is_rung(const struct weft__nic_adapter *adapter)
{
    for (int32_t peer = 0; peer < adapter->config.num_ranks; peer++)
        if (__atomic_load_n(&adapter->port.channels[peer].doorbell, __ATOMIC_RELAXED) != 0)
            return 1;
    return 0;
}

int weft__nic_adapter_is_idle(const struct weft__nic_adapter *adapter)
{
    for (int32_t peer = 0; peer < adapter->config.num_ranks; peer++) {
        const struct weft__nic_queue *queue = &adapter->port.channels[peer].queue;
        const struct nic_listener *listener = &adapter->listeners[peer];
        const uint64_t num_posted = __atomic_load_n(&queue->ready, __ATOMIC_ACQUIRE);
        if (num_posted != __atomic_load_n(&listener->done, __ATOMIC_RELAXED) &&
            !__atomic_load_n(&listener->has_failed, __ATOMIC_RELAXED))
            return 0;
    }
    return 1;
}

/* Requests to peers that are gone fail. */
static void cut(struct weft__nic_adapter *adapter)
{
    const struct weft__net *net = adapter->config.net;
    for (int32_t peer = 0; peer < adapter->config.num_ranks; peer++) {
        struct nic_listener *listener = &adapter->listeners[peer];
        const int is_gone =
            net->peers[peer].state == WEFT__NET_LEFT || net->peers[peer].state == WEFT__NET_FAILED;
        if (is_gone && !listener->has_failed)
            weft__nic_model_cut(adapter->model, (uint32_t)peer);
    }
}

int weft__nic_adapter_step(struct weft__nic_adapter *adapter)
{
    int num_events = 0;
    for (int32_t peer = 0; peer < adapter->config.num_ranks; peer++) {
        uint64_t *doorbell = &adapter->port.channels[peer].doorbell;
        if (__atomic_load_n(doorbell, __ATOMIC_RELAXED) == 0)
            continue;
        weft__nic_model_ring(adapter->model, __atomic_exchange_n(doorbell, 0, __ATOMIC_ACQUIRE));
        num_events++;
    }
    cut(adapter);
    for (int i = 0; i < MAX_STEPS_OF_ROUND && weft__nic_model_step(adapter->model); i++)
        num_events++;
    if (adapter->has_news && adapter->config.bell != NULL)
        weft__doorbell_ring_words(adapter->config.bell, WEFT__ANY_WORD, WEFT__ANY_WORD + 1);
    adapter->has_news = 0;
    return num_events;
}
