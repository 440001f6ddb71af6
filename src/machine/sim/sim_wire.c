/* SPDX-License-Identifier: MIT */
/*
 * The network: puts on their way to ranks of other nodes.
 *
 * Each put has a fiber of its own while it is under way, so that puts come in any order, also
 * between the same two ranks. It begins with the past of the put, and nothing else: so what it
 * reads at the source and writes at the target is ordered neither with what the ranks do later nor
 * with other puts, but by the word that it adds to. That brings its past, bytes included, to
 * whoever waits for the word.
 *
 * A fiber that is done carries another put only if that put's sender knows of all that it did: then
 * nothing is taken for ordered because the same fiber did both.
 */
#include <string.h>

#include "machine/sim/sim_launch.h"
#include "machine/sim/sim_nic.h"
#include "machine/sim/sim_wire.h"

enum {
    MAX_WIRES = 512,
    MAX_PIECES = 3, /* in which the bytes come */
    PIECE_ALIGNMENT = 16,
    LATE_ONE_IN = 4, /* puts */
    LATE_STEPS = 400,
    LOST_ONE_IN = 2 /* of those that are under way when their sender dies, at each piece */
};

static struct sim_fiber *wires[MAX_WIRES];
static int32_t num_wires;
static struct sim_parcel *waiting; /* for a fiber; the last one first */
static struct sim_parcel *unused;
static struct sim_parcel *known; /* all */
static uint64_t num_parcels;

void sim_wire_reset(void)
{
    num_wires = 0;
    waiting = NULL;
    unused = NULL;
    known = NULL;
    num_parcels = 0;
}

/* ---------------------------------------------------------------- delivery */

static int is_dead(const struct sim_parcel *parcel, int32_t rank)
{
    return sim_world->rank_is_dead[parcel->link->world_ranks[rank]];
}

int sim_wire_is_lost(const struct sim_parcel *parcel)
{
    const int32_t target = parcel->access.rank;
    return parcel->link->comms[target] == NULL || is_dead(parcel, target) ||
           (is_dead(parcel, parcel->sender) && sim_random(LOST_ONE_IN) == 0);
}

char *sim_wire_target(const struct sim_parcel *parcel, uint64_t offset)
{
    const int32_t rank = parcel->access.rank;
    return parcel->link->comms[rank]->heap->bases[rank] + offset;
}

/* The state of the bytes at an offset in all heaps. */
static int has_freed(const struct sim_parcel *parcel, int32_t rank, uint64_t offset, uint64_t bytes)
{
    return !weft__ranges_contain(&parcel->link->comms[rank]->heap->ranges, offset, bytes);
}

/* Puts to memory that its target has freed, and its sender has not, harm nobody: no rank can
 * have allocated it again, for which it takes all ranks. Who frees memory need not wait for
 * credits, nor for the dead. */
static int comes_after_all(const struct sim_parcel *parcel, uint64_t offset, uint64_t bytes)
{
    return (parcel->access.num_bytes == 0 || is_dead(parcel, parcel->sender)) &&
           has_freed(parcel, parcel->access.rank, offset, bytes) &&
           !has_freed(parcel, parcel->sender, offset, bytes);
}

static void land_piece(const struct sim_parcel *parcel, uint64_t begin, uint64_t end)
{
    char *target = sim_wire_target(parcel, parcel->access.target);
    if (comes_after_all(parcel, parcel->access.target + begin, end - begin))
        return;
    sim_trace("land", parcel->origin.place, target + begin, end - begin);
    if (parcel->completion == NULL)
        sim_check_access(parcel->source + begin, end - begin, SIM_READ, parcel->origin.code);
    sim_check_access(target + begin, end - begin, SIM_WRITE, parcel->origin.code);
    memcpy(target + begin, parcel->source + begin, end - begin);
    sim_yield();
}

/* Whether all have come: what is lost is the rest of the parcel, since its word never comes before
 * its bytes. */
static int land_bytes(const struct sim_parcel *parcel)
{
    const uint64_t num_bytes = parcel->access.num_bytes;
    const uint64_t num_pieces = 1 + sim_random(MAX_PIECES), first = sim_random(num_pieces);
    for (uint64_t i = 0; i < num_pieces; i++) {
        const uint64_t piece = (first + i) % num_pieces;
        const uint64_t begin = num_bytes * piece / num_pieces / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
        const uint64_t after =
            num_bytes * (piece + 1) / num_pieces / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
        const uint64_t end = piece + 1 == num_pieces ? num_bytes : after;
        if (sim_wire_is_lost(parcel))
            return 0;
        if (begin < end)
            land_piece(parcel, begin, end);
    }
    return 1;
}

