/* SPDX-License-Identifier: MIT */
/* Heaps of memory that processes of a host share by file descriptor. It has no name, so that
 * nothing is left behind by a process that is killed. */
#include "comm/heap/heap_kind.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/heap/host_memory.h"
#include "comm/host/descriptor.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { HUGE_PAGE_BYTES = 2 << 20 };
#define LEAST_MAX_BYTES           (UINT64_C(1) << 20)
#define LARGEST_DEFAULT_MAX_BYTES (UINT64_C(64) << 30)

/* Transparent huge pages fall back to small ones when there are none. Pages reserved for hugetlb
 * (MFD_HUGETLB) would not: when their pool runs dry, the first touch raises SIGBUS. */
static int huge_pages_possible(void)
{
    char modes[128] = "";
    int fd = open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t num_bytes = read(fd, modes, sizeof(modes) - 1);
    close(fd);
    if (num_bytes <= 0)
        return 0;
    return strstr(modes, "[advise]") != NULL || strstr(modes, "[always]") != NULL ||
           strstr(modes, "[within_size]") != NULL || strstr(modes, "[force]") != NULL;
}

static char *reserve_addresses(uint64_t bytes)
{
    return mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* Halves max_bytes, down to least_bytes, until num_mappings mappings of it need no more than half
 * of the addresses that the process can have: limits and tools like valgrind leave few. */
static uint64_t fit_addresses(uint64_t max_bytes, uint64_t least_bytes, uint64_t num_mappings)
{
    /* One at a time: ranks that are threads would find the addresses taken by each other's
     * trial. */
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    uint64_t bytes = max_bytes;
    pthread_mutex_lock(&mutex);
    while (bytes > least_bytes) {
        uint64_t trial_bytes = 2 * num_mappings * (bytes + HUGE_PAGE_BYTES);
        void *trial = reserve_addresses(trial_bytes);
        if (trial != MAP_FAILED) {
            munmap(trial, trial_bytes);
            break;
        }
        bytes /= 2;
    }
    pthread_mutex_unlock(&mutex);
    return bytes;
}

static void get_limits(const weft_comm *comm, struct weft__heap_limits *limits)
{
    uint64_t total_bytes = weft__host_memory_total_bytes(), bytes = LEAST_MAX_BYTES;
    const struct weft__identity *self = &comm->identities[comm->rank];
    uint64_t num_on_host = 1, num_in_process = 1; /* this rank */
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        const struct weft__identity *other = &comm->identities[rank];
        const int is_neighbour = rank != comm->rank && other->host_key == self->host_key;
        num_on_host += is_neighbour;
        num_in_process += is_neighbour && other->pid == self->pid;
    }
    while (bytes < total_bytes && bytes < LARGEST_DEFAULT_MAX_BYTES)
        bytes *= 2;
    *limits = (struct weft__heap_limits){
        .page_bytes = huge_pages_possible() ? HUGE_PAGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE),
        /* The host's memory, or what fits into the addresses: every rank that lives in this process
         * maps the heaps of all on the host. */
        .default_max_bytes = fit_addresses(bytes, LEAST_MAX_BYTES, num_in_process * num_on_host),
        .spare_bytes = weft__host_memory_available_bytes() / num_on_host};
}

static weft_result reserve(weft_comm *comm, uint64_t max_bytes, char **base)
{
    (void)comm;
    /* One huge page more than needed, to find an aligned place; then the ends are given back. */
    uint64_t reserved_bytes = max_bytes + HUGE_PAGE_BYTES;
    char *reserved = reserve_addresses(reserved_bytes);
    if (reserved == MAP_FAILED) {
        weft__system_error("cannot reserve %" PRIu64 " bytes of addresses for a heap",
                           reserved_bytes);
        return weft__lacks_addresses(weft__last_error());
    }
    uint64_t misaligned_bytes = (uintptr_t)reserved % HUGE_PAGE_BYTES;
    uint64_t head_bytes = misaligned_bytes > 0 ? HUGE_PAGE_BYTES - misaligned_bytes : 0;
    if (head_bytes > 0)
        munmap(reserved, head_bytes);
    munmap(reserved + head_bytes + max_bytes, HUGE_PAGE_BYTES - head_bytes);
    *base = reserved + head_bytes;
    return WEFT_OK;
}

