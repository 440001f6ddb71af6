/* SPDX-License-Identifier: MIT */
#include "net/nic/device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "comm/host/error.h"
#include "net/nic/wqe.h"

/* The first port that is active; else the state of port 1. */
static weft_result find_port(struct weft__nic_device *device, struct weft__ibv_port_attr *port)
{
    uint32_t first_state = 0;
    for (device->port = 1;; device->port++) {
        memset(port, 0, sizeof *port);
        if (device->verbs->ibv_query_port(device->context, (uint8_t)device->port, port) != 0)
            break;
        if (port->state == WEFT__IBV_PORT_ACTIVE)
            return WEFT_OK;
        if (device->port == 1)
            first_state = port->state;
    }
    if (device->port == 1)
        return weft__system_error("port 1 of %s cannot be queried", device->name);
    return weft__error(WEFT_ERROR_UNSUPPORTED,
                       "no port of %s is active: port 1 is in state %u, not %d", device->name,
                       first_state, WEFT__IBV_PORT_ACTIVE);
}

/* Over Ethernet the address must be of RoCE v2, which is routed. The last such one: an address of
 * IPv4, where there is one, is behind that of the link. */
static weft_result find_gid(struct weft__nic_device *device, int32_t num_gids)
{
    int is_found = 0;
    for (int32_t i = 0; i < num_gids; i++) {
        struct weft__ibv_gid_entry entry;
        memset(&entry, 0, sizeof entry);
        if (device->verbs->_ibv_query_gid_ex(device->context, device->port, (uint32_t)i, &entry, 0,
                                             sizeof entry) != 0 ||
            entry.gid_type != WEFT__IBV_GID_ROCE_V2)
            continue;
        device->gid_index = (uint32_t)i;
        memcpy(device->end.gid, entry.gid, sizeof entry.gid);
        is_found = 1;
    }
    if (!is_found)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "port %u of %s has no address of RoCE v2 among %d: has its interface "
                           "an address of IP?",
                           device->port, device->name, num_gids);
    return WEFT_OK;
}

static weft_result find_address(struct weft__nic_device *device)
{
    struct weft__ibv_port_attr port;
    WEFT__TRY(find_port(device, &port));
    device->end.link = port.link_layer;
    device->end.lid = port.lid;
    device->end.mtu = port.active_mtu;
    if (port.link_layer == WEFT__IBV_ETHERNET)
        return find_gid(device, port.gid_tbl_len);
    if (port.lid == 0)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "port %u of %s has no LID: there is no subnet manager", device->port,
                           device->name);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- capabilities */

static weft_result query(struct weft__nic_device *device, enum weft__devx_capability capability)
{
    uint8_t bytes[WEFT__DEVX_CAPABILITY_BYTES] = {0};
    char text[WEFT__DEVX_STATUS_BYTES];
    struct weft__devx_command command;
    weft__devx_query(capability, &command);
    const int error = device->verbs->mlx5dv_devx_general_cmd(
        device->context, command.bytes, command.num_bytes, bytes, sizeof bytes);
    const struct weft__devx_answer answer = weft__devx_decode_answer(bytes);
    weft__devx_status_text(&answer, text);
    if (error != 0)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "capabilities %d of %s cannot be queried: %s; %s", capability,
                           device->name, strerror(error), text);
    weft__devx_take_capability(capability, bytes, &device->limits);
    return WEFT_OK;
}

static weft_result find_limits(struct weft__nic_device *device)
{
    const struct weft__devx_limits *limits = &device->limits;
    WEFT__TRY(query(device, WEFT__DEVX_GENERAL));
    WEFT__TRY(query(device, WEFT__DEVX_ATOMICS));
    WEFT__TRY(query(device, WEFT__DEVX_ROCE));
    device->end.log_reads = limits->max_log_reads;
    if (limits->cqe_version != 1)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "%s writes completions of version %u, not 1",
                           device->name, limits->cqe_version);
    if (!limits->has_fetch_add)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "%s has no fetch-add of 8 bytes in the order of the processor",
                           device->name);
    if ((uint64_t)1 << limits->max_log_message < WEFT__NIC_MAX_MESSAGE_BYTES)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "%s sends messages of up to 2^%u bytes, not 2^30", device->name,
                           limits->max_log_message);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- opening */

