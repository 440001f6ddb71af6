/* SPDX-License-Identifier: MIT */
/* Inside of a communicator: who takes part, and what the layers above may use of it. */
#pragma once

#include <stddef.h>

#include "comm/calls.h"
#include "comm/failure/status.h"
#include "comm/failure/waits.h"
#include "comm/heap/heap.h"
#include "comm/host/error.h"
#include "comm/rendezvous/meeting_point.h"
#include "comm/rendezvous/standing.h"
#include "comm/rendezvous/wire.h"
#include "comm/topology.h"
#include "record/record.h"
#include "weft.h"

struct weft__link;    /* the connection to the rendezvous, and its monitor thread */
struct weft__barrier; /* of weft_comm_barrier, of a layer above */
struct weft__windows; /* memory that all ranks have mapped, of a layer above */
struct weft__network; /* traffic between nodes, of a layer above */
struct weft__heap_kind;

/* A machine (of the layer above) adds this to a communicator. */
struct weft__comm_hooks {
    const char *name; /* of the machine: the same on all ranks */
    /* Collective, when the ranks have met: sets heap_kind, and machine_state if there is any. */
    weft_result (*attach)(weft_comm *comm);
    /* Collective, when the heap is up. */
    weft_result (*start)(weft_comm *comm);
    int32_t (*device_of)(const weft_comm *comm); /* of this rank, after attach */
    /* Brings into the records what launches have written elsewhere, on any thread, while the heap
     * is up. NULL: launches write the records. */
    void (*read_records)(weft_comm *comm);
    /* The reverses; each also when it failed or was not called. */
    void (*stop)(weft_comm *comm);
    void (*detach)(weft_comm *comm);
};

/* An object of the layers above that goes on without some ranks. */
struct weft__masked {
    /* Writes 1 for each masked rank, 0 for others: mask[num_ranks]. */
    weft_result (*read)(const struct weft__masked *masked, int32_t *mask);
    struct weft__masked *next;
};

struct weft_comm {
    int32_t rank;
    int32_t num_ranks;
    uint32_t timeout_ms;
    int32_t num_streams; /* may have operations at the same time, in any order */
    struct weft__topology topology;
    struct weft__status status;
    struct weft__waits waits;       /* under way in this rank; other ranks ask for them */
    struct weft__standing standing; /* the calls that its host has made */
    int32_t num_exchanges;          /* made so far, on streams (launch/exchange_host.h) */
    struct weft__records *records;  /* of what it does; NULL: nobody wants them */
    struct weft__masked *masked;    /* all such objects, guarded by masked_mutex */
    pthread_mutex_t masked_mutex;
    char *record_dir; /* where they go when it fails; NULL: nowhere */
    struct {
        char *metrics_dir; /* NULL: nobody wants them */
        pthread_t thread;
        int is_running;
        int heap_is_up, must_end; /* with the status's mutex */
        int has_warned;
    } recorder; /* writes what failed, and metrics */
    struct weft__link *link;
    struct weft__identity *identities; /* [num_ranks] the ranks' processes */
    int socket_fd;            /* takes file descriptors of neighbours; -1: one rank alone */
    int32_t num_fd_exchanges; /* the same on all ranks */
    unsigned char *fd_marks;  /* [2 * num_ranks] of an exchange of descriptors */
    const struct weft__comm_hooks *hooks;
    void *machine_state;
    _Atomic int32_t num_launches; /* queued or running; of machines that count them */
    const struct weft__heap_kind *heap_kind;
    struct weft__heap *heap;
    _Atomic int32_t is_complete; /* release: heap and device_of can be used by the monitor */
    /* Release: what this rank's host did before a collective is ordered before what others, who
     * have taken part in it, send; the network acquires it with each message. */
    _Atomic uint64_t num_gathers;
    /* The other way round: messages that the network has taken (release), acquired at the end of a
     * collective. */
    _Atomic uint64_t num_messages_taken;
    struct weft__network *network; /* NULL: one node, or the machine has none */
    /* Collective, of the network, when all ranks have new memory in their heaps and before anybody
     * allocates there. Fails with the communicator only. NULL: nobody asks. */
    weft_result (*heap_has_grown)(weft_comm *comm);
    struct weft__barrier *barrier; /* of weft_comm_barrier: made and destroyed by the api layer */
    struct weft__windows *windows; /* made with it, and destroyed after it */
    struct weft__meeting_point point; /* where the ranks met; those of a split meet there too */
    uint64_t key;                     /* of this communicator at that point */
    struct weft__clock {
        int64_t ahead_ns; /* this rank's wall clock of that of rank 0; 0: ranks of one host */
        int64_t error_ns; /* by which that may be wrong */
    } clock;
    uint64_t job; /* no other job has it; that of the parent, or of the rendezvous and its secret */
    int32_t num_splits;          /* part of the key of the next split */
    struct weft__shrunk *shrunk; /* [num_shrunk], what has been shrunk from it */
    int32_t num_shrunk;
    struct weft__call_step step; /* of the next exchange of the hosts */
    /* [num_ranks] in the communicator that it was made from; NULL: from none. The api layer frees
     * it. */
    int32_t *parent_ranks;
};

