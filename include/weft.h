/* SPDX-License-Identifier: MIT */
/*
 * weft carries the tokens of mixture-of-experts layers to their experts on other ranks and back,
 * and sums, gathers and exchanges tensors across ranks.
 *
 * These rules hold for every function; the functions' own comments do not repeat them. Collectives
 * are in weft_coll.h, expert parallelism in weft_ep.h, its low-latency form in weft_ll.h, the gate
 * in weft_gate.h, the placing of experts by their loads in weft_balance.h, remote memory access in
 * weft_rma.h, quantised rows in weft_rows.h, and records of what a communicator did in
 * weft_stats.h, all of which this header includes.
 *
 * - Names. A function is called weft_<subject>_<verb>; the first argument is the subject, or the
 *   communicator that the subject belongs to: weft_coll_all_reduce(coll, ...).
 * - Results. Functions return WEFT_OK or a negative weft_result and write outputs only on WEFT_OK.
 *   weft_last_error() then tells, for the calling thread, the argument, its value and what is
 *   allowed, or the rank that failed. Functions that return a value say what they return instead.
 *   Nothing ends the process or hangs: every wait has a deadline (weft_comm_config.timeout_ms) and
 *   ends early when a rank dies.
 * - Structs. Every struct opens with `size`, which the caller sets to sizeof the struct, in inputs
 *   and outputs alike; the caller sets all other fields of inputs, to zero what it does not use.
 *   Later versions append fields. The library reads and writes only fields that lie within `size`.
 *   It refuses a size below that of version 0.2. It also refuses an input with nonzero bytes in
 *   fields that it does not know. In an array of structs all elements have the same size. WEFT_INIT
 *   is a convenience; no macro is needed to call anything. (weft_unique_id alone has no size: it is
 *   a plain value.)
 * - Zero. In inputs, zero or NULL means "not given": the library chooses, or does without.
 * - Types. Bytes are uint64_t. Ranks, experts, tokens, rows and settings are int32_t. Elements of
 *   arrays, and sums over all ranks, are int64_t. Enums have 32 bits and fixed values; values that
 *   are free today may get a meaning later. Names tell units: *_bytes, *_ms, *_us.
 * - Arrays. "[n][k]" is a dense row-major array. Pointers may be NULL where the size is 0. Ranks,
 *   experts, tokens and rows count from 0. R is the number of ranks.
 * - Collective functions are called by every rank of the communicator in the same order. A rank
 *   that is refused for its own arguments has called nothing. If a collective function on the host
 *   fails, it fails on all ranks: with WEFT_ERROR_MISMATCH, which names both calls, if ranks call
 *   different ones, else with the error of the rank whose part failed. Then nothing was done and
 *   the communicator goes on.
 * - Stream operations take (object, arguments, stream): they check the arguments, copy the struct,
 *   enqueue and return; they act in stream order. What the struct points to must stay valid until
 *   the operation has finished, except arrays marked "copied". Operations of one weft_coll or
 *   weft_ep, and the barriers of one communicator, never overlap each other, also on different
 *   streams, and every rank issues them in the same order. After an error that the host found, the
 *   operation is not enqueued; what fails later is the communicator's failure, and
 *   weft_stream_synchronize returns it.
 * - Memory. "In the heap" means from weft_heap_alloc or weft_arena_alloc of the same communicator.
 *   Other memory that operations get is any that the communicator's machine can access: on cpu all
 *   memory of the process; on cuda memory of the device, or of the host if it is pinned or managed
 *   (from cudaMalloc, PyTorch, weft_memory_alloc, ...). Structs, and arrays that the host reads
 *   (counts, placements, names), are memory of the host.
 * - Overlap. What a call writes shares no byte with anything else that it is given, nor do two of
 *   its outputs, except in the in-place forms that a function names: WEFT_ERROR_INVALID_ARGUMENT
 *   names both arguments. Inputs may overlap each other. A rank checks its own arguments; the
 *   caller keeps memory of other ranks (weft_heap_ptr) apart from what they receive.
 * - Ownership. The caller owns what it creates and passes; weft keeps no pointer of the caller's
 *   after a call, or after the operation, has finished. Objects end in any order. Destroying one
 *   waits for its own operations that are still queued, each of which has a deadline, then destroys
 *   what was made from it: a communicator ends its weft_coll, weft_ep, handles, records, arenas and
 *   memory; streams, events, graphs and splits outlive it. NULL, a destroyed object, and a pointer
 *   that never was an object are WEFT_ERROR_INVALID_ARGUMENT. A new object of the same kind may get
 *   the address of a destroyed one: then a call acts on the new object.
 * - Threads. Any thread may make any call, but two calls at the same time must not use the same
 *   object. A call uses every object that it is given, the stream too. Collective calls on the
 *   host, and those that create or destroy, use the communicator of their object as well; others do
 *   not, so that threads drive different objects of one communicator at the same time.
 *   weft_comm_abort, weft_comm_status and the getters (const arguments) may be called beside
 *   anything but the end of their object. A child of fork must not use, or destroy, objects made
 *   before the fork.
 *
 * ABI. Within one minor version (0.2.x) and, from 1.0 on, within one major version, programs run
 * with every later library: nothing is removed, no value changes, structs only grow. The shared
 * library's name (libweft.so.0.2) and the version of its symbols (WEFT_0.2) say which one it is;
 * weft_version() tells a binding that has loaded it.
 *
 * Parts marked [experimental] have not been measured on the hardware that they are for. No default
 * chooses them, and any version may change or remove them.
 *
 * Semantics marked [DeepEP 1.x] follow section 1.x of the DeepEP V1 `Buffer` behaviour
 * (get_dispatch_layout 1.5, dispatch 1.6, combine 1.7), with these limits lifted: any number
 * of ranks, any row size, top-k up to 64, any expert placement, empty ranks.
 *
 * Comments marked "Example" are complete C11 and C++17; the tests compile and run them. `comm` is a
 * communicator and CHECK handles errors.
 */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 2