static void add_to_word(const struct sim_parcel *parcel)
{
    uint64_t *word = (uint64_t *)(void *)sim_wire_target(parcel, parcel->access.word);
    if (comes_after_all(parcel, parcel->access.word, sizeof *word))
        return;
    sim_check_access(word, sizeof *word, SIM_ATOMIC_WRITE, parcel->origin.code);
    const uint64_t value = *word + parcel->access.add;
    sim_word_change(sim_word_of(word), parcel->access.adders, parcel->origin.code);
    struct sim_signal *signal = sim_signal_add_to(sim_word_of(word), *word, value);
    sim_clock_join(&signal->clock, &sim_current()->clock);
    signal->is_credit = parcel->access.num_bytes == 0;
    *word = value;
    sim_trace("arrive", parcel->origin.place, word, value);
}

/* Only credits may be under way to a rank that leaves a communicator in which nothing has
 * failed. */
static void check_is_awaited(const struct sim_parcel *parcel)
{
    const struct weft__link *link = parcel->link;
    const struct sim_access_record access = {sim_current(), SIM_WRITE, parcel->origin.code};
    if (parcel->access.num_bytes > 0 && link->comms[parcel->access.rank] == NULL &&
        !link->has_failed && !sim_world->result->fault_struck)
        sim_report_bad_access(parcel->source, &access, NULL,
                              "put that was under way when its target left the communicator");
}

/* Its effect at the target is behind whoever flushes. */
static void deliver_put(struct sim_parcel *parcel)
{
    sim_access_take_source(parcel);
    if (sim_random(LATE_ONE_IN) == 0)
        sim_sleep(sim_random(LATE_STEPS));
    if (!land_bytes(parcel) || sim_wire_is_lost(parcel))
        check_is_awaited(parcel);
    else if (parcel->access.operation == WP_ACCESS_PUT_SIGNAL)
        add_to_word(parcel);
    sim_release(sim_wire_landed(parcel));
}

/* Behind what came before it. */
static void deliver_signal(const struct sim_parcel *parcel)
{
    sim_access_flush(parcel);
    if (!sim_wire_is_lost(parcel))
        add_to_word(parcel);
    sim_release(sim_wire_landed(parcel));
}

static void deliver(struct sim_parcel *parcel)
{
    if (parcel->access.operation == WP_ACCESS_PUT ||
        parcel->access.operation == WP_ACCESS_PUT_SIGNAL) {
        deliver_put(parcel);
        return;
    }
    if (sim_random(LATE_ONE_IN) == 0)
        sim_sleep(sim_random(LATE_STEPS));
    if (parcel->access.operation == WP_ACCESS_SIGNAL) {
        deliver_signal(parcel);
        return;
    }
    sim_access_answer(parcel);
}

int sim_wire_have_older_come(const struct sim_parcel *parcel)
{
    for (const struct sim_parcel *other = known; other != NULL; other = other->next_known)
        if (other->state == SIM_PARCEL_UNDER_WAY && other->number < parcel->number &&
            other->link == parcel->link && other->sender == parcel->sender &&
            other->access.rank == parcel->access.rank)
            return 0;
    return 1;
}

struct sim_clock *sim_wire_landed(const struct sim_parcel *parcel)
{
    struct sim_clock **of_sender = &parcel->link->landed[parcel->sender];
    if (*of_sender == NULL)
        *of_sender = sim_run_alloc(SIM_MAX_RANKS * sizeof **of_sender);
    return &(*of_sender)[parcel->access.rank];
}

/* ---------------------------------------------------------------- who delivers what */

static void begin_with_past(struct sim_fiber *wire, const struct sim_clock *past)
{
    const uint32_t now = sim_now(wire);
    sim_clock_clear(&wire->clock);
    sim_clock_join(&wire->clock, past);
    sim_clock_set(&wire->clock, wire->id, now + 1);
}

static void give_back(struct sim_parcel *parcel)
{
    parcel->state = SIM_PARCEL_UNUSED;
    parcel->next = unused;
    unused = parcel;
}

static struct sim_parcel *take_waiting(void)
{
    struct sim_parcel *parcel = waiting;
    if (parcel != NULL)
        waiting = parcel->next;
    return parcel;
}

static void run_wire(struct sim_fiber *wire)
{
    for (struct sim_parcel *parcel = wire->argument; parcel != NULL; parcel = take_waiting()) {
        begin_with_past(wire, &parcel->past);
        deliver(parcel);
        parcel->link->num_parcels[parcel->sender]--;
        give_back(parcel);
    }
}

/* One that is done, and has done nothing that the sender does not know of. NULL: another one is
 * needed. But when there are as many as there may be, any will do: rather are some orders missed
 * than that one is made up. */
static struct sim_fiber *find_wire(const struct sim_clock *past)
{
    struct sim_fiber *idle = NULL;
    for (int32_t i = 0; i < num_wires; i++) {
        if (wires[i]->state != SIM_DONE)
            continue;
        if (sim_clock_of(past, wires[i]->id) >= sim_now(wires[i]))
            return wires[i];
        idle = wires[i];
    }
    return num_wires < MAX_WIRES ? NULL : idle;
}

