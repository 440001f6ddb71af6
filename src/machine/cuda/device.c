/* SPDX-License-Identifier: MIT */
#include "machine/cuda/device.h"

#include <stdlib.h>
#include <string.h>

#include "comm/heap/heap_kind.h"
#include "comm/host/log.h"
#include "comm/host/settings.h"
#include "machine/cuda/comms.h"
#include "machine/cuda/kept.h"
#include "machine/cuda/own_streams.h"

weft_result weft__cuda_enter(const struct weft__cuda *cuda)
{
    WEFT__CUDA_TRY(weft__cu.ctx_push_current(cuda->context), "cannot use CUDA device %d",
                   cuda->ordinal);
    return WEFT_OK;
}

void weft__cuda_leave(void)
{
    CUcontext context;
    (void)weft__cu.ctx_pop_current(&context);
}

/* ---------------------------------------------------------------- which device */

/* This rank's place among those of its host. */
static int32_t index_on_host(const weft_comm *comm)
{
    int32_t index = 0;
    for (int32_t rank = 0; rank < comm->rank; rank++)
        index += comm->identities[rank].host_key == comm->identities[comm->rank].host_key;
    return index;
}

/* The caller's choice, if it has made one: whose memory it uses. */
static weft_result choose_device(const weft_comm *comm, struct weft__cuda *cuda)
{
    CUcontext current = NULL;
    int num_devices = 0;
    int64_t ordinal = -1;
    WEFT__CUDA_TRY(weft__cu.device_get_count(&num_devices), "cannot count the GPUs");
    WEFT__TRY(weft__environment_number(weft__settings[WEFT__SETTING_CUDA_DEVICE].name, 0,
                                       num_devices - 1, &ordinal));
    if (ordinal < 0 && weft__cu.ctx_get_current(&current) == CUDA_SUCCESS && current != NULL) {
        WEFT__CUDA_TRY(weft__cu.ctx_get_device(&cuda->device), "cannot tell the current device");
        ordinal = cuda->device;
    }
    if (ordinal < 0)
        ordinal = index_on_host(comm) % num_devices;
    cuda->ordinal = (int32_t)ordinal;
    WEFT__CUDA_TRY(weft__cu.device_get(&cuda->device, cuda->ordinal), "cannot get CUDA device %d",
                   cuda->ordinal);
    return WEFT_OK;
}

static int32_t attribute(const struct weft__cuda *cuda, CUdevice_attribute which)
{
    int value = 0;
    (void)weft__cu.device_get_attribute(&value, which, cuda->device);
    return value;
}

