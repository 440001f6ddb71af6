/* SPDX-License-Identifier: MIT */
/* An unmodified libmlx5, which drives real NICs, drives the model: it posts, rings and polls.
 * Skipped where the library's headers are not installed. */
#include "harness/cmocka.h"

#ifdef WEFT_TEST_MLX5
#include "net/nic/model.h"
#include "net/nic/model_cable.h"
#include "nic_device.h"
#include "nic_kernel.h"
#include "nic_traffic.h"

enum {
    NUM_POSTS = 1000000,
    MAX_BYTES = 64,
    TARGET_QP = 0x77,
    REMOTE_KEY = 0x5a5a5a,
    RIGHTS = WEFT__NIC_LOCAL_WRITE | WEFT__NIC_REMOTE_WRITE | WEFT__NIC_REMOTE_READ |
             WEFT__NIC_REMOTE_ATOMIC
};

static struct {
    struct nic_device device;
    struct nic_traffic traffic;
    struct weft__nic_model *initiator, *target;
    struct weft__nic_cable cable;
    struct rng rng;
    _Alignas(64) uint8_t local[NIC_TRAFFIC_MEMORY], remote[NIC_TRAFFIC_MEMORY];
    /* The target's queues, to which nobody posts. */
    _Alignas(64) struct weft__nic_unit units[1], cqes[1];
    _Alignas(8) uint32_t record[2];
    int num_findings, num_copies;
    uint64_t num_rings[2]; /* of the two halves of the register */
    char finding[WEFT__NIC_FINDING_BYTES];
} job; /* large */

/* ---------------------------------------------------------------- below the models */

static void load(void *context, enum weft__nic_load what, void *to, uint64_t from,
                 uint32_t num_bytes)
{
    (void)context, (void)what;
    memcpy(to, (const void *)(uintptr_t)from, num_bytes);
}

static void store(void *context, enum weft__nic_store what, uint64_t to, const void *from,
                  uint32_t num_bytes)
{
    (void)context, (void)what;
    memcpy((void *)(uintptr_t)to, from, num_bytes);
}

static uint64_t add(void *context, uint64_t address, uint64_t addend)
{
    uint64_t before, after;
    (void)context;
    nic_traffic_see_add(&job.traffic);
    memcpy(&before, (const void *)(uintptr_t)address, sizeof before);
    after = before + addend;
    memcpy((void *)(uintptr_t)address, &after, sizeof after);
    return before;
}

static uint32_t draw(void *context, uint32_t bound)
{
    (void)context;
    return rng_below(&job.rng, bound);
}

static void tell(void *context, const struct weft__nic_finding *finding)
{
    (void)context;
    if (job.num_findings++ == 0)
        weft__nic_finding_text(finding, job.finding);
}

static struct weft__nic_model *make_model(uint32_t local_key, uint32_t remote_key, uint8_t *memory)
{
    struct weft__nic_model *model;
    const struct weft__nic_model_config config = {
        .host = {.load = load, .store = store, .add = add, .draw = draw, .tell = tell},
        .wire = weft__nic_cable_wire(&job.cable)};
    assert_ok(weft__nic_model_create(&config, &model));
    assert_ok(weft__nic_model_add_region(model,
                                         &(struct weft__nic_region){.address = (uintptr_t)memory,
                                                                    .num_bytes = NIC_TRAFFIC_MEMORY,
                                                                    .local_key = local_key,
                                                                    .remote_key = remote_key,
                                                                    .rights = RIGHTS}));
    return model;
}

/* The library's queues, as the kernel would tell a NIC of them. */
static void add_queues_of_the_library(void)
{
    const struct mlx5dv_qp *qp = &job.device.raw_qp;
    const struct mlx5dv_cq *cq = &job.device.raw_cq;
    uint32_t cq_idx;
    assert_ok(weft__nic_model_add_cq(job.initiator,
                                     &(struct weft__nic_cq_config){.kind = WEFT__NIC_CQ_RING,
                                                                   .entries = (uintptr_t)cq->buf,
                                                                   .num_entries = cq->cqe_cnt,
                                                                   .record = (uintptr_t)cq->dbrec},
                                     &cq_idx));
    assert_ok(weft__nic_model_add_queue(
        job.initiator, &(struct weft__nic_queue_config){.qp = NIC_KERNEL_QP,
                                                        .user_index = nic_kernel_user_index(),
                                                        .cq_idx = cq_idx,
                                                        .peer = 1,
                                                        .peer_qp = TARGET_QP,
                                                        .units = (uintptr_t)qp->sq.buf,
                                                        .depth = qp->sq.wqe_cnt,
                                                        .record = (uintptr_t)qp->dbrec,
                                                        .last = WEFT__NIC_LAST_MAY_BE_SILENT}));
}

