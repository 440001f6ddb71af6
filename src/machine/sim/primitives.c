/* SPDX-License-Identifier: MIT */
/* The primitives that programs call: each is a point at which another fiber may go on. */
#include <string.h>

#include "machine/sim/sim_launch.h"

/* ---------------------------------------------------------------- meetings */

struct meeting_wait {
    const struct sim_meeting *meeting;
    uint64_t number;
};

static int meeting_is_over(struct sim_fiber *fiber)
{
    const struct meeting_wait *wait = fiber->wait_argument;
    return wait->meeting->number != wait->number;
}

uint64_t sim_meet(struct sim_meeting *meeting)
{
    struct meeting_wait wait = {meeting, meeting->number};
    if (++meeting->num_arrived < meeting->num_members) {
        sim_wait_until(meeting_is_over, &wait, INT64_MAX);
        return wait.number;
    }
    meeting->num_arrived = 0;
    meeting->number++;
    sim_clock_clear(&meeting->clocks[meeting->number % 2]);
    meeting->values[meeting->number % 2] = 0;
    sim_yield();
    return wait.number;
}

static void meet_in_order(struct sim_meeting *meeting, struct weft__sim_place place)
{
    sim_trace("sync", place, NULL, meeting->number);
    sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
    sim_release(&meeting->clocks[meeting->number % 2]);
    const uint64_t number = sim_meet(meeting);
    sim_acquire(&meeting->clocks[number % 2]);
}

/* A sync that is weakened is as if it were not there. */
void weft__sim_warp_sync(struct wp_warp *warp, struct weft__sim_place place)
{
    if (sim_site_pass(place, SIM_SITE_WARP_SYNC))
        sim_yield();
    else
        meet_in_order(&warp->shared->sync, place);
}

void weft__sim_block_sync(struct wp_warp *warp, struct weft__sim_place place)
{
    if (sim_site_pass(place, SIM_SITE_BLOCK_SYNC)) {
        sim_yield();
        return;
    }
    sim_rows_end(sim_current());
    meet_in_order(&warp->shared->block->sync, place);
}

void weft__sim_row_sync(struct wp_warp *warp, struct weft__sim_place place)
{
    if (!sim_site_pass(place, SIM_SITE_ROW_SYNC))
        sim_rows_end(sim_current());
    meet_in_order(&warp->shared->sync, place);
}

/* The lanes exchange a value; that orders nothing else. */
static uint64_t *next_value(struct wp_warp *warp)
{
    struct sim_meeting *meeting = &warp->shared->ballot;
    return &meeting->values[meeting->number % 2];
}

static uint64_t exchanged_value(struct wp_warp *warp)
{
    struct sim_meeting *meeting = &warp->shared->ballot;
    return meeting->values[sim_meet(meeting) % 2];
}

uint32_t weft__sim_ballot(struct wp_warp *warp, int predicate)
{
    return weft__sim_or_u32(warp, (uint32_t)(predicate != 0) << warp->lane_idx);
}

uint32_t weft__sim_max_u32(struct wp_warp *warp, uint32_t value)
{
    uint64_t *largest = next_value(warp);
    *largest = value > *largest ? value : *largest;
    return (uint32_t)exchanged_value(warp);
}

uint32_t weft__sim_sum_u32(struct wp_warp *warp, uint32_t value)
{
    *next_value(warp) += value;
    return (uint32_t)exchanged_value(warp);
}

uint32_t weft__sim_or_u32(struct wp_warp *warp, uint32_t value)
{
    *next_value(warp) |= value;
    return (uint32_t)exchanged_value(warp);
}

/* Combines the values of the lanes. */
enum { VALUE_BITS = 32 };
_Static_assert(WP_WARP_SIZE *VALUE_BITS <= 64, "the values of all lanes fit a word");

int32_t weft__sim_prefix_sum(struct wp_warp *warp, int32_t value, int32_t *total)
{
    *next_value(warp) |= (uint64_t)(uint32_t)value << (VALUE_BITS * warp->lane_idx);
    const uint64_t values = exchanged_value(warp);
    int32_t num_before = 0;
    *total = 0;
    for (int32_t lane = 0; lane < WP_WARP_SIZE; lane++) {
        const int32_t of_lane = (int32_t)(uint32_t)(values >> (VALUE_BITS * lane));
        *total += of_lane;
        num_before += lane < warp->lane_idx ? of_lane : 0;
    }
    return num_before;
}

int32_t weft__sim_same_below(struct wp_warp *warp, uint32_t value)
{
    *next_value(warp) |= (uint64_t)value << (VALUE_BITS * warp->lane_idx);
    const uint64_t values = exchanged_value(warp);
    int32_t num_same = 0;
    for (int32_t lane = 0; lane < warp->lane_idx; lane++)
        num_same += (uint32_t)(values >> (VALUE_BITS * lane)) == value;
    return num_same;
}