static weft_result read_attributes(struct weft__cuda *cuda)
{
    const int32_t capability = 10 * attribute(cuda, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                               attribute(cuda, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    cuda->code_capability = weft__cuda_code_for(weft__cuda_gpus, capability);
    if (cuda->code_capability == 0)
        return weft__error(
            WEFT_ERROR_UNSUPPORTED,
            "CUDA device %d is sm_%d, and this weft was built for others, from sm_%d "
            "on: WEFT_GPUS of its build must name this one",
            cuda->ordinal, capability, weft__cuda_gpus[0]);
    cuda->num_sms = attribute(cuda, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    cuda->max_shared_bytes = attribute(cuda, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- memory for waits */

static uint64_t board_bytes(const weft_comm *comm)
{
    return sizeof(struct weft__cuda_board) + (uint64_t)comm->num_ranks;
}

static weft_result make_board(weft_comm *comm, struct weft__cuda *cuda)
{
    void *board;
    WEFT__TRY(weft__cuda_pinned_alloc(cuda, board_bytes(comm), &board));
    cuda->board = board;
    void *word;
    WEFT__TRY(weft__cuda_alloc(comm, sizeof(uint32_t), &word));
    cuda->failure_is_taken = (CUdeviceptr)(uintptr_t)word;
    return WEFT_OK;
}

/* ---------------------------------------------------------------- agreement of the ranks */

struct device_identity {
    unsigned char uuid[16];
    uint64_t host_key;
    int32_t can_map_by_descriptor;
    int64_t num_streams;
};

static const struct weft__term terms[] = {{WEFT__TERM(struct device_identity, num_streams)}};

static weft_result agree_on_heap(weft_comm *comm, struct weft__cuda *cuda)
{
    enum { BY_IPC = 1 }; /* among the words of WEFT_CUDA_HEAP, for tests of what few systems need */
    int wanted = 0;
    weft_result result = weft__setting_word(WEFT__SETTING_CUDA_HEAP, &wanted);
    struct device_identity own = {.host_key = comm->identities[comm->rank].host_key,
                                  .num_streams = comm->num_streams};
    memcpy(own.uuid, cuda->uuid.bytes, sizeof own.uuid);
    own.can_map_by_descriptor =
        wanted != BY_IPC &&
        attribute(cuda, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
        attribute(cuda, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    struct device_identity *all = weft__comm_gather_new(comm, result, &own, sizeof own, &result);
    int32_t all_can = 1;
    for (int32_t rank = 0; all != NULL && rank < comm->num_ranks; rank++) {
        all_can &= all[rank].can_map_by_descriptor;
        cuda->num_ranks_here += all[rank].host_key == own.host_key &&
                                memcmp(all[rank].uuid, own.uuid, sizeof own.uuid) == 0;
    }
    if (all != NULL)
        result = weft__comm_compare(comm, all, sizeof *all, terms, 1);
    free(all);
    comm->heap_kind = all_can ? &weft__heap_of_device : &weft__heap_of_device_by_ipc;
    return result;
}

enum { MAX_DEVICES = 64 };
static struct weft__cuda_held held[MAX_DEVICES];

const struct weft__cuda_held *weft__cuda_held(int32_t ordinal)
{
    return &held[ordinal];
}

static weft_result make_streams(struct weft__cuda_held *device)
{
    WEFT__CUDA_TRY(weft__cu.ctx_push_current(device->context), "cannot use a context");
    weft_result result = WEFT_OK;
    if (device->copies == NULL)
        result = weft__cuda_make_host_stream(&device->copies);
    if (result == WEFT_OK && device->network == NULL)
        result = weft__cuda_make_host_stream(&device->network);
    weft__cuda_leave();
    return result;
}

/* The caller holds the mutex. */
static weft_result hold(const struct weft__cuda *cuda, struct weft__cuda_held *device)
{
    if (device->context == NULL)
        WEFT__CUDA_TRY(weft__cu.device_primary_ctx_retain(&device->context, cuda->device),
                       "cannot use CUDA device %d", cuda->ordinal);
    return make_streams(device);
}

static weft_result hold_device(struct weft__cuda *cuda)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    if (cuda->ordinal >= MAX_DEVICES)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "CUDA device %d: at most %d devices are known",
                           cuda->ordinal, MAX_DEVICES);
    struct weft__cuda_held *device = &held[cuda->ordinal];
    pthread_mutex_lock(&mutex);
    const weft_result result = hold(cuda, device);
    cuda->context = device->context;
    cuda->copies = device->copies;
    pthread_mutex_unlock(&mutex);
    return result;
}

static weft_result open_device(weft_comm *comm)
{
    struct weft__cuda *cuda = calloc(1, sizeof *cuda);
    WEFT__CHECK_MEMORY(cuda, "no memory for a communicator");
    pthread_mutex_init(&cuda->mutex, NULL);
    comm->machine_state = cuda;
    cuda->num_streams = comm->num_streams;
    WEFT__TRY(choose_device(comm, cuda));
    WEFT__TRY(read_attributes(cuda));
    WEFT__CUDA_TRY(weft__cu.device_get_uuid(&cuda->uuid, cuda->device), "cannot identify a GPU");
    WEFT__TRY(hold_device(cuda));
    weft__cuda_kept_begin();
    cuda->keeps = 1;
    WEFT__TRY(weft__cuda_enter(cuda));
    weft_result result = make_board(comm, cuda);
    if (result == WEFT_OK)
        result = weft__cuda_load_kernels(cuda);
    weft__cuda_leave();
    return result;
}

weft_result weft__cuda_attach(weft_comm *comm)
{
    WEFT__TRY(weft__comm_agree(comm, open_device(comm), "use a GPU"));
    struct weft__cuda *cuda = weft__cuda_of(comm);
    WEFT__TRY(agree_on_heap(comm, cuda));
    weft__log(WEFT__LOG_INFO, comm->rank, "CUDA device %d, heap by %s", cuda->ordinal,
              comm->heap_kind->name);
    return WEFT_OK;
}

void weft__cuda_detach(weft_comm *comm)
{
    struct weft__cuda *cuda = weft__cuda_of(comm);
    if (cuda == NULL)
        return;
    weft__cuda_comms_forget(comm);
    weft__cuda_records_close(comm);
    weft__cuda_free(comm, (void *)(uintptr_t)cuda->failure_is_taken);
    if (cuda->board != NULL)
        weft__cuda_pinned_free(cuda, cuda->board, board_bytes(comm));
    if (cuda->keeps)
        weft__cuda_kept_end();
    pthread_mutex_destroy(&cuda->mutex);
    free(cuda);
    comm->machine_state = NULL;
}