#define WEFT_VERSION_PATCH 0

/* Marks what the shared library exports. */
#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

#define WEFT_MAX_TOPK       64            /* experts that a token may choose */
#define WEFT_MAX_PLANES     8             /* arrays that a token's payload may consist of */
#define WEFT_MAX_EXPERTS    1048576       /* of a weft_ep */
#define WEFT_MAX_ROW_BYTES  2147483647    /* of a token's row */
#define WEFT_MAX_WARPS      32            /* of a block */
#define WEFT_MAX_STREAMS    64            /* that weft_comm_config.num_streams may say */
#define WEFT_COLL_MAX_BYTES 4398046511104 /* of a row of a collective, of a send or a receive */
#define WEFT_COLL_MAX_RANKS 32            /* of one node that collectives need no rails for */
#define WEFT_LL_MAX_TOKENS  65535         /* of a rank, in a dispatch of low latency */

/* A struct with its size set and zeros, as in `weft_ep_config c = WEFT_INIT(weft_ep_config);`. */
#ifdef __cplusplus
#define WEFT_INIT(type)                                                                            \
    ([] {                                                                                          \
        type init_{};                                                                              \
        init_.size = sizeof(type);                                                                 \
        return init_;                                                                              \
    }())
#else
#define WEFT_INIT(type)                                                                            \
    {                                                                                              \
        .size = sizeof(type)                                                                       \
    }
/* The same with fields, as an argument, in C: WEFT_ARGS(weft_coll_args, .send = x, .count = 1). */
#define WEFT_ARGS(type, ...) (&(const type){.size = sizeof(type), __VA_ARGS__})
#endif

/* Types of elements. Integers are two's complement; FP8 is e4m3 without infinities, as OCP defines
 * it. Formats of several elements (quantised blocks) will have values from 64 on. */
typedef enum weft_dtype {
    WEFT_DTYPE_NONE = 0, /* not given */
    WEFT_INT32 = 1,
    WEFT_INT64 = 2,
    WEFT_BF16 = 3,
    WEFT_FP16 = 4,
    WEFT_FP32 = 5,
    WEFT_FP64 = 6,
    WEFT_UINT8 = 7,
    WEFT_FP8_E4M3 = 8,
    WEFT_INT8 = 9 /* of quantised rows alone */
} weft_dtype;

typedef enum weft_reduce_op {
    WEFT_SUM = 0,
    WEFT_PROD = 1,
    WEFT_MAX = 2,
    WEFT_MIN = 3,
    WEFT_AVG = 4, /* floating-point types only */
    /* The sum of what each rank has multiplied by a factor of its own (weft_coll_args). Of BF16,
     * FP16 and FP32. */
    WEFT_PREMUL_SUM = 5
} weft_reduce_op;

typedef enum weft_result {
    WEFT_OK = 0,
    WEFT_ERROR_INVALID_ARGUMENT = -1, /* the message names argument, value and what is allowed */
    WEFT_ERROR_OUT_OF_MEMORY = -2,
    WEFT_ERROR_SYSTEM = -3,      /* an operating system call failed */
    WEFT_ERROR_UNSUPPORTED = -4, /* legal, but not in this build or on this machine */
    WEFT_ERROR_TIMEOUT = -5, /* a wait passed its deadline; the message names the awaited rank */
    WEFT_ERROR_RANK_FAILED = -6, /* a rank died, or the rendezvous; the message names it */
    WEFT_ERROR_ABORTED = -7,     /* weft_comm_abort was called on some rank */
    WEFT_ERROR_MISMATCH = -8,    /* ranks called with arguments that do not fit together */
    WEFT_ERROR_CAPACITY = -9     /* more rows arrived than the output could hold; the rest was
                                    dropped */
} weft_result;