/* No meeting is over before this lane has come to it. */
uint32_t weft__sim_block_turn(const struct wp_warp *warp)
{
    return (uint32_t)(warp->shared->block->sync.number % 2);
}

void *weft__sim_block_shared(struct wp_warp *warp)
{
    return warp->shared->block->shared;
}

void *weft__sim_warp_shared(struct wp_warp *warp)
{
    return warp->shared->shared;
}

const void **weft__sim_warp_pointers(struct wp_warp *warp)
{
    return warp->shared->pointers;
}

/* ---------------------------------------------------------------- ordered memory operations */

uint32_t weft__sim_add_acq_rel(uint32_t *word, uint32_t value, struct weft__sim_place place)
{
    const int is_weakened = sim_site_pass(place, SIM_SITE_ACQUIRE_RELEASE);
    sim_yield();
    if (!is_weakened) {
        sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
        sim_acquire(&sim_word_of(word)->clock);
        sim_release(&sim_word_of(word)->clock);
    }
    sim_check_access(word, sizeof *word, SIM_ATOMIC_WRITE, __builtin_return_address(0));
    const uint32_t before = *word;
    *word = before + value;
    sim_trace("add", place, word, before + value);
    sim_yield();
    return before;
}

int32_t weft__sim_add_relaxed(int32_t *word, int32_t value)
{
    sim_yield();
    sim_check_access(word, sizeof *word, SIM_ATOMIC_WRITE, __builtin_return_address(0));
    const int32_t before = *word;
    *word = before + value;
    return before;
}

int32_t weft__sim_or_relaxed(int32_t *word, int32_t bits)
{
    sim_yield();
    sim_check_access(word, sizeof *word, SIM_ATOMIC_WRITE, __builtin_return_address(0));
    const int32_t before = *word;
    *word = before | bits;
    return before;
}

int32_t weft__sim_load_relaxed(const int32_t *word)
{
    sim_yield();
    sim_check_access(word, sizeof *word, SIM_ATOMIC_READ, __builtin_return_address(0));
    return *word;
}

void weft__sim_store_relaxed(int32_t *word, int32_t value)
{
    sim_yield();
    sim_check_access(word, sizeof *word, SIM_ATOMIC_WRITE, __builtin_return_address(0));
    sim_store_begin(word, sizeof *word, SIM_PLAIN_STORE);
    *word = value;
}

int32_t weft__sim_compare_swap_relaxed(int32_t *word, int32_t expected, int32_t desired)
{
    sim_yield();
    sim_check_access(word, sizeof *word, SIM_ATOMIC_WRITE, __builtin_return_address(0));
    const int32_t before = *word;
    if (before == expected)
        *word = desired;
    return before;
}

/* Returns what whoever sees the value acquires. */
static struct sim_signal *signal(uint64_t *word, uint64_t value, struct weft__sim_place place,
                                 int is_weakened, const void *code)
{
    sim_check_access(word, sizeof *word, SIM_ATOMIC_WRITE, code);
    if (!is_weakened)
        sim_rows_end(sim_current());
    sim_word_change(sim_word_of(word), WP_ACCESS_ADDED_BY_ALL, code);
    struct sim_signal *signal = sim_signal_add(sim_word_of(word), value);
    if (!is_weakened) {
        sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
        sim_release(&signal->clock);
    }
    *word = value;
    sim_trace("signal", place, word, value);
    return signal;
}

void weft__sim_signal(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t value,
                      struct weft__sim_place place)
{
    (void)warp;
    (void)rank;
    const int is_weakened = sim_site_pass(place, SIM_SITE_RELEASE);
    sim_yield();
    signal(word, value, place, is_weakened, __builtin_return_address(0));
    sim_yield();
}

/* A relaxed store, behind loads that have ended, and behind the last fence, such as that of the
 * launch. It cannot have been allocated again where only the target has freed it. */
/* NULL if the rank has left. */
static struct sim_signal *credit(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t value,
                                 struct weft__sim_place place, const void *code)
{
    sim_yield();
    if (sim_heap_is_left(warp->shared->launch->request->comm, rank, word))
        return NULL;
    struct sim_signal *given = signal(word, value, place, 1, code);
    given->is_credit = 1;
    return given;
}

void weft__sim_credit(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t value,
                      struct weft__sim_place place)
{
    const int is_weakened = sim_site_pass(place, SIM_SITE_RELEASE);
    struct sim_signal *given = credit(warp, rank, word, value, place, __builtin_return_address(0));
    if (given == NULL)
        return;
    if (!is_weakened) {
        sim_release_loads(&given->clock);
        sim_clock_join(&given->clock, &warp->shared->launch->fences->released);
    }
    sim_yield();
}

