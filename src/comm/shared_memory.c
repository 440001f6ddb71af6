/* SPDX-License-Identifier: MIT */
#include "comm/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { HUGE_PAGE_BYTES = 2 << 20 };

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

uint64_t weft__shared_memory_page_bytes(void)
{
    return huge_pages_possible() ? HUGE_PAGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE);
}

static char *reserve_addresses(uint64_t bytes)
{
    return mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

uint64_t weft__shared_memory_fit(uint64_t max_bytes, uint64_t least_bytes, uint64_t num_mappings)
{
    /* One at a time: ranks that are threads would find the addresses taken by each other's trial. */
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

weft_result weft__shared_memory_create(int *fd)
{
    *fd = memfd_create("weft", MFD_CLOEXEC);
    return *fd < 0 ? weft__system_error("memfd_create") : WEFT_OK;
}

weft_result weft__shared_memory_map(int fd, uint64_t max_bytes, char **base)
{
    /* One huge page more than needed, to find an aligned place; then the ends are given back. */
    uint64_t reserved_bytes = max_bytes + HUGE_PAGE_BYTES;
    char *reserved = reserve_addresses(reserved_bytes);
    if (reserved == MAP_FAILED)
        return weft__system_error("cannot reserve %" PRIu64 " bytes of addresses for a heap",
                                  reserved_bytes);
    uint64_t misaligned_bytes = (uintptr_t)reserved % HUGE_PAGE_BYTES;
    uint64_t head_bytes = misaligned_bytes > 0 ? HUGE_PAGE_BYTES - misaligned_bytes : 0;
    char *place = reserved + head_bytes;
    if (mmap(place, max_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd,
             0) == MAP_FAILED) {
        weft_result result =
            weft__system_error("cannot map %" PRIu64 " bytes of a heap", max_bytes);
        munmap(reserved, reserved_bytes);
        return result;
    }
    if (head_bytes > 0)
        munmap(reserved, head_bytes);
    munmap(place + max_bytes, HUGE_PAGE_BYTES - head_bytes);
    if (huge_pages_possible())
        madvise(place, max_bytes, MADV_HUGEPAGE);
    *base = place;
    return WEFT_OK;
}

void weft__shared_memory_unmap(char *base, uint64_t max_bytes)
{
    munmap(base, max_bytes);
}

static int populate(int fd, char *base, uint64_t old_bytes, uint64_t new_bytes)
{
    uint64_t added_bytes = new_bytes - old_bytes;
    if (madvise(base + old_bytes, added_bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL) /* of kernels that do not know it */
        return -1;
    return fallocate(fd, 0, (off_t)old_bytes, (off_t)added_bytes);
}

weft_result weft__shared_memory_commit(int fd, char *base, uint64_t old_bytes, uint64_t new_bytes)
{
    if (ftruncate(fd, (off_t)new_bytes) != 0)
        return weft__system_error("cannot grow a heap to %" PRIu64 " bytes", new_bytes);
    if (populate(fd, base, old_bytes, new_bytes) == 0)
        return WEFT_OK;
    weft__system_error("cannot commit %" PRIu64 " bytes of a heap", new_bytes - old_bytes);
    weft__shared_memory_release(fd, old_bytes);
    return WEFT_ERROR_OUT_OF_MEMORY;
}

void weft__shared_memory_release(int fd, uint64_t old_bytes)
{
    /* Shrinking fails only for a sealed file. */
    (void)!ftruncate(fd, (off_t)old_bytes);
}
