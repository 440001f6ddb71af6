/* SPDX-License-Identifier: MIT */
#include "nic_pair.h"

#include "harness/cmocka.h"

/* ---------------------------------------------------------------- what is below the models */

static int contains(const void *part, size_t part_bytes, uint64_t address, uint32_t num_bytes)
{
    return address >= (uintptr_t)part && address + num_bytes <= (uintptr_t)part + part_bytes;
}

static void load(void *context, enum weft__nic_load what, void *to, uint64_t from,
                 uint32_t num_bytes)
{
    struct nic_pair *pair = context;
    int is_known = 0;
    for (int i = 0; i < 2; i++) {
        const struct nic_side *side = &pair->sides[i];
        is_known |= what == WEFT__NIC_LOAD_SOURCE
                        ? contains(side->memory, sizeof side->memory, from, num_bytes)
                        : contains(side->units, sizeof side->units, from, num_bytes) ||
                              contains(side->cqes, sizeof side->cqes, from, num_bytes) ||
                              contains(side->records, sizeof side->records, from, num_bytes) ||
                              contains(side->cq_records, sizeof side->cq_records, from, num_bytes);
    }
    if (!is_known) {
        pair->num_stray++;
        memset(to, 0, num_bytes);
        return;
    }
    memcpy(to, (const void *)(uintptr_t)from, num_bytes);
    if (pair->on_load != NULL)
        pair->on_load(pair->context, what, from);
}

static void store(void *context, enum weft__nic_store what, uint64_t to, const void *from,
                  uint32_t num_bytes)
{
    struct nic_pair *pair = context;
    int is_known = 0;
    for (int i = 0; i < 2; i++) {
        const struct nic_side *side = &pair->sides[i];
        is_known |= what == WEFT__NIC_STORE_TARGET
                        ? contains(side->memory, sizeof side->memory, to, num_bytes)
                        : contains(side->cqes, sizeof side->cqes, to, num_bytes);
    }
    if (!is_known) {
        pair->num_stray++;
        return;
    }
    memcpy((void *)(uintptr_t)to, from, num_bytes);
    if (pair->on_store != NULL)
        pair->on_store(pair->context, what, to, num_bytes);
}

static uint64_t add(void *context, uint64_t address, uint64_t addend)
{
    struct nic_pair *pair = context;
    uint64_t before = 0, after;
    if (pair->on_add != NULL)
        pair->on_add(pair->context, address);
    load(context, WEFT__NIC_LOAD_SOURCE, &before, address, sizeof before);
    after = before + addend;
    store(context, WEFT__NIC_STORE_TARGET, address, &after, sizeof after);
    return before;
}

static uint32_t draw(void *context, uint32_t bound)
{
    return rng_below(&((struct nic_pair *)context)->rng, bound);
}

static void tell(void *context, const struct weft__nic_finding *finding)
{
    struct nic_pair *pair = context;
    pair->findings[finding->rule]++;
    pair->last_finding = *finding;
}

int nic_pair_num_findings(const struct nic_pair *pair)
{
    int num_findings = 0;
    for (int rule = 0; rule < WEFT__NIC_NUM_RULES; rule++)
        num_findings += pair->findings[rule];
    return num_findings;
}

/* ---------------------------------------------------------------- making it */

static uint32_t qp_of(int side, int queue)
{
    return (uint32_t)(NIC_PAIR_FIRST_QP + side * NIC_PAIR_QUEUES + queue);
}

static void add_regions(struct nic_side *side)
{
    struct weft__nic_region region = {.num_bytes = NIC_PAIR_MEMORY,
                                      .rights = WEFT__NIC_LOCAL_WRITE | WEFT__NIC_REMOTE_WRITE |
                                                WEFT__NIC_REMOTE_READ | WEFT__NIC_REMOTE_ATOMIC};
    for (uint32_t kind = 0; kind < NIC_PAIR_KINDS; kind++) {
        region.address = (uintptr_t)side->memory[kind];
        region.kind = kind;
        region.local_key = NIC_PAIR_LOCAL_KEY + kind;
        region.remote_key = NIC_PAIR_REMOTE_KEY + kind;
        assert_ok(weft__nic_model_add_region(side->model, &region));
    }
    region.address = (uintptr_t)side->memory[0];
    region.rights = 0;
    region.kind = 0;
    region.local_key = NIC_PAIR_BARE_LOCAL_KEY;
    region.remote_key = NIC_PAIR_BARE_REMOTE_KEY;
    assert_ok(weft__nic_model_add_region(side->model, &region));
}

static void add_queue(struct nic_pair *pair, int side_idx, int queue, uint32_t cq_idx)
{
    struct nic_side *side = &pair->sides[side_idx];
    const struct weft__nic_queue_config config = {.qp = qp_of(side_idx, queue),
                                                  .user_index =
                                                      NIC_PAIR_USER_INDEX + (uint32_t)queue,
                                                  .cq_idx = cq_idx,
                                                  .peer = (uint32_t)(1 - side_idx),
                                                  .peer_qp = qp_of(1 - side_idx, queue),
                                                  .units = (uintptr_t)side->units[queue],
                                                  .depth = pair->config.depth,
                                                  .record = (uintptr_t)side->records[queue],
                                                  .first = pair->config.first,
                                                  .last = pair->config.last};
    side->records[queue][WEFT__NIC_RECORD_SEND_WORD] = weft__nic_record(pair->config.first);
    side->num_posted[queue] = pair->config.first;
    assert_ok(weft__nic_model_add_queue(side->model, &config));
}