/* The library's version as major * 10000 + minor * 100 + patch. A binding made for 0.2 accepts
 * 200..299. */
WEFT_API uint32_t weft_version(void);
/* The commit that the library was built from, with "-dirty" if files had changed since; "" if that
 * was not in a repository. */
WEFT_API const char *weft_commit(void);
/* One line that says what `result` means; never NULL. */
WEFT_API const char *weft_result_string(weft_result result);
/* The detailed message of the calling thread's last failed call; "" if none. Valid until that
 * thread's next failing call. */
WEFT_API const char *weft_last_error(void);

/* ---------------------------------------------------------------- communicators and ranks */

typedef struct weft_comm weft_comm;

/* Lets ranks find each other: address, port and a random secret. Copy it to every rank by any
 * means (a file, an environment variable, a message). It serves one communicator, and those
 * split off it. */
typedef struct weft_unique_id {
    unsigned char bytes[128];
} weft_unique_id;

/* The machine that operations run on, and whose memory they access. */
typedef enum weft_machine {
    WEFT_MACHINE_AUTO = 0, /* WEFT_MACHINE, or cuda where it can be used, else cpu */
    WEFT_MACHINE_CPU = 1,  /* threads of this process; memory of the host */
    /* An NVIDIA GPU: WEFT_CUDA_DEVICE, else that of the calling thread's current CUDA context, else
     * the ranks of a host take its devices in turn. */
    WEFT_MACHINE_CUDA = 2
} weft_machine;

typedef struct weft_comm_config {
    size_t size;
    /* Heap memory committed at creation, per rank; 0: 1 MiB. It grows on demand. */
    uint64_t heap_bytes;
    /* Address range reserved per rank, the limit of growth; 0: the memory of the host or the
     * device. Where GPUs can share memory by CUDA IPC only, all of it is committed at once (0: a
     * sixteenth of the device) and goes when its rank does: nobody may use the heap of a rank
     * that has left. */
    uint64_t heap_max_bytes;
    uint32_t timeout_ms;  /* deadline of every wait for another rank; 0: WEFT_TIMEOUT_MS or 30000 */
    int32_t num_nodes;    /* declares that many virtual nodes of consecutive ranks, whose memory is
                             mapped within the node only; 0: WEFT_NODES, or one node per host; of a
                             split: its parent's nodes. Must divide the number of ranks */
    weft_machine machine; /* the same on all ranks; of a split: its parent's, whatever is given */
    /* How many streams of a rank may hold operations at the same time, while ranks may order them
     * differently among streams: 1..WEFT_MAX_STREAMS. 0: of a split, its parent's number; else
     * WEFT_STREAMS or 2. The same on all ranks. On cuda each operation takes at most this share of
     * the GPU, so that those of all ranks run beside each other. With more streams operations can
     * wait for SMs that others hold, until their deadline. Machine cpu has no such limit. */
    int32_t num_streams;
} weft_comm_config;

/* Makes an id and starts the rendezvous that serves this id, in this process. The rendezvous runs
 * until the process ends, with one thread for all ids of an address. It listens on the address in
 * the environment variable WEFT_ADDR (default 127.0.0.1). */
WEFT_API weft_result weft_unique_id_create(weft_unique_id *id);

/* The id of a rendezvous whose place has been agreed on: ranks of several hosts make it from the
 * same three arguments, so that nothing has to be copied to them. address is that of the host that
 * serves it (a name or a number), as the others know it, port 1..65535; secret is 32 hexadecimal
 * digits, random and of this job alone: who knows them can join. */
WEFT_API weft_result weft_unique_id_at(const char *address, int32_t port, const char *secret,
                                       weft_unique_id *id);
/* Starts the rendezvous of an id of weft_unique_id_at, as weft_unique_id_create does. It listens on
 * the id's address and port alone. */
WEFT_API weft_result weft_rendezvous_serve(const weft_unique_id *id);
/* How many ranks, those of split communicators counted again, are connected to the rendezvous of
 * `id` that this process serves; -1 if it serves none. Ranks have no failure detector without the
 * rendezvous: a process that serves others should end only after the last of them has gone. */
WEFT_API int32_t weft_rendezvous_num_ranks(const weft_unique_id *id);

/* Collective over the `num_ranks` ranks that share `id`. config may be NULL. Returns when all
 * ranks have met; fails with WEFT_ERROR_TIMEOUT naming the ranks that did not come, and with
 * WEFT_ERROR_MISMATCH when ranks disagree on num_ranks or num_nodes, or two claim one number. */
