/* SPDX-License-Identifier: MIT */
#include "nic_job.h"

#include <inttypes.h>
#include <string.h>

#include "machine/nic_post.h"
#include "nic_job_internal.h"

struct nic_job_state nic_job_state;
struct nic_job_counts nic_job_counts;
static struct nic_job_state *const state = &nic_job_state;

enum { TIMEOUT_MS = 100 };

void nic_complain(const char *what, uint64_t value)
{
    sim_report("%s (0x%" PRIx64 ")\n", what, value);
    sim_world->result->num_wrong++;
}

/* ---------------------------------------------------------------- a thread that posts */

struct poster {
    int number, group;
    uint64_t begin, end; /* of the group's units */
    struct wp_nic_wait wait;
};

static uint8_t byte_of(const struct poster *poster, int group, int write, int at)
{
    return (uint8_t)(1 + poster->number * 61 + group * 17 + write * 7 + at);
}

static void fill_source(const struct poster *poster, int write)
{
    uint8_t *source = state->memory.sources[poster->number][write];
    sim_check_access(source, NIC_JOB_WRITE_BYTES, SIM_WRITE, __builtin_return_address(0));
    sim_store_begin(source, NIC_JOB_WRITE_BYTES, SIM_PLAIN_STORE);
    for (int i = 0; i < NIC_JOB_WRITE_BYTES; i++)
        source[i] = byte_of(poster, poster->group, write, i);
}

static struct weft__nic_request next_request(const struct poster *poster, uint64_t index)
{
    return (struct weft__nic_request){.qp = state->queue.qp,
                                      .index = index,
                                      .completion = index + 1 == poster->end ? WEFT__NIC_ALWAYS
                                                                             : WEFT__NIC_ON_ERROR,
                                      .remote_key = NIC_JOB_REMOTE_KEY,
                                      .local_key = NIC_JOB_LOCAL_KEY};
}

static void write_put(const struct poster *poster, uint64_t index, int write)
{
    struct weft__nic_request request = next_request(poster, index);
    fill_source(poster, write);
    request.opcode = WEFT__NIC_WRITE;
    request.num_bytes = NIC_JOB_WRITE_BYTES;
    request.local_address = (uintptr_t)state->memory.sources[poster->number][write];
    request.remote_address = (uintptr_t)state->memory.targets[poster->number][poster->group][write];
    wp_nic_write(&state->queue, &request);
}

static void write_add(const struct poster *poster, uint64_t index)
{
    struct weft__nic_request request = next_request(poster, index);
    request.opcode = WEFT__NIC_FETCH_ADD;
    request.num_bytes = WEFT__NIC_ATOMIC_BYTES;
    request.addend = 1;
    request.local_address = (uintptr_t)&state->memory.old_value;
    request.remote_address = (uintptr_t)&state->memory.word;
    wp_nic_write(&state->queue, &request);
    state->num_adds++;
}

static void check_targets(const struct poster *poster, int group, int num_writes)
{
    for (int write = 0; write < num_writes; write++) {
        const uint8_t *target = state->memory.targets[poster->number][group][write];
        sim_check_access(target, NIC_JOB_WRITE_BYTES, SIM_READ, __builtin_return_address(0));
        for (int i = 0; i < NIC_JOB_WRITE_BYTES; i++)
            if (target[i] != byte_of(poster, group, write, i)) {
                nic_complain("a write is done without its bytes", (uint64_t)i);
                return;
            }
    }
}

/* Behind some puts: mostly a signal, sometimes as many as fit. */
static int draw_num_adds(int num_puts)
{
    enum { OF_DRAWS = 16 };
    const int max_group = (int)weft__nic_max_group(&state->queue);
    if (sim_random(OF_DRAWS) == 0)
        return max_group - num_puts + (state->job.plant == NIC_PLANT_LARGE_GROUP);
    return num_puts == 0 || sim_random(4) != 0;
}