static struct sim_fiber *add_wire(struct sim_parcel *parcel)
{
    struct sim_fiber *wire = num_wires < MAX_WIRES
                                 ? sim_fiber_start(SIM_NO_RANK, SIM_LANE_STACK, run_wire, parcel)
                                 : NULL;
    if (wire != NULL)
        wires[num_wires++] = wire;
    return wire;
}

static void start(struct sim_parcel *parcel)
{
    struct sim_fiber *wire = find_wire(&parcel->past);
    if (wire != NULL) {
        sim_fiber_restart(wire, run_wire, parcel);
    } else if (add_wire(parcel) == NULL) {
        parcel->next = waiting;
        waiting = parcel;
    }
}

/* ---------------------------------------------------------------- posting */

/* The fault of a word; NULL if there is none. */
static const char *mistake_in_word(const struct weft__ranges *heap, uint64_t word)
{
    if (word % sizeof(uint64_t) != 0)
        return "put whose word is not aligned to 8 bytes";
    if (!weft__ranges_contain(heap, word, sizeof(uint64_t)))
        return "put whose word is not in memory that the network reaches";
    return NULL;
}

/* The fault of the bytes, or of the value that is fetched; NULL: none. */
static const char *mistake_in_bytes(const struct weft__ranges *heap, const struct wp_access *access)
{
    if (access->operation == WP_ACCESS_FETCH_ADD)
        return mistake_in_word(heap, access->target);
    if (access->num_bytes == 0)
        return NULL;
    if (!weft__ranges_contain(heap, access->source, access->num_bytes))
        return "put from memory that the network does not reach";
    if (!weft__ranges_contain(heap, access->target, access->num_bytes))
        return "put to memory that the network does not reach";
    return NULL;
}

static const char *mistake_in(const weft_comm *comm, const struct wp_access *access)
{
    const struct weft__ranges *heap = &comm->heap->ranges;
    const int32_t *node_of_rank = comm->topology.node_of_rank;
    const char *mistake = NULL;
    if (access->operation > WP_ACCESS_SIGNAL)
        return "access that the sim does not know";
    if (access->rank < 0 || access->rank >= comm->num_ranks)
        return "put to a rank that does not exist";
    if (node_of_rank[access->rank] == node_of_rank[comm->rank])
        return "put to a rank of the own node";
    if (access->operation == WP_ACCESS_PUT_SIGNAL || access->operation == WP_ACCESS_FETCH_ADD ||
        access->operation == WP_ACCESS_SIGNAL)
        mistake = mistake_in_word(heap, access->word);
    return mistake != NULL ? mistake : mistake_in_bytes(heap, access);
}

int sim_wire_check(const weft_comm *comm, const struct wp_access *access, const void *code)
{
    const char *mistake = mistake_in(comm, access);
    const struct sim_access_record record = {sim_current(), SIM_WRITE, code};
    if (mistake != NULL)
        sim_report_bad_access(comm->heap->bases[comm->rank] + access->source, &record, NULL,
                              mistake);
    return mistake == NULL;
}

static struct sim_parcel *new_parcel(void)
{
    struct sim_parcel *parcel = unused;
    if (parcel != NULL) {
        unused = parcel->next;
        return parcel;
    }
    parcel = sim_run_alloc(sizeof *parcel);
    parcel->next_known = known;
    known = parcel;
    return parcel;
}

void sim_wire_post(const weft_comm *comm, const struct wp_access *access,
                   struct sim_completion *completion, const struct sim_clock *past,
                   struct sim_origin origin)
{
    const char *base = comm->heap->bases[comm->rank];
    if (!sim_wire_check(comm, access, origin.code))
        return;
    struct sim_parcel *parcel = new_parcel();
    parcel->state = SIM_PARCEL_UNDER_WAY;
    parcel->number = num_parcels++;
    parcel->link = comm->link;
    parcel->sender = comm->rank;
    parcel->source = base + access->source;
    parcel->access = *access;
    parcel->completion = completion;
    parcel->origin = origin;
    sim_clock_clear(&parcel->past);
    sim_clock_join(&parcel->past, past);
    parcel->link->num_parcels[parcel->sender]++;
    start(parcel);
}

static int have_all_come(struct sim_fiber *fiber)
{
    const weft_comm *comm = fiber->wait_argument;
    return comm->link->num_parcels[comm->rank] == 0 && sim_nic_is_idle(comm->link, comm->rank);
}

/* As a network does when it is closed: what a rank sent before it left stands. */
void sim_wire_drain(weft_comm *comm)
{
    sim_wait_until(have_all_come, comm, comm->timeout_ms);
}
