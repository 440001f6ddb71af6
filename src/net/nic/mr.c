/* SPDX-License-Identifier: MIT */
#include "net/nic/mr.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "comm/host/error.h"

static weft_result fail(const struct weft__nic_device *device, const char *what, const char *how,
                        const struct weft__nic_memory *memory)
{
    const char *hint = errno == ENOMEM ? " (is the limit of locked memory, ulimit -l, too low?)"
                       : errno == EFAULT && memory->dmabuf == WEFT__NIC_NO_DMABUF
                           ? " (memory of a GPU needs nvidia-peermem, or a dmabuf)"
                           : "";
    return weft__error(WEFT_ERROR_SYSTEM,
                       "%s, %llu bytes at %p%s, cannot be registered with %s%s: %s%s", what,
                       (unsigned long long)memory->num_bytes, memory->address,
                       memory->dmabuf != WEFT__NIC_NO_DMABUF ? " of a dmabuf" : "", device->name,
                       how, strerror(errno), hint);
}

/* ---------------------------------------------------------------- for requests */

/* Without relaxed ordering: a word must not change before the bytes that it counts. */
weft_result weft__nic_mr_create(const struct weft__nic_device *device, const char *what,
                                const struct weft__nic_memory *memory, enum weft__nic_use use,
                                struct weft__nic_mr *mr)
{
    const struct weft__verbs *verbs = device->verbs;
    const uintptr_t address = (uintptr_t)memory->address;
    const int access = WEFT__IBV_ACCESS_LOCAL_WRITE |
                       (use == WEFT__NIC_FOR_ALL_RANKS
                            ? WEFT__IBV_ACCESS_REMOTE_WRITE | WEFT__IBV_ACCESS_REMOTE_READ |
                                  WEFT__IBV_ACCESS_REMOTE_ATOMIC
                            : 0);
    struct weft__ibv_mr *made =
        memory->dmabuf == WEFT__NIC_NO_DMABUF
            ? verbs->ibv_reg_mr(device->pd, memory->address, memory->num_bytes, access)
            : verbs->ibv_reg_dmabuf_mr(device->pd, memory->dmabuf_offset, memory->num_bytes,
                                       address, memory->dmabuf, access);
    if (made == NULL)
        return fail(device, what, "", memory);
    *mr = (struct weft__nic_mr){.verbs = verbs,
                                .mr = made,
                                .local = {address, made->lkey},
                                .remote = {address, made->rkey}};
    return WEFT_OK;
}

void weft__nic_mr_destroy(struct weft__nic_mr *mr)
{
    if (mr->mr != NULL)
        (void)mr->verbs->ibv_dereg_mr(mr->mr);
    *mr = (struct weft__nic_mr){0};
}

/* ---------------------------------------------------------------- for queues */

static uint64_t page_of(const struct weft__nic_memory *memory)
{
    const uint64_t page_of_gpus = 1 << 16, page_of_host = (uint64_t)sysconf(_SC_PAGESIZE);
    return memory->dmabuf != WEFT__NIC_NO_DMABUF ? page_of_gpus : page_of_host;
}

/* Where it begins: an address, or the offset in a dmabuf. */
static uint64_t begin_of(const struct weft__nic_memory *memory)
{
    return memory->dmabuf != WEFT__NIC_NO_DMABUF ? memory->dmabuf_offset
                                                 : (uintptr_t)memory->address;
}

static weft_result check(const char *what, const struct weft__nic_memory *memory)
{
    const uint64_t page_bytes = page_of(memory);
    if (((begin_of(memory) | memory->num_bytes) & (page_bytes - 1)) == 0 && memory->num_bytes > 0)
        return WEFT_OK;
    return weft__invalid("%s: %llu bytes from 0x%llx%s on, not multiples of %llu", what,
                         (unsigned long long)memory->num_bytes,
                         (unsigned long long)begin_of(memory),
                         memory->dmabuf != WEFT__NIC_NO_DMABUF ? " of a dmabuf" : "",
                         (unsigned long long)page_bytes);
}

weft_result weft__nic_umem_create(const struct weft__nic_device *device, const char *what,
                                  const struct weft__nic_memory *memory,
                                  struct weft__nic_umem *umem)
{
    const uint64_t page_bytes = page_of(memory);
    WEFT__TRY(check(what, memory));
    struct weft__mlx5dv_devx_umem_in in = {.addr = (void *)(uintptr_t)begin_of(memory),
                                           .size = memory->num_bytes,
                                           .access = WEFT__IBV_ACCESS_LOCAL_WRITE,
                                           .pgsz_bitmap = ~(page_bytes - 1)};
    if (memory->dmabuf != WEFT__NIC_NO_DMABUF) {
        in.comp_mask = WEFT__MLX5DV_UMEM_MASK_DMABUF;
        in.dmabuf_fd = memory->dmabuf;
    }
    struct weft__mlx5dv_devx_umem *made =
        device->verbs->mlx5dv_devx_umem_reg_ex(device->context, &in);
    if (made == NULL)
        return fail(device, what, " for queues", memory);
    *umem = (struct weft__nic_umem){.verbs = device->verbs,
                                    .umem = made,
                                    .address = memory->address,
                                    .num_bytes = memory->num_bytes,
                                    .log_page = (uint32_t)__builtin_ctzll(page_bytes)};
    return WEFT_OK;
}

void weft__nic_umem_destroy(struct weft__nic_umem *umem)
{
    if (umem->umem != NULL)
        (void)umem->verbs->mlx5dv_devx_umem_dereg(umem->umem);
    *umem = (struct weft__nic_umem){0};
}
