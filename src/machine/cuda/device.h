/* SPDX-License-Identifier: MIT */
/* A communicator's GPU: which one, and what the machine keeps there. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "machine/cuda/cuda_programs.h"
#include "machine/cuda/driver.h"
#include "machine/cuda/launch_params.h"
#include "machine/host.h"

enum { WEFT__CUDA_WARP_THREADS = 32 };

struct weft__cuda_kernel {
    const char *name;
    CUfunction function;
    /* NULL before the first launch. */
    weft_result (*on_failure)(weft_comm *, enum weft__call, const struct wp_failure *);
    /* The grid that was asked for last, and how many such blocks an SM can run. */
    int32_t num_warps;
    uint32_t shared_bytes;
    int32_t blocks_per_sm;
};

struct weft__cuda {
    CUdevice device;
    CUcontext context; /* the primary one, which PyTorch and the CUDA runtime use too */
    CUuuid uuid;
    int32_t ordinal;
    int32_t num_sms;
    int32_t code_capability;            /* of the programs as they run here: 90 for 9.0 */
    int32_t max_shared_bytes;           /* of a block */
    int32_t num_ranks_here;             /* of this communicator, on this device */
    int32_t num_streams;                /* that share each rank's part, as the communicator says */
    struct weft__links links;           /* the same on all ranks */
    CUstream copies;                    /* of the host's own, on this device */
    struct weft__cuda_network *network; /* NULL: one node */
    struct weft__cuda_board *board;     /* pinned */
    int keeps;                          /* between weft__cuda_kept_begin and weft__cuda_kept_end */
    CUdeviceptr failure_is_taken;
    pthread_mutex_t mutex; /* of the kernels and of collecting a failure */
    struct weft__cuda_kernel kernels[WEFT__CUDA_MAX_PROGRAMS];
    int32_t num_kernels;
    pthread_t watcher;
    int64_t clock_offset_ns;            /* of the host's monotonic clock from the device's */
    struct weft__cuda_records *records; /* NULL: nobody wants them */
    int watcher_runs;                   /* guarded by the mutex of the communicator's status */
    int failure_is_counted;             /* guarded by mutex */
};

static inline struct weft__cuda *weft__cuda_of(const weft_comm *comm)
{
    return comm->machine_state;
}

weft_result weft__cuda_attach(weft_comm *comm);
void weft__cuda_detach(weft_comm *comm);

/* Between the two the calling thread's context is the device's. */
weft_result weft__cuda_enter(const struct weft__cuda *cuda);
void weft__cuda_leave(void);

/* Held until the process ends, as the CUDA runtime holds contexts: making one takes a fifth of a
 * second, and streams and events may outlive their communicators. */
struct weft__cuda_held {
    CUcontext context;
    CUstream copies, network; /* of the host's own */
};
/* The device must be one that a communicator of this process uses. */
const struct weft__cuda_held *weft__cuda_held(int32_t ordinal);

/* The watcher tells the board what happens to the communicator, and the communicator what the board
 * says. */
weft_result weft__cuda_watcher_start(weft_comm *comm);
void weft__cuda_watcher_stop(weft_comm *comm);
void weft__cuda_collect_failure(weft_comm *comm);

/* Collective: every rank stores to every other's heap from its SMs, and looks whether it has come:
 * there are systems whose drivers offer peer access and then drop the stores. */
weft_result weft__cuda_probe(weft_comm *comm);
/* Collective: finds the links. Overwrites the heap, from which nothing may have been allocated. */
weft_result weft__cuda_measure_links(weft_comm *comm);

/* Loads all kernels: loading one later could wait for kernels that wait for this rank. */
weft_result weft__cuda_load_kernels(struct weft__cuda *cuda);
/* The kernel of a launch. */
weft_result weft__cuda_find_kernel(struct weft__cuda *cuda, const struct weft__launch *launch,
                                   int32_t *kernel_idx);
/* How many blocks of that size an SM runs at a time. */
weft_result weft__cuda_blocks_per_sm(struct weft__cuda *cuda, int32_t kernel_idx, int32_t num_warps,
                                     uint32_t shared_bytes, int32_t *blocks_per_sm);
/* Shared memory that a launch may ask for. */
int32_t weft__cuda_max_dynamic_bytes(const struct weft__cuda *cuda);
struct weft__grid weft__cuda_choose_grid(const weft_comm *comm, const struct weft__work *work);
/* A stream of the device. */
struct weft__cuda_queue {
    CUstream stream;
    atomic_int num_sms_held; /* by the last launch on it, while the next one waits for its end */
    atomic_int has_launched; /* a launch, or other work */
};
weft_result weft__cuda_launch_on(struct weft__cuda_queue *queue, const struct weft__launch *launch);

/* Allocates zeroed, pinned memory of the host, which the device has at the same address. Like the
 * next three functions, waits for no kernel. */
weft_result weft__cuda_pinned_alloc(const struct weft__cuda *cuda, uint64_t bytes, void **memory);
void weft__cuda_pinned_free(const struct weft__cuda *cuda, void *memory, uint64_t bytes);
/* Allocates zeroed memory of the device by itself: CUDA IPC and the network can share it. */
weft_result weft__cuda_plain_alloc(const struct weft__cuda *cuda, uint64_t bytes,
                                   CUdeviceptr *memory);
void weft__cuda_plain_free(const struct weft__cuda *cuda, CUdeviceptr memory);

/* Records of launches (record/record_slots.h). Opened when nothing writes to heaps. */
weft_result weft__cuda_records_open(weft_comm *comm);
void weft__cuda_records_close(weft_comm *comm);
struct weft__cuda_record weft__cuda_record_of(const struct weft__launch *launch);
/* Waits for no kernel. What cannot be read is left out. */
void weft__cuda_records_read(weft_comm *comm);

/* Entries of the machine's table (machine/host.h). */
void weft__cuda_describe(weft_machine_info *info);
weft_result weft__cuda_describe_device(int32_t device_idx, weft_device_info *info);
int32_t weft__cuda_device_of(const weft_comm *comm);
void weft__cuda_describe_links(const weft_comm *comm, struct weft__links *links);
weft_result weft__cuda_describe_network(const weft_comm *comm, weft_net_info *info);
weft_result weft__cuda_alloc(weft_comm *comm, uint64_t bytes, void **memory);
void weft__cuda_free(weft_comm *comm, void *memory);
weft_result weft__cuda_copy(weft_comm *comm, void *dst, const void *src, uint64_t bytes);
weft_result weft__cuda_check_pointer(weft_comm *comm, const void *ptr, const char *argument);
weft_result weft__cuda_find_block(weft_comm *comm, const void *ptr, uint64_t bytes,
                                  struct weft__block *block);
weft_result weft__cuda_share_block(weft_comm *comm, const struct weft__block *own,
                                   struct weft__block *blocks);
void weft__cuda_close_block(weft_comm *comm, const struct weft__block *block);
extern const struct weft__heap_kind weft__heap_of_device, weft__heap_of_device_by_ipc;