static void add_queues_of_the_target(void)
{
    uint32_t cq_idx;
    memset(job.cqes, 0xff, sizeof job.cqes);
    assert_ok(weft__nic_model_add_cq(job.target,
                                     &(struct weft__nic_cq_config){.kind = WEFT__NIC_CQ_COLLAPSED,
                                                                   .entries = (uintptr_t)job.cqes,
                                                                   .num_entries = 1},
                                     &cq_idx));
    assert_ok(weft__nic_model_add_queue(
        job.target, &(struct weft__nic_queue_config){.qp = TARGET_QP,
                                                     .cq_idx = cq_idx,
                                                     .peer_qp = NIC_KERNEL_QP,
                                                     .units = (uintptr_t)job.units,
                                                     .depth = 1,
                                                     .record = (uintptr_t)job.record}));
}

/* ---------------------------------------------------------------- the library's doorbells */

static char *half_of_register(int half)
{
    return (char *)job.device.raw_qp.bf.reg + (size_t)half * job.device.raw_qp.bf.size;
}

/* The library stores 8 bytes, or a copy of the entry, to the two halves in turn. */
static void ring(void)
{
    for (int half = 0; half < 2; half++) {
        uint64_t words[WEFT__NIC_UNIT_BYTES / sizeof(uint64_t)];
        memcpy(words, half_of_register(half), sizeof words);
        if (words[0] == 0)
            continue;
        weft__nic_model_ring(job.initiator, words[0]);
        job.num_rings[half]++;
        job.num_copies += words[1] != 0;
        memset(half_of_register(half), 0, sizeof words);
    }
}

static void post(void *context, const struct weft__nic_request *request)
{
    (void)context;
    nic_device_post(&job.device, request);
    ring();
}

static int step(void)
{
    const int wire_first = rng_below(&job.rng, 2) != 0;
    if (wire_first && weft__nic_cable_step(&job.cable))
        return 1;
    return weft__nic_model_step(job.initiator) || weft__nic_cable_step(&job.cable);
}

/* ---------------------------------------------------------------- tests */

static int set_up(void **state)
{
    (void)state;
    memset(&job, 0, sizeof job);
    nic_device_open(&job.device, job.local, sizeof job.local);
    memset(half_of_register(0), 0, 2 * job.device.raw_qp.bf.size);
    job.cable.draw = draw;
    job.initiator = make_model(job.device.mr->lkey, job.device.mr->rkey, job.local);
    job.target = make_model(REMOTE_KEY + 1, REMOTE_KEY, job.remote);
    job.cable.ends[0] = job.initiator;
    job.cable.ends[1] = job.target;
    add_queues_of_the_library();
    add_queues_of_the_target();
    nic_traffic_start(&job.traffic, &(struct nic_traffic_config){.depth = NIC_TRAFFIC_MAX_DEPTH,
                                                                 .max_bytes = MAX_BYTES,
                                                                 .qp = NIC_KERNEL_QP,
                                                                 .local_key = job.device.mr->lkey,
                                                                 .remote_key = REMOTE_KEY,
                                                                 .kinds = NIC_TRAFFIC_OF_VERBS,
                                                                 .local = job.local,
                                                                 .remote = job.remote,
                                                                 .post = post});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weft__nic_model_destroy(job.initiator);
    weft__nic_model_destroy(job.target);
    nic_device_close(&job.device);
    return 0;
}

/* Takes what there is. */
static void poll(void)
{
    struct ibv_wc wc;
    while (ibv_poll_cq(job.device.cq, 1, &wc) == 1) {
        const uint64_t index = nic_traffic_next_signalled(&job.traffic);
        if (wc.status != IBV_WC_SUCCESS || wc.wr_id != index || wc.qp_num != NIC_KERNEL_QP)
            fail_msg("completion of %d with %s, not of %d", (int)wc.wr_id,
                     ibv_wc_status_str(wc.status), (int)index);
        nic_traffic_complete(&job.traffic, index + 1);
    }
}

static void check_traffic(void)
{
    if (job.traffic.complaint != NULL || job.num_findings > 0)
        fail_msg("post %d: %s; %d findings: %s", (int)job.traffic.posted,
                 job.traffic.complaint != NULL ? job.traffic.complaint : "no complaint",
                 job.num_findings, job.finding);
}

