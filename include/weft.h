/* SPDX-License-Identifier: MIT */
/*
 * weft carries the tokens of mixture-of-experts layers to their experts on other ranks and back,
 * and sums, gathers and exchanges tensors across ranks.
 *
 * These rules hold for every function; the functions' own comments do not repeat them.
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
 *   Later versions append fields. The library reads and writes only fields that lie within `size`;
 *   it refuses a size below that of version 0.2, and an input whose fields it does not know are
 *   not zero. In an array of structs all elements have the same size. WEFT_INIT is a convenience;
 *   no macro is needed to call anything. (weft_unique_id alone has no size: it is a plain value.)
 * - Zero. In inputs, zero or NULL means "not given": the library chooses, or does without.
 * - Types. Bytes are uint64_t. Ranks, experts, tokens, rows and settings are int32_t. Elements of
 *   arrays, and sums over all ranks, are int64_t. Enums have 32 bits and fixed values; values that
 *   are free today may get a meaning later. Names tell units: *_bytes, *_ms, *_us.
 * - Arrays. "[n][k]" is a dense row-major array. Pointers may be NULL where the size is 0. Ranks,
 *   experts, tokens and rows count from 0. R is the number of ranks.
 * - Collective functions are called by every rank of the communicator in the same order. A rank
 *   that is refused for its own arguments has called nothing. Those that run on the host fail on
 *   all ranks: with WEFT_ERROR_MISMATCH, which names both calls, where ranks call different ones,
 *   and with the error of the rank whose part failed. Then nothing was done and the communicator
 *   goes on.
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
 *   memory; streams, events, graphs and splits outlive it. NULL, and what is no object or no
 *   longer one, is WEFT_ERROR_INVALID_ARGUMENT, unless a new object of its kind has its address.
 * - Threads. Any thread may make any call. An object is in one call at a time: a call uses every
 *   object that it is given, the stream too. Collective calls on the host, and those that create or
 *   destroy, use the communicator of their object as well; others do not, so that threads drive
 *   different objects of one communicator at the same time. weft_comm_abort, weft_comm_status and
 *   the getters (const arguments) may be called beside anything but the end of their object. A
 *   child of fork must not use, or destroy, objects made before the fork.
 *
 * ABI. Within one minor version (0.2.x) and, from 1.0 on, within one major version, programs run
 * with every later library: nothing is removed, no value changes, structs only grow. The shared
 * library's name (libweft.so.0.2) and the version of its symbols (WEFT_0.2) say which one it is;
 * weft_version() tells a binding that has loaded it.
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

#define WEFT_MAX_TOPK       64 /* experts that a token may choose */
#define WEFT_MAX_PLANES     8  /* arrays that a token's payload may consist of */
#define WEFT_COLL_MAX_RANKS 32 /* ranks of one node that collectives need no rails for */

/* A struct with its size set and zeros: weft_ep_config c = WEFT_INIT(weft_ep_config); */
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
    WEFT_INT8 = 9,      /* of quantised rows alone */
    WEFT_LOG_10BIT = 64 /* the same: groups of 128 elements, each a sign and a logarithm */
} weft_dtype;

typedef enum weft_reduce_op {
    WEFT_SUM = 0,
    WEFT_PROD = 1,
    WEFT_MAX = 2,
    WEFT_MIN = 3,
    WEFT_AVG = 4,
    /* The sum of what each rank has multiplied by a factor of its own (weft_coll_args). Of BF16, FP16
     * and FP32. */
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

/* What the operations run on, and hence whose memory they access. */
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
    int32_t reserved;     /* 0 */
} weft_comm_config;

/* Makes an id and starts, in this process, the rendezvous that serves it; it runs until the
 * process ends. The environment variable WEFT_ADDR sets the address it listens on (127.0.0.1). */
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
 * `id` that this process serves; -1 if it serves none. Without it they have no failure detector: a
 * process that serves others ends after the last of them has gone. */
WEFT_API int32_t weft_rendezvous_num_ranks(const weft_unique_id *id);

/* Collective over the `num_ranks` ranks that share `id`. config may be NULL. Returns when all
 * ranks have met; fails with WEFT_ERROR_TIMEOUT naming the ranks that did not come, and with
 * WEFT_ERROR_MISMATCH when ranks disagree on num_ranks or num_nodes, or two claim one number. */
WEFT_API weft_result weft_comm_create(const weft_unique_id *id, int32_t rank, int32_t num_ranks,
                                      const weft_comm_config *config, weft_comm **comm);

/* The same with rank, number of ranks and meeting point from the launcher's environment. Read,
 * first match wins: weft run (WEFT_ID, WEFT_RANK, WEFT_WORLD_SIZE), torchrun (RANK,
 * WORLD_SIZE, MASTER_ADDR, MASTER_PORT: rank 0 listens on the next port), Open MPI
 * (OMPI_COMM_WORLD_*), Slurm (SLURM_PROCID, SLURM_NTASKS), PMI (PMI_RANK, PMI_SIZE); with none,
 * one rank alone. May be called again for further independent communicators. Where others than
 * weft run have started ranks on several hosts, WEFT_SECRET should keep strangers out
 * (weft_unique_id_at). */
WEFT_API weft_result weft_comm_create_from_env(const weft_comm_config *config, weft_comm **comm);

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
/* The rank, in the communicator that `comm` was split from, of rank `rank` of comm; -1 if there is
 * none. A split has a heap of its own: to reach the parent's heap, its ranks use these numbers and
 * the parent. As nvshmem_team_translate_pe. */
WEFT_API int32_t weft_comm_parent_rank(const weft_comm *comm, int32_t rank);

/* Releases everything, also after a failure. Waits for other ranks only as operations of comm that
 * are still queued do. On cuda it waits for all that is queued on the streams that have them. */
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
WEFT_API weft_result weft_host_barrier(weft_comm *comm);
/* Collective, on the host, for set-up: recv[R][bytes] gets every rank's `send`, in rank order.
 * bytes must be the same everywhere (else WEFT_ERROR_MISMATCH), at most 1 MiB. In place: send is
 * this rank's row. */
WEFT_API weft_result weft_host_all_gather(weft_comm *comm, const void *send, uint64_t bytes,
                                          void *recv);

typedef struct weft_stream weft_stream;

/* Stream operation, collective: finishes when every rank of comm has reached it. Orders memory:
 * what a rank wrote to heap memory before it, on its stream, all ranks read after it. Of any nodes, in
 * as many rounds as their number has binary digits. */
WEFT_API weft_result weft_comm_barrier(weft_comm *comm, weft_stream *stream);

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
    int32_t is_usable;      /* 0 or 1; if 0 the numbers below are 0 */
    int32_t driver_version; /* of CUDA: 1000 * major + 10 * minor; on cpu 0 */
    int32_t build_version;  /* the CUDA that this library was built with */
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
} weft_device_info;

/* About device `device_idx`, 0..num_devices-1, of a machine that is usable (else
 * WEFT_ERROR_UNSUPPORTED). */
WEFT_API weft_result weft_device_query(weft_machine machine, int32_t device_idx,
                                       weft_device_info *info);

/* ---------------------------------------------------------------- network */

typedef struct weft_net_info {
    size_t size;
    /* What this rank has sent to ranks of other nodes: the bytes of puts and headers, without what
     * a protocol below adds. */
    uint64_t sent_bytes;
    uint64_t sent_header_bytes; /* of sent_bytes, the messages' headers */
    uint64_t sent_messages;     /* puts and signals; several may share a message and its header */
    char engine[16];            /* "tcp", "ucx"; "" if there is none */
    char transport[112]; /* to the ranks of other nodes: "tcp/eth0"; before they are connected "" */
    char reason[256];    /* why this engine, or why none */
    char gpu_memory[160]; /* on machine cuda: how memory of the GPU crosses, and why so */
} weft_net_info;

