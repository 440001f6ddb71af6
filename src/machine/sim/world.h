/* SPDX-License-Identifier: MIT */
/* The state of one run, shared by the files of the sim machine. */
#pragma once

#include "comm/comm.h"
#include "comm/host/error.h"
#include "machine/fiber.h"
#include "machine/machine.h"
#include "machine/sim/sim.h"

enum {
    SIM_MAX_FIBERS = 8192,
    SIM_TRACE_EVENTS = 32, /* kept per fiber */
    SIM_HOST_STACK_BYTES = 512 * 1024,
    SIM_STEP_NS = 1000, /* of virtual time, */
    SIM_STEP_RANKS = 8, /* where there are no more than so many: see sim_step_ns */
    SIM_MAX_RANKS = 256,
    SIM_NO_RANK = -1, /* of the network's fibers */
    SIM_PCT_CHANGE_POINTS = 3
};

/* Longer than any deadline of the suite. */
#define SIM_STALL_NS ((int64_t)3600 * 1000000000)

/* ---------------------------------------------------------------- vector clocks */

/* The events before one. Its memory lasts as long as the run: a clock of zeroes is empty,
 * and is not freed. It is in pieces, which clocks share as long as they are equal there: most are,
 * among many ranks. */
enum { SIM_PIECE_TIMES = 32 };
struct sim_piece {
    uint32_t of[SIM_PIECE_TIMES];
    uint32_t num_owners; /* one alone may change it */
    struct sim_piece *next_unused;
};
struct sim_times {
    struct sim_piece **pieces; /* NULL: all times are 0, as those behind the last piece */
    int32_t num_pieces;
};
struct sim_clock {
    struct sim_times all; /* for each fiber the time up to which all that it did is in the past, */
    struct sim_times loads; /* and that for what it has loaded, where that is later: by credits */
};

static inline uint32_t sim_time_of(const struct sim_times *times, int32_t fiber)
{
    const int32_t piece = fiber / SIM_PIECE_TIMES;
    return piece < times->num_pieces && times->pieces[piece] != NULL
               ? times->pieces[piece]->of[fiber % SIM_PIECE_TIMES]
               : 0;
}

/* Those of fibers from this one on are 0. */
static inline int32_t sim_times_size(const struct sim_times *times)
{
    return times->num_pieces * SIM_PIECE_TIMES;
}

static inline uint32_t sim_clock_of(const struct sim_clock *clock, int32_t fiber)
{
    return sim_time_of(&clock->all, fiber);
}

static inline uint32_t sim_clock_of_loads(const struct sim_clock *clock, int32_t fiber)
{
    const uint32_t all = sim_time_of(&clock->all, fiber);
    const uint32_t loads = sim_time_of(&clock->loads, fiber);
    return loads > all ? loads : all;
}

/* ---------------------------------------------------------------- fibers */

enum sim_store_kind { SIM_PLAIN_STORE, SIM_ROW_STORE };

/* A store that others do not see yet. While its fiber runs, memory holds the new bytes; while it
 * does not, the old. */
struct sim_store {
    char *address;
    enum sim_store_kind kind;
    uint8_t num_bytes;
    char other[16]; /* the bytes that memory does not hold now */
};

struct sim_event { /* of the trace */
    uint64_t step;
    const char *what;
    struct weft__sim_place place;
    const void *address;
    uint64_t value;
};

enum sim_stack_kind { SIM_HOST_STACK, SIM_LANE_STACK };

enum sim_state { SIM_UNUSED, SIM_READY, SIM_WAITING, SIM_DONE, SIM_KILLED };

