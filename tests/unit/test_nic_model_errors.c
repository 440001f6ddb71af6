/* SPDX-License-Identifier: MIT */
/* A request that fails completes with its syndrome, all behind it as flushed, and other queues go
 * on. */
#include "harness/cmocka.h"
#include "nic_pair.h"

enum { DEPTH = 16, NUM_BEFORE = 4, NUM_AFTER = 5, BYTES = 300, NUM_SEEDS = 200 };

static struct nic_pair pair; /* large */

/* Every second one asks for a completion. */
static struct weft__nic_request next_request(int queue, enum weft__nic_opcode opcode)
{
    const uint32_t place = (uint32_t)(pair.sides[0].num_posted[queue] % DEPTH) * 512;
    struct weft__nic_request request =
        nic_pair_request(&pair, 0, queue, opcode, place, place,
                         opcode == WEFT__NIC_FETCH_ADD ? WEFT__NIC_ATOMIC_BYTES : BYTES);
    request.completion = request.index % 2 != 0 ? WEFT__NIC_ALWAYS : WEFT__NIC_ON_ERROR;
    return request;
}

static void post_good(int queue, int num_requests)
{
    for (int i = 0; i < num_requests; i++) {
        const struct weft__nic_request request = next_request(queue, WEFT__NIC_WRITE);
        nic_pair_write(&pair, 0, queue, &request);
    }
    nic_pair_ring(&pair, 0, queue);
}

static const struct bad {
    const char *name;
    enum weft__nic_opcode opcode;
    enum { UNKNOWN_LKEY, UNKNOWN_RKEY, BEYOND, HALF_A_WORD, NO_BYTES, AS_IT_IS } how;
    uint32_t syndrome;
} bads[] = {{"a local key of nothing", WEFT__NIC_WRITE, UNKNOWN_LKEY, 0x04},
            {"a remote key of nothing", WEFT__NIC_WRITE, UNKNOWN_RKEY, 0x13},
            {"a READ with a remote key of nothing", WEFT__NIC_READ, UNKNOWN_RKEY, 0x13},
            {"a write beyond the region", WEFT__NIC_WRITE, BEYOND, 0x13},
            {"an add to half a word", WEFT__NIC_FETCH_ADD, HALF_A_WORD, 0x12},
            {"a write of nothing", WEFT__NIC_WRITE, NO_BYTES, 0x02},
            {"an immediate without a receive", WEFT__NIC_WRITE_IMMEDIATE, AS_IT_IS, 0x16}};
enum { NUM_BADS = sizeof bads / sizeof *bads };

static void post_bad(const struct bad *bad)
{
    struct weft__nic_request request = next_request(0, bad->opcode);
    if (bad->how == UNKNOWN_LKEY)
        request.local_key = 0x777;
    if (bad->how == UNKNOWN_RKEY)
        request.remote_key = 0x777;
    if (bad->how == BEYOND)
        request.remote_address += NIC_PAIR_MEMORY - BYTES / 2;
    if (bad->how == HALF_A_WORD)
        request.remote_address += WEFT__NIC_ATOMIC_BYTES / 2;
    if (bad->how == NO_BYTES)
        request.num_bytes = 0;
    nic_pair_write(&pair, 0, 0, &request);
}

/* Complains where the completions of queue 0 are not those of a failure at `index`. */
static const char *check_failure(uint64_t index, uint32_t syndrome)
{
    struct weft__nic_cqe cqe;
    struct weft__nic_tail tail;
    for (uint64_t i = 0; i < pair.sides[0].num_posted[0]; i++) {
        if (i < index && i % 2 == 0)
            continue; /* asked for none, and was well */
        if (!nic_pair_poll(&pair, 0, 0, &cqe, &tail))
            return "a completion is missing";
        if (tail.counter != i || cqe.qp != NIC_PAIR_FIRST_QP)
            return "a completion of another request";
        if ((tail.opcode == WEFT__NIC_CQE_REQUEST) != (i < index))
            return "an opcode that says nothing of the error, or of one where there is none";
        if (cqe.syndrome != (i < index ? 0 : i == index ? syndrome : WEFT__NIC_FLUSHED))
            return "another syndrome";
    }
    return nic_pair_poll(&pair, 0, 0, &cqe, &tail) ? "a completion too many" : NULL;
}