WEFT_API weft_result weft_comm_create(const weft_unique_id *id, int32_t rank, int32_t num_ranks,
                                      const weft_comm_config *config, weft_comm **comm);

/* As weft_comm_create, with rank, number of ranks and meeting point from the launcher's
 * environment. The first launcher that matches counts: weft run (WEFT_ID, WEFT_RANK,
 * WEFT_WORLD_SIZE), torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), Open MPI
 * (OMPI_COMM_WORLD_*), mpiexec of MPICH (PMI_RANK, PMI_SIZE, MPI_LOCALNRANKS), a step of Slurm
 * (SLURM_STEP_ID, SLURM_PROCID, SLURM_NTASKS), PMI (PMI_RANK, PMI_SIZE). Without a launcher the
 * process is one rank alone. Each further call makes a further, independent communicator. Rank 0
 * listens on WEFT_PORT, or on a port that follows from the job; on loopback if all ranks are known
 * to be on one host. If another launcher than weft run starts ranks on several hosts, set
 * WEFT_SECRET: it keeps strangers out (weft_unique_id_at). */
WEFT_API weft_result weft_comm_create_from_env(const weft_comm_config *config, weft_comm **comm);

typedef struct weft_env_info {
    size_t size;
    int32_t rank, num_ranks;        /* 0 of 1 without a launcher */
    const char *launcher;           /* for example "Slurm"; NULL: none */
    const char *rank_variable;      /* gave the rank, for messages; NULL: none */
    const char *num_ranks_variable; /* gave num_ranks, for messages; NULL: none */
} weft_env_info;

/* Tells the rank that weft_comm_create_from_env would give this process, and the launcher and the
 * variables that say so. Fails as weft_comm_create_from_env does if the environment is not
 * complete. */
WEFT_API weft_result weft_env_query(weft_env_info *info);

/* Collective. Ranks with the same color (>= 0) form a new, independent communicator, ordered by
 * key, then by old rank; color -1 takes part and gets *child = NULL. As MPI_Comm_split. */
WEFT_API weft_result weft_comm_split(weft_comm *comm, int32_t color, int32_t key,
                                     const weft_comm_config *config, weft_comm **child);

/* Collective. The ranks first, first + stride, ... first + (num_ranks - 1) * stride of comm form a
 * new communicator, in this order; the others take part and get *child = NULL. stride is 1 or more.
 * All ranks give the same (WEFT_ERROR_MISMATCH). As nvshmem_team_split_strided. */
WEFT_API weft_result weft_comm_split_strided(weft_comm *comm, int32_t first, int32_t stride,
                                             int32_t num_ranks, const weft_comm_config *config,
                                             weft_comm **child);
/* Collective among the ranks that have not died and are not `excluded` [num_excluded]: they form a
 * new communicator, in the same order, also after comm has failed. They give the same excluded
 * ranks, in any order, none twice: ranks that live, but do not answer, for example. If one more
 * rank dies meanwhile, it is left out, too. If a rank does not come, WEFT_ERROR_TIMEOUT tells its
 * number in the new communicator. comm stays as it is. The process that serves the rendezvous must
 * live: weft run, the one that called weft_unique_id_create or weft_rendezvous_serve, and rank 0
 * under other launchers. WEFT_ERROR_RANK_FAILED names its rank if it died. As ncclCommShrink. */
WEFT_API weft_result weft_comm_shrink(weft_comm *comm, const int32_t *excluded,
                                      int32_t num_excluded, const weft_comm_config *config,
                                      weft_comm **child);
/* Collective over comm and new ranks, which make one communicator of num_ranks ranks. Those of comm
 * keep their numbers. The new ones have the numbers after these, and call weft_comm_create with the
 * same id and num_ranks. An id is for one attempt: weft_comm_unique_id or weft_unique_id_create
 * makes it. At least one rank of comm gives it, the others may give NULL. config is as for
 * weft_comm_create, but the machine is that of comm. comm must be healthy, stays as it is, and is
 * destroyed by its owner; its objects and its heap are not those of the new communicator.
 * WEFT_ERROR_TIMEOUT names the ranks that did not come, WEFT_ERROR_RANK_FAILED one that died,
 * WEFT_ERROR_MISMATCH those that disagree on id, num_ranks or num_nodes. As ncclCommGrow. */
WEFT_API weft_result weft_comm_grow(weft_comm *comm, const weft_unique_id *id, int32_t num_ranks,
                                    const weft_comm_config *config, weft_comm **grown);
/* Makes an id by which ranks meet at the rendezvous of comm, another one in each call. Who has it
 * can join. UNSUPPORTED: comm is one rank without a rendezvous. As ncclCommGetUniqueId. */
