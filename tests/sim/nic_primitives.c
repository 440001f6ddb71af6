/* SPDX-License-Identifier: MIT */
#include "nic_primitives.h"

#include <string.h>

#include "nic_job_internal.h"

enum { MAX_WORDS = 16 };

static struct {
    const void *word;
    struct sim_clock clock;
} clocks[MAX_WORDS];

struct sim_clock *nic_clock_of(const void *word)
{
    int i = 0;
    while (clocks[i].word != NULL && clocks[i].word != word)
        i++;
    clocks[i].word = word; /* there are fewer words: a queue's, and the target's one */
    return &clocks[i].clock;
}

void nic_clocks_reset(void)
{
    memset(clocks, 0, sizeof clocks);
}

static enum nic_plant plant(void)
{
    return nic_job_state.job.plant;
}

/* ---------------------------------------------------------------- loads */

uint64_t nic_sim_load(const uint64_t *word)
{
    sim_yield();
    return *word;
}

uint32_t nic_sim_load_body(const uint32_t *word)
{
    sim_yield();
    return *word;
}

static void acquire(const void *word, struct weft__sim_place place)
{
    if (!sim_site_pass(place, SIM_SITE_ACQUIRE))
        sim_acquire(nic_clock_of(word));
}

uint64_t nic_sim_load_acquire(const uint64_t *word, struct weft__sim_place place)
{
    sim_yield();
    acquire(word, place);
    return word == &nic_job_state.queue.done && plant() == NIC_PLANT_COUNT_OF_16 ? *word & 0xffff
                                                                                 : *word;
}

uint32_t nic_sim_load_tail(const uint32_t *word, struct weft__sim_place place)
{
    sim_yield();
    acquire(word, place);
    struct weft__nic_tail tail = weft__nic_decode_tail(*word);
    if (plant() == NIC_PLANT_FIRST_CQE && tail.opcode == WEFT__NIC_CQE_INVALID)
        tail.opcode = WEFT__NIC_CQE_REQUEST;
    if (plant() == NIC_PLANT_ERROR_IGNORED && tail.opcode == WEFT__NIC_CQE_REQUEST_ERROR)
        tail.opcode = WEFT__NIC_CQE_INVALID;
    return weft__nic_encode_tail(&tail);
}

/* ---------------------------------------------------------------- stores */

/* Others see it late. It brings what was before the last fence, and ends what releases before it
 * have brought. */
static void begin_relaxed(void *word, size_t num_bytes)
{
    struct sim_clock *clock = nic_clock_of(word);
    sim_store_begin(word, num_bytes, SIM_PLAIN_STORE);
    sim_clock_clear(clock);
    sim_clock_join(clock, &sim_current()->fenced);
}

static void begin_release(void *word)
{
    struct sim_clock *clock = nic_clock_of(word);
    sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
    sim_clock_clear(clock);
    sim_release(clock);
}

void nic_sim_store_release(uint64_t *word, uint64_t value, struct weft__sim_place place)
{
    sim_yield();
    if (sim_site_pass(place, SIM_SITE_RELEASE))
        begin_relaxed(word, sizeof *word);
    else
        begin_release(word);
    *word = value;
}

void nic_store_release32(uint32_t *word, uint32_t value)
{
    sim_yield();
    begin_release(word);
    *word = value;
}

/* Additions and exchanges are seen at once, and keep what was released before. */
uint64_t nic_sim_fetch_add(uint64_t *word, uint64_t addend)
{
    sim_yield();
    const uint64_t before = *word;
    *word = before + addend;
    return before;
}

uint64_t nic_sim_exchange_if(uint64_t *word, uint64_t expected, uint64_t value)
{
    sim_yield();
    const uint64_t before = *word;
    if (before == expected)
        *word = value;
    return before;
}

void nic_sim_raise(uint64_t *word, uint64_t value, struct weft__sim_place place)
{
    sim_yield();
    if (*word >= value && plant() != NIC_PLANT_DONE_BACK)
        return;
    if (sim_site_pass(place, SIM_SITE_RELEASE)) {
        sim_clock_join(nic_clock_of(word), &sim_current()->fenced);
    } else {
        sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
        sim_release(nic_clock_of(word));
    }
    *word = value;
}

void nic_sim_store_unit(struct weft__nic_unit *slot, const struct weft__nic_unit *unit,
                        uint32_t num_bytes)
{
    sim_yield();
    sim_check_access(slot, num_bytes, SIM_WRITE, __builtin_return_address(0));
    sim_store_begin(slot, num_bytes, SIM_PLAIN_STORE);
    memcpy(slot, unit, num_bytes);
}

void nic_sim_store_record(uint32_t *word, uint32_t value)
{
    struct nic_job_state *state = &nic_job_state;
    sim_yield();
    if (plant() == NIC_PLANT_FIRST_WORD)
        word--;
    if (plant() == NIC_PLANT_RECORD_BACK && sim_random(2) == 0)
        value = weft__nic_record(state->queue.ready - 1);
    if (plant() == NIC_PLANT_RECORD_OF_RESERVED)
        value = weft__nic_record(state->queue.reserved);
    begin_relaxed(word, sizeof *word);
    *word = value;
}

void nic_sim_fence(struct weft__sim_place place)
{
    sim_yield();
    if (sim_site_pass(place, SIM_SITE_FENCE))
        return;
    sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
    sim_release(&sim_current()->fenced);
}

/* The register is memory that the model looks at. */
void nic_sim_ring(uint64_t *doorbell, uint64_t value)
{
    nic_job_counts.num_rings++;
    sim_yield();
    if (plant() == NIC_PLANT_NO_RING && sim_random(4) == 0)
        return;
    if (plant() != NIC_PLANT_HALF_A_DOORBELL) {
        sim_store_begin(doorbell, sizeof *doorbell, SIM_PLAIN_STORE);
        *doorbell = value;
        return;
    }
    for (int half = 0; half < 2; half++) {
        char *at = (char *)doorbell + (size_t)half * sizeof(uint32_t);
        sim_store_begin(at, sizeof(uint32_t), SIM_PLAIN_STORE);
        memcpy(at, (const char *)&value + (size_t)half * sizeof(uint32_t), sizeof(uint32_t));
        sim_yield();
    }
}

/* ---------------------------------------------------------------- waits */

static struct nic_sim_seen look_at(const struct weft__nic_queue *queue)
{
    return (struct nic_sim_seen){queue->ready, queue->done, queue->failure,
                                 queue->cqe->words[WEFT__NIC_CQE_TAIL_WORD]};
}

struct watch {
    const struct wp_nic_wait *wait;
    const struct weft__nic_queue *queue;
};

static int has_changed(struct sim_fiber *fiber)
{
    const struct watch *watch = fiber->wait_argument;
    const struct nic_sim_seen *before = &watch->wait->seen, now = look_at(watch->queue);
    return now.ready != before->ready || now.done != before->done ||
           now.failure != before->failure || now.tail != before->tail;
}

/* Until one of the queue's words is another than at the last pause, after which the caller has
 * looked at all of them. */
enum wp_status nic_sim_pause(struct wp_nic_wait *wait, const struct weft__nic_queue *queue)
{
    struct watch watch = {wait, queue};
    const int has_news = sim_wait_until(has_changed, &watch, wait->timeout_ms);
    wait->seen = look_at(queue);
    if (!has_news && wait->on_deadline != NULL)
        wait->on_deadline();
    return has_news ? WP_STATUS_OK : WP_STATUS_FAILED;
}