static const char *fail_once(const struct bad *bad, uint64_t seed, enum weft__nic_fault fault)
{
    nic_pair_open(&pair, &(struct nic_pair_config){.seed = seed,
                                                   .depth = DEPTH,
                                                   .fault = fault,
                                                   .wire_delay = seed % 3 == 0 ? 20 : 0,
                                                   .last = WEFT__NIC_LAST_MAY_BE_SILENT});
    post_good(0, NUM_BEFORE);
    post_bad(bad);
    post_good(0, NUM_AFTER);
    nic_pair_settle(&pair);
    post_good(0, 1); /* the queue has failed: this one, too, is flushed */
    post_good(1, NUM_AFTER);
    nic_pair_settle(&pair);
    const char *complaint = check_failure(NUM_BEFORE, bad->syndrome);
    if (complaint == NULL && pair.num_stray > 0)
        complaint = "memory that is not the model's";
    for (int i = 0; i < NUM_AFTER / 2 && complaint == NULL; i++) {
        struct weft__nic_cqe cqe;
        struct weft__nic_tail tail;
        if (!nic_pair_poll(&pair, 0, 1, &cqe, &tail) || tail.opcode != WEFT__NIC_CQE_REQUEST)
            complaint = "another queue does not go on";
    }
    nic_pair_close(&pair);
    return complaint;
}

TEST(the_first_error_has_its_syndrome_and_flushes_the_rest)
{
    for (int i = 0; i < NUM_BADS; i++)
        for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
            const char *complaint = fail_once(&bads[i], seed, WEFT__NIC_NO_FAULT);
            if (complaint != NULL)
                fail_msg("%s, seed %d: %s", bads[i].name, (int)seed, complaint);
        }
}

TEST(a_model_that_forgets_errors_is_seen)
{
    assert_non_null(fail_once(&bads[1], 0, WEFT__NIC_FAULT_FORGETS_SYNDROME));
    assert_non_null(fail_once(&bads[1], 0, WEFT__NIC_FAULT_FORGETS_FLUSH));
}

/* Nothing of a request beyond the region is written, not even what would fit. */
TEST(a_refused_request_leaves_memory_alone)
{
    nic_pair_open(&pair, &(struct nic_pair_config){.depth = DEPTH});
    memset(pair.sides[0].memory, 7, sizeof pair.sides[0].memory);
    struct weft__nic_request request = next_request(0, WEFT__NIC_WRITE);
    request.remote_address += NIC_PAIR_MEMORY - BYTES + 1;
    nic_pair_write(&pair, 0, 0, &request);
    nic_pair_ring(&pair, 0, 0);
    nic_pair_settle(&pair);
    for (size_t i = 0; i < sizeof pair.sides[1].memory; i++)
        assert_int_equal(((const uint8_t *)pair.sides[1].memory)[i], 0);
    nic_pair_close(&pair);
}

/* Flushed requests write over the one entry: of the first cause, a reader that is late sees
 * nothing. */
TEST(a_collapsed_queue_keeps_the_last_error)
{
    int num_causes = 0;
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        const struct weft__nic_unit *entry = &pair.sides[0].cqes[0][0];
        nic_pair_open(&pair, &(struct nic_pair_config){.seed = seed,
                                                       .depth = DEPTH,
                                                       .cq_kind = WEFT__NIC_CQ_COLLAPSED,
                                                       .last = WEFT__NIC_LAST_MAY_BE_SILENT});
        post_good(0, NUM_BEFORE);
        post_bad(&bads[1]);
        post_good(0, NUM_AFTER);
        int is_cause_seen = 0;
        while (nic_pair_step(&pair))
            is_cause_seen |= weft__nic_decode_cqe(entry).syndrome == WEFT__NIC_REMOTE_ACCESS;
        const struct weft__nic_tail tail =
            weft__nic_decode_tail(entry->words[WEFT__NIC_CQE_TAIL_WORD]);
        assert_int_equal(tail.counter, NUM_BEFORE + NUM_AFTER);
        assert_int_equal(tail.opcode, WEFT__NIC_CQE_REQUEST_ERROR);
        assert_int_equal(weft__nic_decode_cqe(entry).syndrome, WEFT__NIC_FLUSHED);
        num_causes += is_cause_seen;
        nic_pair_close(&pair);
    }
    assert_int_equal(num_causes, NUM_SEEDS);
}