struct sim_fiber {
    int32_t id; /* its component of every clock */
    int32_t rank;
    enum sim_state state;
    struct weft__fiber *stack;
    enum sim_stack_kind stack_kind;
    struct wp_warp warp; /* of a lane */
    int is_host;
    void (*main)(struct sim_fiber *fiber);
    void *argument;
    /* While waiting: goes on when is_over says so, asked with all pending stores out of sight. */
    int (*is_over)(struct sim_fiber *fiber);
    void *wait_argument;
    int64_t deadline_ns; /* the wait ends then at the latest; INT64_MAX: never */
    int wait_ended;      /* by is_over, not by the deadline */
    struct sim_clock clock;
    struct sim_clock taken;  /* what the packets brought that it took */
    struct sim_clock fenced; /* what it had done at its last fence: a relaxed store brings that */
    /* Row operations outlast their call: what they access is dated at the time that the fiber will
     * have when it has waited for them. 0: none is under way. */
    uint32_t rows_time;
    uint32_t num_row_operations; /* in all */
    struct sim_store *stores;
    int32_t num_stores, max_stores;
    uint32_t priority;
    uint64_t asleep_until; /* step, under the delay policy */
    /* Variables of host code that are thread-local on other machines. */
    char last_error[WEFT__ERROR_BYTES];
    enum weft__call current_call;
    struct sim_event trace[SIM_TRACE_EVENTS];
    uint64_t num_events;
};

struct sim_world {
    const struct weft__sim_config *config;
    struct weft__sim_result *result;
    uint64_t random_state;
    uint64_t step;
    int64_t now_ns;
    struct sim_fiber *fibers[SIM_MAX_FIBERS];
    int32_t num_fibers;
    struct sim_fiber *current;
    enum weft__sim_policy policy;
    int32_t favourite_rank; /* of the ahead policy */
    uint64_t change_points[SIM_PCT_CHANGE_POINTS];
    int64_t rank_stalled_until_ns[SIM_MAX_RANKS];
    int rank_is_dead[SIM_MAX_RANKS];
    size_t report_bytes;
};

extern struct sim_world *sim_world; /* of the run that is going on */

static inline struct sim_fiber *sim_current(void)
{
    return sim_world->current;
}

/* Ranks run side by side: so a step of one takes the less, the more there are. A deadline is then
 * as many steps of each rank, however many ranks take turns. */
static inline int64_t sim_step_ns(void)
{
    const int32_t num_ranks = sim_world->config->num_ranks;
    return num_ranks <= SIM_STEP_RANKS ? SIM_STEP_NS : SIM_STEP_NS * SIM_STEP_RANKS / num_ranks;
}

/* scheduler.c. */
uint64_t sim_random(uint64_t bound); /* 0..bound-1 */
struct sim_fiber *sim_fiber_start(int32_t rank, enum sim_stack_kind stack_kind,
                                  void (*main)(struct sim_fiber *), void *argument);
/* Gives a fiber that is done something new to do, after all that it did before. */
void sim_fiber_restart(struct sim_fiber *fiber, void (*main)(struct sim_fiber *), void *argument);
void sim_yield(void);
/* Suspends the running fiber until is_over(fiber) or the deadline; returns 0 at the deadline. */
int sim_wait_until(int (*is_over)(struct sim_fiber *fiber), void *argument, int64_t timeout_ms);
/* Suspends the running fiber for so many steps of the others, or as long as there are any. */
void sim_sleep(uint64_t num_steps);

/* policy.c: who goes on. */
void sim_draw_policy(void);
void sim_policy_add(struct sim_fiber *fiber);          /* that begins something */
void sim_policy_remove(const struct sim_fiber *fiber); /* that has ended or been killed */
/* NULL: nobody can go on. */
struct sim_fiber *sim_choose(void);
int64_t sim_stalled_until_ns(const struct sim_fiber *fiber);

/* clock.c. */
void sim_clock_join(struct sim_clock *clock, const struct sim_clock *other);
void sim_clock_set(struct sim_clock *clock, int32_t fiber, uint32_t time);
void sim_clock_clear(struct sim_clock *clock);
/* Its own time. */
uint32_t sim_now(const struct sim_fiber *fiber);
/* The fiber's next steps are later than those that it has done. */
void sim_tick(struct sim_fiber *fiber);
/* Publishes the running fiber's past in *clock (joined), and begins a new time of the fiber. */
void sim_release(struct sim_clock *clock);
/* The same of a relaxed store: the past of its last fence, and loads up to now. */
void sim_release_loads(struct sim_clock *clock);
void sim_acquire(const struct sim_clock *clock);
/* The row operations of the running fiber that are under way: the time of their accesses. */
uint32_t sim_rows_time(void);
/* They have ended, before what the fiber does next. */
void sim_rows_end(struct sim_fiber *fiber);
void sim_clocks_reset(void);

