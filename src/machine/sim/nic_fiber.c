/* SPDX-License-Identifier: MIT */
/* The models of NICs: what they load and store is checked as the accesses of programs are. */
#include <string.h>

#include "machine/sim/nic_words.h"
#include "machine/sim/sim_nic.h"

enum { FIRST_QP = 0x100, DIES_ONE_IN = 2 /* steps */ };

static uint32_t qp_of(int32_t peer)
{
    return FIRST_QP + (uint32_t)peer;
}

static int is_gone(const struct weft__link *link, int32_t rank)
{
    return link->comms[rank] == NULL || sim_world->rank_is_dead[link->world_ranks[rank]];
}

/* ---------------------------------------------------------------- memory */

/* A new queue's words are loaded before it has a fiber; what is read for a peer that is gone may be
 * freed. */
static void load(void *context, enum weft__nic_load what, void *to, uint64_t from,
                 uint32_t num_bytes)
{
    const struct sim_nic_pair *pair = context;
    const int is_checked = what == WEFT__NIC_LOAD_RECORD || !is_gone(pair->link, pair->peer);
    if (pair->is_open && is_checked) {
        sim_nic_model_load(what, to, from, num_bytes);
        return;
    }
    if (pair->is_open)
        sim_yield();
    memcpy(to, (const void *)(uintptr_t)from, num_bytes);
}

/* The owner hears of each completion, so that it knows what is under way. */
static void hear(struct sim_nic_pair *pair)
{
    const struct weft__nic_cqe cqe = weft__nic_decode_cqe(&pair->cqe);
    const struct weft__nic_tail tail =
        weft__nic_decode_tail(pair->cqe.words[WEFT__NIC_CQE_TAIL_WORD]);
    pair->num_done = weft__nic_count_done(pair->num_done, tail.counter, pair->channel->queue.depth);
    pair->channel->num_news++;
    if (tail.opcode == WEFT__NIC_CQE_REQUEST || pair->has_failed)
        return;
    pair->has_failed = 1;
    if (cqe.syndrome == WEFT__NIC_RETRIES)
        return;
    sim_report("a NIC's queue fails with syndrome 0x%x\n", cqe.syndrome);
    sim_world->result->num_wrong++;
}

/* Memory that the target has freed, and the sender has not, is nobody's. Credits may come there,
 * and all that a dead rank has sent (sim_wire.c). */
static int harms_nobody(const void *at, int is_add)
{
    const struct sim_nic_pair *sender = sim_current()->argument;
    const weft_comm *comm = sender->link->comms[sender->rank];
    return comm != NULL && (is_add || is_gone(sender->link, sender->rank)) &&
           sim_heap_is_left(comm, sender->peer, at);
}

static void store(void *context, enum weft__nic_store what, uint64_t to, const void *from,
                  uint32_t num_bytes)
{
    struct sim_nic_pair *pair = context;
    const void *at = (const void *)(uintptr_t)to;
    if (what == WEFT__NIC_STORE_TARGET && harms_nobody(at, 0))
        return;
    sim_nic_model_store(what, to, from, num_bytes,
                        what == WEFT__NIC_STORE_CQE || at == pair->sink ? SIM_ATOMIC_WRITE
                                                                        : SIM_WRITE);
    if (what == WEFT__NIC_STORE_TAIL)
        hear(pair);
}

/* A NIC does not know what a signal is of: nobody need wait for any. */
static uint64_t add(void *context, uint64_t address, uint64_t addend)
{
    uint64_t *word = (uint64_t *)(uintptr_t)address;
    (void)context;
    sim_yield();
    if (harms_nobody(word, 1))
        return 0;
    sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
    sim_check_access(word, sizeof *word, SIM_ATOMIC_WRITE, __builtin_return_address(0));
    sim_word_change(sim_word_of(word), WP_ACCESS_ADDED_BY_NETWORK, __builtin_return_address(0));
    const uint64_t before = *word;
    struct sim_signal *signal = sim_signal_add_to(sim_word_of(word), before, before + addend);
    signal->is_credit = 1;
    sim_release(&signal->clock);
    *word = before + addend;
    return before;
}

static uint32_t draw(void *context, uint32_t bound)
{
    (void)context;
    return (uint32_t)sim_random(bound);
}

static void tell(void *context, const struct weft__nic_finding *finding)
{
    char text[WEFT__NIC_FINDING_BYTES];
    (void)context;
    weft__nic_finding_text(finding, text);
    sim_report("the model of the NIC: %s\n", text);
    sim_world->result->num_wrong++;
}

static void send_packet(void *context, struct weft__nic_model *from, uint32_t peer,
                        const struct weft__nic_packet *packet)
{
    struct sim_nic_pair *pair = context;
    const struct weft__nic_wire wire = weft__nic_cable_wire(&pair->cable);
    if (is_gone(pair->link, pair->peer))
        weft__nic_cable_cut(&pair->cable, peer);
    wire.send(wire.context, from, peer, packet);
}

/* ---------------------------------------------------------------- the model */

