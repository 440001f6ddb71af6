/* SPDX-License-Identifier: MIT */
/* A machine as the host sees it: the table of what every machine does for the layers above. */
#pragma once

#include "comm/comm.h"
#include "machine/machine.h"

typedef enum wp_status weft__program_fn(struct wp_warp *warp, const void *args);

struct weft__program {
    const char *name;
    weft__program_fn *run; /* on the host's machine; others find theirs by name */
};

/* When a launch lets the next one in its stream take cores beside it, to wait there for its end. */
enum weft__admission {
    WEFT__ADMITS_EARLY, /* when all launches that it waits for have started */
    WEFT__ADMITS_LATE   /* only when it is about to end */
};

/* Other work that runs while a launch does. */
enum weft__neighbours {
    WEFT__AWAITS_RANKS,      /* nothing that it waits for, but launches of ranks */
    WEFT__AWAITS_OTHER_WORK, /* kernels or threads of the caller's: they must have cores, too */
    WEFT__AWAITS_NOTHING     /* its blocks may run one after the other */
};

struct weft__grid {
    int32_t num_blocks;
    int32_t num_warps;
    uint32_t copied_row_bytes; /* the largest row that a warp copies; 0: none */
    int32_t
        num_receiver_warps; /* of the warps: they do nothing but hear ranks, one each, if any do */
    enum weft__admission admission;
    enum weft__neighbours neighbours;
    /* Words by which the caller's work waits for the launch: UINT64_MAX, if it is never begun. */
    uint64_t *awaited_words;
    int32_t num_awaited_words;
};

/* The work of a launch, for the choice of its grid. */
enum weft__work_kind {
    WEFT__WORK_COUNT,     /* reads and counts, moves no rows */
    WEFT__WORK_TOKENS,    /* computes something of each token, waits for no rank */
    WEFT__WORK_PUSH_ROWS, /* copies rows of this rank to others */
    WEFT__WORK_PULL_ROWS, /* sums rows of others */
    /* Copy and sum parts of one long row: speed counts more than the SMs that it takes. */
    WEFT__WORK_PUSH_TENSOR,
    WEFT__WORK_PULL_TENSOR,
    WEFT__WORK_FEW_ROWS,        /* copies and sums rows of a decode step, for the least latency */
    WEFT__WORK_FEW_PACKED_ROWS, /* the same, and packs them */
    WEFT__WORK_FEW_ROWS_IN_PACKETS,        /* sends rows of a decode step in packets */
    WEFT__WORK_FEW_PACKED_ROWS_IN_PACKETS, /* and packs them: each block hears all ranks */
    WEFT__WORK_PACKETS,                    /* sends rows in packets and takes those of others */
    WEFT__NUM_WORKS
};
struct weft__work {
    enum weft__work_kind kind;
    int32_t num_tokens;
    uint64_t row_bytes; /* of packets: of all rows that are sent at the same time */
    /* Few rows in packets: the warps that have something to do at the same time, and the
     * most for which a launch has that has as many blocks. */
    int32_t num_units, most_units;
};

struct weft__launch {
    const struct weft__program *program;
    const void *args; /* copied */
    size_t args_bytes;
    struct weft__grid grid;
    weft_comm *comm;
    enum weft__call call; /* that makes the launch */
    /* For its record. */
    uint64_t record_id; /* 0: it has none */
    enum weft__record_state record_state;
    uint64_t num_bytes;
    int is_phase; /* the ranks do not end together */
    enum weft__meeting meeting;
    int32_t exchange;  /* its number; 0: none */
    uint64_t sequence; /* among those of its exchange that meet alike */
    /* Called after a launch that failed: makes it the communicator's failure. */
    weft_result (*on_failure)(weft_comm *comm, enum weft__call call,
                              const struct wp_failure *failure);
};

/* The first member of every machine's streams, events and graphs. */
struct weft_stream {
    const struct weft__machine *machine;
    uint64_t id; /* no other stream of this process ever has it */
};
struct weft_event {
    const struct weft__machine *machine;
    uint64_t stream_id; /* where the caller has recorded it last; 0: nowhere */
};
struct weft_graph {
    const struct weft__machine *machine;
};

enum weft__event_use {
    WEFT__EVENT_ORDERS,
    WEFT__EVENT_MEASURES /* time, too, which costs GPUs more */
};

/* Memory of one rank that others can be given access to as a whole: an allocation, or several
 * side by side. */
struct weft__block {
    char *base; /* NULL: none */
    uint64_t bytes;
    int32_t num_allocations;
    int32_t kind; /* the machine's own */
};

/* Semantics: weft.h. */
struct weft__graphs {
    weft_result (*begin)(weft_stream *stream);
    weft_result (*end)(weft_stream *stream, weft_graph **graph);
    weft_result (*launch)(weft_graph *graph, weft_stream *stream);
    void (*destroy)(weft_graph *graph);
};

/* The rate of a rank's links to all others of its node together. */
struct weft__links {
    double gbps;
    int32_t is_measured; /* 0: assumed; as they are if ranks share a device */
};

struct weft__machine {
    struct weft__comm_hooks hooks; /* first, so that a communicator's hooks are its machine */
    weft_machine kind;
    int32_t max_windows; /* that a rank of a communicator can have open (memory/windows.h) */
    /* Versions and the number of devices, all of which are 0. */
    void (*describe)(weft_machine_info *info);
    /* Device 0..num_devices-1; *info is zero. */
    weft_result (*describe_device)(int32_t device_idx, weft_device_info *info);
    /* How many ranks of this host take turns on each of its cores; NULL: none does. */
    double (*ranks_per_core)(const weft_comm *comm);

    /* Semantics: weft_net_query; *info is zero. */
    weft_result (*describe_network)(const weft_comm *comm, weft_net_info *info);