/* The work behind weft_comm_create, _create_from_env, _split, _shrink, _grow and _destroy, without
 * the barrier. */
weft_result weft__comm_create(const weft_unique_id *id, int32_t rank, int32_t num_ranks,
                              const weft_comm_config *config, const struct weft__comm_hooks *hooks,
                              weft_comm **comm);
weft_result weft__comm_create_from_env(const weft_comm_config *config,
                                       const struct weft__comm_hooks *hooks, weft_comm **comm);
/* The child is on its parent's machine. */
weft_result weft__comm_split(weft_comm *comm, int32_t color, int32_t key,
                             const weft_comm_config *config, weft_comm **child);
/* Makes a communicator of the ranks `ranks` [num_ranks] of comm, this rank among them. They alone
 * take part, also after a failure. RANK_FAILED: one of them died. */
weft_result weft__comm_shrink(weft_comm *comm, const int32_t *ranks, int32_t num_ranks,
                              const weft_comm_config *config, weft_comm **child);
/* Makes a communicator of the ranks of comm, which keep their numbers, and of new ones, which call
 * weft__comm_create with the id. Some ranks give the id, the others NULL. Collective over comm. */
weft_result weft__comm_grow(weft_comm *comm, const weft_unique_id *id, int32_t num_ranks,
                            const weft_comm_config *config, weft_comm **grown);
/* A child fails when one of its ranks or the rendezvous dies: comm hears of that too, and knows the
 * rank by the number that the caller knows. */
weft_result weft__comm_find_cause(weft_comm *comm, weft_result result);
void weft__comm_destroy(weft_comm *comm);

/* ---------------------------------------------------------------- exchanges of the hosts
 * Collective: every rank takes part in every exchange of a call. A rank that has failed by itself
 * before, for lack of memory for one, says so in the exchange, and all ranks return its error; were
 * it to return at once, the others would wait until the deadline. A rank's own failure is `mine`,
 * with the thread's last error.
 *
 * All fail with WEFT_ERROR_MISMATCH, which names both calls, where ranks are in different ones; at
 * once when a rank dies; and after the deadline, naming the ranks that did not come. */

/* Each call of weft.h in which all ranks take part begins with this. */
static inline void weft__comm_enter(weft_comm *comm, enum weft__call call)
{
    weft__current_call = call;
    comm->step = (struct weft__call_step){.call = (int32_t)call};
}

/* recv[num_ranks][bytes]. */
weft_result weft__comm_all_gather(weft_comm *comm, const void *send, size_t bytes, void *recv);
/* An all-gather to which a rank may bring its own failure; then the rest may be NULL. */
weft_result weft__comm_gather(weft_comm *comm, weft_result mine, const void *send, size_t bytes,
                              void *recv);
/* As weft__comm_gather, into new memory, which the caller frees; NULL unless *result is WEFT_OK. */
void *weft__comm_gather_new(weft_comm *comm, weft_result mine, const void *send, size_t bytes,
                            weft_result *result);
/* A quantity that all ranks must give alike: an int64_t in what weft__comm_gather_new returned. */
struct weft__term {
    const char *name;
    size_t offset;                         /* in what one rank gave */
    const char *(*text_of)(int64_t value); /* NULL: the value is printed as a number */
};
#define WEFT__TERM(type, field) .name = #field, .offset = offsetof(type, field)
/* all[num_ranks][bytes]. WEFT_ERROR_MISMATCH names the first term in which a rank differs from
 * rank 0, and both values; its text is the same on all ranks. */
weft_result weft__comm_compare(const weft_comm *comm, const void *all, size_t bytes,
                               const struct weft__term *terms, int num_terms);
