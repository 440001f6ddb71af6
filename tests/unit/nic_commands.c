/* SPDX-License-Identifier: MIT */
/* The firmware runs commands, whose fields must be legal (nic_firmware.h), name objects that exist,
 * and come in order. */
#include <stdio.h>

#include "harness/cmocka.h"
#include "nic_firmware.h"
#include "nic_hardware.h"
#include "nic_kernel.h"

struct command {
    struct nic_hardware *hardware;
    const uint8_t *bytes;
    size_t num_bytes;
    const char *name;
};

static uint64_t value(const struct command *command, const char *field)
{
    return nic_firmware_value(command->bytes, command->num_bytes, field);
}

/* The syndrome tells the field. */
static uint32_t refuse(const struct command *command, const char *field, const char *why)
{
    const struct nic_field *at = nic_firmware_layout(command->bytes, command->num_bytes)->fields;
    while (strcmp(at->name, field) != 0)
        at++;
    nic_hardware_complain("%s: %s is 0x%llx, %s", command->name, field,
                          (unsigned long long)value(command, field), why);
    return at->bit + 1;
}

uint16_t nic_hardware_lid(int device)
{
    const uint32_t first = nic_kernel_world.first_lid;
    return (uint16_t)(nic_kernel_world.link == 1 && first != 0 ? first + (uint32_t)device : 0);
}

/* The form of an address of IPv4. */
void nic_hardware_gid(int device, uint8_t gid[16])
{
    memset(gid, 0, 16);
    gid[10] = gid[11] = 0xff;
    gid[12] = 10;
    gid[15] = (uint8_t)(device + 1);
}

void nic_hardware_mac(int device, uint8_t mac[6])
{
    static const uint8_t first[6] = {0x02, 0x15, 0xb3, 0x40, 0x50, 0x60};
    memcpy(mac, first, sizeof first);
    mac[5] = (uint8_t)(mac[5] + device);
}

/* ---------------------------------------------------------------- creation */

/* Memory of a queue in a umem. */
struct part {
    const char *umem, *offset;
    uint64_t num_bytes, alignment;
};

static uint32_t find_part(const struct command *command, const struct part *part, uint64_t *address)
{
    const uint64_t offset = value(command, part->offset);
    const struct nic_object *umem =
        nic_hardware_find(command->hardware, NIC_UMEM, (uint32_t)value(command, part->umem));
    if (umem == NULL)
        return refuse(command, part->umem, "no umem");
    if (offset % part->alignment != 0)
        return refuse(command, part->offset, "not aligned");
    if (offset > umem->num_bytes || umem->num_bytes - offset < part->num_bytes)
        return refuse(command, part->offset, "behind the umem's end");
    *address = umem->address + offset;
    return 0;
}

/* The page that a command names may not be larger than those that the umem has. */
static uint32_t check_page(const struct command *command, const char *umem_field,
                           uint64_t *page_bytes)
{
    const struct nic_object *umem =
        nic_hardware_find(command->hardware, NIC_UMEM, (uint32_t)value(command, umem_field));
    *page_bytes = (uint64_t)NIC_PAGE_BYTES << value(command, "log_page_size");
    return umem != NULL && *page_bytes != umem->page_bytes
               ? refuse(command, "log_page_size", "not the page of the umem")
               : 0;
}

static uint32_t check_object(const struct command *command, const char *field,
                             enum nic_object_kind kind)
{
    return nic_hardware_find(command->hardware, kind, (uint32_t)value(command, field)) == NULL
               ? refuse(command, field, "which does not exist")
               : 0;
}

#define TRY(check)                                                                                 \
    do {                                                                                           \
        const uint32_t syndrome_of_try = (check);                                                  \
        if (syndrome_of_try != 0)                                                                  \
            return syndrome_of_try;                                                                \
    } while (0)

static uint32_t create_cq(const struct command *command, uint32_t *handle, uint32_t *number)
{
    uint64_t page_bytes, entries = 0, record = 0;
    struct weft__nic_cq_config config = {.kind = WEFT__NIC_CQ_COLLAPSED,
                                         .num_entries = 1u << value(command, "log_cq_size")};
    TRY(check_page(command, "cq_umem_id", &page_bytes));
    const struct part part_of_entries = {"cq_umem_id", "cq_umem_offset",
                                         (uint64_t)config.num_entries * WEFT__NIC_UNIT_BYTES,
                                         page_bytes},
                      part_of_record = {"dbr_umem_id", "dbr_addr", 8, 8};
    TRY(find_part(command, &part_of_entries, &entries));
    TRY(find_part(command, &part_of_record, &record));
    if (*(const uint64_t *)(uintptr_t)record != 0)
        return refuse(command, "dbr_addr", "where the record is not 0");
    TRY(check_object(command, "uar_page", NIC_UAR));
    struct nic_object *cq = nic_hardware_add(command->hardware, NIC_CQ, handle);
    config.entries = entries;
    assert_ok(weft__nic_model_add_cq(command->hardware->model, &config, &cq->cq_idx));
    *number = cq->number;
    return 0;
}

