/* SPDX-License-Identifier: MIT */
#include "machine/cuda/cuda_multicast.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/host/log.h"
#include "comm/host/settings.h"
#include "machine/cuda/sharing.h"

/* What a rank has of the object so far: zero is nothing. */
struct weft__switched_state {
    CUmemGenericAllocationHandle object;
    CUmemGenericAllocationHandle allocation; /* own */
    size_t num_bytes;                        /* of each rank's */
    CUdeviceptr own, all;                    /* addresses that are reserved */
    int has_object, has_allocation, own_is_mapped, is_bound, all_is_mapped;
};

/* ---------------------------------------------------------------- the guard */

/* The one place that decides whether the driver's functions for multicast are touched at all: see
 * the header. */
static weft_result check_asked(void)
{
    enum { YES = 1 };
    int asked = 0;
    WEFT__TRY(weft__setting_word(WEFT__SETTING_MULTICAST, &asked));
    return asked == YES ? WEFT_OK : weft__error(WEFT_ERROR_UNSUPPORTED, "WEFT_MULTICAST is not 1");
}

/* ---------------------------------------------------------------- agreement */

/* Collective: whether all ranks have come so far. If not, the first that has not tells why; if not
 * even that can be found out, *failure says so. */
static int all_have(weft_comm *comm, weft_result mine, enum weft__log_level level,
                    weft_result *failure)
{
    const int32_t own = mine == WEFT_OK;
    char reason[WEFT__ERROR_BYTES];
    snprintf(reason, sizeof reason, "%s", own ? "" : weft__last_error());
    int32_t *all = weft__comm_gather_new(comm, WEFT_OK, &own, sizeof own, failure);
    int32_t first = 0;
    if (all == NULL)
        return 0;
    while (first < comm->num_ranks && all[first])
        first++;
    if (first == comm->rank)
        weft__log(level, comm->rank, "multicast objects are reached rank by rank: %s", reason);
    free(all);
    return first == comm->num_ranks;
}

/* ---------------------------------------------------------------- steps of one rank */

static CUmulticastObjectProp object_properties(const weft_comm *comm, size_t num_bytes)
{
    return (CUmulticastObjectProp){.numDevices = (unsigned)comm->num_ranks,
                                   .size = num_bytes,
                                   .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
}

static CUmemAllocationProp memory_properties(const struct weft__cuda *cuda)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device}};
}

static size_t round_up(size_t bytes, size_t multiple)
{
    return (bytes + multiple - 1) / multiple * multiple;
}

/* What the driver says, and how many bytes it wants. */
static weft_result ask_driver(const weft_comm *comm, uint64_t wanted_bytes, uint64_t *num_bytes)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    const CUmulticastObjectProp object = object_properties(comm, wanted_bytes);
    const CUmemAllocationProp memory = memory_properties(cuda);
    int is_supported = 0;
    size_t of_object = 0, of_memory = 0;
    WEFT__TRY(weft__cuda_load_multicast());
    (void)weft__cu.device_get_attribute(&is_supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
                                        cuda->device);
    if (!is_supported)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "CUDA device %d has no multicast",
                           cuda->ordinal);
    if (cuda->num_ranks_here > 1)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "%d ranks share CUDA device %d",
                           cuda->num_ranks_here, cuda->ordinal);
    WEFT__CUDA_TRY(weft__cu.multicast_get_granularity(&of_object, &object,
                                                      CU_MULTICAST_GRANULARITY_RECOMMENDED),
                   "cannot find the granularity of multicast objects");
    WEFT__CUDA_TRY(weft__cu.mem_get_allocation_granularity(&of_memory, &memory,
                                                           CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                   "cannot find the granularity of memory");
    *num_bytes = round_up(round_up(wanted_bytes, of_memory), of_object);
    return WEFT_OK;
}