static weft_result add_regions(struct sim_nic_pair *pair)
{
    const struct sim_nics *nics = pair->link->nics;
    const struct weft__nic_key heap = nics->heap->keys[pair->rank];
    const struct weft__nic_key sink = nics->ports[pair->rank].sink;
    const struct weft__nic_region of_heap = {.address = heap.address,
                                             .num_bytes = nics->heap->end,
                                             .local_key = heap.key,
                                             .remote_key = heap.key,
                                             .rights =
                                                 WEFT__NIC_LOCAL_WRITE | WEFT__NIC_REMOTE_WRITE |
                                                 WEFT__NIC_REMOTE_READ | WEFT__NIC_REMOTE_ATOMIC};
    const struct weft__nic_region of_sink = {.address = sink.address,
                                             .num_bytes = WEFT__NIC_ATOMIC_BYTES,
                                             .local_key = sink.key,
                                             .remote_key = sink.key,
                                             .rights = WEFT__NIC_LOCAL_WRITE};
    pair->sink = (const void *)(uintptr_t)sink.address;
    WEFT__TRY(weft__nic_model_add_region(pair->model, &of_heap));
    return weft__nic_model_add_region(pair->model, &of_sink);
}

weft_result sim_nic_open(struct sim_nic_pair *pair)
{
    static const uint64_t firsts[] = {0, 0xfffd, 0xfffffffd};
    const uint64_t first = firsts[sim_random(3)];
    const uint32_t depth = SIM_NIC_MAX_DEPTH >> sim_random(3);
    const struct weft__nic_model_config config = {
        .host = {pair, .load = load, .store = store, .add = add, .draw = draw, .tell = tell},
        .wire = {pair, send_packet},
        .source = WEFT__NIC_SOURCE_UNTIL_ARRIVED};
    const struct weft__nic_cq_config cq = {
        .kind = WEFT__NIC_CQ_COLLAPSED, .entries = (uintptr_t)&pair->cqe, .num_entries = 1};
    struct weft__nic_queue_config queue = {.qp = qp_of(pair->peer),
                                           .peer_qp = qp_of(pair->rank),
                                           .units = (uintptr_t)pair->units,
                                           .depth = depth,
                                           .record = (uintptr_t)pair->record,
                                           .first = first};
    sim_shadow_set(pair, sizeof *pair, SIM_CONTENT_ANY);
    memset(&pair->cqe, 0xff, sizeof pair->cqe);
    pair->record[WEFT__NIC_RECORD_SEND_WORD] = weft__nic_record(first);
    pair->num_done = first;
    pair->cable.draw = draw;
    pair->channel->queue = (struct weft__nic_queue){.units = pair->units,
                                                    .record = pair->record,
                                                    .doorbell = &pair->channel->doorbell,
                                                    .cqe = &pair->cqe,
                                                    .qp = queue.qp,
                                                    .depth = depth,
                                                    .batch = 1u << sim_random(2),
                                                    .reserved = first,
                                                    .ready = first,
                                                    .done = first};
    WEFT__TRY(weft__nic_model_create(&config, &pair->model));
    WEFT__TRY(add_regions(pair));
    WEFT__TRY(weft__nic_model_add_cq(pair->model, &cq, &queue.cq_idx));
    WEFT__TRY(weft__nic_model_add_queue(pair->model, &queue));
    pair->is_open = 1;
    return WEFT_OK;
}

/* ---------------------------------------------------------------- its fiber */

struct watch {
    const struct sim_nic_pair *pair;
    uint64_t doorbell; /* that the model has heard */
};

static int has_news(struct sim_fiber *fiber)
{
    const struct watch *watch = fiber->wait_argument;
    return watch->pair->channel->doorbell != watch->doorbell ||
           is_gone(watch->pair->link, watch->pair->rank);
}

static int step(struct sim_nic_pair *pair)
{
    if (sim_random(2) == 0 && weft__nic_cable_step(&pair->cable))
        return 1;
    return weft__nic_model_step(pair->model) || weft__nic_cable_step(&pair->cable);
}

/* The NIC of a rank that has died may go on for a while. */
static void run(struct sim_fiber *fiber)
{
    struct sim_nic_pair *pair = fiber->argument;
    struct watch watch = {pair, 0};
    fiber->is_host = 1;
    /* It knows nothing of what its starter did. */
    const uint32_t now = sim_now(fiber);
    sim_clock_clear(&fiber->clock);
    sim_clock_set(&fiber->clock, fiber->id, now);
    while (!is_gone(pair->link, pair->rank) || sim_random(DIES_ONE_IN) != 0) {
        const uint64_t doorbell = pair->channel->doorbell;
        if (doorbell != watch.doorbell)
            weft__nic_model_ring(pair->model, doorbell);
        watch.doorbell = doorbell;
        if (!step(pair))
            sim_wait_until(has_news, &watch, INT64_MAX);
        sim_yield();
    }
}

weft_result sim_nic_start(struct sim_nic_pair *pair, const struct sim_nic_pair *back)
{
    pair->cable.ends[0] = back->model;
    return sim_fiber_start(SIM_NO_RANK, SIM_HOST_STACK, run, pair) != NULL
               ? WEFT_OK
               : weft__no_memory("no memory for the fiber of a NIC");
}
