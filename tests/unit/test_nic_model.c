/* SPDX-License-Identifier: MIT */
/* The model of a NIC keeps what hardware promises, and nothing more. The oracle of nic_traffic.h
 * finds each promise that a model breaks. */
#include "harness/cmocka.h"
#include "nic_pair.h"
#include "nic_traffic.h"

enum { NUM_GROUPS = 60 };
_Static_assert((int)NIC_PAIR_MEMORY == (int)NIC_TRAFFIC_MEMORY,
               "a pair has the memory for the traffic");

static struct {
    struct nic_pair pair;
    struct nic_traffic traffic;
    struct rng rng;
    uint64_t last_segment, last_source, rung; /* `rung`: index behind the last doorbell */
    /* The model was seen to do this, as it may. */
    uint64_t num_early_writes, num_passed_reads, num_reads_at_once, num_segments_back, num_jumps,
        num_sources_twice, num_early_units, num_full_windows;
} job; /* large */

static void post(void *context, const struct weft__nic_request *request)
{
    (void)context;
    nic_pair_write(&job.pair, 0, 0, request);
}

/* ---------------------------------------------------------------- what must hold */

static void check_cqe(const struct weft__nic_cqe *cqe, const struct nic_message *message)
{
    if (cqe->qp != message->request.qp || cqe->user_index != NIC_PAIR_USER_INDEX ||
        cqe->request_opcode != (uint32_t)message->request.opcode || cqe->syndrome != 0 ||
        cqe->num_bytes != message->request.num_bytes)
        nic_traffic_complain(&job.traffic,
                             "a completion whose fields are not those of its request");
}

static void poll_ring(void)
{
    struct weft__nic_cqe cqe;
    struct weft__nic_tail tail;
    while (nic_pair_poll(&job.pair, 0, 0, &cqe, &tail)) {
        const uint64_t index = nic_traffic_next_signalled(&job.traffic);
        if (tail.opcode != WEFT__NIC_CQE_REQUEST || tail.counter != (index & 0xffff) ||
            index == job.traffic.posted) {
            nic_traffic_complain(&job.traffic, "a completion that is not the next one");
            return;
        }
        check_cqe(&cqe, nic_traffic_message(&job.traffic, index));
        nic_traffic_complete(&job.traffic, index + 1);
    }
}

/* Only the last word: the others may be those of the next completion already. */
static void poll_collapsed(void)
{
    const struct weft__nic_tail tail =
        weft__nic_decode_tail(job.pair.sides[0].cqes[0][0].words[WEFT__NIC_CQE_TAIL_WORD]);
    const uint64_t end =
        weft__nic_count_done(job.traffic.done, tail.counter, job.pair.config.depth);
    if (tail.opcode == WEFT__NIC_CQE_INVALID || end == job.traffic.done)
        return;
    if (tail.opcode != WEFT__NIC_CQE_REQUEST || end > job.traffic.posted ||
        nic_traffic_message(&job.traffic, end - 1)->request.completion != WEFT__NIC_ALWAYS) {
        nic_traffic_complain(&job.traffic, "a completion of what is not to be completed");
        return;
    }
    job.num_jumps += end > nic_traffic_next_signalled(&job.traffic) + 1;
    nic_traffic_complete(&job.traffic, end);
}

static void poll(void)
{
    if (job.pair.config.cq_kind == WEFT__NIC_CQ_RING)
        poll_ring();
    else
        poll_collapsed();
}

static void on_add(void *context, uint64_t address)
{
    (void)context, (void)address;
    uint64_t num_pending = 0; /* with this one */
    nic_traffic_see_add(&job.traffic);
    for (uint32_t i = 0; i < job.pair.cable.num_answers; i++) {
        const struct weft__nic_answer *answer = &job.pair.cable.answers[i].answer;
        num_pending += nic_traffic_message(&job.traffic, answer->ticket.index)->kind == NIC_ADDS;
    }
    if (num_pending > WEFT__NIC_MAX_READS)
        nic_traffic_complain(&job.traffic, "more atomics are under way than may be");
    if (num_pending > job.num_reads_at_once)
        job.num_reads_at_once = num_pending;
}