/* words.c: words that ordered operations are made on. */
enum { SIM_KEPT_SIGNALS = 4 };
struct sim_signal {
    uint64_t value;
    int32_t fiber; /* who signalled, and when in its time */
    uint32_t time;
    struct sim_clock clock; /* what whoever sees the value acquires */
    int is_credit;          /* a put of no bytes, or an addition: nobody need wait for it */
};
struct sim_word {
    const void *address;
    struct sim_clock clock; /* of the additions */
    uint64_t num_signals;
    struct sim_signal signals[SIM_KEPT_SIGNALS]; /* the last ones: i is in [i % SIM_KEPT_SIGNALS] */
    uint64_t awaited;                            /* the last value that a wait has seen */
    uint32_t changed_by; /* a bit for each of enum wp_access_adders: a NIC, and processors */
};
struct sim_word *sim_word_of(const void *address);
/* Reports a word that both change. */
void sim_word_change(struct sim_word *word, enum wp_access_adders who, const void *code);
struct sim_signal *sim_signal_add(struct sim_word *word, uint64_t value);
/* The same by an addition to the value `before`: it brings what the signal of that value brings. */
struct sim_signal *sim_signal_add_to(struct sim_word *word, uint64_t before, uint64_t value);
/* The signal that the running fiber's wait sees: one of those that it may; NULL if the word has its
 * value from elsewhere. */
const struct sim_signal *sim_signal_see(const struct sim_word *word, uint64_t at_least);
/* A word whose last signal no wait has seen; NULL if there is none. */
const struct sim_word *sim_unawaited_word(void);
/* The past of all words there no longer counts. */
void sim_words_forget(const void *address, size_t num_bytes);

/* fences.c: the fences at the two ends of a launch, and what packets carry between them. They last
 * as long as the run. */
struct sim_fences {
    struct sim_fences *next;
    int32_t rank;
    int32_t fiber;             /* of the stream */
    uint32_t end_time;         /* of the fiber; 0: the launch has not ended */
    struct sim_clock released; /* what was done before it began: what the packets it sends bring */
    struct sim_clock
        taken; /* what the packets brought that it took, for this rank's launches after */
    struct sim_clock ended; /* what was done by its end */
};
/* By the stream's fiber. NULL: no memory. */
struct sim_fences *sim_fences_begin(void);
void sim_fences_end(struct sim_fences *launch);
void sim_fences_reset(void);

/* check.c: whether accesses of the running fiber are ordered after those they conflict with. */
enum sim_access {
    SIM_READ,
    SIM_WRITE,
    SIM_ATOMIC_READ,
    SIM_ATOMIC_WRITE,
    SIM_ROW_READ, /* of a row operation */
    SIM_ROW_WRITE
};
void sim_check_access(const void *address, size_t num_bytes, enum sim_access access,
                      const void *code);
/* Packets here are smaller than on GPUs, but where they are must do for both. */
void sim_check_packet_alignment(const void *slots, const void *code);

/* shadow.c. */
enum sim_content {
    SIM_CONTENT_ANY,
    SIM_CONTENT_UNWRITTEN,
    SIM_CONTENT_UNALLOCATED, /* of a heap: not yet */
    SIM_CONTENT_FREED
};
/* The memory's past no longer counts. Reads of unwritten bytes, and all accesses to unallocated or
 * freed ones, are reported as races are. */
void sim_shadow_set(const void *address, size_t num_bytes, enum sim_content content);
/* Earlier accesses there have no conflict with later ones. */
void sim_shadow_forget(const void *address, size_t num_bytes);

/* memory.c: frees what no program has accessed, or what has been forgotten already, without the
 * search for accesses that free makes here. */
