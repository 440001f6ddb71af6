/* SPDX-License-Identifier: MIT */
/*
 * The scheduler of one launch. A fiber that waits leaves what it waits for in its entry; the
 * scheduler resumes only fibers whose word has come. When none can go on, the thread polls
 * (polling.h), then sleeps on the rank's doorbell.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "comm/host/thread.h"
#include "machine/cpu/cpu_launch_internal.h"
#include "machine/cpu/nic_remote.h"

static void destroy_fibers(struct weft__cpu_runner *runner)
{
    for (int32_t i = 0; i < runner->num_fibers; i++) {
        weft__fiber_destroy(runner->fibers[i]->fiber);
        free(runner->fibers[i]);
    }
    runner->num_fibers = 0;
}

/* ------------------------------------------------------------------ called by the programs */

static struct weft__cpu_fiber *fiber_of(struct wp_warp *warp)
{
    return (struct weft__cpu_fiber *)(void *)warp; /* the warp is its first member */
}

static void wait_for_word(struct weft__cpu_fiber *fiber, const void *word,
                          enum weft__cpu_width width, uint64_t at_least,
                          const struct wp_wait_site *site)
{
    fiber->word = word;
    fiber->width = width;
    fiber->at_least = at_least;
    fiber->site = site;
    fiber->idle_ns = 0;
    fiber->state = FIBER_WAITING;
    weft__fiber_yield(fiber->fiber);
}

uint64_t weft__cpu_remote_post(struct wp_warp *warp, const struct wp_access *access)
{
    struct weft__net_driver *net = &warp->launch->net;
    const int is_for_nic = weft__cpu_nic_takes(weft__cpu_comm_of(warp), access);
    enum weft__posted_for posted_for = WEFT__POSTED_FOR_ANOTHER;
    uint64_t number = 0;
    /* A flush is of both. */
    if (!is_for_nic || access->operation == WP_ACCESS_FLUSH)
        posted_for = weft__net_driver_post(net, access, &number);
    if (is_for_nic) {
        number = weft__cpu_nic_post(warp, access, number);
        posted_for = weft__net_driver_ring(net, access);
    }
    /* An access without bytes is not worth a turn, and may share a message with what is posted
     * next. */
    if (posted_for == WEFT__POSTED_FOR_THIS_THREAD && access->num_bytes > 0)
        weft__fiber_yield(fiber_of(warp)->fiber); /* which goes on in the next round */
    return number;
}

void weft__cpu_block_sync(struct wp_warp *warp)
{
    struct weft__cpu_block *block = warp->block;
    const uint64_t sync = block->num_syncs + 1;
    if (++block->num_arrived == (uint32_t)warp->num_warps) {
        block->num_arrived = 0;
        block->num_syncs = sync;
        return;
    }
    wait_for_word(fiber_of(warp), &block->num_syncs, WEFT__CPU_U64, sync, NULL);
}

/* No sync is over before this warp has come to it. */
uint32_t weft__cpu_block_turn(const struct wp_warp *warp)
{
    return (uint32_t)(warp->block->num_syncs % 2);
}

void *weft__cpu_block_shared(struct wp_warp *warp)
{
    return warp->block->shared;
}

static void ring_words(char *base, const uint64_t *words, uint64_t num_words)
{
    const uint64_t begin = (uintptr_t)words - (uintptr_t)base;
    weft__doorbell_ring_words(weft__heap_bell(base), begin, begin + num_words * sizeof *words);
}

void weft__cpu_ring(struct wp_warp *warp, int32_t rank, const uint64_t *words, uint64_t num_words)
{
    if (rank != warp->launch->launch->comm->rank)
        ring_words(warp->launch->heap_bases[rank], words, num_words);
}

void weft__cpu_ring_any(struct wp_warp *warp, int32_t rank, const uint64_t *word)
{
    ring_words(warp->launch->heap_bases[rank], word, 1);
}

weft_comm *weft__cpu_comm_of(const struct wp_warp *warp)
{
    return warp->launch->launch->comm;
}

uint64_t weft__cpu_now_ns(void)
{
    return (uint64_t)weft__now_ns();
}

enum wp_status weft__cpu_wait(struct wp_warp *warp, const uint64_t *word, uint64_t at_least,
                              const struct wp_wait_site *site)
{
    struct weft__cpu_fiber *fiber = fiber_of(warp);
    if (site->absent_after_ms > 0)
        fiber->since_ns = weft__now_ns();
    wait_for_word(fiber, word, WEFT__CPU_U64, at_least, site);
    return fiber->wait_status;
}