/* What carries a communicator's traffic between nodes. With comm NULL: what one of several nodes
 * would get in this process, on machine cpu. */
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
 * expert parallelism, which other ranks then reach where it is; bytes 0: none. Any part of it may be used, and it must stay
 * allocated until weft_memory_unregister. *is_direct (may be NULL) is the same on all ranks: 0 if
 * some rank's memory cannot be reached, which is no error: what was given is staged, and the first
 * rank with a reason tells it on its standard error, each once. On cpu ranks reach memory of their
 * own process; on cuda memory of their devices from cudaMalloc, or from cuMemCreate with file
 * descriptors as handles (as PyTorch's expandable segments), but not memory of pools
 * (cudaMallocAsync, weft_memory_alloc) or of the host. */
WEFT_API weft_result weft_memory_register(weft_comm *comm, void *ptr, uint64_t bytes,
                                          int32_t *is_direct);
/* Collective: each rank gives what it has registered last at ptr, or NULL for nothing. Operations
 * with it must have finished on all ranks. When it returns, no other rank has the memory mapped.
 * After a failure of comm that happens at weft_comm_destroy. */
WEFT_API weft_result weft_memory_unregister(weft_comm *comm, void *ptr);
/* 1 if other ranks reach the bytes where they are: in one allocation of the heap, or registered by
 * all ranks with *is_direct 1; 0 bytes are, too. Else 0: inputs and outputs there are staged by
 * copies. -1 if there is no such comm. */
WEFT_API int32_t weft_is_direct(const weft_comm *comm, const void *ptr, uint64_t bytes);

/* ---------------------------------------------------------------- streams and events */

typedef struct weft_event weft_event;

/* An ordered queue on the machine of comm: with a worker thread of its own, or a CUDA stream that
 * does not synchronise with the legacy default stream. It serves all communicators of that machine
 * (and device) and may outlive comm. */
WEFT_API weft_result weft_stream_create(weft_comm *comm, weft_stream **stream);
/* The same for a queue that exists: native_stream is a cudaStream_t (NULL: the legacy default
 * stream) of the device of comm. On machine cpu WEFT_ERROR_UNSUPPORTED. It may be under capture:
 * operations then become nodes of the graph, except those that say otherwise; they take their place
 * among the others of their weft_ep when the graph runs, which the caller must order. */
WEFT_API weft_result weft_stream_wrap(weft_comm *comm, void *native_stream, weft_stream **stream);
/* Waits for what is queued, then ends the worker; a wrapped queue is left as it is, without a wait.
 * A capture of weft_graph_begin ends without a graph. */
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

/* What was enqueued on a stream once, to be launched as a whole and any number of times: a CUDA
 * graph. It may outlive the stream; on machine cpu it is WEFT_ERROR_UNSUPPORTED. Objects that it
 * uses must exist, and its memory stay allocated, until the last launch has finished. */
typedef struct weft_graph weft_graph;

/* Puts the stream, which cannot be the legacy default stream, under capture: until weft_graph_end
 * nothing that is enqueued runs, and operations are recorded (see weft_stream_wrap). So it is on
 * other streams, from their wait for an event that was recorded on this one until this one waits
 * for an event of theirs. Inputs and outputs of collectives that are neither in the heap nor
 * registered are staged, unless weft_coll_record_begin comes before, and weft_coll_record_end after
 * weft_graph_end. */
WEFT_API weft_result weft_graph_begin(weft_stream *stream);
/* By the thread that began. The capture has ended then, also after an error. It may wait for what
 * the streams of this process have queued. */
WEFT_API weft_result weft_graph_end(weft_stream *stream, weft_graph **graph);
/* Stream operation, for streams of the machine and device that it was recorded on, but not for one
 * under capture. Launches of one graph do not overlap. Ranks launch what they have recorded in the
 * same order. */
WEFT_API weft_result weft_graph_launch(weft_graph *graph, weft_stream *stream);
WEFT_API weft_result weft_graph_destroy(weft_graph *graph); /* after its last launch has finished */

/* ---------------------------------------------------------------- remote memory access */

/*
 * Access to the heap of any rank, the own included, in which that rank takes no part. Not
 * collective: any rank at any time, on any stream. Semantics are those of NVSHMEM's *_on_stream
 * functions.
 *
 * - Addresses, also those of remote memory, are of the caller's own heap and mean the same offset
 *   in the heap of `rank`: in memory from weft_heap_alloc that no rank has freed yet, or in the
 *   block of an arena. The local side is in the heap, too. Words have 64 bits, are aligned to 8,
 *   and must be set to a value before anybody uses them (before a barrier, say).
 * - On the stream an operation has finished when its source may be overwritten and what it fetches
 *   is there. That says nothing about the target of a put, signal or add: see quiet.
 * - Puts, gets and adds are unordered among each other, also to the same rank. The add of a
 *   put_signal is visible only after its own bytes. Adds are atomic with the adds of all ranks, and
 *   they release: who sees a word by weft_rma_wait_until sees the bytes of the put_signal that
 *   added, and what its rank fenced before.
 * - The ranks of the own node are reached by loads and stores, others by the network. On machine
 *   cuda that takes room on the GPU for one block of one warp: a kernel of the caller that fills
 *   all SMs until something has come keeps it away.
 * - Errors: WEFT_ERROR_INVALID_ARGUMENT names a rank that does not exist, memory that is not in the
 *   heap, a word that is not aligned, or a field that the operation does not use and that is not
 *   zero; WEFT_ERROR_RANK_FAILED the rank that died, or has left.
 *
 * Example rma: each rank writes 4 words to the next one, and waits for those of the previous one.
 *
 *     int32_t rank = weft_comm_rank(comm), num_ranks = weft_comm_num_ranks(comm);
 *     weft_stream *stream;
 *     void *block; // the word to signal, then 4 words to send, then 4 to receive
 *     CHECK(weft_stream_create(comm, &stream));
 *     CHECK(weft_heap_alloc(comm, 9 * sizeof(uint64_t), &block));
 *     uint64_t *words = (uint64_t *)block;
 *     uint64_t values[9] = {0};
 *     for (int i = 1; i <= 4; i++)
 *         values[i] = (uint64_t)(10 * rank + i);
 *     CHECK(weft_memory_copy(comm, words, values, sizeof values));
 *     CHECK(weft_host_barrier(comm)); // all words are set
 *
 *     weft_rma_args put = WEFT_INIT(weft_rma_args);
 *     put.rank = (rank + 1) % num_ranks;
 *     put.dst = words + 5;
 *     put.src = words + 1;
 *     put.bytes = 4 * sizeof(uint64_t);
 *     put.word = words;
 *     put.value = 1;
 *     CHECK(weft_rma_put_signal(comm, &put, stream));
 *     weft_rma_args wait = WEFT_INIT(weft_rma_args);
 *     wait.word = words;
 *     wait.value = 1;
 *     CHECK(weft_rma_wait_until(comm, &wait, stream));
 *     CHECK(weft_stream_synchronize(stream));
 *
 *     CHECK(weft_memory_copy(comm, values, words, sizeof values));
 *     EXPECT(values[8] == (uint64_t)(10 * ((rank + num_ranks - 1) % num_ranks) + 4));
 *     CHECK(weft_host_barrier(comm)); // nobody writes to it any more
 *     CHECK(weft_heap_free(comm, block));
 *     CHECK(weft_stream_destroy(stream));
 */
typedef struct weft_rma_args {
    size_t size;
    void *dst;        /* put, put_signal: at `rank`; get: here */
    const void *src;  /* put, put_signal: here; get: at `rank` */
    uint64_t bytes;   /* of both */
    uint64_t *word;   /* put_signal, signal, add, fetch_add: at `rank`; wait_until: here */
    uint64_t value;   /* that is added, modulo 2^64 (-1 is UINT64_MAX); or that is waited for */
    uint64_t *before; /* fetch_add: here, 8 bytes for what the word was */
    int32_t rank;     /* whose memory is accessed; wait_until: 0 */
    int32_t reserved; /* 0 */
} weft_rma_args;

/* dst[bytes] at rank = src[bytes] here. */
WEFT_API weft_result weft_rma_put(weft_comm *comm, const weft_rma_args *args, weft_stream *stream);
/* dst[bytes] here = src[bytes] at rank. */
WEFT_API weft_result weft_rma_get(weft_comm *comm, const weft_rma_args *args, weft_stream *stream);
/* A put, and then *word += value at rank; the word is not part of dst. */
WEFT_API weft_result weft_rma_put_signal(weft_comm *comm, const weft_rma_args *args,
                                         weft_stream *stream);
/* *word += value at rank: a put_signal of no bytes. */
WEFT_API weft_result weft_rma_signal(weft_comm *comm, const weft_rma_args *args,
                                     weft_stream *stream);
/* The same, of any word. */
WEFT_API weft_result weft_rma_add(weft_comm *comm, const weft_rma_args *args, weft_stream *stream);
/* The same, and *before gets the value before the addition. */
WEFT_API weft_result weft_rma_fetch_add(weft_comm *comm, const weft_rma_args *args,
                                        weft_stream *stream);
/* Waits until this rank's *word, which changes by the operations above alone, is `value` or more.
 * What comes after on the stream sees all that the adds released. WEFT_ERROR_TIMEOUT names the word
 * and its value, but no rank, since any may add to it; if a rank dies, WEFT_ERROR_RANK_FAILED names
 * it. */
WEFT_API weft_result weft_rma_wait_until(weft_comm *comm, const weft_rma_args *args,
                                         weft_stream *stream);
/* What this rank puts, signals or adds after it, on the stream, is visible at each rank only after
 * what it did there before it. */
WEFT_API weft_result weft_rma_fence(weft_comm *comm, weft_stream *stream);
/* Finishes when all that this rank did before it, on the stream, is visible at its targets, so that
 * it may tell anybody. */
WEFT_API weft_result weft_rma_quiet(weft_comm *comm, weft_stream *stream);

/* ---------------------------------------------------------------- quantised rows */

/* What is stored of a group's scale. */
typedef enum weft_scale_kind {
    WEFT_SCALE_FP32 = 0,
    WEFT_SCALE_FP32_POWER_OF_TWO = 1, /* the same rounded up to a power of two */
    WEFT_SCALE_UE8M0 = 2              /* the byte of that one's exponent */
} weft_scale_kind;

/*
 * Rows of BF16, FP16 or FP32 as rows of FP8 or INT8, with one scale for each group of elements of a
 * row: what inference kernels take, and what costs half of the links' time. No other rank takes
 * part. All in fp32, with one rounding for each operation as written, where amax is the largest
 * magnitude of the group's finite elements, 1e-4 at least [DeepEP 3]:
 *
 *     scale    FP8: amax * (1 / 448); INT8: amax / 127; of the other kinds that, rounded up to a
 *              power of two
 *     element  FP8: x * (448 / amax), INT8: x * (127 / amax), of the other kinds x * (1 / scale);
 *              rounded to nearest even
 *     back     element * scale, rounded to dtype
 *
 * Infinities become the largest element, 448 or 127, of their sign. NaN becomes the FP8 NaN with
 * all bits set but the sign, INT8 0. So no scale is 0, infinite or NaN. The same bits on every
 * machine.
 *
 * Or as rows of WEFT_LOG_10BIT, whose groups of 128 elements have 164 bytes and no scales beside:
 * for each element a sign and a code from 0 to 511, for each group a header, whose halves `high`
 * and `low` are upper halves of floats: of a number not less than the greatest magnitude of the
 * group's finite elements (but finite), and of one not greater than the least that is not 0, or
 * 32 powers of two below `high` if that is more. Floats grow with their bits, as if these were
 * logarithms with a straight line between powers of two. With the steps of
 *
 *     step = (high - low) * 65536 / 510, cut to an integer
 *
 * code c from 1 on is the float with the bits low * 65536 + (c - 1) * step, and an element becomes
 * the nearest one, but 0 if it is less than half of the least. Code 0 is 0; with the sign, NaN, as
 * which infinities come back, too. Four groups, or those that are left at the end of a row, make a
 * block: the codes' low bytes of all, then 32 bytes for each group, of which byte i has the codes'
 * ninth bits and, above them, signs of elements i, i + 32, i + 64 and i + 96, from the lowest bits
 * on; then the headers. Near halves between two codes rounding in fp32 decides, the same way on
 * every machine (src/machine/log_format.h). DeepEP's logfmt has proper logarithms, else the same
 * codes, and leaves blocks with an element of 1 or more as they are.
 */
typedef struct weft_rows_args {
    size_t size;
    const void *src; /* quantise: of dtype, dequantise: of narrow_dtype; any alignment */
    void *dst;       /* the other way round; rows lie side by side */
    void *scales;    /* written by quantise, read by dequantise; WEFT_LOG_10BIT: NULL */
    int64_t num_rows;
    int64_t hidden;            /* elements of a row, at most 2^31-1 bytes */
    int64_t group_elements;    /* that have one scale, a divisor of hidden; 0: all of the row */
    uint64_t src_stride_bytes; /* between rows of src; 0: they lie side by side */
    /* 0: each row's scales lie side by side, and so do these rows. Else scales lie by columns:
     * those of a group, of all rows, side by side, and the columns this far apart, 4 bytes for each
     * row at least. With UE8M0 a column is of words, whose four bytes are the row's next four
     * groups. */
    uint64_t scale_column_bytes;
    weft_dtype dtype;        /* WEFT_BF16, WEFT_FP16 or WEFT_FP32 */
    weft_dtype narrow_dtype; /* WEFT_FP8_E4M3, WEFT_INT8 or WEFT_LOG_10BIT */
    weft_scale_kind scale;
    int32_t reserved; /* 0 */
} weft_rows_args;

/* Stream operations. When one has finished, dst is complete and src may be overwritten. */
WEFT_API weft_result weft_rows_quantise(weft_comm *comm, const weft_rows_args *args,
                                        weft_stream *stream);
WEFT_API weft_result weft_rows_dequantise(weft_comm *comm, const weft_rows_args *args,
                                          weft_stream *stream);

/* ---------------------------------------------------------------- collectives */

/* What the collective operations of a communicator need: buffers, and the choice of algorithms. Of any
 * number of ranks on any number of nodes, which need not have as many. For operations that overlap
 * each other make several. */
typedef struct weft_coll weft_coll;

typedef enum weft_collective {
    WEFT_ALL_REDUCE = 0,
    WEFT_REDUCE_SCATTER = 1,
    WEFT_ALL_GATHER = 2,
    WEFT_ALL_TO_ALL = 3,
    WEFT_BROADCAST = 4,
    WEFT_REDUCE = 5,
    WEFT_GATHER = 6,
    WEFT_SCATTER = 7
} weft_collective;

/* How they are done. None of this changes a bit of any result, except sums by RING, TREE and MULTICAST by
 * hardware, which nothing but a pin chooses. On one node of up to WEFT_COLL_MAX_RANKS ranks any but
 * RAILS; of more ranks, or on several nodes, RAILS and TREE. */
typedef enum weft_algorithm {
    WEFT_ALGORITHM_AUTO = 0, /* by size: the choice of WEFT_TUNING, else of the library */
    /* Every rank sends its data in packets that carry their own arrival mark: least latency. For
     * messages up to packet_bytes. All collectives. */
    WEFT_ALGORITHM_ONESHOT = 1,
    /* The same in two steps: each rank reduces a part, then sends the result. ALL_REDUCE. */
    WEFT_ALGORITHM_TWOSHOT_PACKETS = 2,
    /* Reads all inputs where they are. ALL_REDUCE, REDUCE_SCATTER; REDUCE, by the root alone. */
    WEFT_ALGORITHM_ONESHOT_PULL = 3,
    /* Each rank reads a part of all inputs and writes the result to all outputs: ALL_REDUCE; to the
     * root's: REDUCE. */
    WEFT_ALGORITHM_TWOSHOT = 4,
    /* Writes to the outputs. ALL_GATHER, ALL_TO_ALL, BROADCAST, GATHER, SCATTER. */
    WEFT_ALGORITHM_PUSH = 5,
    /* Over several nodes: reads and writes inputs and outputs in the node, and sends pieces to the
     * rank of the next node that has the same index there, which passes them on (docs/network.md).
     * All collectives; weft_coll_all_to_all_v from rank to rank. If calls of two nodes differ, all
     * ranks of both are told in this operation; of three nodes or more, a rank of another one that has
     * done its part may hear in its next operation only. */
    WEFT_ALGORITHM_RAILS = 6,
    /* Chunk by chunk through memory that all ranks reach at once, a multicast object: a head sums
     * for all, or writes to all. For any memory, without staging. ALL_REDUCE, REDUCE_SCATTER,
     * ALL_GATHER. Never the library's own choice. If WEFT_MULTICAST is 1 on all ranks, and their
     * driver offers it, the switch between GPUs does so; then sums of BF16, FP16 and FP32 are the
     * same on all ranks, but in an order that it alone knows, and have any NaN. That can put GPUs
     * out of service, for others too, where their fabric is not set up for it: without
     * WEFT_MULTICAST the driver is not even asked. */
    WEFT_ALGORITHM_MULTICAST = 7,
    /* The following go in pieces, through memory of the weft_coll (fifo_bytes). For large
     * messages: each link carries no more than it must, in every moment.
     *
     * Each rank writes parts of its input to the ranks that reduce them, and these the results to
     * all outputs. ALL_REDUCE; REDUCE_SCATTER, without the second step. */
    WEFT_ALGORITHM_TWOSHOT_PUSH = 8,
    /* The root writes a part to each rank, which passes it on to all others. BROADCAST. */
    WEFT_ALGORITHM_RELAY = 9,
    /* From each rank to the next one, the last one to rank 0. ALL_REDUCE, REDUCE_SCATTER, REDUCE,
     * ALL_GATHER, BROADCAST. Sums go around, too: part c of the row begins with the element of rank
     * c + 1, then come c + 2, ..., R - 1, 0, ..., c, and each step is rounded to dtype. The part of
     * REDUCE_SCATTER is a rank's row, that of REDUCE the root's, which is everything; ALL_REDUCE
     * has R parts of bytes / R, rounded up to a multiple of 16 bytes, but for the last ones. The
     * same bits on all ranks, on every machine and with any number of blocks. */
    WEFT_ALGORITHM_RING = 10,
    /* Up and down two binary trees, one for each half of the row (the first one bytes / 2, rounded up
     * to a multiple of 16 bytes): a rank that has children in one is a leaf in the other. ALL_REDUCE,
     * BROADCAST, REDUCE: in twice, or once, as many steps as the ranks can be halved, of however many
     * ranks. Each rank adds what its first child has sent, its own element, and what the second one
     * has, in this order, rounded to dtype. Of R places, place 0 is above all; of those between two
     * places a and b the one that is above the others is a + the largest power of two that is less
     * than b - a, and its children are those of the places between a and it, and between it and b. So
     * sums are in the order of places. Rank r has place r in the first tree; in the second one R - 1
     * - r if R is even, else r - 1, and rank 0 the last place. The same bits on all ranks, as RING.
     *
     * Over several nodes the first tree alone, for small messages, in which places are nodes: so 2 log2
     * D hops in place of 2 (D - 1) by RAILS; of a broadcast fewer than 2 log2 D in place of D - 1, which
     * AUTO takes over 8 nodes or more, up to 32 KiB. What a node adds is the sum of its ranks, as by RAILS,
     * from rail to rail. */
    WEFT_ALGORITHM_TREE = 11
} weft_algorithm;

/* Pins the algorithm of one collective. */
typedef struct weft_coll_choice {
    size_t size;
    weft_collective collective;
    weft_algorithm algorithm;
} weft_coll_choice;

typedef struct weft_coll_config {
    size_t size;
    /* Bytes that a rank can have under way to each other rank in packets; the heap memory for them
     * is about 3 (on cpu 4) times this per rank. 0: 16 MiB on cuda, 512 KiB on cpu, over the
     * ranks. */
    uint64_t packet_bytes;
    /* Heap memory per rank for data that peers cannot reach; larger data goes through it piece by
     * piece. 0: 8 MiB. By RAILS inputs and outputs have so much each. Sends and receives go through
     * it, too, and raise it to 32 bytes for each rank and channel. */
    uint64_t staging_bytes;
    /* [num_choices], copied, at most one per collective; the others are AUTO. An operation that the
     * pinned algorithm cannot do is WEFT_ERROR_UNSUPPORTED. */
    const weft_coll_choice *choices;
    int32_t num_choices;
    int32_t num_blocks; /* as weft_ep_config's, at most 1024 */
    int32_t num_warps;
    int32_t reserved; /* 0 */
    /* What goes through slots has as many channels to and from each other rank, with so many slots
     * each. 0, over several nodes, of rings to the next node and from the previous one: 1 channel,
     * on cuda 4; 8 slots (1 is as 2); slots of 128 KiB and a header of 64 bytes. 0, on one node, of
     * queues to and from each head of MULTICAST, if anything asks for that: 1 channel, on cuda 16;
     * 4 slots, of 2 at least; slots of 64 KiB. 0, of weft_coll_send and weft_coll_recv, whose slots
     * are the staging block's: 1 channel, on cuda 64 over the ranks, 32 at most; 4 slots, and 255 at
     * most; slots of 64 KiB, on cuda 32 KiB. Where the block has fewer, because many ranks send at
     * the same time, each has fewer of them, and shorter ones if there are more channels and ranks
     * than slots. */
    uint64_t staging_slot_bytes;
    int32_t num_channels;
    int32_t num_staging_slots;
    /* Heap memory per rank for what comes to it in pieces (TWOSHOT_PUSH, RELAY, RING, TREE), if one of
     * these is pinned or in the table. 0: 32 MiB on cuda, 4 MiB on cpu; less than each block needs
     * is raised. */
    uint64_t fifo_bytes;
} weft_coll_config;

/* Collective; config (may be NULL) must be the same on all ranks, except num_warps
 * (WEFT_ERROR_MISMATCH names a rank that differs). Needs the memory of all ranks of the node to be
 * mapped: WEFT_ERROR_UNSUPPORTED names one that is not, on every rank, also if comm has failed. If the
 * environment of rank 0 has WEFT_TUNING, rank 0 reads that file, a table of algorithms, blocks and
 * warps by size (weft(1)), for all; WEFT_ERROR_INVALID_ARGUMENT names, on all ranks, file and line
 * of what is wrong in it. What config says goes before what the table says. */
WEFT_API weft_result weft_coll_create(weft_comm *comm, const weft_coll_config *config,
                                      weft_coll **coll);
/* As weft_heap_free. What all ranks have mapped for a weft_coll_record that is not destroyed yet
 * stays mapped until weft_comm_destroy. */
WEFT_API weft_result weft_coll_destroy(weft_coll *coll);

/*
 * The operations: stream operations, collective. When one has finished on this rank, its output is
 * complete and its input may be overwritten. Any count is legal, 0 included; it is the same on all
 * ranks. dtype is any of WEFT_INT32 to WEFT_FP8_E4M3. Pointers may have any alignment (16 bytes is
 * fastest). Inputs and outputs are any memory that the machine accesses; in the heap, or
 * registered, they are reached directly; others, if large, are staged by a copy. Each rank may have
 * them where it likes, but if they are more than staging_bytes, either all ranks have them in such
 * memory or none (WEFT_ERROR_MISMATCH). Input and output overlap in the in-place form that each
 * function names. An array that a function says is ignored may be NULL.
 *
 * If calls do not fit together (operation, count, dtype, op, root), all ranks get
 * WEFT_ERROR_MISMATCH, whose message names two that differ: at once, or, where a rank's own part
 * was done before another one found it, by its next operation. The outputs are undefined then.
 *
 * Reductions go in ascending rank order, beginning with rank 0's element: BF16, FP16, FP32 and FP8
 * in fp32, FP64 in fp64, rounded once to nearest even; integers in their own type, wrapping around.
 * By RAILS that is done with the ranks of each node (of AVG the sum), and the result is rounded after
 * each 32 of them and after the last; to the first node's result each other node's is added in turn,
 * and the sum rounded. The first node is node 0 in an all-reduce, in a reduce-scatter or reduce the one
 * after the node that gets the row. Nodes are numbered by their first ranks. So bits depend on which ranks
 * are on one node, and on nothing else.
 * AVG is the sum divided by R, before rounding (integers: towards zero). MAX and MIN are those of
 * IEEE 754-2019: NaN if there is one, -0 less than +0. Every NaN becomes the positive quiet NaN
 * with all mantissa bits set; FP8 saturates at 448. PREMUL_SUM is the SUM of each rank's 0 + factor *
 * input, multiplied in fp32 and rounded once to dtype, as if it had been stored so before: then by the
 * same algorithms, with the same bits. So results are the same to the bit on all
 * ranks, whatever the algorithm (but RING, TREE, and MULTICAST by hardware), the machine, the number of
 * blocks, and the elements around.
 * [vLLM custom all-reduce 4, without its limits; names of NCCL]
 *
 * Example coll: sums a vector over all ranks, in place.
 *
 *     weft_coll *coll;
 *     weft_stream *stream;
 *     void *vector;
 *     CHECK(weft_coll_create(comm, NULL, &coll));
 *     CHECK(weft_stream_create(comm, &stream));
 *     CHECK(weft_memory_alloc(comm, 3 * sizeof(float), &vector));
 *     float values[3] = {1, 2, (float)weft_comm_rank(comm)};
 *     CHECK(weft_memory_copy(comm, vector, values, sizeof values));
 *
 *     weft_coll_args args = WEFT_INIT(weft_coll_args);
 *     args.send = vector;
 *     args.recv = vector;
 *     args.count = 3;
 *     args.dtype = WEFT_FP32;
 *     args.op = WEFT_SUM;
 *     CHECK(weft_coll_all_reduce(coll, &args, stream));
 *     CHECK(weft_stream_synchronize(stream));
 *
 *     CHECK(weft_memory_copy(comm, values, vector, sizeof values));
 *     EXPECT(values[1] == 2 * (float)weft_comm_num_ranks(comm));
 *     CHECK(weft_memory_free(comm, vector));
 *     CHECK(weft_stream_destroy(stream));
 *     CHECK(weft_coll_destroy(coll));
 */
typedef struct weft_coll_args {
    size_t size;
    const void *send;
    void *recv;
    int64_t count; /* elements of one row, 0..2^42 bytes of them */
    weft_dtype dtype;
    weft_reduce_op op; /* all_reduce, reduce_scatter, reduce; others: 0 */
    int32_t root;      /* broadcast, reduce, gather, scatter; others: 0 */
    float factor;      /* PREMUL_SUM; others: 0. Need not be the same on all ranks */
    /* PREMUL_SUM: not NULL: it is there, in memory that the machine accesses, when the operation runs
     * (also again, in a graph), and factor is 0. Not in recv. */
    const float *factor_at;
} weft_coll_args;

/* recv[count] = the reduction of all ranks' send[count], element by element. In place: recv is
 * send. */
WEFT_API weft_result weft_coll_all_reduce(weft_coll *coll, const weft_coll_args *args,
                                          weft_stream *stream);
/* recv[count] = this rank's row of the reduction of all ranks' send[R][count]. In place: recv is
 * that row of send. */
WEFT_API weft_result weft_coll_reduce_scatter(weft_coll *coll, const weft_coll_args *args,
                                              weft_stream *stream);
/* recv[R][count]: row r is rank r's send[count]. In place: send is this rank's row of recv. */
WEFT_API weft_result weft_coll_all_gather(weft_coll *coll, const weft_coll_args *args,
                                          weft_stream *stream);
/* recv[R][count]: row r is row `rank` of rank r's send[R][count]. It has no in-place form, as
 * NCCL's: rows would arrive where others have not been sent from yet. */
WEFT_API weft_result weft_coll_all_to_all(weft_coll *coll, const weft_coll_args *args,
                                          weft_stream *stream);
/* recv[count] = rank root's send[count]; the others' send is ignored. In place: recv is send. */
WEFT_API weft_result weft_coll_broadcast(weft_coll *coll, const weft_coll_args *args,
                                         weft_stream *stream);
/* Rank root's recv[count] = the reduction of all ranks' send[count], with the bits of all_reduce; the
 * others' recv is ignored. In place: recv is send. */
WEFT_API weft_result weft_coll_reduce(weft_coll *coll, const weft_coll_args *args,
                                      weft_stream *stream);
/* Rank root's recv[R][count]: row r is rank r's send[count]; the others' recv is ignored. In place:
 * send is the root's row of recv. */
WEFT_API weft_result weft_coll_gather(weft_coll *coll, const weft_coll_args *args,
                                      weft_stream *stream);
/* recv[count] = this rank's row of rank root's send[R][count]; the others' send is ignored. In place:
 * recv is the root's row of send. */
WEFT_API weft_result weft_coll_scatter(weft_coll *coll, const weft_coll_args *args,
                                       weft_stream *stream);

typedef struct weft_coll_all_to_all_v_args {
    size_t size;
    const void *send;
    void *recv;
    /* [R] each, elements; copied. What rank s sends to rank r must be what r receives from s. */
    const int64_t *send_counts;
    const int64_t *send_offsets;
    const int64_t *recv_counts;
    const int64_t *recv_offsets;
    weft_dtype dtype;
    int32_t reserved; /* 0 */
} weft_coll_all_to_all_v_args;

/* As MPI_Alltoallv, of any ranks. Offsets may leave gaps, which are not touched. Rows may overlap where
 * they are sent from, not where they are received. A rank knows only its own counts, so they choose no
 * algorithm: if none is pinned it is PUSH, and what a rank receives must fit staging_bytes or be in
 * the heap, or registered: else WEFT_ERROR_UNSUPPORTED. By RAILS rows go from any memory to any, from
 * rank to rank, as sends and receives do. The rank that receives sees counts that differ, and tells all
 * others. */
WEFT_API weft_result weft_coll_all_to_all_v(weft_coll *coll,
                                            const weft_coll_all_to_all_v_args *args,
                                            weft_stream *stream);

/*
 * Sends and receives, by the ranks between which they go alone: stream operations, which the other
 * ranks need not know of. Semantics are those of ncclSend and ncclRecv, of ncclGroupStart and
 * ncclGroupEnd. Between any ranks, of one node or of several.
 *
 * What rank s sends rank r is received there in the order in which s has issued it: the n-th send to
 * r is the n-th receive from s, in whichever groups they are. count and dtype of both must be the
 * same (WEFT_ERROR_MISMATCH names the peer). A send or receive alone is a group of one. The
 * operations of a group are done together: they wait for the peers, but not for each other, in
 * whichever order they were issued. Those of different groups, and the other operations of coll,
 * follow each other as issued: so two ranks that exchange something do it in one group. A peer that
 * does not come is an error that names it.
 *
 * When a group has finished on this rank, what it sends may be overwritten, and what it receives is
 * there. It cannot finish before the peers have begun the groups that receive from this rank. Memory
 * may be any, and goes through slots of coll's (num_channels, num_staging_slots and
 * staging_slot_bytes of weft_coll_config): no more than the staging block, however many ranks there
 * are. A rank may send to itself, if the receive is in the same group.
 *
 * Example group: each rank sends a number to the next one.
 *
 *     const int32_t num_ranks = weft_comm_num_ranks(comm), rank = weft_comm_rank(comm);
 *     weft_coll *coll;
 *     weft_stream *stream;
 *     void *memory;
 *     CHECK(weft_coll_create(comm, NULL, &coll));
 *     CHECK(weft_stream_create(comm, &stream));
 *     CHECK(weft_memory_alloc(comm, 2 * sizeof(int32_t), &memory));
 *     CHECK(weft_memory_copy(comm, memory, &rank, sizeof rank));
 *
 *     weft_coll_send_args send = WEFT_INIT(weft_coll_send_args);
 *     send.send = memory;
 *     send.count = 1;
 *     send.dtype = WEFT_INT32;
 *     send.peer = (rank + 1) % num_ranks;
 *     weft_coll_recv_args recv = WEFT_INIT(weft_coll_recv_args);
 *     recv.recv = (int32_t *)memory + 1;
 *     recv.count = 1;
 *     recv.dtype = WEFT_INT32;
 *     recv.peer = (rank + num_ranks - 1) % num_ranks;
 *     CHECK(weft_coll_group_begin(coll));
 *     CHECK(weft_coll_send(coll, &send, stream));
 *     CHECK(weft_coll_recv(coll, &recv, stream));
 *     CHECK(weft_coll_group_end(coll));
 *     CHECK(weft_stream_synchronize(stream));
 *
 *     int32_t received;
 *     CHECK(weft_memory_copy(comm, &received, (int32_t *)memory + 1, sizeof received));
 *     EXPECT(received == recv.peer);
 *     CHECK(weft_memory_free(comm, memory));
 *     CHECK(weft_stream_destroy(stream));
 *     CHECK(weft_coll_destroy(coll));
 */
typedef struct weft_coll_send_args {
    size_t size;
    const void *send;
    int64_t count; /* elements, 0..2^42 bytes of them */
    weft_dtype dtype;
    int32_t peer; /* rank of comm */
} weft_coll_send_args;

typedef struct weft_coll_recv_args {
    size_t size;
    void *recv;
    int64_t count;
    weft_dtype dtype;
    int32_t peer;
} weft_coll_recv_args;

/* send[count] of this rank goes to the peer. */
WEFT_API weft_result weft_coll_send(weft_coll *coll, const weft_coll_send_args *args,
                                    weft_stream *stream);
/* recv[count] = what the peer sends. */
WEFT_API weft_result weft_coll_recv(weft_coll *coll, const weft_coll_recv_args *args,
                                    weft_stream *stream);
/* From now on sends and receives of coll, all on the same stream and as many as one likes, are
 * collected. Groups within a group are part of it. Other operations of coll are not: they are enqueued
 * at once. */
WEFT_API weft_result weft_coll_group_begin(weft_coll *coll);
/* Enqueues the group, whose structs were copied. If one of its calls was refused, nothing of it is
 * done, and the error is that call's. */
WEFT_API weft_result weft_coll_group_end(weft_coll *coll);

/* Which algorithm an operation of `bytes` would use, where bytes are those of the input for
 * ALL_REDUCE, BROADCAST and REDUCE, of one row for the others. AUTO if there is no such coll or
 * collective. */
WEFT_API weft_algorithm weft_coll_algorithm(const weft_coll *coll, weft_collective collective,
                                            uint64_t bytes);
/* "oneshot", ...; "?" if there is none; never NULL. */
WEFT_API const char *weft_coll_algorithm_name(weft_algorithm algorithm);

/* What has chosen an algorithm; the first of these that says something does. */
typedef enum weft_coll_reason {
    WEFT_COLL_ONLY_ONE = 0, /* over several nodes, but for small broadcasts over many */
    WEFT_COLL_PINNED = 1,   /* by weft_coll_config, or asked for by the call that explains it */
    WEFT_COLL_TABLE = 2,    /* a row of the file that WEFT_TUNING names */
    /* A row of a table that the library has with it: of just this GPU and number of ranks, where
     * each rank has a GPU of its own. */
    WEFT_COLL_SHIPPED_TABLE = 3,
    WEFT_COLL_FORMULA = 4 /* the size, by limits that were measured on such machines */
} weft_coll_reason;

typedef struct weft_coll_explanation {
    size_t size;
    weft_algorithm algorithm;
    weft_coll_reason reason;
    int32_t num_blocks; /* that are asked for; 0: the machine chooses, as of warps */
    int32_t num_warps;
    /* What a model expects of it, in order, with memory that the others reach: how long it takes,
     * and how much of that whatever the bytes. 0: the model does not know (several nodes). */
    double expected_us;
    double latency_us;
    uint64_t link_bytes;      /* that the busiest rank writes to others and reads of them */
    double link_gbps;         /* of a rank's links, measured or assumed; 0: ranks share memory */
    uint64_t table_max_bytes; /* the row is for no more; 0: no table has chosen, as of the next */
    int32_t table_line;
    int32_t reserved;
    char table[128]; /* the file, or the device whose table the library has; "" */
} weft_coll_explanation;

/* Which algorithm an operation of `bytes`, as of weft_coll_algorithm, would use, why, and how long it
 * is expected to take; or, if algorithm is not AUTO, how long that one is (WEFT_ERROR_UNSUPPORTED if
 * it cannot do it). Needs no other rank. */
WEFT_API weft_result weft_coll_explain(const weft_coll *coll, weft_collective collective,
                                       weft_algorithm algorithm, uint64_t bytes,
                                       weft_coll_explanation *explanation);

/* What operations of a weft_coll were recorded with, on streams under capture (by weft_graph_begin,
 * or by CUDA's own functions). */
typedef struct weft_coll_record weft_coll_record;

/* From now on operations of coll on streams under capture are recorded with their inputs and
 * outputs where they are, also if these are neither in the heap nor registered;
 * weft_coll_record_end registers them. Without it, and where CUDA says that the memory cannot be
 * shared, they are staged in graphs too. One record of a weft_coll at a time. */
WEFT_API weft_result weft_coll_record_begin(weft_coll *coll, weft_coll_record **record);
/* Collective, when the streams' captures have ended and before any of their graphs runs. All ranks
 * must have recorded the same operations in the same order (WEFT_ERROR_MISMATCH names a rank). The
 * memory must stay allocated until weft_coll_record_destroy. After an error the graphs must not
 * run; one is WEFT_ERROR_UNSUPPORTED with the reason where memory cannot be mapped after all. */
WEFT_API weft_result weft_coll_record_end(weft_coll_record *record);
/* Collective: when the graphs run no more on any rank. When it returns, no other rank has the
 * memory mapped; after a failure of the communicator that happens at weft_comm_destroy. */
WEFT_API weft_result weft_coll_record_destroy(weft_coll_record *record);

/* ---------------------------------------------------------------- expert parallelism */

/*
 * The experts of one or more layers, placed on the ranks of comm. For operations that overlap each
 * other make several. Over several nodes all nodes must have the same number of ranks
 * (WEFT_ERROR_UNSUPPORTED). A token that ranks of another node need crosses the network once, in
 * dispatch and, as a sum, in combine; the max_tokens of handles must be the same on all ranks then.
 * Everything else is as on one node, except the order in which combine sums.
 *
 * Outputs of dispatch and inputs of combine are any memory of the machine. Those that other ranks
 * reach (weft_is_direct) are written and read where they are; each rank may have each array where it
 * likes. Others are staged, with the same results: the rank copies the rows that came from or to heap
 * memory of the weft_ep, of which weft_ep_config.staging_bytes says how much there is. If all rows
 * of an operation fit, that is all. If not, it goes in rounds of as many tokens as fit, on all ranks,
 * in graphs too; then 176 bytes and R times those of a token are needed, that is of all its planes
 * (or its row of combine), 12 * num_topk + 4, and at least 64 in all. WEFT_ERROR_UNSUPPORTED tells what
 * is needed where there is less; so between nodes, where there are no rounds, if not all rows fit. Rows of combine
 * that combine_wire makes narrower on one node are staged wherever they are.
 *
 * Example ep: sends each token to its experts, which return it unchanged, and sums what comes back.
 *
 *     enum { TOKENS = 4, HIDDEN = 8, TOPK = 2, EXPERTS = 16 };
 *     int32_t rank = weft_comm_rank(comm);
 *     int32_t max_rows = TOKENS * weft_comm_num_ranks(comm);
 *     weft_stream *stream;
 *     CHECK(weft_stream_create(comm, &stream));
 *     weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
 *     ep_config.num_experts = EXPERTS;
 *     weft_ep *ep;
 *     CHECK(weft_ep_create(comm, &ep_config, &ep));
 *     weft_ep_handle_config handle_config = WEFT_INIT(weft_ep_handle_config);
 *     handle_config.max_tokens = TOKENS;
 *     handle_config.num_topk = TOPK;
 *     weft_ep_handle *handle;
 *     CHECK(weft_ep_handle_create(ep, &handle_config, &handle));
 *
 *     float x[TOKENS][HIDDEN];
 *     int32_t ids[TOKENS][TOPK];
 *     for (int t = 0; t < TOKENS; t++) {
 *         ids[t][0] = (5 * rank + 3 * t) % EXPERTS;
 *         ids[t][1] = (ids[t][0] + 8) % EXPERTS;
 *         for (int h = 0; h < HIDDEN; h++)
 *             x[t][h] = (float)(t + 1);
 *     }
 *     void *tokens, *topk_idx, *rows, *out; // memory of the machine, which may be a GPU
 *     CHECK(weft_memory_alloc(comm, sizeof x, &tokens));
 *     CHECK(weft_memory_alloc(comm, sizeof ids, &topk_idx));
 *     CHECK(weft_memory_alloc(comm, sizeof x, &out));
 *     CHECK(weft_memory_copy(comm, tokens, x, sizeof x));
 *     CHECK(weft_memory_copy(comm, topk_idx, ids, sizeof ids));
 *     CHECK(weft_heap_alloc(comm, sizeof x[0] * (uint64_t)max_rows, &rows));
 *
 *     weft_ep_layout_args layout = WEFT_INIT(weft_ep_layout_args);
 *     layout.num_tokens = TOKENS;
 *     layout.index_type = WEFT_INT32;
 *     layout.topk_idx = topk_idx;
 *     CHECK(weft_ep_layout(handle, &layout, stream));
 *     CHECK(weft_ep_notify(handle, stream));
 *     weft_ep_counts counts = WEFT_INIT(weft_ep_counts);
 *     CHECK(weft_ep_wait_counts(handle, &counts)); // counts.num_recv_tokens rows will come
 *
 *     weft_plane plane = WEFT_INIT(weft_plane);
 *     plane.src = tokens;
 *     plane.dst = rows;
 *     plane.row_bytes = sizeof x[0];
 *     weft_ep_dispatch_args dispatch = WEFT_INIT(weft_ep_dispatch_args);
 *     dispatch.planes = &plane;
 *     dispatch.num_planes = 1;
 *     dispatch.capacity = max_rows;
 *     CHECK(weft_ep_dispatch(handle, &dispatch, stream));
 *
 *     weft_ep_combine_args combine = WEFT_INIT(weft_ep_combine_args);
 *     combine.dtype = WEFT_FP32;
 *     combine.hidden = HIDDEN;
 *     combine.capacity = max_rows;
 *     combine.x = rows; // what the experts make of them
 *     combine.out = out;
 *     CHECK(weft_ep_combine(handle, &combine, stream));
 *     CHECK(weft_stream_synchronize(stream));
 *
 *     CHECK(weft_memory_copy(comm, x, out, sizeof x));
 *     EXPECT(x[3][0] == 4 || x[3][0] == 8); // token 3 came back from one rank or from two
 *     CHECK(weft_ep_handle_destroy(handle));
 *     CHECK(weft_ep_destroy(ep));
 *     CHECK(weft_heap_free(comm, rows));
 *     CHECK(weft_memory_free(comm, out));
 *     CHECK(weft_memory_free(comm, topk_idx));
 *     CHECK(weft_memory_free(comm, tokens));
 *     CHECK(weft_stream_destroy(stream));
 */
typedef struct weft_ep weft_ep;

typedef struct weft_ep_config {
    size_t size;
    int32_t num_experts; /* 1..2^20 */
    int32_t max_topk;    /* largest top-k of any operation; 0: WEFT_MAX_TOPK */
    /* Placement: expert e is on the ranks expert_ranks[expert_offsets[e] .. expert_offsets[e+1]),
     * at least one, all different. Both NULL: rank r gets the experts
     * [num_experts*r/R, num_experts*(r+1)/R). With several replicas, token t of source rank s
     * uses replica (s + t) % replicas. Copied. */
    const int32_t *expert_offsets; /* [num_experts + 1] */
    const int32_t *expert_ranks;   /* [expert_offsets[num_experts]] */
    /* Per operation: on cuda the number of SMs that it uses; 0: as few as reach the speed of the
     * links, on cpu 1. The blocks of operations that run at the same time on a GPU must fit it
     * together. A dispatch or combine may ask for fewer. */
    int32_t num_blocks;
    /* Per block; 0: what suits the operation, on cpu 1. At most 32, on cuda 16. Over several nodes
     * there are more blocks, or warps, where rings (below) need them. */
    int32_t num_warps;
    /* Over several nodes, the same on all ranks. Rows cross the network in chunks through rings of
     * slots, which all operations share: num_channels rings to each other node, and as many from
     * it, of num_staging_slots slots of staging_slot_bytes. Fewer or smaller ones are slower, never
     * wrong: a slot must hold one row, of all planes, with its top-k data (docs/network.md). 0: 1
     * ring (on cuda 4), of 8 slots, of 64 KiB. */
    uint64_t staging_slot_bytes; /* at most 2^30; rounded up to a multiple of 16 */
    int32_t num_channels;
    int32_t num_staging_slots;
    /* Heap memory per rank, a sixteenth is added, through which inputs and outputs go that other ranks
     * do not reach (above); the same on all ranks. 0: none, so that these must be where they are
     * reached. */
    uint64_t staging_bytes;
    /* What combine's values are rounded to, once, on their way to the token's rank: WEFT_BF16, WEFT_FP16,
     * WEFT_LOG_10BIT (of rows that are whole groups of 128 elements), WEFT_FP32, which is not to round, or
     * WEFT_DTYPE_NONE: the dtype that is combined. The same on all ranks. Over several nodes it is what a node's
     * sum of a token's rows goes to another node in; rows stay as they are inside a node. On one node it is what
     * the rows are read in, where that has fewer bytes than dtype, else they are read as they are. Then each rank
     * rounds its rows before, into the staging block: staging_bytes are needed, wherever x is, as for all that is
     * staged, for rows in combine_wire. That is a pass over x in the rank's own memory, for fewer bytes on links. */
    weft_dtype combine_wire;
    int32_t reserved; /* 0 */
} weft_ep_config;

/* Collective; every field except num_blocks and num_warps must be the same on all ranks
 * (WEFT_ERROR_MISMATCH names a rank that differs). */
WEFT_API weft_result weft_ep_create(weft_comm *comm, const weft_ep_config *config, weft_ep **ep);
/* As weft_heap_free. */
WEFT_API weft_result weft_ep_destroy(weft_ep *ep);
/* The local ids on `rank` are 0..n-1, in ascending order of expert; n is the result, -1 if there
 * is no such rank. (Of a handle with num_experts of its own: weft_ep_counts.num_local_experts.) */
WEFT_API int32_t weft_ep_num_local_experts(const weft_ep *ep, int32_t rank);
/* The expert behind local id `local_expert` of `rank`; -1 if there is none. */
WEFT_API int32_t weft_ep_global_expert(const weft_ep *ep, int32_t rank, int32_t local_expert);

/* A handle holds the routing of one batch: which token goes to which rank, and to which row.
 * layout and notify fill it; dispatch and combine use it, any number of times and in any order
 * (a "cached" dispatch is one more dispatch). Filling it again replaces the routing. Any number
 * of handles may be filled at a time. Operations in graphs use the routing that is there when they
 * run; num_tokens must be then what it was when they were recorded. */
typedef struct weft_ep_handle weft_ep_handle;

typedef struct weft_ep_handle_config {
    size_t size;
    /* Most tokens that this rank has. max_tokens * R * num_topk must be less than about
     * 2^31 - 2^22; the message of WEFT_ERROR_INVALID_ARGUMENT tells the limit. Over several nodes
     * it is the same on all ranks. 0: any number; the handle's memory grows, to twice its size or
     * more. A weft_ep_layout of more tokens than before then waits on the host for the weft_ep's
     * operations; over several nodes the first weft_ep_dispatch or weft_ep_combine after a notify
     * waits for that notify. What waits is refused in a host callback, and operations of such a
     * handle cannot be captured. */
    int32_t max_tokens;
    int32_t num_topk;         /* 1..max_topk, the same on all ranks */
    int32_t expert_alignment; /* per-expert counts are rounded up to a multiple of it, at most 2^20;
                                 0: 1 */
    /* 0: those of the weft_ep, placed as there. Else so many, at most as many as those, spread
     * evenly as weft_ep_config has it, whatever the weft_ep's placement: so one weft_ep serves
     * layers that differ. The same on all ranks. */
    int32_t num_experts;
} weft_ep_handle_config;

WEFT_API weft_result weft_ep_handle_create(weft_ep *ep, const weft_ep_handle_config *config,
                                           weft_ep_handle **handle);
WEFT_API weft_result weft_ep_handle_destroy(weft_ep_handle *handle);

typedef struct weft_ep_layout_args {
    size_t size;
    int32_t num_tokens; /* N, 0..max_tokens, if that is not 0 */
    /* Where the tokens go: by their experts, or by a table; the other way's fields are zero. */
    weft_dtype index_type; /* of topk_idx: WEFT_INT32 or WEFT_INT64 */
    const void *topk_idx;  /* [N][num_topk] experts; -1 and any other value outside
                              0..num_experts-1, of the handle, are ignored */
    /* [N][R], nonzero: the token goes to the rank. A token goes to at most num_topk ranks; those
     * beyond, in ascending order, are ignored. dispatch may carry any topk_idx along. */
    const uint8_t *tokens_to_ranks;
    /* [the handle's experts] How often this rank's tokens choose each expert, 0 or more, whence
     * num_recv_per_expert of the ranks. With replicas [expert_offsets[num_experts]], each one's. */
    const int32_t *selections_per_expert;
    /* Optional results, memory of the machine. D is the number of nodes. */
    int32_t *num_tokens_per_rank;   /* [R] distinct tokens */
    int32_t *num_tokens_per_node;   /* [D] distinct tokens */
    int32_t *num_tokens_per_expert; /* [the handle's experts] selections, duplicates counted */
    uint8_t *is_token_in_rank;      /* [N][R] 0 or 1 */
} weft_ep_layout_args;

/* Stream operation, local: which tokens go where. [DeepEP 1.5] */
WEFT_API weft_result weft_ep_layout(weft_ep_handle *handle, const weft_ep_layout_args *args,
                                    weft_stream *stream);

/* Stream operation, collective: the ranks exchange counts, after which every (token, rank) has
 * its final row: rows are in (source rank, token) order, a pure function of the routing. After
 * layout. */
WEFT_API weft_result weft_ep_notify(weft_ep_handle *handle, weft_stream *stream);

typedef struct weft_ep_counts {
    size_t size;
    const int32_t *num_recv_per_rank;   /* [R] rows by source rank */
    const int32_t *num_recv_per_expert; /* [L] selections, rounded up to expert_alignment; rows
                                           themselves are not padded */
    int32_t num_recv_tokens;            /* rows that dispatch delivers to this rank */
    int32_t num_local_experts;          /* L */
    /* Tokens of other nodes that this rank passes on, in dispatch, to those ranks of its node
     * (which may include itself) that have them, and whose sums it sends back in combine. 0 on
     * one node. */
    int32_t num_relayed_tokens;
    /* The most rows that any rank gets, the same number on all ranks: by it they can grow their
     * outputs together. */
    int32_t max_recv_tokens;
} weft_ep_counts;

/* Waits on the host for the handle's last notify, which must not have been captured into a graph,
 * and tells the counts. The pointers, to memory of the host, belong to the handle; what they point
 * to changes with the next call. */
WEFT_API weft_result weft_ep_wait_counts(weft_ep_handle *handle, weft_ep_counts *counts);

/* Where the machine has the same counts, for work on the stream (capacity mode). They belong to the
 * handle and hold once its notify has passed. */
typedef struct weft_ep_device_counts {
    size_t size;
    const int32_t *num_recv_tokens;     /* [1], may exceed the capacity given to dispatch */
    const int32_t *num_recv_per_rank;   /* [R] */
    const int32_t *num_recv_per_expert; /* [L] */
    const int32_t *recv_rank_ends;      /* [R] the row after the last one of each source rank */
} weft_ep_device_counts;

WEFT_API weft_result weft_ep_query_device_counts(const weft_ep_handle *handle,
                                                 weft_ep_device_counts *counts);

/* One array of a token's payload: moved as opaque bytes, or quantised on its way, as weft_rows_quantise does
 * it. Then src has rows of dtype, row_bytes is theirs, and the receivers get rows of narrow_dtype, an
 * element a byte, with their scales. One plane of a dispatch may be so, and its scales count as a plane. */
typedef struct weft_plane {
    size_t size;
    const void *src;    /* rows of this rank's tokens, anywhere */
    void *dst;          /* [capacity][row_bytes]; quantised: [capacity][elements] */
    uint64_t row_bytes; /* 1..2^31-1, the same on all ranks; multiples of 16 and 16-byte aligned
                           src and dst are fastest, all others correct */
    uint64_t src_stride_bytes; /* between rows of src; 0: row_bytes */
    void *scales;     /* quantised: [capacity][groups] floats, or bytes of WEFT_SCALE_UE8M0 */
    weft_dtype dtype; /* quantised: WEFT_BF16, WEFT_FP16 or WEFT_FP32 */
    /* WEFT_FP8_E4M3 or WEFT_INT8; WEFT_DTYPE_NONE: the plane is moved as it is, and the other fields from
     * `scales` on are 0. */
    weft_dtype narrow_dtype;
    weft_scale_kind scale;
    /* That have one scale, a divisor of the row's elements; 0: all of the row. */
    int32_t group_elements;
} weft_plane;

typedef struct weft_ep_dispatch_args {
    size_t size;
    const weft_plane *planes; /* [num_planes], copied */
    /* 0..WEFT_MAX_PLANES, the same on all ranks; with a quantised one, one fewer. */
    int32_t num_planes;
    /* Rows that the outputs hold: at least num_recv_tokens when the host waited for the counts; in
     * capacity mode any number: rows from `capacity` on are neither sent nor written, and
     * weft_ep_check reports them. */
    int32_t capacity;
    /* Optional: the top-k data that layout saw, and its weights. All ranks give them or none, but
     * a rank without tokens and capacity leaves these pointers NULL. */
    const void *topk_idx;      /* [N][num_topk] of index_type */
    const float *topk_weights; /* [N][num_topk] or NULL */
    void *recv_topk_idx;       /* [capacity][num_topk] of index_type: the local id of each expert of
                                  this rank, -1 for others; rows after the last are -1 */
    float *recv_topk_weights; /* [capacity][num_topk], when topk_weights is given: 0 where the id is
                                 -1; rows after the last are untouched */
    int32_t *recv_src_token;  /* optional, each rank as it likes: [capacity]: the token's index at
                                 its source rank */
    weft_dtype index_type; /* WEFT_INT32 or WEFT_INT64, where topk_idx or recv_topk_idx is given */
    /* Of this operation, each rank as it likes; 0: as weft_ep_config.num_blocks says. At most that,
     * or, where it is 0, 256 on cuda and 1 on cpu. */
    int32_t num_blocks;
} weft_ep_dispatch_args;

/* Stream operation, collective: delivers every token's row once to each rank that has one of its
 * experts, into its final row. When it has finished on this rank, its outputs are complete and its
 * inputs may be overwritten. After notify. [DeepEP 1.6] */
WEFT_API weft_result weft_ep_dispatch(weft_ep_handle *handle, const weft_ep_dispatch_args *args,
                                      weft_stream *stream);

typedef struct weft_ep_combine_args {
    size_t size;
    const void *x;             /* [capacity][hidden]: row i answers row i of dispatch */
    const void *bias[2];       /* optional, [N][hidden] */
    void *out;                 /* [N][hidden] */
    const float *topk_weights; /* optional, all ranks or none: [capacity][num_topk] */
    float *out_topk_weights;   /* [N][num_topk] when topk_weights is given */
    int64_t hidden;   /* elements per row, 1 or more, at most 2^31-1 bytes; the same on all ranks */
    weft_dtype dtype; /* of x, bias and out: BF16, FP16 or FP32; the same on all ranks */
    int32_t capacity; /* rows that x holds: as given to dispatch. Rows from there on count as 0 */
    int32_t num_blocks; /* as in weft_ep_dispatch_args */
    int32_t reserved;   /* 0 */
} weft_ep_combine_args;

/* Stream operation, collective: out = (bias[0] + bias[1]) + the rows of the token on the ranks that
 * had it, in ascending rank order, from +0, in fp32, rounded once to dtype (nearest even; every NaN
 * becomes the positive quiet NaN with all mantissa bits set). Where combine_wire is narrower than dtype, each row is
 * rounded to it before, as there (beyond the range of WEFT_FP16 to infinity; WEFT_LOG_10BIT as weft_rows_quantise has
 * it, so that infinities become NaN). out_topk_weights is the same sum of
 * topk_weights, which are never rounded. The result does not depend on machine, blocks or warps. The gradient of dispatch is
 * combine, that of combine a dispatch of the same handle. When it has finished on this rank, out is
 * complete and x may be overwritten. [DeepEP 1.7]
 *
 * Over several nodes a token's rows are summed node by node: on each node that had the token, the
 * token's own among them, in ascending rank order, from +0, in fp32, rounded to dtype (with
 * combine_wire to that in its place, with WEFT_FP32 not at all); then out = (bias[0] + bias[1]) + these sums in ascending
 * order of the nodes, from +0, in fp32, rounded once to dtype. The sums of topk_weights have the
 * same order and are never rounded. So a job gives the same bits whenever it has the same ranks on
 * the same number of nodes, whatever the network, the rings and their slots. A combine that is the
 * first operation since notify is preceded by a dispatch without rows. [DeepEP 2] */
WEFT_API weft_result weft_ep_combine(weft_ep_handle *handle, const weft_ep_combine_args *args,
                                     weft_stream *stream);

/* After the stream was synchronised: WEFT_ERROR_CAPACITY, with the numbers in weft_last_error(), if
 * any dispatch since the handle's last notify had to drop rows meant for this rank. *num_dropped
 * (may be NULL) gets the most that one of them dropped, also with this error. */
WEFT_API weft_result weft_ep_check(weft_ep_handle *handle, int32_t *num_dropped);

typedef struct weft_ep_size_args {
    size_t size;
    const uint64_t *plane_row_bytes; /* [num_planes] */
    int32_t num_planes;
    int32_t max_tokens_per_rank; /* on every rank */
    int32_t num_topk;
    weft_dtype index_type;  /* WEFT_INT32 or WEFT_INT64, if with_topk */
    int32_t with_topk;      /* 1: with recv_topk_idx and recv_topk_weights */
    int32_t with_src_token; /* 1: with recv_src_token */
} weft_ep_size_args;

typedef struct weft_ep_sizes {
    size_t size;
    int64_t max_recv_tokens; /* rows that can arrive at this rank at worst */
    /* Size of an arena of this rank that holds the outputs of one dispatch of max_recv_tokens rows:
     * planes, recv_topk_idx, recv_topk_weights, recv_src_token. It differs by rank, since more
     * tokens may choose one rank's experts than another's; weft_arena_create takes such sizes. */
    uint64_t arena_bytes;
    uint64_t handle_bytes; /* this rank's memory outside the heap per handle, if it has the
                              weft_ep's experts */
    uint64_t heap_bytes;   /* heap memory that this weft_ep itself occupies */
    /* Memory of this weft_ep that the network reaches, 0 on one node: the rings, and what notify
     * tells; docs/network.md has the formula. On cpu it is more of the heap. */
    uint64_t network_bytes;
    uint64_t sum_bytes; /* memory outside of both: with combine_wire, for the own node's sums */
} weft_ep_sizes;

/* How much memory this weft_ep has, and batches of a size would need. */
WEFT_API weft_result weft_ep_query_sizes(const weft_ep *ep, const weft_ep_size_args *args,
                                         weft_ep_sizes *sizes);

/* ---------------------------------------------------------------- low latency */

/*
 * Dispatch and combine of few tokens, as a decode step has them: one launch each, without layout,
 * notify or a word between the ranks before the rows. Every rank has room in its heap for the rows
 * of all others, so the number of tokens has a limit and rows have fixed places. A row goes once to
 * each rank that has one of its experts, whatever the number of these. Everything that the
 * operations keep is in memory of the machine: any sequence of them can be captured into graphs,
 * and replayed. Ranks may be of several nodes, of as many ranks or not.
 *
 * - Results. A dispatch makes a result on every rank, which lasts until this rank's combine of it
 *   has been received, or weft_ll_release. A weft_ll has num_results of them at a time; one more is
 *   WEFT_ERROR_INVALID_ARGUMENT, and in a graph, where the host cannot see it, a failure of the
 *   communicator. Combine and release are about the oldest. Layers, and batches that overlap each
 *   other, each have a weft_ll, or share one.
 * - Phases. An operation sends and receives in one launch, or in two: WEFT_LL_SEND, then
 *   WEFT_LL_RECEIVE, on the same stream or another; each rank as it likes. Between them nothing
 *   runs: no SM, no thread. The receive phase comes when its data are needed; its arguments are
 *   those of the receive phase alone. What is sent may be overwritten when the send phase has
 *   finished.
 * - Order. Rows are in (source rank, token) order, sums as each function says. Results are the same
 *   to the bit on all machines, whatever the number of blocks and whenever rows come.
 * - Masks. With WEFT_LL_MASK a rank that is missing when a wait ends is masked by the one that waited:
 *   from then on it is neither sent to nor awaited, its experts add nothing, and it brings no rows.
 *   Each rank masks for itself; missing_ranks of dispatch and combine tells whom. When a rank goes
 *   missing in a dispatch, its rows are counted as 0 by rank; by expert some may have been counted
 *   before, whose contents are anything then. In a combine, each token has either all that the rank
 *   adds to it or nothing. A dead rank is missing at once, and its death is not the communicator's
 *   failure as long as that has a weft_ll with masks, but operations that wait for it fail. A masked
 *   rank that lives comes back by weft_ll_unmask, unless the network's connection to it was lost.
 *
 * Semantics of [DeepEP 3] with these limits lifted: any hidden size, any placement and number of
 * experts and ranks, top-k up to 64, a repeatable order, no even number of calls in graphs.
 *
 * Example ll: the step of a layer whose experts return their input.
 *
 *     enum { TOKENS = 4, HIDDEN = 8, TOPK = 2, EXPERTS = 16 };
 *     int32_t rank = weft_comm_rank(comm);
 *     weft_stream *stream;
 *     CHECK(weft_stream_create(comm, &stream));
 *     weft_ep_config ep_config = WEFT_INIT(weft_ep_config);
 *     ep_config.num_experts = EXPERTS;
 *     weft_ep *ep;
 *     CHECK(weft_ep_create(comm, &ep_config, &ep));
 *     weft_ll_config ll_config = WEFT_INIT(weft_ll_config);
 *     ll_config.max_tokens = TOKENS;
 *     ll_config.num_topk = TOPK;
 *     ll_config.hidden = HIDDEN;
 *     ll_config.dtype = WEFT_FP32;
 *     ll_config.layout = WEFT_LL_BY_EXPERT;
 *     weft_ll *ll;
 *     CHECK(weft_ll_create(ep, &ll_config, &ll));
 *     weft_ll_sizes sizes = WEFT_INIT(weft_ll_sizes);
 *     CHECK(weft_ll_query_sizes(ep, &ll_config, &sizes));
 *
 *     float x[TOKENS][HIDDEN], weights[TOKENS][TOPK];
 *     int32_t ids[TOKENS][TOPK];
 *     for (int t = 0; t < TOKENS; t++) {
 *         for (int k = 0; k < TOPK; k++) {
 *             ids[t][k] = (5 * rank + 3 * t + 8 * k) % EXPERTS;
 *             weights[t][k] = 0.5f;
 *         }
 *         for (int h = 0; h < HIDDEN; h++)
 *             x[t][h] = (float)(t + 1);
 *     }
 *     void *tokens, *topk_idx, *topk_weights, *rows, *counts, *out;
 *     CHECK(weft_memory_alloc(comm, sizeof x, &tokens));
 *     CHECK(weft_memory_alloc(comm, sizeof ids, &topk_idx));
 *     CHECK(weft_memory_alloc(comm, sizeof weights, &topk_weights));
 *     CHECK(weft_memory_alloc(comm, sizeof x, &out));
 *     CHECK(weft_memory_alloc(comm, sizes.rows_bytes, &rows)); // [local experts][capacity]
 *     CHECK(weft_memory_alloc(comm, EXPERTS * sizeof(int32_t), &counts));
 *     CHECK(weft_memory_copy(comm, tokens, x, sizeof x));
 *     CHECK(weft_memory_copy(comm, topk_idx, ids, sizeof ids));
 *     CHECK(weft_memory_copy(comm, topk_weights, weights, sizeof weights));
 *
 *     weft_ll_dispatch_args dispatch = WEFT_INIT(weft_ll_dispatch_args);
 *     dispatch.num_tokens = TOKENS;
 *     dispatch.x = tokens;
 *     dispatch.index_type = WEFT_INT32;
 *     dispatch.topk_idx = topk_idx;
 *     dispatch.topk_weights = (const float *)topk_weights;
 *     dispatch.rows = rows;
 *     dispatch.num_rows_per_expert = (int32_t *)counts;
 *     CHECK(weft_ll_dispatch(ll, &dispatch, stream));
 *
 *     weft_ll_combine_args combine = WEFT_INIT(weft_ll_combine_args);
 *     combine.x = rows; // what the experts make of them
 *     combine.out = out;
 *     CHECK(weft_ll_combine(ll, &combine, stream));
 *     CHECK(weft_stream_synchronize(stream));
 *
 *     CHECK(weft_memory_copy(comm, x, out, sizeof x));
 *     EXPECT(x[3][0] == 4); // half of token 3 came back from each of two experts
 *     CHECK(weft_ll_destroy(ll));
 *     CHECK(weft_ep_destroy(ep));
 *     CHECK(weft_memory_free(comm, tokens));
 *     CHECK(weft_memory_free(comm, topk_idx));
 *     CHECK(weft_memory_free(comm, topk_weights));
 *     CHECK(weft_memory_free(comm, rows));
 *     CHECK(weft_memory_free(comm, counts));
 *     CHECK(weft_memory_free(comm, out));
 *     CHECK(weft_stream_destroy(stream));
 */
typedef struct weft_ll weft_ll;

/* Where rows are once they have been received. */
typedef enum weft_ll_layout {
    /* In the slots that they came to, [R][max_tokens], of which each source has filled the first
     * ones; each row once, with its local experts and weights: weft_ll_query_slots. */
    WEFT_LL_BY_RANK = 0,
    /* In memory of the caller, [local experts][expert_capacity], each row for every expert that it
     * is for, from the first one on. What grouped GEMMs want. */
    WEFT_LL_BY_EXPERT = 1
} weft_ll_layout;

/* What combine sends back. */
typedef enum weft_ll_answer {
    /* Of each token, the sum of what this rank's experts have made of it: one row. */
    WEFT_LL_ANSWER_SUMS = 0,
    /* The row of each expert, so that the owner sums in ascending order of the choices, as [DeepEP
     * 3] does. By expert only. */
    WEFT_LL_ANSWER_ROWS = 1,
    /* As WEFT_LL_ANSWER_SUMS, with the same bits; but the answer to a row stays in the row's slot, where the
     * token's owner reads it, if it is of this node. So there are no slots for answers, and by rank a caller who
     * writes them to the slots (weft_ll_combine_args.x NULL) has nothing copied. The slots are as long as the
     * longer of row and answer. */
    WEFT_LL_ANSWER_IN_SLOTS = 2
} weft_ll_answer;

/* What becomes of a rank that is missing: whose rows, answers or room for more do not come in time, or
 * that has died or left. */
typedef enum weft_ll_on_missing {
    WEFT_LL_FAIL = 0, /* the communicator fails, as everywhere */
    WEFT_LL_MASK = 1  /* this rank goes on without it: see "masks" above */
} weft_ll_on_missing;

/* How a row comes to ranks of another node. Answers to it go straight back. */
typedef enum weft_ll_route {
    WEFT_LL_STRAIGHT = 0, /* to each of them by itself */
    /* Once to the node: to its rank with the sender's index, of the ranks there in turn where there are fewer, which
     * relays it to the others, to the same places. It does so in its dispatch, when it receives: so no dispatch of a
     * rank is received before those of the ranks that relay to it have begun to. Not with WEFT_LL_MASK. */
    WEFT_LL_RELAYED = 1
} weft_ll_route;

typedef struct weft_ll_config {
    size_t size;
    int64_t hidden;     /* elements of a row, 1 or more, at most 2^31-1 bytes */
    int32_t max_tokens; /* most tokens that a rank has in a dispatch: 1..65535 */
    int32_t num_topk;   /* 1..max_topk of the weft_ep */
    weft_dtype dtype;   /* of tokens, and of what experts make of them: BF16, FP16 or FP32 */
    weft_ll_layout layout;
    int32_t expert_capacity; /* by expert: rows that there is room for. Those beyond are counted and
                                not written, and count as 0 in combine. 0: R * max_tokens */
    int32_t num_results;     /* 1 or 2 results at a time; 0: 2 */
    weft_ll_answer answer;
    /* Of what combine sends: BF16, FP16, FP32, or WEFT_LOG_10BIT (hidden a multiple of 128; sums are
     * rounded to dtype before); NONE: dtype. */
    weft_dtype answer_dtype;
    /* Rows are quantised on their way to the experts, to FP8_E4M3 or INT8 as weft_rows_quantise
     * does it, and the experts get them so, with their scales; NONE: they stay as they are. */
    weft_dtype narrow_dtype;
    weft_scale_kind scale;
    int32_t group_elements; /* as in weft_rows_args */
    int32_t num_blocks;  /* of every launch, as weft_ep_config's: the least of all ranks counts */
    int32_t num_warps;   /* each rank as it likes */
    weft_ll_route route; /* between nodes */
    weft_ll_on_missing on_missing;
    /* WEFT_LL_MASK: a rank is missing that is awaited and silent for so long, in the first result three
     * times as long; 0: the communicator's timeout_ms. The same on all ranks, since who waits for others
     * says so four times in it. */
    uint32_t missing_ms;
} weft_ll_config;

typedef struct weft_ll_sizes {
    size_t size;
    uint64_t heap_bytes;   /* of each rank's heap: nearly all of it 2 * R * max_tokens rows and
                              2 * max_tokens * num_topk answers (docs/low-latency.md) */
    uint64_t memory_bytes; /* this rank's beside it */
    uint64_t rows_bytes;   /* by expert: what weft_ll_dispatch_args.rows needs here; else 0 */
    uint64_t scales_bytes; /* the same of its scales, if they lie by rows */
    int32_t num_local_experts;
    int32_t expert_capacity; /* as given, or chosen; by rank 0 */
    uint64_t network_bytes;  /* between nodes: of memory that the network reaches, which on machine
                                cpu is in the heap, too, on cuda pinned memory of the host */
} weft_ll_sizes;

/* Local: the memory that a weft_ll of this configuration has; num_blocks 0 counts as on this rank. */
WEFT_API weft_result weft_ll_query_sizes(const weft_ep *ep, const weft_ll_config *config,
                                         weft_ll_sizes *sizes);

/* Collective; every field except num_blocks and num_warps must be the same on all ranks
 * (WEFT_ERROR_MISMATCH names the first that differs). Experts are placed as those of ep, to which
 * the weft_ll belongs. */
WEFT_API weft_result weft_ll_create(weft_ep *ep, const weft_ll_config *config, weft_ll **ll);
/* As weft_heap_free; with WEFT_LL_ANSWER_IN_SLOTS it waits until all ranks have received this one's answers, or
 * destroy theirs as well. */
WEFT_API weft_result weft_ll_destroy(weft_ll *ll);

/* Which phases of an operation: 0 is both. */
typedef enum weft_ll_phases {
    WEFT_LL_SEND_AND_RECEIVE = 0,
    WEFT_LL_SEND = 1,
    WEFT_LL_RECEIVE = 2
} weft_ll_phases;

/* What a phase that is left out would use is zero. */
typedef struct weft_ll_dispatch_args {
    size_t size;
    weft_ll_phases phases;
    /* To send. */
    int32_t num_tokens;   /* N, 0..max_tokens, each rank its own */
    const void *x;        /* [N][hidden] of dtype */
    const void *topk_idx; /* [N][num_topk] experts; those outside 0..num_experts-1 are ignored */
    const float *topk_weights; /* [N][num_topk], which the experts' ranks get; NULL: 1 */
    weft_dtype index_type;     /* of topk_idx: WEFT_INT32 or WEFT_INT64 */
    int32_t reserved;          /* 0 */
    /* To receive; all but rows are optional. C is expert_capacity, L the number of local experts. */
    int32_t *num_rows_per_rank; /* [R] rows that came from each source, each counted once */
    /* By expert: [L][C][hidden] of narrow_dtype, or dtype; rows that nobody sent are left as they
     * are. */
    void *rows;
    void *scales; /* by expert: [L][C] of each row's scales, if rows are quantised */
    /* 0: a row's scales lie side by side. Else by columns, as in weft_rows_args, those of each
     * expert behind each other. */
    uint64_t scale_column_bytes;
    int32_t *num_rows_per_expert; /* by expert: [L], also of rows that there was no room for */
    int32_t *src_tokens;          /* by expert: [L][C] index of the token at its source */
    int64_t *row_ranges;          /* by expert: [L][R] rows of each source: their number in the low
                                      32 bits, the first one in the high, as [DeepEP 3] has it */
    int32_t *total_rows_per_expert; /* by expert: [L], to which num_rows_per_expert is added */
    int32_t *missing_ranks; /* WEFT_LL_MASK: [R] 1: masked, so its rows are not there; else 0 */
    /* [R], to each of which is added how many ns the operation has waited for that rank, as its first
     * block saw it: next to nothing if what the rank sends was there before. */
    int64_t *waited_ns;
} weft_ll_dispatch_args;

/* Stream operation, collective: sends each token's row to the ranks of its experts. */
WEFT_API weft_result weft_ll_dispatch(weft_ll *ll, const weft_ll_dispatch_args *args,
                                      weft_stream *stream);

/* Where rows are that have been received by rank, on the machine; all pointers are constant as long
 * as the weft_ll exists. The row of index i from source s begins at
 * x[h] + s * source_stride_bytes + i * row_stride_bytes, the other data of the row likewise. */
typedef struct weft_ll_slots {
    size_t size;
    /* [hidden] of narrow_dtype, or dtype; of half h. x[1] NULL: num_results is 1. */
    const void *x[2];
    const void *scales[2];        /* the row's scales, side by side; NULL: it is not quantised */
    const int32_t *experts[2];    /* [num_topk] the local id of each choice, -1 for others */
    const float *topk_weights[2]; /* [num_topk] 0 where the id is -1 */
    const int32_t *src_token[2];  /* [1] index of the token at its source */
    uint64_t row_stride_bytes;
    uint64_t source_stride_bytes;
    const int32_t *half; /* [1] h of the result that was received last */
} weft_ll_slots;

/* WEFT_ERROR_INVALID_ARGUMENT by expert. */
WEFT_API weft_result weft_ll_query_slots(const weft_ll *ll, weft_ll_slots *slots);

typedef struct weft_ll_combine_args {
    size_t size;
    weft_ll_phases phases;
    /* 1: the result stays, for another combine or weft_ll_release; to send. 0 with WEFT_LL_ANSWER_IN_SLOTS, which
     * ends it. */
    int32_t keep;
    /* To send: what the experts have made of the oldest result's rows, any memory of the machine. By
     * expert [L][C][hidden], of which the rows that came are read. By rank [R][max_tokens][hidden],
     * for each row what this rank's experts made of it, weights applied; NULL by rank with
     * WEFT_LL_ANSWER_IN_SLOTS, if answer_dtype is dtype: it is in the slots, in place of the rows, where
     * the caller writes nothing more. */
    const void *x;
    uint64_t x_stride_bytes; /* between rows; 0: they are dense */
    /* To receive. */
    void *out;                 /* [N][hidden], N of the dispatch */
    const float *topk_weights; /* [N][num_topk] with WEFT_LL_ANSWER_ROWS, or NULL: 1; else NULL */
    int32_t *missing_ranks;    /* WEFT_LL_MASK: [R] 1: masked, so that it adds nothing; else 0 */
    int64_t *waited_ns;        /* as in weft_ll_dispatch_args; optional */
} weft_ll_combine_args;

/* Stream operation, collective. Sums are made in fp32 without fused operations, begin with +0, and
 * are rounded once at their end (nearest even; every NaN becomes the positive quiet NaN with all
 * mantissa bits set). WEFT_LL_ANSWER_SUMS: each rank sums weight * row over its experts in ascending
 * order of the choices, rounds to answer_dtype, and sends; out = the sum of what comes, in ascending
 * rank order. WEFT_LL_ANSWER_ROWS: each rank sends the rows in answer_dtype; out = the sum of weight
 * * row in ascending order of the choices. */
WEFT_API weft_result weft_ll_combine(weft_ll *ll, const weft_ll_combine_args *args,
                                     weft_stream *stream);

/* Stream operation, collective: ends the oldest result, which has been received and, if it was
 * combined, kept. */
WEFT_API weft_result weft_ll_release(weft_ll *ll, weft_stream *stream);

/* The masks of a weft_ll with WEFT_LL_MASK: [R], in memory of the machine. All three are stream
 * operations.
 *
 * Masks the ranks whose entry is not 0, beside those that are masked; the own entry does not count.
 * Local. The entries are read when the operation runs, so that a captured one takes what is there then. */
WEFT_API weft_result weft_ll_mask(weft_ll *ll, const int32_t *mask, weft_stream *stream);
/* Writes 1 for each rank that is masked, and 0 for others. Local. */
WEFT_API weft_result weft_ll_query_mask(weft_ll *ll, int32_t *mask, weft_stream *stream);
/* Lets ranks come back. Collective among the ranks whose entry is 0, which all give the same mask and
 * the same epoch; epochs grow from call to call, 1 or more, so that nobody is taken for one who called
 * before. What each of them has sent and not received, and its results, are dropped: they begin anew,
 * as with a new weft_ll. Who is silent for two deadlines stays masked, and who does not take part
 * is masked. Not in graphs. */
WEFT_API weft_result weft_ll_unmask(weft_ll *ll, const int32_t *mask, uint64_t epoch,
                                    weft_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