/* A write's piece: which earlier requests has it passed? */
static void on_store(void *context, enum weft__nic_store what, uint64_t to, uint32_t num_bytes)
{
    (void)context, (void)num_bytes;
    if (what != WEFT__NIC_STORE_TARGET || to < (uintptr_t)job.pair.sides[1].memory[0] ||
        to >= (uintptr_t)job.pair.sides[1].memory[1])
        return;
    for (uint64_t index = job.traffic.done; index < job.traffic.posted; index++) {
        const struct nic_message *message = nic_traffic_message(&job.traffic, index);
        const uint64_t begin = message->request.remote_address;
        if (message->kind == NIC_WRITES && to >= begin && to < begin + message->num_bytes)
            return;
        job.num_early_writes += message->kind == NIC_WRITES && !nic_traffic_has_bytes(message);
        job.num_passed_reads += message->kind == NIC_READS && !nic_traffic_has_bytes(message);
    }
}

static void on_load(void *context, enum weft__nic_load what, uint64_t from)
{
    (void)context;
    if (what == WEFT__NIC_LOAD_UNIT) {
        job.num_segments_back += from < job.last_segment;
        job.last_segment = from;
        for (uint64_t index = job.rung; index < job.traffic.posted; index++)
            job.num_early_units += from == (uintptr_t)nic_pair_unit(&job.pair, 0, 0, index);
    }
    if (what == WEFT__NIC_LOAD_SOURCE) {
        job.num_sources_twice += from == job.last_source;
        job.last_source = from;
    }
}

/* ---------------------------------------------------------------- a run */

/* Steps until `end` is done; complains if all stand still before. */
static void wait_for(uint64_t end)
{
    while (job.traffic.done < end && job.traffic.complaint == NULL) {
        const int has_moved = nic_pair_step(&job.pair);
        const uint64_t before = job.traffic.done;
        poll();
        if (!has_moved && job.traffic.done == before)
            nic_traffic_complain(&job.traffic, "nothing goes on");
    }
}

static void ring(void)
{
    enum { WINDOW = 32 }; /* of units that a model fetches ahead */
    nic_pair_ring(&job.pair, 0, 0);
    job.rung = job.traffic.posted;
    job.num_full_windows += job.rung - job.traffic.done > WINDOW;
}

/* Rings now, or for several groups at once; the record may be seen before the doorbell. */
static void ring_sometimes(void)
{
    enum { NUM_WAYS = 4, MAX_STEPS = 50 };
    switch (rng_below(&job.rng, NUM_WAYS)) {
    case 0:
        break;
    case 1:
        nic_pair_store_record(&job.pair, 0, 0);
        break;
    default:
        ring();
        break;
    }
    for (uint32_t i = rng_below(&job.rng, MAX_STEPS); i > 0; i--)
        (void)nic_pair_step(&job.pair);
    poll();
}

static void start(uint64_t seed, enum weft__nic_fault fault)
{
    enum { SLOW_WIRE = 40 };
    static const uint64_t firsts[] = {0, 0xfff0, 0xfffffffd};
    static const uint32_t depths[] = {8, 32, NIC_TRAFFIC_MAX_DEPTH};
    const uint64_t drawn = rng_hash(seed);
    const struct nic_pair_config config = {.seed = seed,
                                           .first = firsts[drawn % 3],
                                           .depth = depths[(drawn >> 16) % 3],
                                           .cq_kind = drawn >> 9 & 1 ? WEFT__NIC_CQ_RING
                                                                     : WEFT__NIC_CQ_COLLAPSED,
                                           .wire_delay = drawn >> 10 & 1 ? SLOW_WIRE : 0,
                                           .fault = fault};
    nic_pair_open(&job.pair, &config);
    job.pair.on_add = on_add;
    job.pair.on_store = on_store;
    job.pair.on_load = on_load;
    job.rng.state = rng_hash(seed + 1);
    job.rung = config.first;
    nic_traffic_start(&job.traffic,
                      &(struct nic_traffic_config){.seed = seed,
                                                   .first = config.first,
                                                   .depth = config.depth,
                                                   .max_bytes = NIC_TRAFFIC_MAX_BYTES,
                                                   .qp = NIC_PAIR_FIRST_QP,
                                                   .local_key = NIC_PAIR_LOCAL_KEY,
                                                   .remote_key = NIC_PAIR_REMOTE_KEY,
                                                   .kinds = NIC_TRAFFIC_ALL,
                                                   .local = job.pair.sides[0].memory[0],
                                                   .remote = job.pair.sides[1].memory[0],
                                                   .post = post});
}