void weft__sim_tell(struct wp_warp *warp, int32_t rank, uint64_t *word, uint64_t value,
                    struct weft__sim_place place)
{
    if (credit(warp, rank, word, value, place, __builtin_return_address(0)) != NULL)
        sim_yield();
}

/* Orders row operations that have ended. It is no site that can be weakened: most of what
 * programs have it for, launches order here anyway. */
void weft__sim_fence(struct wp_warp *warp)
{
    (void)warp;
    sim_yield();
    sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
    sim_release(&sim_current()->fenced);
}

/* An ordinary store, as late as others are: whoever signals the word must know of it. */
void weft__sim_clear(uint64_t *word, struct weft__sim_place place)
{
    sim_yield();
    sim_check_access(word, sizeof *word, SIM_WRITE, __builtin_return_address(0));
    sim_store_begin(word, sizeof *word, SIM_PLAIN_STORE);
    sim_signal_add(sim_word_of(word), 0)->is_credit = 1;
    *word = 0;
    sim_trace("clear", place, word, 0);
    sim_yield();
}

/* Whoever adds need not know who waits. */
uint64_t weft__sim_fetch_add(struct wp_warp *warp, uint64_t *word, uint64_t add,
                             struct weft__sim_place place)
{
    (void)warp;
    const int is_weakened = sim_site_pass(place, SIM_SITE_ACQUIRE_RELEASE);
    sim_yield();
    sim_check_access(word, sizeof *word, SIM_ATOMIC_WRITE, __builtin_return_address(0));
    if (!is_weakened)
        sim_rows_end(sim_current());
    const uint64_t before = *word;
    sim_word_change(sim_word_of(word), WP_ACCESS_ADDED_BY_ALL, __builtin_return_address(0));
    struct sim_signal *signal = sim_signal_add_to(sim_word_of(word), before, before + add);
    signal->is_credit = 1;
    if (!is_weakened) {
        sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
        sim_acquire(&signal->clock);
        sim_release(&signal->clock);
    }
    *word = before + add;
    sim_trace("add", place, word, before + add);
    sim_yield();
    return before;
}

/* No rank need wait for it: what tells of rows that nobody wants. */
void weft__sim_host_signals(uint32_t *word, uint32_t value)
{
    sim_yield();
    sim_check_access(word, sizeof *word, SIM_ATOMIC_WRITE, __builtin_return_address(0));
    struct sim_signal *signal = sim_signal_add(sim_word_of(word), value);
    signal->is_credit = 1;
    sim_release(&signal->clock);
    *word = value;
    sim_yield();
}

/* A word that is awaited, of 64 bits or 32. */
struct awaited_word {
    const void *address;
    size_t num_bytes;
};

static uint64_t value_of(struct awaited_word word)
{
    uint32_t half;
    uint64_t value;
    if (word.num_bytes == sizeof value)
        memcpy(&value, word.address, sizeof value);
    else
        memcpy(&half, word.address, sizeof half);
    return word.num_bytes == sizeof value ? value : half;
}

struct word_wait {
    struct awaited_word word;
    uint64_t at_least;
    const weft_comm *comm;
    const struct sim_launch *launch;
    int32_t rank;
};

static int word_has_come(const struct word_wait *wait)
{
    return value_of(wait->word) >= wait->at_least;
}

static int rank_is_gone(const struct word_wait *wait)
{
    return wait->rank != WP_NO_RANK && weft__status_rank_is_gone(&wait->comm->status, wait->rank);
}

/* The communicator, or the launch by another warp: then, as on the other machines, no warp of it
 * waits for a rank. */
static int has_failed(const struct word_wait *wait)
{
    return atomic_load(&wait->comm->status.result) != WEFT_OK ||
           (wait->rank != WP_NO_RANK && wait->launch->failure.kind != WP_FAILURE_NONE);
}

static int word_wait_is_over(struct sim_fiber *fiber)
{
    const struct word_wait *wait = fiber->wait_argument;
    return word_has_come(wait) || rank_is_gone(wait) || has_failed(wait);
}

static enum wp_failure_kind why_it_ended(const struct word_wait *wait)
{
    if (has_failed(wait))
        return WP_FAILURE_COMM;
    return rank_is_gone(wait) ? WP_FAILURE_RANK_GONE : WP_FAILURE_TIMEOUT;
}

