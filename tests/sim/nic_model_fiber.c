/* SPDX-License-Identifier: MIT */
/* The models' memory and draws are those of the sim. */
#include <string.h>

#include "nic_job_internal.h"

enum { QP = 0x123456, TARGET_QP = 0x77 };

static struct nic_job_state *const state = &nic_job_state;

/* ---------------------------------------------------------------- memory */

static void load(void *context, enum weft__nic_load what, void *to, uint64_t from,
                 uint32_t num_bytes)
{
    (void)context;
    if (from == (uintptr_t)&state->memory.cqe) /* only as a new queue's is it loaded */
        memcpy(to, &state->memory.cqe, num_bytes);
    else
        sim_nic_model_load(what, to, from, num_bytes);
}

static void store(void *context, enum weft__nic_store what, uint64_t to, const void *from,
                  uint32_t num_bytes)
{
    (void)context;
    sim_nic_model_store(what, to, from, num_bytes,
                        what == WEFT__NIC_STORE_CQE ? SIM_ATOMIC_WRITE : SIM_WRITE);
}

static uint64_t add(void *context, uint64_t address, uint64_t addend)
{
    uint64_t *word = (uint64_t *)(uintptr_t)address;
    (void)context;
    sim_yield();
    sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
    sim_release(sim_nic_clock_of(word));
    const uint64_t before = *word;
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
    nic_complain(text, finding->rule);
}

/* ---------------------------------------------------------------- the models */

static const struct weft__nic_host host = {
    .load = load, .store = store, .add = add, .draw = draw, .tell = tell};

static int open_model(const struct weft__nic_region *region, const struct weft__nic_cq_config *cq,
                      struct weft__nic_queue_config *queue, struct weft__nic_model **model)
{
    const struct weft__nic_model_config config = {.host = host,
                                                  .wire = weft__nic_cable_wire(&state->cable)};
    return weft__nic_model_create(&config, model) != WEFT_OK ||
           weft__nic_model_add_region(*model, region) != WEFT_OK ||
           weft__nic_model_add_cq(*model, cq, &queue->cq_idx) != WEFT_OK ||
           weft__nic_model_add_queue(*model, queue) != WEFT_OK;
}

int nic_models_open(void)
{
    static struct {
        _Alignas(64) struct weft__nic_unit unit, cqe;
        _Alignas(8) uint32_t record[2];
    } of_target; /* nobody posts there */
    struct nic_job_memory *memory = &state->memory;
    struct weft__nic_region region = {.address = (uintptr_t)memory,
                                      .num_bytes = sizeof *memory,
                                      .local_key = NIC_JOB_LOCAL_KEY,
                                      .remote_key = NIC_JOB_REMOTE_KEY,
                                      .rights = WEFT__NIC_LOCAL_WRITE | WEFT__NIC_REMOTE_WRITE |
                                                WEFT__NIC_REMOTE_ATOMIC};
    struct weft__nic_cq_config cq = {
        .kind = WEFT__NIC_CQ_COLLAPSED, .entries = (uintptr_t)&memory->cqe, .num_entries = 1};
    struct weft__nic_queue_config queue = {.qp = QP,
                                           .peer = 1,
                                           .peer_qp = TARGET_QP,
                                           .units = (uintptr_t)memory->units,
                                           .depth = NIC_JOB_DEPTH,
                                           .record = (uintptr_t)memory->record,
                                           .first = state->queue.done};
    state->cable.draw = draw;
    if (open_model(&region, &cq, &queue, &state->initiator))
        return 1;
    memset(&of_target.cqe, 0xff, sizeof of_target.cqe);
    cq.entries = (uintptr_t)&of_target.cqe;
    queue = (struct weft__nic_queue_config){.qp = TARGET_QP,
                                            .peer_qp = QP,
                                            .units = (uintptr_t)&of_target.unit,
                                            .depth = 1,
                                            .record = (uintptr_t)of_target.record};
    if (open_model(&region, &cq, &queue, &state->target))
        return 1;
    state->cable.ends[0] = state->initiator;
    state->cable.ends[1] = state->target;
    state->queue.qp = QP;
    return 0;
}

void nic_models_close(void)
{
    weft__nic_model_destroy(state->initiator);
    weft__nic_model_destroy(state->target);
}

/* ---------------------------------------------------------------- their fiber */

static int has_news(struct sim_fiber *fiber)
{
    return state->memory.doorbell != *(const uint64_t *)fiber->wait_argument || state->is_stopped;
}

static int step(void)
{
    if (sim_random(2) == 0 && weft__nic_cable_step(&state->cable))
        return 1;
    return weft__nic_model_step(state->initiator) || weft__nic_cable_step(&state->cable);
}

void nic_models_run(struct sim_fiber *fiber)
{
    enum { MAX_STEPS_BEFORE = 600 };
    uint64_t last_doorbell = 0;
    uint64_t num_steps_before = sim_random(MAX_STEPS_BEFORE);
    fiber->is_host = 1;
    while (!state->is_stopped) {
        const uint64_t doorbell = state->memory.doorbell;
        if (doorbell != last_doorbell)
            weft__nic_model_ring(state->initiator, doorbell);
        last_doorbell = doorbell;
        if (!step())
            sim_wait_until(has_news, &last_doorbell, INT64_MAX);
        if (state->job.trouble != NIC_NO_TROUBLE && num_steps_before-- == 0) {
            if (state->job.trouble == NIC_STUCK_MODEL)
                return;
            weft__nic_cable_cut(&state->cable, 1);
        }
        sim_yield();
    }
}