    /* Memory of this rank that programs access; zeroed. */
    weft_result (*alloc)(weft_comm *comm, uint64_t bytes, void **memory);
    void (*free)(weft_comm *comm, void *memory);
    /* Memory of this rank that programs access and the network reaches, zeroed on all ranks when
     * it returns; its place is the same on all ranks. Collective, with the same bytes. */
    weft_result (*network_alloc)(weft_comm *comm, uint64_t bytes, void **memory, uint64_t *place);
    /* The same of memory without words, to which others put and it puts to such memory of
     * theirs, and nothing else. */
    weft_result (*staging_alloc)(weft_comm *comm, uint64_t bytes, void **memory, uint64_t *place);
    /* Frees either; may be NULL. Waits until what this rank has sent has come. All ranks have freed
     * the memory before it is allocated again, since they allocate together: so what was sent to
     * it harms nobody. */
    void (*network_free)(weft_comm *comm, void *memory);
    /* Between any two places that host or programs access, on the host's own time. */
    weft_result (*copy)(weft_comm *comm, void *dst, const void *src, uint64_t bytes);
    /* INVALID_ARGUMENT naming `argument` if programs cannot access ptr. */
    weft_result (*check_pointer)(weft_comm *comm, const void *ptr, const char *argument);

    /* The block that [ptr, ptr + bytes) lies in, or why others cannot be given it. It only asks,
     * so that it may be called while a stream is under capture. */
    weft_result (*find_block)(weft_comm *comm, const void *ptr, uint64_t bytes,
                              struct weft__block *block);
    /* Collective: every rank gives one of its blocks, or an empty one; blocks[num_ranks] say
     * where they are here. One that cannot be mapped is empty, with the reason as the thread's
     * last error. Fails with the communicator only, and then nothing is mapped. */
    weft_result (*share_block)(weft_comm *comm, const struct weft__block *own,
                               struct weft__block *blocks);
    /* The reverse of mapping a block of another rank. */
    void (*close_block)(weft_comm *comm, const struct weft__block *block);

    /* It has most warps for many rows of one byte. */
    struct weft__grid (*choose_grid)(const weft_comm *comm, const struct weft__work *work);
    int32_t max_blocks; /* that it chooses */
    int32_t max_warps;  /* that a block can have; WEFT_MAX_WARPS at most */
    /* The same on all ranks. NULL: there are no links, ranks share memory. */
    void (*describe_links)(const weft_comm *comm, struct weft__links *links);
    /* Enqueues a launch; on cpu and sim it is skipped if the communicator has failed by then, on
     * cuda its waits end then. */
    weft_result (*launch)(weft_stream *stream, const struct weft__launch *launch);
    /* Waits until no launch of the communicator is queued or runs, on any stream. */
    void (*wait_launches)(weft_comm *comm);
    /* Makes a failure that a launch has met the communicator's, if that has not happened yet. */
    void (*collect_failure)(weft_comm *comm);

    /* Semantics: weft.h. */
    weft_result (*stream_create)(weft_comm *comm, weft_stream **stream);
    weft_result (*stream_wrap)(weft_comm *comm, void *native, weft_stream **stream);
    void (*stream_destroy)(weft_stream *stream);
    weft_result (*stream_synchronize)(weft_stream *stream);
    weft_result (*stream_call)(weft_stream *stream, void (*function)(void *argument),
                               void *argument);
    /* Whether what is enqueued now only goes into a graph. */
    int (*stream_is_capturing)(weft_stream *stream);
    weft_result (*stream_wait_event)(weft_stream *stream, weft_event *event);
    weft_result (*event_create)(weft_comm *comm, enum weft__event_use use, weft_event **event);
    void (*event_destroy)(weft_event *event);
    weft_result (*event_record)(weft_event *event, weft_stream *stream);
    weft_result (*event_synchronize)(weft_event *event);
    weft_result (*event_elapsed_us)(weft_event *start, weft_event *end, double *elapsed_us);
    const struct weft__graphs *graphs; /* NULL: the machine has none */
};

static inline const struct weft__machine *weft__machine_of(const weft_comm *comm)
{
    return (const struct weft__machine *)(const void *)comm->hooks;
}

/* WEFT_OK, or why the communicator has failed, also if only a launch knows it so far. */
static inline weft_result weft__machine_check(weft_comm *comm)
{
    weft__machine_of(comm)->collect_failure(comm);
    return weft__status_check(&comm->status);
}

/* A copy, in memory that programs access, of what the host has. */
weft_result weft__machine_duplicate(weft_comm *comm, const void *src, uint64_t bytes, void **copy);
/* Zeroes memory that programs access. */
weft_result weft__machine_zero(weft_comm *comm, void *memory, uint64_t bytes);

/* For streams of every machine. */
uint64_t weft__stream_new_id(void);
/* Calls a function of weft_stream_call. Until it returns its thread must not wait: for what it
 * waits may be queued behind it. */
void weft__run_stream_call(void (*function)(void *argument), void *argument);
/* INVALID_ARGUMENT in such a function; `call` is the public name of what would wait. */
weft_result weft__check_may_wait(const char *call);

/* The machine of a new communicator: AUTO asks the environment, then for the fastest that works. */
weft_result weft__machine_choose(weft_machine wanted, const struct weft__machine **machine);

/* The one that this library's host programs are compiled for: cpu, or sim. */
extern const struct weft__machine weft__host_machine;

/* NULL, with the reason as the thread's last error, if this build has none or there is no GPU that
 * can be used. */
const struct weft__machine *weft__cuda_machine(void);

/* The CUDA that this library was built with, 1000 * major + 10 * minor; 0: none. */
int32_t weft__cuda_build_version(void);