void sim_free(void *memory);
/* Memory that lasts as long as the run, 1 MiB at most; zeroed. Ends the process if there is
 * none. */
void *sim_run_alloc(size_t num_bytes);
/* Begins another run: what was there before is no more. */
void sim_run_memory_reset(void);
uint64_t sim_run_number(void); /* from 1 on */
_Noreturn void sim_end_without_memory(void);

/* stores.c. */
/* The running fiber is about to write. */
void sim_store_begin(void *address, size_t num_bytes, enum sim_store_kind kind);
/* All of the kind become visible. */
void sim_stores_commit(struct sim_fiber *fiber, enum sim_store_kind kind);
void sim_stores_hide(struct sim_fiber *fiber); /* at a switch away; some may become visible */
void sim_stores_show(struct sim_fiber *fiber); /* at a switch to it */

/* sites.c. */
enum sim_site_kind {
    SIM_SITE_RELEASE,
    SIM_SITE_ACQUIRE,
    SIM_SITE_ACQUIRE_RELEASE,
    SIM_SITE_BLOCK_SYNC,
    SIM_SITE_WARP_SYNC,
    SIM_SITE_ROW_SYNC, /* weakened, it is a warp sync */
    SIM_SITE_FENCE     /* of host code */
};
/* Counts a pass; returns 1 if the site is weakened in this run. */
int sim_site_pass(struct weft__sim_place place, enum sim_site_kind kind);

/* report.c: an access, for a report of one or two of them. */
struct sim_access_record {
    const struct sim_fiber *fiber;
    enum sim_access access;
    const void *code;
};
void sim_report_race(const void *address, const struct sim_access_record *earlier,
                     const struct sim_access_record *later);
/* An access to memory that it may not be made to, `why` in words; `earlier` is the access that made
 * it so, or NULL. */
void sim_report_bad_access(const void *address, const struct sim_access_record *access,
                           const struct sim_access_record *earlier, const char *why);
/* slots.c: packets and the slots they are sent to. */
struct sim_packet {
    int32_t rank; /* of the sender, in the communicator */
    uint64_t sequence, exchange;
    const struct sim_clock *released; /* what it brings */
};
void sim_slot_send(const void *address, const struct sim_packet *packet,
                   const struct sim_access_record *access);
/* Returns what the packet brought; NULL if there was none. */
const struct sim_clock *sim_slot_take(const void *address, const struct sim_packet *awaited,
                                      const struct sim_access_record *access);
/* Reports a packet there that has not been taken. */
void sim_slots_check_taken(const void *address, size_t num_bytes);
/* The past of the slots there no longer counts. */
void sim_slots_forget(const void *address, size_t num_bytes);

/* wire.c: puts on their way to ranks of other nodes. */
void sim_wire_reset(void);
/* Until all that the rank has put has come. */
void sim_wire_drain(weft_comm *comm);

/* tagged.c: the same of tagged rows. */
void sim_tagged_forget(const void *address, size_t num_bytes);

void sim_trace(const char *what, struct weft__sim_place place, const void *address, uint64_t value);
void sim_report(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_report_traces(void);
/* "file:line" of code, in a static buffer that the next call but one overwrites. */
const char *sim_line_of(const void *code);
/* "heap of rank r + offset" or "local memory". */
const char *sim_name_of(const void *address);
/* comm.c. */
void sim_comm_lose_rank(int32_t world_rank);
void sim_comm_reset(void);
/* heap.c: which rank's heap an address is in, or -1; its offset there. */
int32_t sim_heap_rank(const void *address, uint64_t *offset);
/* Whether a rank of the run may access it: all that is in no heap, or in one that the rank has
 * mapped and keeps so until it destroys its own communicator, whatever the heap's owner does. */
int sim_heap_is_mapped(const void *address, int32_t world_rank);
/* Whether the word is in memory that rank, which may have left, has freed, and comm has not. */
int sim_heap_is_left(const weft_comm *comm, int32_t rank, const void *word);