WEFT_API weft_result weft_comm_unique_id(const weft_comm *comm, weft_unique_id *id);
/* The rank, in the communicator that comm was split, shrunk or grown from, of rank `rank` of comm;
 * -1 if there is none. comm has a heap of its own: to reach the parent's heap, its ranks use these
 * numbers and the parent. As nvshmem_team_translate_pe. */
WEFT_API int32_t weft_comm_parent_rank(const weft_comm *comm, int32_t rank);

/* Releases everything, also after a failure. Waits until queued operations of comm have ended. On
 * cuda it waits for all that is queued on the streams of these operations. Over several nodes it
 * also waits, for up to 5 s, until the other ranks have taken what this rank has sent. */
WEFT_API weft_result weft_comm_destroy(weft_comm *comm);

/* Ends every wait of every rank of comm with WEFT_ERROR_ABORTED. The communicator is good only for
 * weft_comm_destroy afterwards. */
WEFT_API weft_result weft_comm_abort(weft_comm *comm);

/* WEFT_OK while comm is healthy; else the first failure, which is final for the communicator,
 * with its message in weft_last_error(). *failed_rank (may be NULL) is the culprit or -1; of calls
 * that do not fit together, one of two that differ. It is written on every result. */
WEFT_API weft_result weft_comm_status(weft_comm *comm, int32_t *failed_rank);

/* CPU or CUDA; AUTO if there is no such comm. */
WEFT_API weft_machine weft_comm_machine(const weft_comm *comm);
/* The device that this rank uses, as weft_device_query counts (for CUDA its ordinal in this
 * process); -1 if there is no such comm. */
WEFT_API int32_t weft_comm_device(const weft_comm *comm);
/* -1 if there is no such comm. */
WEFT_API int32_t weft_comm_rank(const weft_comm *comm);
WEFT_API int32_t weft_comm_num_ranks(const weft_comm *comm);
/* The node of a rank; -1 if there is no such rank. */
WEFT_API int32_t weft_comm_node(const weft_comm *comm, int32_t rank);

/* Collective, on the host, for set-up: waits until all ranks have called it. */
WEFT_API weft_result weft_comm_host_barrier(weft_comm *comm);
/* Collective, on the host, for set-up: recv[R][bytes] gets every rank's `send`, in rank order.
 * bytes must be the same everywhere (else WEFT_ERROR_MISMATCH), at most 1 MiB. In place: send is
 * this rank's row. */
WEFT_API weft_result weft_comm_host_all_gather(weft_comm *comm, const void *send, uint64_t bytes,
                                               void *recv);

typedef struct weft_stream weft_stream;

/* Stream operation, collective: finishes when every rank of comm has reached it. Orders memory:
 * what a rank wrote to heap memory before it, on its stream, all ranks read after it. Over D nodes
 * it takes ceil(log2 D) rounds. */
WEFT_API weft_result weft_comm_barrier(weft_comm *comm, weft_stream *stream);

/* ---------------------------------------------------------------- looking into a live job */

typedef enum weft_presence {
    WEFT_PRESENCE_ABSENT = 0, /* the rank has not come to weft_comm_create */
    WEFT_PRESENCE_COME = 1,   /* it has come, and waits there for absent ones */
    WEFT_PRESENCE_ANSWERS = 2,
    WEFT_PRESENCE_SILENT = 3, /* it does not answer: stopped, cut off, or without a core */
    WEFT_PRESENCE_LEFT = 4,   /* by weft_comm_destroy */
    WEFT_PRESENCE_DEAD = 5
} weft_presence;

/* One rank of one communicator of a job. */
typedef struct weft_job_rank {
    size_t size;
    uint64_t comm; /* the same for all ranks of a communicator; 0: the launcher's first one */
    int32_t rank, num_ranks;
    weft_presence presence;
    int32_t pid; /* 0 of an absent rank */
    char host[32];
    /* The rest of a rank that answers. */
    weft_machine machine;
    int32_t device;      /* -1: the communicator is not complete yet */
    const char *call;    /* that the rank made last, such as "weft_comm_barrier"; a constant */
    uint64_t num_calls;  /* of this object: the number of that call, from 1 */
    uint64_t waiting_ms; /* for so long at least its thread has waited for work; 0: it does not */
    uint64_t heap_used_bytes, heap_bytes;
    int32_t num_waits;  /* ranks that it waits for, or did when its communicator failed */
    weft_result result; /* of its communicator */
    int32_t wait_ranks[16];
    const char *wait_calls[16]; /* in which */
    uint64_t wait_ms[16];       /* for how long */
    char error[512];            /* why the communicator has failed; "" if it has not */
} weft_job_rank;

/* The processes on this host, of this user (of any for root), with the rendezvous of a job: weft
 * run, the process of rank 0 under another launcher, or the maker of the unique id. Writes up to
 * max_pids of them, and how many there are. */