static weft_result make_object(const weft_comm *comm, struct weft__switched_state *state, int *fd)
{
    const CUmulticastObjectProp properties = object_properties(comm, state->num_bytes);
    WEFT__CUDA_TRY(weft__cu.multicast_create(&state->object, &properties),
                   "cannot create a multicast object of %zu bytes", state->num_bytes);
    state->has_object = 1;
    WEFT__CUDA_TRY(weft__cu.mem_export_to_shareable_handle(
                       fd, state->object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                   "cannot share a multicast object");
    return WEFT_OK;
}

static weft_result import_object(struct weft__switched_state *state, int fd)
{
    if (fd < 0)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "rank 0 has no multicast object");
    WEFT__CUDA_TRY(
        weft__cu.mem_import_from_shareable_handle(&state->object, (void *)(uintptr_t)fd,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "cannot import a multicast object");
    state->has_object = 1;
    return WEFT_OK;
}

/* Maps an allocation, or the object, at addresses of its own. */
static weft_result map_anywhere(const struct weft__cuda *cuda, size_t num_bytes,
                                CUmemGenericAllocationHandle what, CUdeviceptr *address,
                                int *is_mapped)
{
    WEFT__CUDA_TRY(weft__cu.mem_address_reserve(address, num_bytes, 0, 0, 0),
                   "cannot reserve %zu bytes of addresses", num_bytes);
    WEFT__TRY(weft__cuda_map(cuda, *address, num_bytes, what));
    *is_mapped = 1;
    return WEFT_OK;
}

/* All that is done before a bind, which waits for the devices of all ranks. */
static weft_result join(const weft_comm *comm, struct weft__switched_state *state)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    const CUmemAllocationProp properties = memory_properties(cuda);
    WEFT__CUDA_TRY(weft__cu.multicast_add_device(state->object, cuda->device),
                   "cannot add CUDA device %d to a multicast object", cuda->ordinal);
    WEFT__CUDA_TRY(weft__cu.mem_create(&state->allocation, state->num_bytes, &properties, 0),
                   "cannot allocate %zu bytes on CUDA device %d", state->num_bytes, cuda->ordinal);
    state->has_allocation = 1;
    WEFT__TRY(map_anywhere(cuda, state->num_bytes, state->allocation, &state->own,
                           &state->own_is_mapped));
    CUresult zeroed = weft__cu.memset_d8_async(state->own, 0, state->num_bytes, cuda->copies);
    if (zeroed == CUDA_SUCCESS)
        zeroed = weft__cu.stream_synchronize(cuda->copies);
    WEFT__CUDA_TRY(zeroed, "cannot zero memory of CUDA device %d", cuda->ordinal);
    return WEFT_OK;
}

/* All ranks have joined. */
static weft_result bind_and_map(const weft_comm *comm, struct weft__switched_state *state)
{
    const struct weft__cuda *cuda = weft__cuda_of(comm);
    WEFT__CUDA_TRY(
        weft__cu.multicast_bind_mem(state->object, 0, state->allocation, 0, state->num_bytes, 0),
        "cannot bind memory of CUDA device %d to a multicast object", cuda->ordinal);
    state->is_bound = 1;
    return map_anywhere(cuda, state->num_bytes, state->object, &state->all, &state->all_is_mapped);
}

/* In the reverse order, as far as it came. */
static void undo(const weft_comm *comm, struct weft__switched_state *state)
{
    const size_t num_bytes = state->num_bytes;
    if (state->all_is_mapped)
        (void)weft__cu.mem_unmap(state->all, num_bytes);
    if (state->all != 0)
        (void)weft__cu.mem_address_free(state->all, num_bytes);
    if (state->is_bound)
        (void)weft__cu.multicast_unbind(state->object, weft__cuda_of(comm)->device, 0, num_bytes);
    if (state->own_is_mapped)
        (void)weft__cu.mem_unmap(state->own, num_bytes);
    if (state->own != 0)
        (void)weft__cu.mem_address_free(state->own, num_bytes);
    if (state->has_allocation)
        (void)weft__cu.mem_release(state->allocation);
    if (state->has_object)
        (void)weft__cu.mem_release(state->object);
    *state = (struct weft__switched_state){0};
}

/* ---------------------------------------------------------------- all ranks together */

