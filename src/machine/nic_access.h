/* SPDX-License-Identifier: MIT */
/*
 * An access to a rank of another node as requests of a NIC:
 *
 *   put              a WRITE for each part
 *   put with signal  the same, and behind the last one a FETCH_ADD: the target's NIC does it after
 *                    all requests before it
 *   signal           a FETCH_ADD: there is one queue to each rank
 *   flush            a READ, which is behind all that came before
 *   get, fetch-add   READs, a FETCH_ADD
 *
 * Parts end where steps of the heap do, and at what a message holds. Bytes outside of all steps
 * have nobody's key: the NIC refuses them. Without bytes there is a NOP, for who waits.
 */
#pragma once

#include "machine/nic_post.h"

struct wp_nic_part {
    struct weft__nic_key own, peer; /* at its first byte */
    uint64_t num_bytes;
};

/* The key of an offset in the heap of a rank; the part ends where the step does. */
WP_FN struct weft__nic_key wp_nic_find_key(const struct weft__nic_port *port, int32_t rank,
                                           uint64_t offset, uint64_t *num_bytes)
{
    struct weft__nic_key key = {offset, 0};
    const struct weft__nic_step *step = wp_nic_load_step(&port->last_step);
    while (step != NULL && offset < step->begin)
        step = step->before;
    if (step == NULL || offset >= step->end)
        return key;
    key = step->keys[rank];
    key.address += offset - step->begin;
    if (*num_bytes > step->end - offset)
        *num_bytes = step->end - offset;
    return key;
}

/* From byte `begin` of the access on. */
WP_FN struct wp_nic_part wp_nic_find_part(const struct weft__nic_port *port,
                                          const struct wp_access *access, uint64_t begin)
{
    const int is_get = access->operation == WP_ACCESS_GET;
    struct wp_nic_part part;
    part.num_bytes = access->num_bytes - begin;
    if (part.num_bytes > WEFT__NIC_MAX_MESSAGE_BYTES)
        part.num_bytes = WEFT__NIC_MAX_MESSAGE_BYTES;
    part.own = wp_nic_find_key(port, port->rank, (is_get ? access->target : access->source) + begin,
                               &part.num_bytes);
    part.peer = wp_nic_find_key(
        port, access->rank, (is_get ? access->source : access->target) + begin, &part.num_bytes);
    return part;
}

WP_FN struct weft__nic_request wp_nic_request(enum weft__nic_opcode opcode,
                                              struct weft__nic_key own, struct weft__nic_key peer,
                                              uint64_t num_bytes)
{
    struct weft__nic_request request;
    memset(&request, 0, sizeof request);
    request.opcode = num_bytes > 0 ? opcode : WEFT__NIC_NOP;
    request.local_address = own.address;
    request.local_key = own.key;
    request.remote_address = peer.address;
    request.remote_key = peer.key;
    request.num_bytes = (uint32_t)num_bytes;
    return request;
}

/* An add, or the READ of a flush: of the word, to the own place. */
WP_FN struct weft__nic_request wp_nic_word_request(const struct weft__nic_port *port,
                                                   const struct wp_access *access,
                                                   enum weft__nic_opcode opcode)
{
    uint64_t num_bytes = WEFT__NIC_ATOMIC_BYTES;
    struct weft__nic_key own = port->sink;
    if (access->operation == WP_ACCESS_FETCH_ADD)
        own = wp_nic_find_key(port, port->rank, access->target, &num_bytes);
    const uint64_t word = access->operation == WP_ACCESS_FLUSH ? 0 : access->word;
    struct weft__nic_request request = wp_nic_request(
        opcode, own, wp_nic_find_key(port, access->rank, word, &num_bytes), WEFT__NIC_ATOMIC_BYTES);
    request.addend = access->add;
    return request;
}

enum { WP_NIC_MAX_REQUESTS = 2 };

/* The requests from byte *begin on that are posted together, which moves *begin. Returns how
 * many. */
WP_FN uint32_t wp_nic_next_requests(const struct weft__nic_port *port,
                                    const struct wp_access *access, uint64_t *begin,
                                    struct weft__nic_request *requests)
{
    const int is_get = access->operation == WP_ACCESS_GET;
    if (access->operation == WP_ACCESS_FLUSH) {
        requests[0] = wp_nic_word_request(port, access, WEFT__NIC_READ);
        return 1;
    }
    uint32_t num_requests = 0;
    const int has_bytes = access->operation <= WP_ACCESS_GET;
    const int has_add = access->operation != WP_ACCESS_PUT && !is_get;
    if (has_bytes && (access->num_bytes > 0 || !has_add)) {
        const struct wp_nic_part part = wp_nic_find_part(port, access, *begin);
        requests[num_requests++] = wp_nic_request(is_get ? WEFT__NIC_READ : WEFT__NIC_WRITE,
                                                  part.own, part.peer, part.num_bytes);
        *begin += part.num_bytes;
    }
    if (has_add && (!has_bytes || *begin == access->num_bytes))
        requests[num_requests++] = wp_nic_word_request(port, access, WEFT__NIC_FETCH_ADD);
    return num_requests;
}

/* Posts them as one group, whose last one asks for a completion. *index becomes that of the last
 * one. */
WP_FN enum wp_status wp_nic_post_group(struct weft__nic_queue *queue,
                                       struct weft__nic_request *requests, uint32_t num_requests,
                                       struct wp_nic_wait *wait, uint64_t *index)
{
    const uint64_t begin = wp_nic_reserve(queue, num_requests), end = begin + num_requests;
    *index = end - 1;
    if (wp_nic_await_room(queue, end, wait) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    for (uint32_t i = 0; i < num_requests; i++) {
        requests[i].qp = queue->qp;
        requests[i].index = begin + i;
        requests[i].completion = i + 1 == num_requests ? WEFT__NIC_ALWAYS : WEFT__NIC_ON_ERROR;
        wp_nic_write(queue, &requests[i]);
    }
    return wp_nic_publish(queue, begin, end, wait);
}

/* Where a post waits for room and for its turn. It may give up, which is a failure unless the rank
 * has left, or the access may be lost to a missing rank (access->absent_after_ms). */
WP_FN struct wp_wait_site wp_nic_post_site(const struct wp_access *access, uint32_t timeout_ms)
{
    struct wp_wait_site site;
    memset(&site, 0, sizeof site);
    site.phase = WP_PHASE_ACCESS;
    site.rank = access->rank;
    site.exchange = access->word;
    site.absent_after_ms = access->absent_after_ms > 0 ? access->absent_after_ms : timeout_ms;
    return site;
}

/* By one lane. *index is what wp_nic_await waits for. */
WP_FN enum wp_status wp_nic_post(const struct weft__nic_port *port, const struct wp_access *access,
                                 struct wp_nic_wait *wait, uint64_t *index)
{
    struct weft__nic_queue *queue = &port->channels[access->rank].queue;
    const uint64_t num_bytes = access->operation <= WP_ACCESS_GET ? access->num_bytes : 0;
    uint64_t begin = 0;
    enum wp_status status;
    do {
        struct weft__nic_request requests[WP_NIC_MAX_REQUESTS];
        const uint32_t num_requests = wp_nic_next_requests(port, access, &begin, requests);
        status = wp_nic_post_group(queue, requests, num_requests, wait, index);
    } while (status == WP_STATUS_OK && begin < num_bytes);
    return status;
}