/* Looks through the ring, of which nothing is taken yet. */
static uint64_t index_of_first_error(void)
{
    const struct weft__nic_unit *entry = pair.sides[0].cqes[0];
    struct weft__nic_tail tail;
    do
        tail = weft__nic_decode_tail(entry++->words[WEFT__NIC_CQE_TAIL_WORD]);
    while (tail.opcode == WEFT__NIC_CQE_REQUEST);
    return tail.counter;
}

/* The peer dies at any moment. What is complete is complete, then one has the syndrome. */
TEST(a_dead_peer_ends_the_queue)
{
    int num_ends[NUM_BEFORE + 1] = {0};
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        nic_pair_open(&pair, &(struct nic_pair_config){.seed = seed,
                                                       .depth = DEPTH,
                                                       .last = WEFT__NIC_LAST_MAY_BE_SILENT});
        post_good(0, NUM_BEFORE);
        for (uint64_t i = 0; i < 2 * seed && nic_pair_step(&pair); i++)
            ;
        weft__nic_cable_cut(&pair.cable, 1);
        post_good(0, NUM_AFTER);
        nic_pair_settle(&pair);
        const uint64_t first_error = index_of_first_error();
        assert_true(first_error <= NUM_BEFORE);
        assert_null(check_failure(first_error, WEFT__NIC_RETRIES));
        num_ends[first_error]++;
        nic_pair_close(&pair);
    }
    assert_true(num_ends[0] > 0 && num_ends[NUM_BEFORE] > 0);
}

/* Both queues of a side complete to one ring, in any order between them, over many laps. */
TEST(queues_share_a_ring)
{
    enum { NUM_LAPS = 20 };
    uint64_t num_swaps = 0;
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        uint64_t next[NIC_PAIR_QUEUES] = {1, 1};
        nic_pair_open(&pair, &(struct nic_pair_config){.seed = seed,
                                                       .depth = DEPTH,
                                                       .num_cqs = 1,
                                                       .last = WEFT__NIC_LAST_MAY_BE_SILENT});
        for (int lap = 0; lap < NUM_LAPS; lap++) {
            struct weft__nic_cqe cqe;
            struct weft__nic_tail tail;
            uint32_t last = 0;
            post_good(0, DEPTH / 2);
            post_good(1, DEPTH / 2);
            nic_pair_settle(&pair);
            while (nic_pair_poll(&pair, 0, 0, &cqe, &tail)) {
                const uint32_t queue = cqe.user_index - NIC_PAIR_USER_INDEX;
                assert_true(queue < NIC_PAIR_QUEUES);
                assert_int_equal(tail.counter, next[queue]);
                next[queue] += 2;
                num_swaps += queue < last;
                last = queue;
            }
        }
        assert_int_equal(next[0], 1 + NUM_LAPS * DEPTH / 2);
        assert_int_equal(next[1], 1 + NUM_LAPS * DEPTH / 2);
        assert_int_equal(nic_pair_num_findings(&pair), 0);
        nic_pair_close(&pair);
    }
    assert_true(num_swaps > 0);
}

TEST(objects_of_a_model_are_checked)
{
    uint32_t cq_idx;
    nic_pair_open(&pair, &(struct nic_pair_config){.depth = DEPTH});
    struct weft__nic_model *model = pair.sides[0].model;
    struct weft__nic_queue_config queue = {.qp = 1, .depth = DEPTH};
    assert_error(
        weft__nic_model_add_cq(model, &(struct weft__nic_cq_config){.num_entries = 3}, &cq_idx),
        WEFT_ERROR_INVALID_ARGUMENT, "num_entries is 3");
    assert_error(weft__nic_model_add_region(
                     model, &(struct weft__nic_region){.local_key = NIC_PAIR_LOCAL_KEY}),
                 WEFT_ERROR_INVALID_ARGUMENT, "in use");
    assert_error(weft__nic_model_add_region(model, &(struct weft__nic_region){.kind = 4}),
                 WEFT_ERROR_INVALID_ARGUMENT, "0..3");
    queue.depth = 2 * WEFT__NIC_MAX_DEPTH;
    assert_error(weft__nic_model_add_queue(model, &queue), WEFT_ERROR_INVALID_ARGUMENT, "depth");
    queue.depth = DEPTH;
    queue.record = 4;
    assert_error(weft__nic_model_add_queue(model, &queue), WEFT_ERROR_INVALID_ARGUMENT, "record");
    queue.record = 0;
    queue.cq_idx = 9;
    assert_error(weft__nic_model_add_queue(model, &queue), WEFT_ERROR_INVALID_ARGUMENT, "cq_idx");
    queue.cq_idx = 0;
    queue.qp = NIC_PAIR_FIRST_QP;
    assert_error(weft__nic_model_add_queue(model, &queue), WEFT_ERROR_INVALID_ARGUMENT, "qp is");
    nic_pair_close(&pair);
}