TEST_AS(the_library_moves_data_and_takes_completions,
        cmocka_unit_test_setup_teardown(the_library_moves_data_and_takes_completions, set_up,
                                        tear_down))
{
    while (job.traffic.posted < NUM_POSTS || job.traffic.done < job.traffic.posted) {
        if (job.traffic.posted < NUM_POSTS && nic_traffic_has_room(&job.traffic))
            nic_traffic_post(&job.traffic);
        else if (!step())
            fail_msg("all stand still at %d of %d posts", (int)job.traffic.done,
                     (int)job.traffic.posted);
        poll();
        check_traffic();
    }
    assert_int_equal(job.traffic.num_adds_seen, job.traffic.num_adds_posted);
    print_message("%d posts; %d and %d doorbells in the halves of the register, %d with a copy\n",
                  (int)job.traffic.posted, (int)job.num_rings[0], (int)job.num_rings[1],
                  job.num_copies);
    assert_int_equal(job.num_rings[0] + job.num_rings[1], job.traffic.posted);
    assert_true(job.num_rings[0] > 0 && job.num_rings[1] > 0 && job.num_copies > 0);
}

static const struct failure {
    enum { UNKNOWN_RKEY, UNKNOWN_LKEY, HALF_A_WORD, IMMEDIATE, DEAD_PEER } how;
    enum ibv_wc_status status;
} failures[] = {{UNKNOWN_RKEY, IBV_WC_REM_ACCESS_ERR},
                {UNKNOWN_LKEY, IBV_WC_LOC_PROT_ERR},
                {HALF_A_WORD, IBV_WC_REM_INV_REQ_ERR},
                {IMMEDIATE, IBV_WC_RNR_RETRY_EXC_ERR},
                {DEAD_PEER, IBV_WC_RETRY_EXC_ERR}};

static struct weft__nic_request failing_request(const struct failure *failure)
{
    struct weft__nic_request request = {.opcode = WEFT__NIC_WRITE,
                                        .completion = WEFT__NIC_ALWAYS,
                                        .index = 2,
                                        .remote_key = REMOTE_KEY,
                                        .remote_address = (uintptr_t)job.remote,
                                        .local_key = job.device.mr->lkey,
                                        .local_address = (uintptr_t)job.local,
                                        .num_bytes = WEFT__NIC_ATOMIC_BYTES};
    if (failure->how == UNKNOWN_RKEY)
        request.remote_key++;
    if (failure->how == UNKNOWN_LKEY)
        request.local_key++;
    if (failure->how == IMMEDIATE)
        request.opcode = WEFT__NIC_WRITE_IMMEDIATE;
    if (failure->how == HALF_A_WORD) {
        request.opcode = WEFT__NIC_FETCH_ADD;
        request.remote_address += WEFT__NIC_ATOMIC_BYTES / 2;
    }
    return request;
}

/* Two are well, the third fails, the two behind it are flushed, though the last asks for no
 * completion. */
static void check_failure(const struct failure *failure)
{
    static const struct failure none = {DEAD_PEER, IBV_WC_SUCCESS};
    struct weft__nic_request request = failing_request(&none);
    for (request.index = 0; request.index < 2; request.index++)
        post(NULL, &request);
    while (step())
        ;
    if (failure->how == DEAD_PEER)
        weft__nic_cable_cut(&job.cable, 1);
    const struct weft__nic_request failing = failing_request(failure);
    post(NULL, &failing);
    for (request.index = 3; request.index < 5; request.index++) {
        request.completion = request.index == 3 ? WEFT__NIC_ALWAYS : WEFT__NIC_ON_ERROR;
        post(NULL, &request);
    }
    while (step())
        ;
    for (uint64_t index = 0; index < 5; index++) {
        struct ibv_wc wc;
        assert_int_equal(ibv_poll_cq(job.device.cq, 1, &wc), 1);
        assert_int_equal(wc.wr_id, index);
        assert_int_equal(wc.status, index < 2    ? IBV_WC_SUCCESS
                                    : index == 2 ? failure->status
                                                 : IBV_WC_WR_FLUSH_ERR);
    }
}

TEST(the_library_knows_each_error)
{
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        set_up(NULL);
        check_failure(&failures[i]);
        tear_down(NULL);
    }
}

static int start_kernel(void **state)
{
    (void)state;
    nic_kernel_start(1);
    return 0;
}

static int stop_kernel(void **state)
{
    (void)state;
    nic_kernel_stop();
    return 0;
}

int main(void)
{
    return tests_run(start_kernel, stop_kernel);
}
#else
int main(void)
{
    enum { SKIPPED = 77 };
    return SKIPPED;
}
#endif
