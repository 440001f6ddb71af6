/* SPDX-License-Identifier: MIT */
/* How ranks make a multicast object, undo it, and agree where a step fails at one of them, with a
 * driver that only keeps count; and that nothing of it is touched unless it was asked for. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/ranks.h"
#include "machine/cuda/cuda_multicast.h"
#include "machine/host.h"
#include "unit_cuda/plain_driver.h"

enum { NUM_RANKS = 3, GRANULARITY = 1 << 21, WANTED_BYTES = 3 << 20, GOT_BYTES = 2 * GRANULARITY };

/* ---------------------------------------------------------------- a driver */

/* In the order in which a rank takes them; any of them may fail. Rank 0 alone exports, the others
 * import. */
enum step {
    ASK_SUPPORT,
    ASK_GRANULARITY,
    CREATE,
    EXPORT,
    IMPORT,
    ADD_DEVICE,
    ALLOCATE,
    RESERVE_OWN,
    MAP_OWN,
    ZERO,
    BIND,
    RESERVE_ALL,
    MAP_ALL,
    NUM_STEPS
};

/* What a run is about. */
struct plan {
    enum step failing_step; /* NUM_STEPS: none */
    int32_t failing_rank;
    int is_offered; /* the driver has functions for it */
    char asked[8];  /* WEFT_MULTICAST; "-": it is not set */
};

static struct plan plan; /* of the process that has all ranks */
static _Thread_local int32_t rank;
/* What the driver has: 0 at the end. */
static atomic_int num_handles, num_reservations, num_mappings, num_bound;
/* What it was asked for. */
static atomic_int num_added, num_multicast_calls, num_bound_early, num_wrong;
static _Thread_local int32_t num_reserved; /* of this rank, ever */

static void expect(int is_right)
{
    atomic_fetch_add(&num_wrong, !is_right);
}