WEFT_API weft_result weft_job_list(int32_t *pids, int32_t max_pids, int32_t *num_pids);
/* The ids of the jobs that have ranks at the rendezvous of process `pid`, up to max_ids and how
 * many were written. They need no secret: the system vouches for the user. WEFT_ERROR_TIMEOUT: the
 * process is stopped. */
WEFT_API weft_result weft_job_ids(int32_t pid, weft_unique_id *ids, int32_t max_ids,
                                  int32_t *num_ids);
/* Asks all ranks of the communicators that meet by `id`, the newest communicator first. A rank's
 * monitor thread answers, so that it does so while its other threads hang; a rank that has not
 * answered within timeout_ms (0: 500) is SILENT. Writes up to max_ranks, and how many there are.
 * ranks[0].size is that of all. The job goes on unharmed, whatever happens to the caller. Fails
 * with WEFT_ERROR_MISMATCH if the secret of `id` is another one, with WEFT_ERROR_SYSTEM if there is
 * no rendezvous, and with WEFT_ERROR_TIMEOUT if it does not answer. */
WEFT_API weft_result weft_job_query(const weft_unique_id *id, uint32_t timeout_ms,
                                    weft_job_rank *ranks, int32_t max_ranks, int32_t *num_ranks);

/* ---------------------------------------------------------------- teams */

/* Sets of ranks that the placement of ranks on nodes makes; each rank is in one team of each
 * kind. */
typedef enum weft_team {
    WEFT_TEAM_WORLD = 0, /* all ranks of the communicator */
    WEFT_TEAM_LOCAL = 1, /* the ranks of this rank's node */
    WEFT_TEAM_RAIL = 2   /* the ranks with this rank's local index, one of each node that has it */
} weft_team;

typedef struct weft_team_info {
    size_t size;
    int32_t num_ranks; /* in the team */
    int32_t rank_idx;  /* of this rank in the team */
    int32_t num_teams; /* of this kind in the communicator */
    int32_t team_idx;  /* of this rank's team among them; for LOCAL: the node */
} weft_team_info;

/* About this rank's team of a kind. */
WEFT_API weft_result weft_team_query(const weft_comm *comm, weft_team team, weft_team_info *info);
/* The rank in comm of member `rank_idx` of this rank's team; -1 if there is none. */
WEFT_API int32_t weft_team_world_rank(const weft_comm *comm, weft_team team, int32_t rank_idx);

/* ---------------------------------------------------------------- machines */

typedef struct weft_machine_info {
    size_t size;
    weft_machine machine;   /* that was asked for; for AUTO the one that communicators would get */
    int32_t is_usable;      /* 0 or 1; if 0 the numbers below are 0, but for build_version */
    int32_t driver_version; /* of CUDA: 1000 * major + 10 * minor; on cpu 0 */
    int32_t build_version;  /* the CUDA that this library was built with; on cpu, or if none, 0 */
    int32_t num_devices;    /* on cpu 1, the host */
    int32_t reserved;
    char reason[256]; /* why it is not usable, else "" */
} weft_machine_info;

/* Whether communicators of this process can be on a machine. Needs no other rank. A process that
 * has asked for CUDA must not fork ranks that use it. */
WEFT_API weft_result weft_machine_query(weft_machine machine, weft_machine_info *info);

typedef struct weft_device_info {
    size_t size;
    uint64_t memory_bytes;
    int32_t num_processors; /* multiprocessors of a GPU, cores of the host */
    int32_t reserved;
    char name[128];
    /* Host memory that this process can still get, within the limits of its control groups.
     * UINT64_MAX: not known, as on cuda. */
    uint64_t available_bytes;
} weft_device_info;

/* About device `device_idx`, 0..num_devices-1, of a machine that is usable (else
 * WEFT_ERROR_UNSUPPORTED). */
WEFT_API weft_result weft_device_query(weft_machine machine, int32_t device_idx,
                                       weft_device_info *info);

/* ---------------------------------------------------------------- network */

typedef struct weft_net_info {
    size_t size;
    /* Bytes that this rank has sent to ranks of other nodes: those of puts and headers, without
     * what a protocol below adds. */
    uint64_t sent_bytes;
    uint64_t sent_header_bytes; /* of sent_bytes, the messages' headers */
    uint64_t sent_messages;     /* puts and signals; several may share a message and its header */
    char engine[16];            /* "tcp", "ucx"; "" if there is none */
    char transport[112]; /* to the ranks of other nodes: "tcp/eth0"; before they are connected "" */
    char reason[256];    /* why this engine, or why none */
    char gpu_memory[160]; /* on machine cuda: how memory of the GPU crosses, and why so */
    /* With comm NULL: whether programs on GPUs could start RDMA here, and what is missing. */
    char gpu_initiator[576];
} weft_net_info;