static void open_side(struct nic_pair *pair, int side_idx)
{
    struct nic_side *side = &pair->sides[side_idx];
    const struct weft__nic_model_config config = {
        .host =
            {.context = pair, .load = load, .store = store, .add = add, .draw = draw, .tell = tell},
        .wire = weft__nic_cable_wire(&pair->cable),
        .fault = pair->config.fault};
    uint32_t cq_idx[NIC_PAIR_QUEUES] = {0};
    assert_ok(weft__nic_model_create(&config, &side->model));
    pair->cable.ends[side_idx] = side->model;
    add_regions(side);
    memset(side->cqes, 0xff, sizeof side->cqes);
    for (int cq = 0; cq < pair->config.num_cqs; cq++)
        assert_ok(weft__nic_model_add_cq(
            side->model,
            &(struct weft__nic_cq_config){.kind = pair->config.cq_kind,
                                          .entries = (uintptr_t)side->cqes[cq],
                                          .num_entries = pair->config.depth,
                                          .record = (uintptr_t)side->cq_records[cq]},
            &cq_idx[cq]));
    for (int queue = 0; queue < NIC_PAIR_QUEUES; queue++)
        add_queue(pair, side_idx, queue, cq_idx[queue % pair->config.num_cqs]);
}

void nic_pair_open(struct nic_pair *pair, const struct nic_pair_config *config)
{
    memset(pair, 0, sizeof *pair);
    pair->config = *config;
    if (pair->config.num_cqs == 0)
        pair->config.num_cqs = NIC_PAIR_QUEUES;
    pair->rng.state = rng_hash(config->seed);
    pair->cable.draw = draw;
    pair->cable.context = pair;
    for (int side = 0; side < 2; side++)
        open_side(pair, side);
}

void nic_pair_close(struct nic_pair *pair)
{
    for (int side = 0; side < 2; side++)
        weft__nic_model_destroy(pair->sides[side].model);
}

/* ---------------------------------------------------------------- driving it */

struct weft__nic_request nic_pair_request(struct nic_pair *pair, int side, int queue,
                                          enum weft__nic_opcode opcode, uint32_t local_offset,
                                          uint32_t remote_offset, uint32_t num_bytes)
{
    return (struct weft__nic_request){
        .opcode = opcode,
        .completion = WEFT__NIC_ALWAYS,
        .qp = qp_of(side, queue),
        .index = pair->sides[side].num_posted[queue],
        .remote_key = NIC_PAIR_REMOTE_KEY,
        .remote_address = (uintptr_t)pair->sides[1 - side].memory[0] + remote_offset,
        .local_key = NIC_PAIR_LOCAL_KEY,
        .local_address = (uintptr_t)pair->sides[side].memory[0] + local_offset,
        .num_bytes = num_bytes};
}

struct weft__nic_unit *nic_pair_unit(struct nic_pair *pair, int side, int queue, uint64_t index)
{
    return &pair->sides[side].units[queue][index % pair->config.depth];
}

void nic_pair_write(struct nic_pair *pair, int side, int queue,
                    const struct weft__nic_request *request)
{
    (void)weft__nic_encode(request, nic_pair_unit(pair, side, queue, request->index));
    pair->sides[side].num_posted[queue] = request->index + 1;
}

void nic_pair_store_record(struct nic_pair *pair, int side, int queue)
{
    pair->sides[side].records[queue][WEFT__NIC_RECORD_SEND_WORD] =
        weft__nic_record(pair->sides[side].num_posted[queue]);
}

void nic_pair_ring(struct nic_pair *pair, int side, int queue)
{
    nic_pair_store_record(pair, side, queue);
    weft__nic_model_ring(
        pair->sides[side].model,
        weft__nic_doorbell(pair->sides[side].num_posted[queue], qp_of(side, queue)));
}

static int step_wire_or_model(struct nic_pair *pair, uint32_t at)
{
    return at < 2 ? weft__nic_model_step(pair->sides[at].model)
                  : weft__nic_cable_step(&pair->cable);
}

int nic_pair_step(struct nic_pair *pair)
{
    enum { NUM_STEPPED = 3, WIRE = 2 };
    const int is_late = pair->config.wire_delay > 0 && draw(pair, pair->config.wire_delay) != 0;
    const uint32_t num_first = is_late ? WIRE : NUM_STEPPED; /* the wire comes last if it is late */
    const uint32_t first = draw(pair, num_first);
    for (uint32_t i = 0; i < num_first; i++)
        if (step_wire_or_model(pair, (first + i) % num_first))
            return 1;
    return is_late && step_wire_or_model(pair, WIRE);
}

void nic_pair_settle(struct nic_pair *pair)
{
    while (nic_pair_step(pair))
        ;
}

int nic_pair_poll(struct nic_pair *pair, int side_idx, int cq, struct weft__nic_cqe *cqe,
                  struct weft__nic_tail *tail)
{
    struct nic_side *side = &pair->sides[side_idx];
    struct weft__nic_unit *entry = &side->cqes[cq][side->num_taken[cq] % pair->config.depth];
    *tail = weft__nic_decode_tail(entry->words[WEFT__NIC_CQE_TAIL_WORD]);
    if (!weft__nic_tail_is_new(tail, side->num_taken[cq], pair->config.depth))
        return 0;
    *cqe = weft__nic_decode_cqe(entry);
    memset(entry, 0x5a, WEFT__NIC_CQE_TAIL_WORD * sizeof(uint32_t));
    side->num_taken[cq]++;
    side->cq_records[cq][0] = weft__nic_be32((uint32_t)(side->num_taken[cq] & 0xffffff));
    return 1;
}