/* Collective: each rank says how many bytes it wants, or that it can have none; the most count. */
static weft_result agree_on_bytes(weft_comm *comm, uint64_t own, uint64_t *num_bytes)
{
    weft_result result;
    uint64_t *all = weft__comm_gather_new(comm, WEFT_OK, &own, sizeof own, &result);
    *num_bytes = 0;
    for (int32_t rank = 0; all != NULL && rank < comm->num_ranks; rank++)
        *num_bytes = all[rank] > *num_bytes ? all[rank] : *num_bytes;
    free(all);
    return result;
}

/* Collective: rank 0 makes the object, the others import it; *mine is how this rank fares. */
static weft_result share_object(weft_comm *comm, struct weft__switched_state *state,
                                weft_result *mine)
{
    int fd = -1;
    weft_result result;
    int *fds = weft__comm_calloc(comm, (size_t)comm->num_ranks * sizeof *fds,
                                 "share a multicast object", &result);
    if (fds == NULL)
        return result;
    *mine = comm->rank == 0 ? make_object(comm, state, &fd) : WEFT_OK;
    result = weft__comm_exchange_fd(comm, fd, fds);
    if (result == WEFT_OK && comm->rank != 0)
        *mine = import_object(state, fds[0]);
    for (int32_t rank = 0; result == WEFT_OK && rank < comm->num_ranks; rank++)
        if (fds[rank] >= 0)
            close(fds[rank]);
    if (fd >= 0)
        close(fd);
    free(fds);
    return result;
}

/* Fills *state, or leaves it for undo; *failure is one of the communicator. */
static int create(weft_comm *comm, uint64_t wanted_bytes, struct weft__switched_state *state,
                  weft_result *failure)
{
    uint64_t own_bytes = 0, num_bytes;
    weft_result mine = ask_driver(comm, wanted_bytes, &own_bytes);
    if (!all_have(comm, mine, WEFT__LOG_WARN, failure))
        return 0;
    *failure = agree_on_bytes(comm, own_bytes, &num_bytes);
    if (*failure != WEFT_OK)
        return 0;
    state->num_bytes = num_bytes;
    *failure = share_object(comm, state, &mine);
    if (*failure != WEFT_OK)
        return 0;
    if (mine == WEFT_OK)
        mine = join(comm, state);
    /* A bind waits until all devices have been added: nobody begins before all ranks have. */
    if (!all_have(comm, mine, WEFT__LOG_WARN, failure))
        return 0;
    return all_have(comm, bind_and_map(comm, state), WEFT__LOG_WARN, failure);
}

weft_result weft__cuda_multicast_create(weft_comm *comm, uint64_t num_bytes,
                                        struct weft__switched_memory *memory)
{
    weft_result failure = WEFT_OK;
    *memory = (struct weft__switched_memory){0};
    if (!all_have(comm, check_asked(), WEFT__LOG_DEBUG, &failure))
        return failure;
    struct weft__switched_state *state =
        weft__comm_calloc(comm, sizeof *state, "have a multicast object", &failure);
    if (state == NULL)
        return failure;
    const weft_result entered = weft__cuda_enter(weft__cuda_of(comm));
    const int is_there = all_have(comm, entered, WEFT__LOG_WARN, &failure) &&
                         create(comm, num_bytes, state, &failure);
    memory->state = state;
    if (is_there) {
        memory->own = (char *)(uintptr_t)state->own;
        memory->all = (char *)(uintptr_t)state->all;
    }
    if (entered == WEFT_OK)
        weft__cuda_leave();
    if (!is_there)
        weft__cuda_multicast_destroy(comm, memory);
    return failure;
}

void weft__cuda_multicast_destroy(weft_comm *comm, struct weft__switched_memory *memory)
{
    if (memory->state != NULL && weft__cuda_enter(weft__cuda_of(comm)) == WEFT_OK) {
        undo(comm, memory->state);
        weft__cuda_leave();
    }
    free(memory->state);
    *memory = (struct weft__switched_memory){0};
}