static enum wp_status post_group(struct poster *poster, int num_puts, int num_adds)
{
    struct weft__nic_queue *queue = &state->queue;
    const uint32_t num_units = (uint32_t)(num_puts + num_adds);
    poster->begin = wp_nic_reserve(queue, num_units);
    poster->end = poster->begin + num_units;
    nic_job_counts.num_room_waits += queue->done + queue->depth < poster->end;
    if (state->job.plant != NIC_PLANT_NO_ROOM &&
        wp_nic_await_room(queue, poster->end, &poster->wait) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    for (int i = 0; i < num_puts; i++)
        write_put(poster, poster->begin + (uint64_t)i, i);
    for (int i = 0; i < num_adds; i++)
        write_add(poster, poster->begin + (uint64_t)(num_puts + i));
    return wp_nic_publish(queue, poster->begin, poster->end, &poster->wait);
}

/* Its sources are written again for each group, once the one before is done. */
static enum wp_status post_all(struct poster *poster)
{
    for (poster->group = 0; poster->group < NIC_JOB_GROUPS; poster->group++) {
        const int num_puts = (int)sim_random(NIC_JOB_WRITES + 1);
        const int num_adds = draw_num_adds(num_puts);
        if (post_group(poster, num_puts, num_adds) != WP_STATUS_OK)
            return WP_STATUS_FAILED;
        nic_job_counts.num_groups++;
        const int is_last = poster->group + 1 == NIC_JOB_GROUPS;
        if (num_puts == 0 && !is_last && sim_random(2) == 0)
            continue;
        if (wp_nic_await(&state->queue, poster->end - 1, &poster->wait) != WP_STATUS_OK)
            return WP_STATUS_FAILED;
        check_targets(poster, poster->group, num_puts);
    }
    return WP_STATUS_OK;
}

static void run_poster(struct sim_fiber *fiber)
{
    struct poster *poster = fiber->argument;
    const uint64_t allowed = state->job.trouble == NIC_DEAD_PEER ? WEFT__NIC_RETRIES : 0;
    const int may_fail = state->job.trouble != NIC_NO_TROUBLE;
    fiber->is_host = 1;
    if (post_all(poster) != WP_STATUS_OK) {
        const uint64_t failure = state->queue.failure;
        nic_job_counts.num_failures++;
        nic_job_counts.num_causes += failure == (WEFT__NIC_QUEUE_FAILED | allowed);
        nic_job_counts.num_flushes += failure == (WEFT__NIC_QUEUE_FAILED | WEFT__NIC_FLUSHED);
        if (!may_fail || (failure != (WEFT__NIC_QUEUE_FAILED | allowed) &&
                          failure != (WEFT__NIC_QUEUE_FAILED | WEFT__NIC_FLUSHED)))
            nic_complain("a queue fails", failure);
    }
    state->num_ended++;
}

/* ---------------------------------------------------------------- the job */

static int have_ended(struct sim_fiber *fiber)
{
    (void)fiber;
    return state->num_ended == state->num_posters;
}

static void start_queue(void)
{
    static const uint64_t firsts[] = {0, 0xfffd, 0xfffffffd};
    const uint64_t first = firsts[sim_random(3)];
    struct nic_job_memory *memory = &state->memory;
    memset(&memory->cqe, 0xff, sizeof memory->cqe);
    memory->record[WEFT__NIC_RECORD_SEND_WORD] = weft__nic_record(first);
    state->queue = (struct weft__nic_queue){.units = memory->units,
                                            .record = memory->record,
                                            .doorbell = &memory->doorbell,
                                            .cqe = &memory->cqe,
                                            .depth = NIC_JOB_DEPTH,
                                            .batch = NIC_JOB_BATCH,
                                            .reserved = first,
                                            .ready = first,
                                            .done = first};
    if (NIC_JOB_WRITES + 1 > weft__nic_max_group(&state->queue))
        nic_complain("a group does not fit", weft__nic_max_group(&state->queue));
}

/* A flush only says that there is a cause; what comes after the cause is none. */
static void check_first_cause(void)
{
    struct weft__nic_queue queue = {.failure = 0};
    wp_nic_fail(&queue, WEFT__NIC_FLUSHED);
    wp_nic_fail(&queue, WEFT__NIC_RETRIES);
    wp_nic_fail(&queue, WEFT__NIC_FLUSHED);
    wp_nic_fail(&queue, WEFT__NIC_REMOTE_ACCESS);
    if (queue.failure != (WEFT__NIC_QUEUE_FAILED | WEFT__NIC_RETRIES))
        nic_complain("the first cause is not kept, but", queue.failure);
    struct wp_nic_wait wait = {.is_over = 1};
    queue.failure = WEFT__NIC_QUEUE_FAILED | WEFT__NIC_FLUSHED;
    if (wp_nic_wait_on(&queue, &wait) != WP_STATUS_FAILED ||
        queue.failure != (WEFT__NIC_QUEUE_FAILED | WEFT__NIC_FLUSHED))
        nic_complain("a deadline replaces a flush by", queue.failure);
}

static struct weft__nic_unit late_cqe;

static void complete_late(void)
{
    const struct weft__nic_tail tail = {.opcode = WEFT__NIC_CQE_REQUEST};
    sim_nic_store_release_u32(&late_cqe.words[WEFT__NIC_CQE_TAIL_WORD],
                              weft__nic_encode_tail(&tail));
}

/* The NIC is done after the deadline, but before the waiter goes on. */
static void check_last_look(void)
{
    struct weft__nic_queue queue = {
        .cqe = &late_cqe, .depth = NIC_JOB_DEPTH, .reserved = 1, .ready = 1};
    struct wp_nic_wait wait = {.timeout_ms = 1, .on_deadline = complete_late};
    memset(&late_cqe, 0xff, sizeof late_cqe);
    if (wp_nic_await(&queue, 0, &wait) != WP_STATUS_OK || queue.failure != 0)
        nic_complain("a deadline ends a wait without a last look", queue.failure);
}

static int run_rank(int32_t rank, void *argument)
{
    const struct nic_job job = *(const struct nic_job *)argument;
    (void)rank;
    memset(state, 0, sizeof *state);
    sim_shadow_set(&state->memory, sizeof state->memory, SIM_CONTENT_ANY);
    state->job = job;
    state->num_posters = 2 + (int32_t)sim_random(NIC_JOB_MAX_POSTERS - 1);
    start_queue();
    if (nic_models_open() != 0 || sim_fiber_start(0, SIM_HOST_STACK, nic_models_run, NULL) == NULL)
        return 1;
    for (int32_t i = 0; i < state->num_posters; i++) {
        struct poster *poster = sim_run_alloc(sizeof *poster);
        poster->number = i;
        poster->wait.timeout_ms = job.trouble == NIC_STUCK_MODEL ? TIMEOUT_MS : INT64_MAX;
        if (sim_fiber_start(0, SIM_HOST_STACK, run_poster, poster) == NULL)
            return 1;
    }
    sim_wait_until(have_ended, NULL, INT64_MAX);
    check_first_cause();
    check_last_look();
    const int is_whole = state->queue.failure == 0;
    state->is_stopped = 1;
    if (is_whole && state->memory.word != state->num_adds)
        nic_complain("not all adds were made, but", state->memory.word);
    if (is_whole && state->queue.done != state->queue.reserved)
        nic_complain("not all units are done, but", state->queue.done);
    return 0;
}

void nic_job_run(const struct nic_job *job, struct weft__sim_result *result)
{
    struct nic_job given = *job;
    const struct weft__sim_config config = {.seed = job->seed,
                                            .policy = WEFT__SIM_MIXED,
                                            .num_ranks = 1,
                                            .rank_main = run_rank,
                                            .argument = &given,
                                            .weakened_site = job->weakened_site};
    if (weft__sim_run(&config, result) != 0)
        result->num_wrong++;
    nic_models_close();
    state->initiator = state->target = NULL;
}