/* Maps the whole of what is reserved, of which only what is committed may be touched: what is
 * committed later appears at its place without another mapping. */
static weft_result map(weft_comm *comm, int32_t rank, struct weft__heap_part *part)
{
    (void)rank;
    (void)comm;
    if (mmap(part->base, part->max_bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED | MAP_NORESERVE, part->handle.fd, 0) == MAP_FAILED)
        return weft__system_error("cannot map %" PRIu64 " bytes of a heap", part->max_bytes);
    if (huge_pages_possible())
        madvise(part->base, part->max_bytes, MADV_HUGEPAGE);
    return WEFT_OK;
}

static weft_result create_file(weft_comm *comm, struct weft__heap_part *part)
{
    part->handle.fd = weft__descriptor_keep(memfd_create("weft", MFD_CLOEXEC));
    if (part->handle.fd < 0)
        return weft__system_error("memfd_create");
    weft_result result = map(comm, comm->rank, part);
    if (result != WEFT_OK) {
        close(part->handle.fd);
        part->handle.fd = -1;
    }
    return result;
}

/* Small pages take less than half of the time if they are not mapped before somebody uses them (1.4
 * us each for 3.3, on a virtual machine). Any signal interrupts that, and nothing is kept. Pages
 * become huge only where they are mapped so. */
static int populate(const struct weft__heap_part *part)
{
    uint64_t added_bytes = part->end_bytes - part->begin_bytes;
    const off_t begin = (off_t)part->begin_bytes, added = (off_t)added_bytes;
    if (!huge_pages_possible()) {
        const int result = fallocate(part->handle.fd, 0, begin, added);
        if (result == 0 || errno != EINTR)
            return result;
    }
    if (madvise(part->base + part->begin_bytes, added_bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL) /* of kernels that do not know it */
        return -1;
    return fallocate(part->handle.fd, 0, begin, added);
}

static void release(weft_comm *comm, const struct weft__heap_part *part)
{
    (void)comm;
    /* Shrinking fails only for a sealed file. */
    (void)!ftruncate(part->handle.fd, (off_t)part->begin_bytes);
}

static weft_result grow_file(weft_comm *comm, struct weft__heap_part *part)
{
    WEFT__TRY(weft__check_file_size("the heap", part->end_bytes));
    if (ftruncate(part->handle.fd, (off_t)part->end_bytes) != 0)
        return weft__system_error("cannot grow a heap to %" PRIu64 " bytes", part->end_bytes);
    if (populate(part) == 0)
        return WEFT_OK;
    weft__system_error("cannot commit %" PRIu64 " bytes of a heap",
                       part->end_bytes - part->begin_bytes);
    release(comm, part);
    return WEFT_ERROR_OUT_OF_MEMORY;
}

/* The system promises memory that it does not have and ends whoever touches it: whoever commits has
 * compared with the spare bytes before. */
static weft_result commit(weft_comm *comm, struct weft__heap_part *part)
{
    if (part->begin_bytes > 0)
        return grow_file(comm, part);
    WEFT__TRY(create_file(comm, part));
    const weft_result result = grow_file(comm, part);
    if (result != WEFT_OK) {
        close(part->handle.fd);
        part->handle.fd = -1;
    }
    return result;
}

static void unmap(weft_comm *comm, int32_t rank, const struct weft__heap_part *part)
{
    (void)comm;
    (void)rank;
    munmap(part->base, part->max_bytes);
}

const struct weft__heap_kind weft__heap_of_host = {
    .name = "host",
    .sharing = WEFT__HEAP_SHARED_ONCE,
    .host_can_access = 1,
    .limits = get_limits,
    .reserve = reserve,
    .commit = commit,
    .release = release,
    .map = map,
    .unmap = unmap,
};