static const char *run(uint64_t seed, enum weft__nic_fault fault)
{
    start(seed, fault);
    for (int group = 0; group < NUM_GROUPS && job.traffic.complaint == NULL; group++) {
        if (!nic_traffic_has_room(&job.traffic))
            ring();
        while (!nic_traffic_has_room(&job.traffic) && job.traffic.complaint == NULL)
            wait_for(job.traffic.done + 1);
        nic_traffic_post(&job.traffic);
        ring_sometimes();
    }
    ring();
    wait_for(job.traffic.posted);
    if (job.traffic.num_adds_seen != job.traffic.num_adds_posted)
        nic_traffic_complain(&job.traffic, "not all adds were made");
    if (job.traffic.complaint == NULL)
        nic_pair_settle(&job.pair);
    poll();
    if (nic_pair_num_findings(&job.pair) > 0 || job.pair.num_stray > 0)
        nic_traffic_complain(&job.traffic, "the model finds something, or strays");
    nic_pair_close(&job.pair);
    return job.traffic.complaint;
}

TEST(the_model_keeps_its_promises)
{
    enum { NUM_SEEDS = 600 };
    memset(&job, 0, sizeof job);
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        const char *complaint = run(seed, WEFT__NIC_NO_FAULT);
        if (complaint != NULL) {
            char text[WEFT__NIC_FINDING_BYTES];
            weft__nic_finding_text(&job.pair.last_finding, text);
            fail_msg("seed %d: %s (%s)", (int)seed, complaint, text);
        }
    }
    print_message(
        "%d writes before earlier ones, %d before earlier READs, %d segments fetched "
        "backwards, %d units before their doorbell, %d sources read twice, %d completions "
        "jumped over, %d atomics at once\n",
        (int)job.num_early_writes, (int)job.num_passed_reads, (int)job.num_segments_back,
        (int)job.num_early_units, (int)job.num_sources_twice, (int)job.num_jumps,
        (int)job.num_reads_at_once);
    assert_true(job.num_early_writes > 0 && job.num_passed_reads > 0 && job.num_segments_back > 0 &&
                job.num_early_units > 0 && job.num_sources_twice > 0 && job.num_jumps > 0 &&
                job.num_full_windows > 0);
    assert_int_equal(job.num_reads_at_once, WEFT__NIC_MAX_READS);
}

/* Those of completions with an error are for test_nic_model_errors.c. */
TEST(each_broken_promise_is_seen)
{
    enum { MAX_SEEDS = 2000 };
    for (int fault = WEFT__NIC_NO_FAULT + 1; fault < WEFT__NIC_NUM_FAULTS; fault++) {
        const char *complaint = NULL;
        uint64_t seed = 0;
        if (fault == WEFT__NIC_FAULT_FORGETS_SYNDROME || fault == WEFT__NIC_FAULT_FORGETS_FLUSH)
            continue;
        while (complaint == NULL && seed < MAX_SEEDS)
            complaint = run(seed++, (enum weft__nic_fault)fault);
        print_message("fault %d: %s (seed %d)\n", fault, complaint != NULL ? complaint : "not seen",
                      (int)seed - 1);
        assert_non_null(complaint);
    }
}