enum wp_status weft__cpu_wait_u32(struct wp_warp *warp, const uint32_t *word, uint32_t at_least,
                                  const struct wp_wait_site *site)
{
    struct weft__cpu_fiber *fiber = fiber_of(warp);
    wait_for_word(fiber, word, WEFT__CPU_U32, at_least, site);
    return fiber->wait_status;
}

enum wp_status weft__cpu_fail(struct wp_warp *warp, const struct wp_failure *failure)
{
    if (warp->launch->failure.kind == WP_FAILURE_NONE)
        warp->launch->failure = *failure;
    return WP_STATUS_FAILED;
}

static void run_warp(void *argument)
{
    struct weft__cpu_fiber *fiber = argument;
    const struct weft__launch *launch = fiber->warp.launch->launch;
    (void)launch->program->run(&fiber->warp, launch->args);
    fiber->state = FIBER_DONE;
    fiber->warp.launch->num_live--;
}

/* ------------------------------------------------------------------ scheduling */

static void resume(struct weft__cpu_fiber *fiber, enum wp_status wait_status)
{
    fiber->state = FIBER_READY;
    fiber->wait_status = wait_status;
    weft__fiber_resume(fiber->fiber);
}

/* Gives every fiber that can go on a turn; returns whether there was one. */
static int run_ready_fibers(struct weft__cpu_launch *run)
{
    int any = 0;
    for (int32_t i = 0; i < run->num_warp_fibers; i++) {
        struct weft__cpu_fiber *fiber = run->runner->fibers[i];
        if (weft__cpu_can_go_on(fiber)) {
            any = 1;
            resume(fiber, WP_STATUS_OK);
        }
    }
    return any;
}

/* The fibers whose words are absent go on. */
static void resume_those_that_give_up(struct weft__cpu_launch *run)
{
    for (int32_t i = 0; i < run->num_warp_fibers; i++) {
        if (run->runner->fibers[i]->state == FIBER_GIVES_UP)
            resume(run->runner->fibers[i], WP_STATUS_ABSENT);
    }
}

static int fail_waits(struct weft__cpu_launch *run)
{
    int any = 0;
    for (int32_t i = 0; i < run->num_warp_fibers; i++) {
        struct weft__cpu_fiber *fiber = run->runner->fibers[i];
        if (weft__cpu_waits_for_rank(fiber)) {
            any = 1;
            resume(fiber, WP_STATUS_FAILED);
        }
    }
    return any;
}

/* Every wait for a rank fails from here on; block syncs still work, so that the warps of a block
 * return together. Warps left over after that would mean a sync that not all of them call. */
static void end_all_waits(struct weft__cpu_launch *run)
{
    while (run_ready_fibers(run) || fail_waits(run))
        ;
    if (run->num_live > 0)
        destroy_fibers(run->runner);
    run->num_live = 0;
}

/* Drives the network, too: whoever fetches what comes has it soonest. */
static int is_word_there(void *argument)
{
    struct weft__cpu_launch *run = argument;
    if (weft__cpu_any_can_go_on(run))
        return 1;
    weft__net_driver_poll(&run->net);
    return weft__cpu_any_can_go_on(run);
}

/* The word, as offset in the own heap, that all waits for ranks are for, or WEFT__ANY_WORD; so it
 * is of words that are not in the heap. */
static uint64_t awaited_word(struct weft__cpu_launch *run)
{
    const void *word = NULL;
    for (int32_t i = 0; i < run->num_warp_fibers; i++) {
        const struct weft__cpu_fiber *fiber = run->runner->fibers[i];
        if (!weft__cpu_waits_for_rank(fiber))
            continue;
        if (word != NULL && word != fiber->word)
            return WEFT__ANY_WORD;
        word = fiber->word;
    }
    const weft_comm *comm = run->launch->comm;
    const uint64_t offset = (uintptr_t)word - (uintptr_t)run->heap_bases[comm->rank];
    return word == NULL || offset >= *weft__heap_backed_bytes(comm->heap) ? WEFT__ANY_WORD : offset;
}