static uint32_t create_qp(const struct command *command, uint32_t *handle, uint32_t *number)
{
    uint64_t page_bytes, units = 0, record = 0;
    const uint32_t depth = 1u << value(command, "log_sq_size");
    TRY(check_page(command, "wq_umem_id", &page_bytes));
    const struct part part_of_units = {"wq_umem_id", "wq_umem_offset",
                                       (uint64_t)depth * WEFT__NIC_UNIT_BYTES, page_bytes},
                      part_of_record = {"dbr_umem_id", "dbr_addr", 8, 8};
    TRY(find_part(command, &part_of_units, &units));
    TRY(find_part(command, &part_of_record, &record));
    TRY(check_object(command, "uar_page", NIC_UAR));
    TRY(check_object(command, "pd", NIC_PD));
    TRY(check_object(command, "cqn_snd", NIC_CQ));
    TRY(check_object(command, "cqn_rcv", NIC_CQ));
    const struct nic_object *cq =
        nic_hardware_find(command->hardware, NIC_CQ, (uint32_t)value(command, "cqn_snd"));
    struct nic_object *qp = nic_hardware_add(command->hardware, NIC_QP, handle);
    qp->cq_idx = cq->cq_idx;
    qp->user_index = (uint32_t)value(command, "user_index");
    qp->units = units;
    qp->record = record;
    qp->depth = depth;
    *number = qp->number;
    return 0;
}

/* ---------------------------------------------------------------- states */

enum { GID_BYTE = 0x200 / 8, MAC_BYTE = 0x2b0 / 8 };

static int is_gid(const struct command *command, int device)
{
    uint8_t gid[16], mac[6];
    nic_hardware_gid(device, gid);
    nic_hardware_mac(device, mac);
    return memcmp(command->bytes + GID_BYTE, gid, sizeof gid) == 0 &&
           memcmp(command->bytes + MAC_BYTE, mac, sizeof mac) == 0;
}

/* Fields of the kind of link that this is not. */
static uint32_t check_unused(const struct command *command)
{
    static const char *const of_ethernet[] = {"src_addr_index", "hop_limit", "udp_sport", "rmac"};
    static const uint8_t no_gid[16];
    if (nic_kernel_world.link != 1)
        return value(command, "rlid") != 0 ? refuse(command, "rlid", "on Ethernet") : 0;
    for (size_t i = 0; i < sizeof of_ethernet / sizeof *of_ethernet; i++)
        if (value(command, of_ethernet[i]) != 0)
            return refuse(command, of_ethernet[i], "on InfiniBand");
    return memcmp(command->bytes + GID_BYTE, no_gid, sizeof no_gid) != 0
               ? refuse(command, "rgid", "on InfiniBand")
               : 0;
}

/* Whose port the address path leads to; -1: nobody's. */
static int find_device(const struct command *command)
{
    for (int device = 0; device < NIC_KERNEL_MAX_DEVICES; device++)
        if (nic_kernel_world.link == 1 ? value(command, "rlid") == nic_hardware_lid(device)
                                       : is_gid(command, device))
            return device;
    return -1;
}

static uint32_t check_path(const struct command *command)
{
    TRY(check_unused(command));
    if (nic_kernel_world.link == 1)
        return find_device(command) < 0 ? refuse(command, "rlid", "which nobody has") : 0;
    if (value(command, "src_addr_index") != 1)
        return refuse(command, "src_addr_index", "no address of RoCE v2");
    if (value(command, "udp_sport") < 0xc000)
        return refuse(command, "udp_sport", "less than 0xc000");
    if (value(command, "hop_limit") == 0)
        return refuse(command, "hop_limit", "of none");
    return find_device(command) < 0 ? refuse(command, "rmac", "with a GID that is another's") : 0;
}

static uint32_t receive(const struct command *command, const struct nic_object *qp)
{
    TRY(check_path(command));
    const uint32_t peer_qp = (uint32_t)value(command, "remote_qpn");
    const int peer = nic_hardware_find_peer(find_device(command), peer_qp);
    if (peer < 0)
        return refuse(command, "remote_qpn", "which that port does not have");
    const struct weft__nic_queue_config config = {.qp = qp->number,
                                                  .user_index = qp->user_index,
                                                  .cq_idx = qp->cq_idx,
                                                  .peer = (uint32_t)peer,
                                                  .peer_qp = peer_qp,
                                                  .units = qp->units,
                                                  .depth = qp->depth,
                                                  .record = qp->record};
    assert_ok(weft__nic_model_add_queue(command->hardware->model, &config));
    return 0;
}

static uint32_t change_state(const struct command *command, enum nic_qp_state from)
{
    struct nic_object *qp =
        nic_hardware_find(command->hardware, NIC_QP, (uint32_t)value(command, "qpn"));
    if (qp == NULL)
        return refuse(command, "qpn", "which does not exist");
    if (qp->state != from)
        return refuse(command, "qpn", "in another state");
    if (from == NIC_INIT)
        TRY(receive(command, qp));
    qp->state = from + 1;
    return 0;
}

uint32_t nic_hardware_run(struct nic_hardware *hardware, const uint8_t *bytes, size_t num_bytes,
                          uint32_t *handle, uint32_t *number)
{
    char text[NIC_FIRMWARE_TEXT_BYTES];
    const uint32_t syndrome = nic_firmware_check(bytes, num_bytes, text);
    if (syndrome != 0) {
        nic_hardware_complain("%s", text);
        return syndrome;
    }
    const struct nic_command_layout *layout = nic_firmware_layout(bytes, num_bytes);
    const struct command command = {hardware, bytes, num_bytes, layout->name};
    switch (layout->opcode) {
    case 0x400:
        return create_cq(&command, handle, number);
    case 0x500:
        return create_qp(&command, handle, number);
    case 0x502:
        return change_state(&command, NIC_RESET);
    case 0x503:
        return change_state(&command, NIC_INIT);
    default:
        return change_state(&command, NIC_READY_TO_RECEIVE);
    }
}