/* A NIC whose queue has failed answers nobody. */
TEST(a_failed_queue_is_a_dead_peer)
{
    struct weft__nic_cqe cqe;
    struct weft__nic_tail tail;
    nic_pair_open(&pair, &(struct nic_pair_config){.depth = DEPTH});
    struct weft__nic_request request = nic_pair_request(&pair, 1, 0, WEFT__NIC_WRITE, 0, 0, BYTES);
    request.local_key = 0x777;
    nic_pair_write(&pair, 1, 0, &request);
    nic_pair_ring(&pair, 1, 0);
    nic_pair_settle(&pair);
    request = nic_pair_request(&pair, 0, 0, WEFT__NIC_WRITE, 0, 0, BYTES);
    nic_pair_write(&pair, 0, 0, &request);
    nic_pair_ring(&pair, 0, 0);
    nic_pair_settle(&pair);
    assert_int_equal(nic_pair_poll(&pair, 0, 0, &cqe, &tail), 1);
    assert_int_equal(cqe.syndrome, WEFT__NIC_RETRIES);
    nic_pair_close(&pair);
}

/* A target that refuses a request fails with it; one without a receive goes on. */
TEST(a_refusal_fails_the_queue_of_the_target)
{
    for (int i = 0; i < NUM_BADS; i++) {
        struct weft__nic_cqe cqe;
        struct weft__nic_tail tail;
        const uint32_t refused = bads[i].syndrome;
        nic_pair_open(&pair, &(struct nic_pair_config){.depth = DEPTH});
        post_bad(&bads[i]);
        nic_pair_ring(&pair, 0, 0);
        nic_pair_settle(&pair);
        const struct weft__nic_request request =
            nic_pair_request(&pair, 1, 0, WEFT__NIC_NOP, 0, 0, 0);
        nic_pair_write(&pair, 1, 0, &request);
        nic_pair_ring(&pair, 1, 0);
        nic_pair_settle(&pair);
        assert_int_equal(nic_pair_poll(&pair, 1, 0, &cqe, &tail), 1);
        assert_int_equal(cqe.syndrome, refused == 0x12 || refused == 0x13 ? WEFT__NIC_FLUSHED : 0);
        nic_pair_close(&pair);
    }
}

/* As many completions as entries are no overrun; one more is. */
TEST(a_full_ring_is_not_overrun)
{
    nic_pair_open(&pair, &(struct nic_pair_config){.depth = DEPTH});
    for (int i = 0; i <= DEPTH; i++) {
        const struct weft__nic_request request =
            nic_pair_request(&pair, 0, 0, WEFT__NIC_WRITE, 0, 0, BYTES);
        nic_pair_write(&pair, 0, 0, &request);
        nic_pair_ring(&pair, 0, 0);
        nic_pair_settle(&pair);
        assert_int_equal(pair.findings[WEFT__NIC_RULE_CQ_OVERRUN], i == DEPTH);
    }
    assert_int_equal(pair.last_finding.value, DEPTH + 1);
    nic_pair_close(&pair);
}

static void check_one_by_one(void *context, enum weft__nic_store what, uint64_t to,
                             uint32_t num_bytes)
{
    int *is_open = context;
    (void)to, (void)num_bytes;
    if (what == WEFT__NIC_STORE_TARGET)
        return;
    assert_int_equal(*is_open, what == WEFT__NIC_STORE_TAIL);
    *is_open = !*is_open;
}

/* Else a tail would stand under the other queue's fields. */
TEST(queues_share_a_collapsed_entry_one_by_one)
{
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        int is_open = 0;
        nic_pair_open(&pair, &(struct nic_pair_config){.seed = seed,
                                                       .depth = DEPTH,
                                                       .num_cqs = 1,
                                                       .cq_kind = WEFT__NIC_CQ_COLLAPSED,
                                                       .last = WEFT__NIC_LAST_MAY_BE_SILENT});
        pair.context = &is_open;
        pair.on_store = check_one_by_one;
        post_good(0, DEPTH);
        post_good(1, DEPTH);
        nic_pair_settle(&pair);
        assert_int_equal(is_open, 0);
        nic_pair_close(&pair);
    }
}
