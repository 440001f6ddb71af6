/* SPDX-License-Identifier: MIT */
/*
 * Launches tell what they do (record/record.h). A wait is measured only when the whole thread
 * has nothing to do: from then until its word has come. Who came last, all ranks of the host read
 * from what each has written in its heap.
 */
#include "comm/host/thread.h"
#include "machine/cpu/cpu_launch_internal.h"

enum { EXCHANGE_BIT = 40 };

static int meets_all(const struct weft__cpu_launch *run)
{
    return run->launch->meeting == WEFT__MEETS_ALL && run->launch->exchange > 0;
}

static uint64_t operation_of(const struct weft__cpu_launch *run)
{
    return (uint64_t)run->launch->exchange << EXCHANGE_BIT | run->launch->sequence;
}

static struct weft__attendance *attendance_of(const struct weft__cpu_launch *run, int32_t rank,
                                              uint64_t sequence)
{
    return weft__heap_attendance(run->heap_bases[rank], run->launch->exchange, sequence);
}

static void attend(struct weft__cpu_launch *run, int64_t now_ns)
{
    const int32_t rank = run->launch->comm->rank;
    const uint64_t sequence = run->launch->sequence;
    struct weft__attendance *own = attendance_of(run, rank, sequence);
    run->came_before_ns = atomic_load_explicit(&attendance_of(run, rank, sequence - 1)->came_ns,
                                               memory_order_relaxed);
    atomic_store_explicit(&own->operation, 0, memory_order_relaxed);
    /* Pairs with the acquire fence of a reader: who sees the new time sees no older operation. */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&own->came_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&own->operation, operation_of(run), memory_order_release);
}

void weft__cpu_record_start(struct weft__cpu_launch *run)
{
    const int64_t now_ns = weft__now_ns();
    run->record.started_ns = now_ns;
    run->record.last_rank = WEFT__RECORD_NOBODY;
    run->record.call_idx = (int32_t)run->launch->call;
    weft__records_start(run->launch->comm->records, run->launch->record_id, now_ns);
    if (meets_all(run))
        attend(run, now_ns);
}

void weft__cpu_record_idle(struct weft__cpu_launch *run, int64_t since_ns)
{
    for (int32_t i = 0; i < run->num_warp_fibers; i++) {
        struct weft__cpu_fiber *fiber = run->runner->fibers[i];
        if (weft__cpu_waits_for_rank(fiber) && fiber->idle_ns == 0)
            fiber->idle_ns = since_ns;
    }
}

void weft__cpu_record_wait(struct weft__cpu_launch *run, int64_t since_ns)
{
    const int64_t now_ns = weft__now_ns();
    run->record.waited_ns += now_ns - since_ns;
    for (int32_t i = 0; i < run->num_warp_fibers; i++) {
        struct weft__cpu_fiber *fiber = run->runner->fibers[i];
        if (!weft__cpu_waits_for_rank(fiber) || fiber->site->rank == WP_NO_RANK ||
            fiber->idle_ns == 0 || !weft__cpu_can_go_on(fiber))
            continue;
        weft__records_add_wait(run->launch->comm->records, fiber->site->rank,
                               now_ns - fiber->idle_ns);
        run->record.last_rank = fiber->site->rank;
        fiber->idle_ns = 0;
    }
}

/* When the rank came to this operation; 0: not known, or it has come to a later one. */
static int64_t came_ns(const struct weft__cpu_launch *run, int32_t rank)
{
    const struct weft__attendance *seen = attendance_of(run, rank, run->launch->sequence);
    const uint64_t before = atomic_load_explicit(&seen->operation, memory_order_acquire);
    const int64_t came = atomic_load_explicit(&seen->came_ns, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    return before == operation_of(run) &&
                   atomic_load_explicit(&seen->operation, memory_order_relaxed) == before
               ? came
               : 0;
}

/* The last rank of this host, if it was late. */
static void find_last(struct weft__cpu_launch *run)
{
    const weft_comm *comm = run->launch->comm;
    int64_t last_ns = 0, second_ns = 0;
    int32_t last_rank = WEFT__RECORD_NOBODY;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (run->heap_bases[rank] == NULL)
            continue;
        const int64_t came = came_ns(run, rank);
        if (came == 0)
            return;
        if (came > last_ns) {
            second_ns = last_ns;
            last_ns = came;
            last_rank = rank;
        } else if (came > second_ns) {
            second_ns = came;
        }
    }
    if (second_ns == 0)
        return;
    run->record.last_rank = last_rank;
    run->record.late_ns = last_ns - second_ns;
}

/* Reading what the others have written takes a while. Nobody was late if this rank neither waited
 * nor was away. */
static int may_be_late(const struct weft__cpu_launch *run)
{
    return run->record.waited_ns >= WEFT__LATE_NS ||
           run->record.started_ns - run->came_before_ns >= WEFT__LATE_NS;
}

void weft__cpu_record_end(struct weft__cpu_launch *run)
{
    struct weft__record *record = &run->record;
    record->ended_ns = weft__now_ns();
    record->state = WEFT__RECORD_DONE;
    if (run->failure.kind != WP_FAILURE_NONE) {
        record->state = WEFT__RECORD_FAILED;
        record->last_rank = run->failure.site.rank;
    } else if (meets_all(run) && may_be_late(run)) {
        find_last(run);
    }
    weft__records_end(run->launch->comm->records, run->launch->record_id, record);
}