/* Tells the network that carries a communicator's traffic between nodes. With comm NULL: the one
 * that a communicator of several nodes would get in this process, on machine cpu. */
WEFT_API weft_result weft_net_query(const weft_comm *comm, weft_net_info *info);

/* ---------------------------------------------------------------- symmetric heap */

/* Collective. Allocates `bytes` (the same on all ranks, else WEFT_ERROR_MISMATCH) at the same
 * heap offset of every rank, 256-byte aligned, growing the heap as needed. The content is
 * undefined. bytes 0 gives *ptr = NULL. */
WEFT_API weft_result weft_heap_alloc(weft_comm *comm, uint64_t bytes, void **ptr);
/* Every rank must free the same allocations in the same order; does not wait for them, so the
 * ranks must be done with the memory. ptr may be NULL. */
WEFT_API weft_result weft_heap_free(weft_comm *comm, void *ptr);
/* Collective. Commits memory so that the heap holds at least `bytes` per rank, the same on all
 * ranks (WEFT_ERROR_MISMATCH). */
WEFT_API weft_result weft_heap_grow(weft_comm *comm, uint64_t bytes);

typedef struct weft_heap_info {
    size_t size;
    uint64_t committed_bytes;
    uint64_t used_bytes;
    uint64_t largest_free_bytes;
    uint64_t max_bytes;
    uint64_t page_bytes; /* of the pages asked for: 2 MiB when the system gives huge pages */
} weft_heap_info;

WEFT_API weft_result weft_heap_query(const weft_comm *comm, weft_heap_info *info);

/* Where `rank`'s copy of heap address `ptr` is mapped in this process; NULL when ptr is not in
 * the heap or that rank's memory cannot be mapped here. */
WEFT_API void *weft_heap_ptr(const weft_comm *comm, const void *ptr, int32_t rank);

/* An arena is a block of the heap from which this rank alone allocates, without the others:
 * outputs of dispatch, whose sizes differ by rank. All layers of a model can share one. */
typedef struct weft_arena weft_arena;
/* Collective. bytes may differ between ranks; the heap block has the largest. */
WEFT_API weft_result weft_arena_create(weft_comm *comm, uint64_t bytes, weft_arena **arena);
WEFT_API weft_result weft_arena_destroy(weft_arena *arena); /* as weft_heap_free */
/* 256-byte aligned, and takes a multiple of 256 bytes; WEFT_ERROR_OUT_OF_MEMORY names the bytes
 * that are free. 0 bytes: NULL. */
WEFT_API weft_result weft_arena_alloc(weft_arena *arena, uint64_t bytes, void **ptr);
WEFT_API weft_result weft_arena_free(weft_arena *arena, void *ptr);
WEFT_API weft_result weft_arena_reset(weft_arena *arena); /* frees all */

/* ---------------------------------------------------------------- other memory */

/* Memory of this rank alone that its machine's operations can access, zeroed and 256-byte aligned.
 * 0 bytes: NULL. */
WEFT_API weft_result weft_memory_alloc(weft_comm *comm, uint64_t bytes, void **ptr);
/* Does not wait: nothing that is queued may use it. ptr may be NULL. */
WEFT_API weft_result weft_memory_free(weft_comm *comm, void *ptr);
/* Copies between any two of: memory of the host, of the heap, and other memory of the machine.
 * Waits until it is done; is not ordered with streams. */
WEFT_API weft_result weft_memory_copy(weft_comm *comm, void *dst, const void *src, uint64_t bytes);

/* Collective: each rank gives memory of its own for the inputs and outputs of collectives and of
 * expert parallelism, which other ranks then reach where it is; bytes 0: none. Any part of it may
 * be used, and it must stay allocated until weft_memory_unregister. *is_direct (may be NULL) is the
 * same on all ranks: 0 if some rank's memory cannot be reached. That is no error: what was given is
 * staged, and the first rank with a reason writes it to its standard error, each reason once. On
 * cpu ranks reach memory of their own process; on cuda memory of their devices from cudaMalloc, or
 * from cuMemCreate with file descriptors as handles (as PyTorch's expandable segments), but not
 * memory of pools (cudaMallocAsync, weft_memory_alloc) or of the host. */
WEFT_API weft_result weft_memory_register(weft_comm *comm, void *ptr, uint64_t bytes,
                                          int32_t *is_direct);
/* Collective: each rank gives what it has registered last at ptr, or NULL for nothing. Operations
 * with it must have finished on all ranks. When it returns, no other rank has the memory mapped.
 * After a failure of comm that happens at weft_comm_destroy. */
WEFT_API weft_result weft_memory_unregister(weft_comm *comm, void *ptr);
/* 1 if other ranks reach the bytes where they are: in one allocation of the heap, or registered by
 * all ranks with *is_direct 1; 0 bytes are, too. Else 0: inputs and outputs there are staged by
 * copies. -1 if there is no such comm. */