/* A launch is one exchange. */
static int is_told(const struct weft__cpu_launch *run, int32_t rank)
{
    for (int32_t i = 0; i < run->num_told; i++) {
        if (run->waits[i].wait.rank == rank)
            return 1;
    }
    return 0;
}

static void tell_waits(struct weft__cpu_launch *run)
{
    if (run->num_told > 0)
        return;
    for (int32_t i = 0; i < run->num_warp_fibers && run->num_told < WEFT__MAX_LISTED_WAITS; i++) {
        const struct weft__cpu_fiber *fiber = run->runner->fibers[i];
        if (!weft__cpu_waits_for_rank(fiber) || fiber->site->rank == WP_NO_RANK ||
            is_told(run, fiber->site->rank))
            continue;
        struct weft__wait_entry *entry = &run->waits[run->num_told++];
        entry->wait =
            (struct weft__wait){.rank = fiber->site->rank, .exchange = fiber->site->exchange};
        weft__waits_begin(&run->launch->comm->waits, entry);
    }
}

static void untell_waits(struct weft__cpu_launch *run)
{
    const enum weft__wait_end how =
        run->failure.kind != WP_FAILURE_NONE ? WEFT__WAIT_FAILED : WEFT__WAIT_CAME;
    for (int32_t i = 0; i < run->num_told; i++)
        weft__waits_end(&run->launch->comm->waits, &run->waits[i], how);
    run->num_told = 0;
}

/* How long the thread may sleep. Of words for which nobody rings it looks again soon. */
static int64_t sleep_ns(const struct weft__cpu_launch *run, int64_t since_ns)
{
    enum { LOOK_AGAIN_NS = 100 * 1000 };
    const int64_t left_ns = weft__cpu_first_deadline(run, since_ns) - weft__now_ns();
    int is_rung = 1;
    for (int32_t i = 0; i < run->num_warp_fibers; i++) {
        const struct weft__cpu_fiber *fiber = run->runner->fibers[i];
        is_rung &= !weft__cpu_waits_for_rank(fiber) || fiber->width != WEFT__CPU_U32;
    }
    return is_rung || left_ns < LOOK_AGAIN_NS ? left_ns : LOOK_AGAIN_NS;
}

/* Returns when a fiber may go on or the waits may have to end. */
static void idle(struct weft__cpu_launch *run, int64_t since_ns)
{
    const struct weft__condition condition = {is_word_there, run};
    if (weft__poll(&run->runner->polling, run->runner->cores, condition))
        return;
    weft__net_driver_rest(&run->net);
    tell_waits(run);
    struct weft__doorbell *bell = weft__heap_bell(run->heap_bases[run->launch->comm->rank]);
    const uint32_t prepared = weft__doorbell_prepare(bell, awaited_word(run));
    if (weft__cpu_any_can_go_on(run) || weft__cpu_end_one_wait(run, since_ns))
        weft__doorbell_cancel(bell);
    else
        weft__doorbell_sleep(bell, prepared, sleep_ns(run, since_ns));
}

static int has_ended_a_wait(const struct weft__cpu_launch *run)
{
    int gives_up = 0;
    for (int32_t i = 0; i < run->num_warp_fibers; i++)
        gives_up |= run->runner->fibers[i]->state == FIBER_GIVES_UP;
    return gives_up || run->failure.kind != WP_FAILURE_NONE;
}

static void run_fibers(struct weft__cpu_launch *run)
{
    while (run->num_live > 0) {
        const int was_one_ready = run_ready_fibers(run);
        weft__net_driver_send(&run->net);
        if (was_one_ready)
            continue;
        const int64_t since_ns = weft__now_ns();
        if (run->launch->record_id != 0)
            weft__cpu_record_idle(run, since_ns);
        while (!weft__cpu_any_can_go_on(run) && !has_ended_a_wait(run) &&
               !weft__cpu_end_one_wait(run, since_ns))
            idle(run, since_ns);
        untell_waits(run);
        if (run->launch->record_id != 0)
            weft__cpu_record_wait(run, since_ns);
        if (run->failure.kind != WP_FAILURE_NONE)
            end_all_waits(run);
        else
            resume_those_that_give_up(run);
    }
}

/* ------------------------------------------------------------------ runner */

