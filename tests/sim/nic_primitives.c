/* SPDX-License-Identifier: MIT */
#include "nic_primitives.h"

#include <string.h>

#include "nic_job_internal.h"

static enum nic_plant plant(void)
{
    return nic_job_state.job.plant;
}

uint64_t nic_planted_load_acquire(const uint64_t *word, struct weft__sim_place place)
{
    const uint64_t value = sim_nic_load_acquire(word, place);
    return word == &nic_job_state.queue.done && plant() == NIC_PLANT_COUNT_OF_16 ? value & 0xffff
                                                                                 : value;
}

uint32_t nic_planted_load_tail(const uint32_t *word, struct weft__sim_place place)
{
    struct weft__nic_tail tail = weft__nic_decode_tail(sim_nic_load_tail(word, place));
    if (plant() == NIC_PLANT_FIRST_CQE && tail.opcode == WEFT__NIC_CQE_INVALID)
        tail.opcode = WEFT__NIC_CQE_REQUEST;
    if (plant() == NIC_PLANT_ERROR_IGNORED && tail.opcode == WEFT__NIC_CQE_REQUEST_ERROR)
        tail.opcode = WEFT__NIC_CQE_INVALID;
    return weft__nic_encode_tail(&tail);
}

void nic_planted_raise(uint64_t *word, uint64_t value, struct weft__sim_place place)
{
    if (plant() == NIC_PLANT_DONE_BACK) {
        sim_yield();
        *word = *word < value ? *word : value - 1;
    }
    sim_nic_raise(word, value, place);
}

void nic_planted_store_record(uint32_t *word, uint32_t value)
{
    struct nic_job_state *state = &nic_job_state;
    if (plant() == NIC_PLANT_FIRST_WORD)
        word--;
    if (plant() == NIC_PLANT_RECORD_BACK && sim_random(2) == 0)
        value = weft__nic_record(state->queue.ready - 1);
    if (plant() == NIC_PLANT_RECORD_OF_RESERVED)
        value = weft__nic_record(state->queue.reserved);
    sim_nic_store_record(word, value);
}

static void ring_in_halves(uint64_t *doorbell, uint64_t value)
{
    sim_yield();
    for (int half = 0; half < 2; half++) {
        char *at = (char *)doorbell + (size_t)half * sizeof(uint32_t);
        sim_store_begin(at, sizeof(uint32_t), SIM_PLAIN_STORE);
        memcpy(at, (const char *)&value + (size_t)half * sizeof(uint32_t), sizeof(uint32_t));
        sim_yield();
    }
}

void nic_planted_ring(uint64_t *doorbell, uint64_t value)
{
    nic_job_counts.num_rings++;
    if (plant() == NIC_PLANT_NO_RING && sim_random(4) == 0)
        return;
    if (plant() == NIC_PLANT_HALF_A_DOORBELL)
        ring_in_halves(doorbell, value);
    else
        sim_nic_ring(doorbell, value);
}

/* ---------------------------------------------------------------- waits */

static struct nic_planted_seen look_at(const struct weft__nic_queue *queue)
{
    return (struct nic_planted_seen){queue->ready, queue->done, queue->failure,
                                     queue->cqe->words[WEFT__NIC_CQE_TAIL_WORD]};
}

struct watch {
    const struct wp_nic_wait *wait;
    const struct weft__nic_queue *queue;
};

static int has_changed(struct sim_fiber *fiber)
{
    const struct watch *watch = fiber->wait_argument;
    const struct nic_planted_seen *before = &watch->wait->seen, now = look_at(watch->queue);
    return now.ready != before->ready || now.done != before->done ||
           now.failure != before->failure || now.tail != before->tail;
}

/* Until one of the queue's words is another than at the last pause, after which the caller has
 * looked at all of them. */
enum wp_status nic_planted_pause(struct wp_nic_wait *wait, const struct weft__nic_queue *queue)
{
    struct watch watch = {wait, queue};
    const int has_news = sim_wait_until(has_changed, &watch, wait->timeout_ms);
    wait->seen = look_at(queue);
    if (!has_news && wait->on_deadline != NULL)
        wait->on_deadline();
    return has_news ? WP_STATUS_OK : WP_STATUS_FAILED;
}