WEFT_API int32_t weft_memory_is_direct(const weft_comm *comm, const void *ptr, uint64_t bytes);

/* ---------------------------------------------------------------- streams and events */

typedef struct weft_event weft_event;

/* An ordered queue on the machine of comm: with a worker thread of its own, or a CUDA stream that
 * does not synchronise with the legacy default stream. It serves all communicators of that machine
 * (and device) and may outlive comm. */
WEFT_API weft_result weft_stream_create(weft_comm *comm, weft_stream **stream);
/* The same for a queue that exists: native_stream is a cudaStream_t (NULL: the legacy default
 * stream) of the device of comm. It may be under capture: operations then become nodes of the
 * graph, except those that say otherwise. Such an operation runs when the graph runs, and the
 * caller must order the graph among the other operations of the same weft_ep.
 *
 * On machine cpu native_stream is NULL, and the stream has no worker: what is enqueued runs in
 * weft_stream_synchronize, on the thread that calls it, or in another call that waits for it (for
 * its event, its end, or that of comm). So a caller that waits anyway wakes no other thread. Its
 * handlers of signals may run on a stack of 256 KiB meanwhile. */
WEFT_API weft_result weft_stream_wrap(weft_comm *comm, void *native_stream, weft_stream **stream);
/* Waits for what is queued, then ends the worker; a queue of CUDA's is left as it is, without a
 * wait. A capture of weft_graph_begin ends without a graph. */
WEFT_API weft_result weft_stream_destroy(weft_stream *stream);
/* Waits until all that was enqueued has finished; returns, once, the first error of an operation
 * since the last call, also of graphs from weft_graph_end; weft_comm_status tells those of other
 * CUDA graphs. Not for a stream under capture (WEFT_ERROR_INVALID_ARGUMENT). */
WEFT_API weft_result weft_stream_synchronize(weft_stream *stream);
/* Calls function(argument) in stream order. It must not call weft functions that wait, for streams,
 * events, other ranks or copies, or that end objects which wait: WEFT_ERROR_INVALID_ARGUMENT. */
WEFT_API weft_result weft_stream_call(weft_stream *stream, void (*function)(void *argument),
                                      void *argument);
/* Later work of `stream` waits for the event's latest record; an event never recorded is done. */
WEFT_API weft_result weft_stream_wait_event(weft_stream *stream, weft_event *event);

/* For streams of the machine of comm. */
WEFT_API weft_result weft_event_create(weft_comm *comm, weft_event **event);
WEFT_API weft_result weft_event_destroy(weft_event *event); /* after its record has been passed */
WEFT_API weft_result weft_event_record(weft_event *event, weft_stream *stream);
WEFT_API weft_result weft_event_synchronize(weft_event *event);
/* Microseconds between the two records, both of which must have been passed. */
WEFT_API weft_result weft_event_elapsed_us(const weft_event *start, const weft_event *end,
                                           double *elapsed_us);

/* ---------------------------------------------------------------- graphs */

/* A CUDA graph: work that was enqueued on a stream once, and can be launched as a whole any number
 * of times. It may outlive the stream; on machine cpu it is WEFT_ERROR_UNSUPPORTED. Objects that it
 * uses must exist, and its memory stay allocated, until the last launch has finished. */
typedef struct weft_graph weft_graph;

/* Puts the stream, which cannot be the legacy default stream, under capture: until weft_graph_end
 * nothing that is enqueued runs, and operations are recorded (see weft_stream_wrap). Another stream
 * joins the capture when it waits for an event that was recorded on this one, and leaves it when
 * this one waits for an event of the other. Inputs and outputs of collectives that are neither in
 * the heap nor registered are staged, unless weft_coll_record_begin comes before, and
 * weft_coll_record_end after weft_graph_end. */
WEFT_API weft_result weft_graph_begin(weft_stream *stream);
/* By the thread that began. The capture has ended then, also after an error. It may wait for what
 * the streams of this process have queued. */
WEFT_API weft_result weft_graph_end(weft_stream *stream, weft_graph **graph);
/* Stream operation, for streams of the machine and device that it was recorded on, but not for one
 * under capture. Launches of one graph do not overlap. Ranks launch what they have recorded in the
 * same order. */
WEFT_API weft_result weft_graph_launch(weft_graph *graph, weft_stream *stream);
WEFT_API weft_result weft_graph_destroy(weft_graph *graph); /* after its last launch has finished */

#ifdef __cplusplus
}
#endif

#include "weft_rows.h" /* first: those below have its structs in theirs */

#include "weft_balance.h"
#include "weft_coll.h"
#include "weft_ep.h"
#include "weft_gate.h"
#include "weft_ll.h"
#include "weft_rma.h"
#include "weft_stats.h"

#endif
