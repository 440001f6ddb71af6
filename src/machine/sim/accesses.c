/* SPDX-License-Identifier: MIT */
/* How programs give accesses to the network, and those for whose end they wait. */
#include <string.h>

#include "machine/sim/sim_launch.h"
#include "machine/sim/sim_nic.h"
#include "machine/sim/sim_wire.h"

/* ---------------------------------------------------------------- by the network */

/* Numbers are done in their order. */
static void complete(const struct sim_parcel *parcel)
{
    struct sim_posted *posted = &parcel->link->posted[parcel->sender];
    parcel->completion->is_done = 1;
    sim_release(&parcel->completion->clock);
    while (posted->first != NULL && posted->first->is_done) {
        sim_clock_join(&posted->done, &posted->first->clock);
        posted->first = posted->first->next;
        posted->num_done++;
    }
}

void sim_access_take_source(struct sim_parcel *parcel)
{
    const uint64_t num_bytes = parcel->access.num_bytes;
    if (parcel->completion == NULL)
        return;
    if (num_bytes > 0) {
        char *copy = sim_run_alloc(num_bytes);
        sim_check_access(parcel->source, num_bytes, SIM_READ, parcel->origin.code);
        memcpy(copy, parcel->source, num_bytes);
        parcel->source = copy;
    }
    complete(parcel);
    sim_yield();
}

static char *own_place(const struct sim_parcel *parcel, uint64_t offset)
{
    return parcel->link->comms[parcel->sender]->heap->bases[parcel->sender] + offset;
}

static void get(const struct sim_parcel *parcel)
{
    const struct wp_access *access = &parcel->access;
    const char *source = sim_wire_target(parcel, access->source);
    char *target = own_place(parcel, access->target);
    sim_check_access(source, access->num_bytes, SIM_READ, parcel->origin.code);
    sim_check_access(target, access->num_bytes, SIM_WRITE, parcel->origin.code);
    memcpy(target, source, access->num_bytes);
    sim_trace("got", parcel->origin.place, target, access->num_bytes);
}

/* Release and acquire, as the program that adds where it can reach the word. */
static void fetch_add(const struct sim_parcel *parcel)
{
    const struct wp_access *access = &parcel->access;
    uint64_t *word = (uint64_t *)(void *)sim_wire_target(parcel, access->word);
    char *target = own_place(parcel, access->target);
    sim_check_access(word, sizeof *word, SIM_ATOMIC_WRITE, parcel->origin.code);
    sim_check_access(target, sizeof *word, SIM_WRITE, parcel->origin.code);
    const uint64_t before = *word;
    sim_word_change(sim_word_of(word), access->adders, parcel->origin.code);
    struct sim_signal *signal = sim_signal_add_to(sim_word_of(word), before, before + access->add);
    signal->is_credit = 1;
    sim_acquire(&signal->clock);
    sim_release(&signal->clock);
    *word = before + access->add;
    memcpy(target, &before, sizeof before);
    sim_trace("fetched", parcel->origin.place, word, before);
}

static int is_flushed(struct sim_fiber *fiber)
{
    return sim_wire_have_older_come(fiber->wait_argument);
}

void sim_access_flush(const struct sim_parcel *parcel)
{
    sim_wait_until(is_flushed, (void *)(uintptr_t)parcel, INT32_MAX);
    sim_acquire(sim_wire_landed(parcel));
}

void sim_access_answer(const struct sim_parcel *parcel)
{
    if (parcel->access.operation == WP_ACCESS_FLUSH)
        sim_access_flush(parcel);
    else if (sim_wire_is_lost(parcel))
        return;
    else if (parcel->access.operation == WP_ACCESS_GET)
        get(parcel);
    else
        fetch_add(parcel);
    sim_yield();
    if (parcel->link->comms[parcel->sender] != NULL)
        complete(parcel);
}

/* ---------------------------------------------------------------- primitives */

static struct sim_completion *expect(struct sim_posted *posted)
{
    struct sim_completion *completion = sim_run_alloc(sizeof *completion);
    if (posted->first == NULL)
        posted->last = &posted->first;
    *posted->last = completion;
    posted->last = &completion->next;
    posted->num_posted++;
    return completion;
}

/* The lanes meet again, when the first one knows the number. */
static uint64_t post_to_nic(struct wp_warp *warp, const struct wp_access *access, const void *code)
{
    struct sim_meeting *meeting = &warp->shared->put;
    const uint64_t number = sim_meet(meeting);
    if (warp->lane_idx == 0 && sim_wire_check(warp->shared->launch->request->comm, access, code))
        meeting->values[meeting->number % 2] =
            sim_nic_post(warp, access, &meeting->clocks[number % 2]);
    return meeting->values[sim_meet(meeting) % 2];
}

/* The lanes meet, so that what all of them did is before the access; that orders nothing among
 * them. */
uint64_t weft__sim_remote_post(struct wp_warp *warp, const struct wp_access *access,
                               struct weft__sim_place place)
{
    struct sim_meeting *meeting = &warp->shared->put;
    const weft_comm *comm = warp->shared->launch->request->comm;
    struct sim_posted *posted = &comm->link->posted[comm->rank];
    struct sim_completion *completion = NULL;
    /* A flush brings nothing of its own. */
    const int is_weakened =
        access->operation != WP_ACCESS_FLUSH && sim_site_pass(place, SIM_SITE_RELEASE);
    sim_yield();
    if (!is_weakened) {
        sim_rows_end(sim_current());
        sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
        sim_release(&meeting->clocks[meeting->number % 2]);
    }
    sim_trace("post", place, comm->heap->bases[comm->rank] + access->source, access->num_bytes);
    if (comm->link->nics != NULL)
        return post_to_nic(warp, access, __builtin_return_address(0));
    if (warp->lane_idx == 0) {
        meeting->values[meeting->number % 2] = posted->num_posted;
        completion = wp_access_is_awaited(access) ? expect(posted) : NULL;
    }
    const uint64_t number = sim_meet(meeting);
    if (warp->lane_idx == 0)
        sim_wire_post(comm, access, completion, &meeting->clocks[number % 2],
                      (struct sim_origin){place, __builtin_return_address(0)});
    return meeting->values[number % 2];
}

enum wp_status weft__sim_remote_await(struct wp_warp *warp, uint64_t number,
                                      const struct wp_wait_site *site, struct weft__sim_place place)
{
    const weft_comm *comm = warp->shared->launch->request->comm;
    const struct sim_posted *posted = &comm->link->posted[comm->rank];
    const int is_weakened = sim_site_pass(place, SIM_SITE_ACQUIRE);
    if (sim_nic_has_number(number))
        return sim_nic_await(warp, number, site, is_weakened);
    if (sim_await(warp, &posted->num_done, number + 1, site) != WP_STATUS_OK)
        return WP_STATUS_FAILED;
    if (!is_weakened)
        sim_acquire(&posted->done);
    sim_trace("done", place, &posted->num_done, number);
    return WP_STATUS_OK;
}