static weft_result grow_fibers(struct weft__cpu_runner *runner, int32_t num_fibers)
{
    if (num_fibers <= runner->num_fibers)
        return WEFT_OK;
    struct weft__cpu_fiber **fibers =
        realloc(runner->fibers, (size_t)num_fibers * sizeof(*runner->fibers));
    WEFT__CHECK_MEMORY(fibers, "no memory for %d warps", num_fibers);
    runner->fibers = fibers;
    while (runner->num_fibers < num_fibers) {
        struct weft__cpu_fiber *fiber = calloc(1, sizeof *fiber);
        WEFT__CHECK_MEMORY(fiber, "no memory for a warp");
        const weft_result result = weft__fiber_create(&fiber->fiber, WEFT__FIBER_STACK_BYTES);
        if (result != WEFT_OK) {
            free(fiber);
            return result;
        }
        runner->fibers[runner->num_fibers++] = fiber;
    }
    return WEFT_OK;
}

static weft_result grow_blocks(struct weft__cpu_runner *runner, int32_t num_blocks)
{
    if (num_blocks <= runner->num_blocks)
        return WEFT_OK;
    struct weft__cpu_block *blocks =
        realloc(runner->blocks, (size_t)num_blocks * sizeof(*runner->blocks));
    WEFT__CHECK_MEMORY(blocks, "no memory for %d blocks", num_blocks);
    runner->blocks = blocks;
    runner->num_blocks = num_blocks;
    return WEFT_OK;
}

static void prepare_warps(struct weft__cpu_launch *run)
{
    const struct weft__launch *launch = run->launch;
    for (int32_t i = 0; i < launch->grid.num_blocks; i++) {
        run->runner->blocks[i].num_arrived = 0;
        run->runner->blocks[i].num_syncs = 0;
    }
    for (int32_t i = 0; i < run->num_warp_fibers; i++) {
        struct weft__cpu_fiber *fiber = run->runner->fibers[i];
        const int32_t block_idx = i / launch->grid.num_warps;
        fiber->warp.block_idx = block_idx;
        fiber->warp.num_blocks = launch->grid.num_blocks;
        fiber->warp.warp_idx = i % launch->grid.num_warps;
        fiber->warp.num_warps = launch->grid.num_warps;
        fiber->warp.block = &run->runner->blocks[block_idx];
        fiber->warp.launch = run;
        fiber->state = FIBER_READY;
        fiber->wait_status = WP_STATUS_OK;
        weft__fiber_start(fiber->fiber, run_warp, fiber);
    }
}

weft_result weft__cpu_runner_create(const weft_comm *comm, struct weft__cpu_runner **out)
{
    struct weft__cpu_runner *runner = calloc(1, sizeof *runner);
    WEFT__CHECK_MEMORY(runner, "no memory for a stream");
    runner->cores = weft__count_cores(comm);
    *out = runner;
    return WEFT_OK;
}

void weft__cpu_runner_destroy(struct weft__cpu_runner *runner)
{
    if (runner == NULL)
        return;
    destroy_fibers(runner);
    free(runner->fibers);
    free(runner->blocks);
    free(runner);
}

weft_result weft__cpu_run(struct weft__cpu_runner *runner, const struct weft__launch *launch,
                          struct wp_failure *failure)
{
    *failure = (struct wp_failure){.kind = WP_FAILURE_NONE};
    struct weft__cpu_launch run = {
        .launch = launch,
        .runner = runner,
        .heap_bases = weft__heap_bases(launch->comm->heap),
        .net = {.comm = launch->comm, .cores = runner->cores},
        .num_warp_fibers = launch->grid.num_blocks * launch->grid.num_warps,
    };
    weft_result result = grow_fibers(runner, run.num_warp_fibers);
    if (result == WEFT_OK)
        result = grow_blocks(runner, launch->grid.num_blocks);
    if (result != WEFT_OK)
        return result;
    run.num_live = run.num_warp_fibers;
    prepare_warps(&run);
    /* The boundaries of launches (machine.h): packets order nothing, so what this rank did in
     * earlier launches is ordered before what a peer does after it took a packet of this launch by
     * the release at the end of those, which pairs with the acquire at the beginning of the peer's
     * next launch. */
    atomic_thread_fence(memory_order_acq_rel);
    if (launch->record_id != 0)
        weft__cpu_record_start(&run);
    run_fibers(&run);
    weft__cpu_order_row_stores();
    atomic_thread_fence(memory_order_release);
    if (launch->record_id != 0)
        weft__cpu_record_end(&run);
    *failure = run.failure;
    return WEFT_OK;
}