/* All ranks get through a step, or none: "rank 1 cannot <what>: <why>". */
weft_result weft__comm_agree(weft_comm *comm, weft_result mine, const char *what);
/* Zeroed memory of this process for each rank, or for none; the caller frees it. */
void *weft__comm_calloc(weft_comm *comm, size_t bytes, const char *what, weft_result *result);

/* Compares the wall clocks of the ranks' hosts (comm->clock). */
weft_result weft__comm_compare_clocks(weft_comm *comm);

/* All of them are made of this. */
struct weft__share {
    struct weft__call_step step;
    weft_result
        result; /* of this rank, before; unless WEFT_OK there is a reason in place of a blob */
    const char *reason; /* as all are told it */
    const void *send;
    size_t bytes;
    void *recv;
    int32_t failed_rank; /* out: whose own result was told, or WEFT__NOBODY */
};
weft_result weft__comm_exchange(weft_comm *comm, struct weft__share *share);

static inline int weft__comm_is_in_process(const weft_comm *comm, int32_t rank)
{
    const struct weft__identity *other = &comm->identities[rank];
    const struct weft__identity *own = &comm->identities[comm->rank];
    return other->host_key == own->host_key && other->pid == own->pid;
}

/* Collective: fds[num_ranks] get what the ranks of this host give
 * (comm/rendezvous/fd_exchange.h). */
weft_result weft__comm_exchange_fd(weft_comm *comm, int fd, int *fds);

/* The interface, up and by its name, through which this rank reaches the rendezvous; that of
 * loopback where all ranks are on one host. UNSUPPORTED if there is no telling. */
weft_result weft__comm_interface(const weft_comm *comm, char *name, size_t name_bytes);

/* Makes the ring of records that the settings ask for. */
weft_result weft__comm_prepare_records(weft_comm *comm);
/* When the heap is up. */
void weft__comm_start_metrics(weft_comm *comm);
/* The reverses: while the heap is still there, when no failure can come any more; and at the
 * end. */
void weft__comm_end_records(weft_comm *comm);
void weft__comm_free_records(weft_comm *comm);
/* Brings the records up to date; whoever reads them calls it before. From any thread. */
void weft__comm_read_records(weft_comm *comm);
/* From then on records tell of its masks; until it is removed, which waits for who reads them. */
void weft__comm_add_masked(weft_comm *comm, struct weft__masked *masked);
void weft__comm_remove_masked(weft_comm *comm, struct weft__masked *masked);
/* Writes the flight record to `path`, or with NULL into record_dir. From any thread. */
weft_result weft__comm_write_records(weft_comm *comm, const char *path);

/* Ends every wait of every rank of comm. From any thread. */
void weft__comm_abort(weft_comm *comm);
/* Ends every wait of every rank for a failure that the status holds already. */
void weft__comm_tell_failure(weft_comm *comm);
/* As weft__comm_tell_failure, and waits until all have been told. Then this process may end at
 * once, and they still learn why. Takes up to half a second, less than the deadline. */
void weft__comm_share_failure(weft_comm *comm);

enum weft__ask_result {
    WEFT__ASK_ANSWERED,
    WEFT__ASK_SILENT,    /* until the deadline */
    WEFT__ASK_LOST,      /* of weft__link_ask alone: the question has crossed the rank's goodbye */
    WEFT__ASK_IMPOSSIBLE /* the rendezvous is gone, or the communicator has failed */
};
/* Asks a rank, which may be this one, which ranks it waits for. `wait`: the asker's own wait. */
enum weft__ask_result weft__comm_ask(weft_comm *comm, int32_t rank, const struct weft__wait *wait,
                                     int64_t deadline_ns, struct weft__wait_list *waits);
/* Tells an observer how this rank is, all but `answer`. The monitor calls it, so it never waits for
 * what the rank's own threads wait for. */
void weft__comm_report(weft_comm *comm, struct weft__report *report);
/* Asks all ranks that way (comm/rendezvous/observe.h). UNSUPPORTED: the rank is alone. */
struct weft__observed_rank;
weft_result weft__comm_look(const weft_comm *comm, struct weft__observed_rank **ranks,
                            int32_t *num_ranks);
/* The lowest rank whose process runs the rendezvous, or WEFT__NOBODY. */
int32_t weft__comm_rank_of_rendezvous(const weft_comm *comm);