static enum wp_status await_word(struct wp_warp *warp, struct awaited_word word, uint64_t at_least,
                                 const struct wp_wait_site *site)
{
    const struct sim_launch *launch = warp->shared->launch;
    weft_comm *comm = launch->request->comm;
    struct word_wait wait = {word, at_least, comm, launch, site->rank};
    struct weft__wait_entry told = {.wait = {.rank = site->rank, .exchange = site->exchange}};
    if (site->rank != WP_NO_RANK)
        weft__waits_begin(&comm->waits, &told);
    sim_wait_until(word_wait_is_over, &wait,
                   site->absent_after_ms > 0 ? site->absent_after_ms : comm->timeout_ms);
    enum wp_status status = word_has_come(&wait) ? WP_STATUS_OK : WP_STATUS_FAILED;
    if (status != WP_STATUS_OK && site->absent_after_ms > 0 &&
        why_it_ended(&wait) != WP_FAILURE_COMM)
        status = WP_STATUS_ABSENT;
    if (site->rank != WP_NO_RANK)
        weft__waits_end(&comm->waits, &told,
                        status == WP_STATUS_FAILED ? WEFT__WAIT_FAILED : WEFT__WAIT_CAME);
    if (status != WP_STATUS_FAILED)
        return status;
    const struct wp_failure failure = {
        .kind = why_it_ended(&wait), .site = *site, .expected = at_least, .seen = value_of(word)};
    return weft__sim_fail(warp, &failure);
}

static int host_wait_is_over(struct sim_fiber *fiber)
{
    return word_has_come(fiber->wait_argument);
}

uint64_t weft__sim_host_awaits(const uint64_t *word, uint64_t at_least)
{
    struct word_wait wait = {.word = {word, sizeof *word}, .at_least = at_least};
    sim_wait_until(host_wait_is_over, &wait, INT64_MAX);
    sim_check_access(word, sizeof *word, SIM_ATOMIC_READ, __builtin_return_address(0));
    const struct sim_signal *signal = sim_signal_see(sim_word_of(word), at_least);
    if (signal != NULL)
        sim_acquire(&signal->clock);
    return *word;
}

enum wp_status sim_await(struct wp_warp *warp, const uint64_t *word, uint64_t at_least,
                         const struct wp_wait_site *site)
{
    return await_word(warp, (struct awaited_word){word, sizeof *word}, at_least, site);
}

static enum wp_status wait_value(struct wp_warp *warp, struct awaited_word word, uint64_t at_least,
                                 const struct wp_wait_site *site, uint64_t *found,
                                 struct weft__sim_place place)
{
    const int is_weakened = sim_site_pass(place, SIM_SITE_ACQUIRE);
    sim_trace("wait", place, word.address, at_least);
    const enum wp_status status = await_word(warp, word, at_least, site);
    if (status != WP_STATUS_OK)
        return status;
    sim_check_access(word.address, word.num_bytes, SIM_ATOMIC_READ, __builtin_return_address(0));
    struct sim_word *awaited = sim_word_of(word.address);
    const struct sim_signal *signal = sim_signal_see(awaited, at_least);
    const uint64_t seen = signal != NULL ? signal->value : value_of(word);
    awaited->awaited = seen > awaited->awaited ? seen : awaited->awaited;
    if (!is_weakened && signal != NULL)
        sim_acquire(&signal->clock);
    sim_trace("came", place, word.address, seen);
    *found = seen;
    return WP_STATUS_OK;
}

enum wp_status weft__sim_wait_value(struct wp_warp *warp, const uint64_t *word, uint64_t at_least,
                                    const struct wp_wait_site *site, uint64_t *found,
                                    struct weft__sim_place place)
{
    return wait_value(warp, (struct awaited_word){word, sizeof *word}, at_least, site, found,
                      place);
}

enum wp_status weft__sim_wait_u32(struct wp_warp *warp, const uint32_t *word, uint32_t at_least,
                                  const struct wp_wait_site *site, struct weft__sim_place place)
{
    uint64_t seen;
    return wait_value(warp, (struct awaited_word){word, sizeof *word}, at_least, site, &seen,
                      place);
}

enum wp_status weft__sim_wait(struct wp_warp *warp, const uint64_t *word, uint64_t at_least,
                              const struct wp_wait_site *site, struct weft__sim_place place)
{
    uint64_t seen;
    return weft__sim_wait_value(warp, word, at_least, site, &seen, place);
}

uint64_t weft__sim_now_ns(const struct wp_warp *warp)
{
    (void)warp;
    return sim_world->step;
}

enum wp_status weft__sim_fail(struct wp_warp *warp, const struct wp_failure *failure)
{
    struct sim_launch *launch = warp->shared->launch;
    if (launch->failure.kind == WP_FAILURE_NONE)
        launch->failure = *failure;
    return WP_STATUS_FAILED;
}