static weft_result allocate(struct weft__nic_device *device)
{
    const struct weft__verbs *verbs = device->verbs;
    struct weft__mlx5dv_pd pd = {0};
    device->pd = verbs->ibv_alloc_pd(device->context);
    if (device->pd == NULL)
        return weft__system_error("%s gives no protection domain", device->name);
    struct weft__mlx5dv_obj object = {.pd = {.in = device->pd, .out = &pd}};
    if (verbs->mlx5dv_init_obj(&object, WEFT__MLX5DV_OBJ_PD) != 0)
        return weft__system_error("the protection domain of %s has no number", device->name);
    device->pd_number = pd.pdn;
    if (verbs->mlx5dv_devx_query_eqn(device->context, 0, &device->eqn) != 0)
        return weft__system_error("%s has no event queue", device->name);
    /* GPUs store 8 bytes: they need no register that combines stores. */
    device->uar = verbs->mlx5dv_devx_alloc_uar(device->context, WEFT__MLX5DV_UAR_NON_CACHED);
    if (device->uar == NULL)
        device->uar = verbs->mlx5dv_devx_alloc_uar(device->context, WEFT__MLX5DV_UAR_BLUE_FLAME);
    if (device->uar == NULL)
        return weft__system_error("%s gives no doorbell register (UAR)", device->name);
    return WEFT_OK;
}

static weft_result open_one(struct weft__nic_device *device, struct weft__ibv_device *found)
{
    struct weft__mlx5dv_context_attr attr = {.flags = WEFT__MLX5DV_CONTEXT_FLAGS_DEVX};
    snprintf(device->name, sizeof device->name, "%s", device->verbs->ibv_get_device_name(found));
    if (!device->verbs->mlx5dv_is_supported(found))
        return weft__error(WEFT_ERROR_UNSUPPORTED, "%s is no mlx5 device", device->name);
    errno = 0;
    device->context = device->verbs->mlx5dv_open_device(found, &attr);
    if (device->context == NULL)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "%s cannot be opened with the right to make queues (DEVX): %s",
                           device->name, errno != 0 ? strerror(errno) : "no reason is known");
    WEFT__TRY(find_address(device));
    WEFT__TRY(find_limits(device));
    return allocate(device);
}

/* The error is that of the last device, if all fail. */
static weft_result try_devices(struct weft__ibv_device **found, int num_found, const char *name,
                               struct weft__nic_device *device)
{
    const struct weft__verbs *verbs = device->verbs;
    weft_result result =
        name != NULL
            ? weft__error(WEFT_ERROR_UNSUPPORTED, "there is no device %s among %d", name, num_found)
            : weft__error(WEFT_ERROR_UNSUPPORTED, "there is no device for RDMA");
    for (int i = 0; i < num_found; i++) {
        if (name != NULL && strcmp(verbs->ibv_get_device_name(found[i]), name) != 0)
            continue;
        *device = (struct weft__nic_device){.verbs = verbs};
        result = open_one(device, found[i]);
        if (result == WEFT_OK)
            return result;
        weft__nic_device_close(device);
    }
    return result;
}

weft_result weft__nic_device_open(const struct weft__verbs *verbs, const char *name,
                                  struct weft__nic_device *device)
{
    int num_found = 0;
    *device = (struct weft__nic_device){.verbs = verbs};
    errno = 0;
    struct weft__ibv_device **found = verbs->ibv_get_device_list(&num_found);
    if (found == NULL)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "there are no devices for RDMA: %s",
                           errno == ENOSYS ? "the kernel has no RDMA" : strerror(errno));
    const weft_result result = try_devices(found, num_found, name, device);
    verbs->ibv_free_device_list(found);
    return result;
}

/* Also of a device that is open in part. */
void weft__nic_device_close(struct weft__nic_device *device)
{
    const struct weft__verbs *verbs = device->verbs;
    if (device->uar != NULL)
        verbs->mlx5dv_devx_free_uar(device->uar);
    if (device->pd != NULL)
        (void)verbs->ibv_dealloc_pd(device->pd);
    if (device->context != NULL)
        (void)verbs->ibv_close_device(device->context);
    *device = (struct weft__nic_device){.verbs = verbs};
}