static CUresult result_of(enum step step)
{
    return step == plan.failing_step && rank == plan.failing_rank ? CUDA_ERROR_SYSTEM_NOT_READY
                                                                  : CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    expect(attribute == CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
    expect(device == rank);
    atomic_fetch_add(&num_multicast_calls, 1);
    *value = result_of(ASK_SUPPORT) == CUDA_SUCCESS;
    return CUDA_SUCCESS;
}

static CUresult get_object_granularity(size_t *granularity, const CUmulticastObjectProp *object,
                                       CUmulticastGranularity_flags flags)
{
    expect(object->numDevices == NUM_RANKS);
    expect(flags == CU_MULTICAST_GRANULARITY_RECOMMENDED);
    atomic_fetch_add(&num_multicast_calls, 1);
    *granularity = rank == 1 ? GRANULARITY : GRANULARITY / 2; /* the most counts, on all ranks */
    return result_of(ASK_GRANULARITY);
}

static CUresult get_memory_granularity(size_t *granularity, const CUmemAllocationProp *memory,
                                       CUmemAllocationGranularity_flags flags)
{
    expect(memory->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    (void)flags;
    *granularity = GRANULARITY / 2;
    return CUDA_SUCCESS;
}

enum { OBJECT = 1, FIRST_ALLOCATION = 100 };

static CUmemGenericAllocationHandle own_allocation(void)
{
    return FIRST_ALLOCATION + (CUmemGenericAllocationHandle)rank;
}

static CUresult new_handle(enum step step, CUmemGenericAllocationHandle *handle,
                           CUmemGenericAllocationHandle value)
{
    if (result_of(step) == CUDA_SUCCESS) {
        atomic_fetch_add(&num_handles, 1);
        *handle = value;
    }
    return result_of(step);
}

static CUresult create_object(CUmemGenericAllocationHandle *object,
                              const CUmulticastObjectProp *properties)
{
    expect(rank == 0);
    expect(properties->size == GOT_BYTES);
    atomic_fetch_add(&num_multicast_calls, 1);
    return new_handle(CREATE, object, OBJECT);
}

static CUresult export_handle(void *fd, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type, unsigned long long flags)
{
    expect(handle == OBJECT && flags == 0);
    expect(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result_of(EXPORT) == CUDA_SUCCESS)
        *(int *)fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return result_of(EXPORT);
}

static CUresult import_handle(CUmemGenericAllocationHandle *handle, void *fd,
                              CUmemAllocationHandleType type)
{
    expect(rank != 0);
    expect(fcntl((int)(intptr_t)fd, F_GETFD) >= 0);
    (void)type;
    return new_handle(IMPORT, handle, OBJECT);
}

static CUresult add_device(CUmemGenericAllocationHandle object, CUdevice device)
{
    expect(object == OBJECT && device == rank);
    atomic_fetch_add(&num_multicast_calls, 1);
    if (result_of(ADD_DEVICE) == CUDA_SUCCESS)
        atomic_fetch_add(&num_added, 1);
    return result_of(ADD_DEVICE);
}

static CUresult allocate(CUmemGenericAllocationHandle *handle, size_t bytes,
                         const CUmemAllocationProp *properties, unsigned long long flags)
{
    expect(bytes == GOT_BYTES && flags == 0);
    expect(properties->location.id == rank);
    return new_handle(ALLOCATE, handle, own_allocation());
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    expect(handle == OBJECT || handle == own_allocation());
    atomic_fetch_sub(&num_handles, 1);
    return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                        unsigned long long flags)
{
    const enum step step = num_reserved == 0 ? RESERVE_OWN : RESERVE_ALL;
    expect(bytes == GOT_BYTES && alignment == 0 && wanted == 0 && flags == 0);
    if (result_of(step) != CUDA_SUCCESS)
        return result_of(step);
    num_reserved++;
    atomic_fetch_add(&num_reservations, 1);
    *address = (CUdeviceptr)(10 * (rank + 1) + num_reserved) << 32;
    return CUDA_SUCCESS;
}

static CUresult free_addresses(CUdeviceptr address, size_t bytes)
{
    expect(address != 0 && bytes == GOT_BYTES);
    atomic_fetch_sub(&num_reservations, 1);
    return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    const enum step step = handle == OBJECT ? MAP_ALL : MAP_OWN;
    expect(address != 0 && bytes == GOT_BYTES && offset == 0 && flags == 0);
    if (result_of(step) == CUDA_SUCCESS)
        atomic_fetch_add(&num_mappings, 1);
    return result_of(step);
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                           size_t num_accesses)
{
    expect(address != 0 && bytes == GOT_BYTES && num_accesses == 1);
    expect(access->location.id == rank);
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    expect(address != 0 && bytes == GOT_BYTES);
    atomic_fetch_sub(&num_mappings, 1);
    return CUDA_SUCCESS;
}

static CUresult zero(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream)
{
    expect(address != 0 && value == 0 && bytes == GOT_BYTES);
    (void)stream;
    return result_of(ZERO);
}

static CUresult synchronize(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

/* The real one would wait for ever for a device that is never added. */
static CUresult bind_memory(CUmemGenericAllocationHandle object, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags)
{
    expect(object == OBJECT && memory == own_allocation());
    expect(offset == 0 && memory_offset == 0 && bytes == GOT_BYTES && flags == 0);
    atomic_fetch_add(&num_multicast_calls, 1);
    if (atomic_load(&num_added) < NUM_RANKS)
        atomic_fetch_add(&num_bound_early, 1);
    if (result_of(BIND) == CUDA_SUCCESS)
        atomic_fetch_add(&num_bound, 1);
    return result_of(BIND);
}

static CUresult unbind(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                       size_t bytes)
{
    expect(object == OBJECT && device == rank && offset == 0 && bytes == GOT_BYTES);
    atomic_fetch_sub(&num_bound, 1);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- ranks */

static void set_up(const struct plan *wanted)
{
    plan = *wanted;
    atomic_store(&num_added, 0);
    atomic_store(&num_multicast_calls, 0);
    if (strcmp(plan.asked, "-") == 0)
        unsetenv("WEFT_MULTICAST");
    else
        setenv("WEFT_MULTICAST", plan.asked, 1);
    weft__cu.multicast_create = plan.is_offered ? create_object : NULL;
    weft__cu.multicast_add_device = plan.is_offered ? add_device : NULL;
    weft__cu.multicast_bind_mem = plan.is_offered ? bind_memory : NULL;
    weft__cu.multicast_unbind = plan.is_offered ? unbind : NULL;
    weft__cu.multicast_get_granularity = plan.is_offered ? get_object_granularity : NULL;
}

static int check_nothing_is_left(void)
{
    CHECK(atomic_load(&num_handles) == 0 && atomic_load(&num_reservations) == 0 &&
              atomic_load(&num_mappings) == 0 && atomic_load(&num_bound) == 0 &&
              atomic_load(&num_entered) == 0,
          "step %d at rank %d: %d handles, %d reservations, %d mappings, %d bound are left",
          (int)plan.failing_step, plan.failing_rank, atomic_load(&num_handles),
          atomic_load(&num_reservations), atomic_load(&num_mappings), atomic_load(&num_bound));
    CHECK(atomic_load(&num_bound_early) == 0, "memory was bound before all devices were added");
    CHECK(atomic_load(&num_wrong) == 0, "%d wrong arguments for the driver",
          atomic_load(&num_wrong));
    return 0;
}

/* All have it, or nobody. */
static int make_and_undo(struct ranks_context *context, weft_comm *comm)
{
    const int is_asked = strcmp(plan.asked, "1") == 0;
    const int is_had = is_asked && plan.is_offered && plan.failing_step == NUM_STEPS;
    struct weft__switched_memory memory;
    CHECK_OK(weft__cuda_multicast_create(comm, WANTED_BYTES, &memory));
    CHECK((memory.own != NULL) == is_had && (memory.all != NULL) == is_had,
          "step %d at rank %d: rank %d has %p and %p", (int)plan.failing_step, plan.failing_rank,
          context->rank, (void *)memory.own, (void *)memory.all);
    CHECK_OK(weft_comm_host_barrier(comm));
    CHECK(atomic_load(&num_bound) == (is_had ? NUM_RANKS : 0), "%d are bound",
          atomic_load(&num_bound));
    CHECK((is_asked && plan.is_offered) || atomic_load(&num_multicast_calls) == 0,
          "%d calls for multicast that nobody has asked for", atomic_load(&num_multicast_calls));
    CHECK_OK(weft_comm_host_barrier(comm));
    weft__cuda_multicast_destroy(comm, &memory);
    CHECK_OK(weft_comm_host_barrier(comm));
    return check_nothing_is_left();
}

/* A rank of the cpu machine that has a device for a while. */
static int run_rank(struct ranks_context *context)
{
    struct weft__cuda cuda = {
        .device = context->rank, .ordinal = context->rank, .num_ranks_here = 1};
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    weft_comm *comm;
    config.machine = WEFT_MACHINE_CPU;
    rank = context->rank;
    num_reserved = 0;
    CHECK_OK(weft_comm_create(&context->id, context->rank, NUM_RANKS, &config, &comm));
    CHECK_OK(weft_comm_host_barrier(comm)); /* nobody reads the environment */
    if (rank == 0)
        set_up(context->argument);
    CHECK_OK(weft_comm_host_barrier(comm));
    void *own_state = comm->machine_state;
    comm->machine_state = &cuda;
    const int failed = make_and_undo(context, comm);
    comm->machine_state = own_state;
    CHECK_OK(weft_comm_destroy(comm));
    return failed;
}

static void run(const struct plan *wanted)
{
    assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, run_rank, wanted), 0);
}

static void run_failing(enum step step, int32_t at_rank)
{
    const struct plan failing = {step, at_rank, 1, "1"};
    run(&failing);
}

/* ---------------------------------------------------------------- cases */

/* Whoever has not asked for it must never find that it was tried: it can put GPUs out of
 * service. */
TEST(nothing_is_touched_unless_it_is_asked_for)
{
    static const struct plan plans[] = {
        {NUM_STEPS, 0, 1, "-"}, {NUM_STEPS, 0, 1, ""}, {NUM_STEPS, 0, 1, "0"}};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        run(&plans[i]);
}

TEST(all_have_it)
{
    run_failing(NUM_STEPS, 0);
}

TEST(a_failure_is_everybodys_and_leaves_nothing)
{
    for (int step = 0; step < NUM_STEPS; step++) {
        const int is_of_rank_0 = step == CREATE || step == EXPORT;
        if (!is_of_rank_0)
            run_failing((enum step)step, NUM_RANKS - 1);
        if (step != IMPORT)
            run_failing((enum step)step, 0);
    }
}

/* Functions are looked up only then, and here there is no driver to ask. */
TEST(a_driver_without_is_nobodys)
{
    static const struct plan without = {NUM_STEPS, 0, 0, "1"};
    run(&without);
}

int main(void)
{
    use_plain_driver();
    weft__cu.device_get_attribute = get_attribute;
    weft__cu.mem_get_allocation_granularity = get_memory_granularity;
    weft__cu.mem_export_to_shareable_handle = export_handle;
    weft__cu.mem_import_from_shareable_handle = import_handle;
    weft__cu.mem_create = allocate;
    weft__cu.mem_release = release;
    weft__cu.mem_address_reserve = reserve;
    weft__cu.mem_address_free = free_addresses;
    weft__cu.mem_map = map;
    weft__cu.mem_set_access = set_access;
    weft__cu.mem_unmap = unmap;
    weft__cu.memset_d8_async = zero;
    weft__cu.stream_synchronize = synchronize;
    return tests_run(NULL, NULL);
}
