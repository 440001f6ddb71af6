/* SPDX-License-Identifier: MIT */
/*
 * How warps share the send queue of an mlx5 NIC, on any machine. "nic_primitives.h" of the machine
 * has the operations on words (relaxed, unless their names say more), the fence, the store to the
 * doorbell, and the pause of a wait, which fails at the deadline.
 *
 *        done          (rung)           ready              reserved
 *     ----v---- under way -v- not rung yet -v- being written ---v----> units
 *
 * A group reserves its units, waits for room, writes them, and publishes them in the order of the
 * reservations. Whoever publishes has the turn: it alone stores the record and the doorbell, so
 * that neither falls back. The acquire of `ready` brings it the units of all groups before.
 *
 * A group may leave the ring to one that has reserved behind it: that one publishes later. Whoever
 * ends a batch rings in any case: those behind it may be waiting for room. Units are published in
 * order, so whoever left between reserving and publishing would hold up all behind it. A wait that
 * ends early therefore fails the queue, which ends all other waits.
 */
#pragma once

#include "machine/machine.h"
#include "net/nic/queue.h"
#include "net/nic/syndrome.h"
#include "nic_primitives.h"

/* The first cause stays. But a flush only says that there is one. */
WP_FN void wp_nic_fail(struct weft__nic_queue *queue, uint32_t syndrome)
{
    const uint64_t failure = WEFT__NIC_QUEUE_FAILED | syndrome;
    const uint64_t flushed = WEFT__NIC_QUEUE_FAILED | WEFT__NIC_FLUSHED;
    if (wp_nic_exchange_if(&queue->failure, 0, failure) != 0 && failure != flushed)
        (void)wp_nic_exchange_if(&queue->failure, flushed, failure);
}

/* Looks at the completion queue. The NIC stores the last word after all that it did, and one load
 * brings its counter with its opcode. `done` is loaded before it: of an older tail, `done` could be
 * so far ahead that the counter looked new. */
WP_FN void wp_nic_poll(struct weft__nic_queue *queue)
{
    const uint64_t done = wp_nic_load_before(&queue->done);
    /* Pairs with the NIC's store: it has read the units, and sources may be written. */
    const struct weft__nic_tail tail = weft__nic_decode_tail(
        wp_nic_load_tail_acquire(&queue->cqe->words[WEFT__NIC_CQE_TAIL_WORD]));
    if (tail.opcode == WEFT__NIC_CQE_INVALID)
        return;
    if (tail.opcode != WEFT__NIC_CQE_REQUEST) {
        const uint32_t word = wp_nic_load_body(&queue->cqe->words[WEFT__NIC_CQE_SYNDROME_WORD]);
        wp_nic_fail(queue, weft__nic_be32(word) & 0xff);
        return;
    }
    const uint64_t count = weft__nic_count_done(done, tail.counter, queue->depth);
    if (count > done) /* pairs with the acquires of `done`: passes on what the tail has brought */
        wp_nic_raise_release(&queue->done, count);
}

/* One more turn of a loop that waits, and looks after each. The deadline ends the wait after a last
 * look, and is no cause where there is any other, be it a flush. */
WP_FN enum wp_status wp_nic_wait_on(struct weft__nic_queue *queue, struct wp_nic_wait *wait)
{
    if (wait->is_over)
        (void)wp_nic_exchange_if(&queue->failure, 0, WEFT__NIC_QUEUE_FAILED);
    if (wp_nic_load(&queue->failure) != 0)
        return WP_STATUS_FAILED;
    wait->is_over = wp_nic_pause(wait, queue) != WP_STATUS_OK;
    return WP_STATUS_OK;
}

/* Until at most num_open of the units before `end` are not done. */
WP_FN enum wp_status wp_nic_await_done(struct weft__nic_queue *queue, uint64_t end,
                                       uint32_t num_open, struct wp_nic_wait *wait)
{
    /* Pairs with the release of wp_nic_poll: the NIC has read the units, and has brought what they
     * bring. */
    while (wp_nic_load_acquire(&queue->done) + num_open < end) {
        if (wp_nic_wait_on(queue, wait) != WP_STATUS_OK)
            return WP_STATUS_FAILED;
        wp_nic_poll(queue);
    }
    return WP_STATUS_OK;
}

/* Returns the first of num_units units, at most weft__nic_max_group. They must be published. */
WP_FN uint64_t wp_nic_reserve(struct weft__nic_queue *queue, uint32_t num_units)
{
    return wp_nic_fetch_add(&queue->reserved, num_units);
}

/* Until the units before `end` may be written. Nobody has the turn meanwhile. */
WP_FN enum wp_status wp_nic_await_room(struct weft__nic_queue *queue, uint64_t end,
                                       struct wp_nic_wait *wait)
{
    if (wp_nic_await_done(queue, end, queue->depth, wait) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    return wp_nic_load(&queue->failure) == 0 ? WP_STATUS_OK : WP_STATUS_FAILED;
}

/* Writes the unit of request->index, which has room. The last one of a group asks for a
 * completion. */
WP_FN void wp_nic_write(struct weft__nic_queue *queue, const struct weft__nic_request *request)
{
    struct weft__nic_unit unit;
    struct weft__nic_unit *slot = &queue->units[request->index & (queue->depth - 1)];
    const uint32_t num_segments = weft__nic_encode(request, &unit);
    wp_nic_store_unit(slot, &unit, num_segments * WEFT__NIC_SEGMENT_BYTES);
}

WP_FN void wp_nic_announce(struct weft__nic_queue *queue, uint64_t end)
{
    /* The NIC may read units as soon as the record has them: it may be awake. */
    wp_nic_fence();
    wp_nic_store_record(queue->record + WEFT__NIC_RECORD_SEND_WORD, weft__nic_record(end));
    /* Else it could read the old record, and sleep. */
    wp_nic_fence();
    wp_nic_ring(queue->doorbell, weft__nic_doorbell(end, queue->qp));
}

/* The units from `begin` on, before `end`, are written. Where lanes wrote them, they have met. */
WP_FN enum wp_status wp_nic_publish(struct weft__nic_queue *queue, uint64_t begin, uint64_t end,
                                    struct wp_nic_wait *wait)
{
    /* Pairs with the release below: brings the units of all groups before. */
    while (wp_nic_load_acquire(&queue->ready) != begin)
        if (wp_nic_wait_on(queue, wait) != WP_STATUS_OK)
            return WP_STATUS_FAILED;
    if (wp_nic_load(&queue->reserved) == end || (begin ^ end) >= queue->batch)
        wp_nic_announce(queue, end);
    wp_nic_store_release(&queue->ready, end);
    return WP_STATUS_OK;
}

/* Until the unit, which is published and its group's last, is done: what it brings is here, and
 * sources may be written. */
WP_FN enum wp_status wp_nic_await(struct weft__nic_queue *queue, uint64_t index,
                                  struct wp_nic_wait *wait)
{
    return wp_nic_await_done(queue, index + 1, 0, wait);
}
