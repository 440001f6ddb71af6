/* SPDX-License-Identifier: MIT */
#include "nic_firmware.h"

#include <stdio.h>

#include "harness/cmocka.h"

#define ANY32 0, UINT32_MAX
#define ANY24 0, 0xffffff

/* The context of a completion queue begins at bit 0x80. */
static const struct nic_field create_cq[] = {{"opcode", 0x00, 16, 0x400, 0x400},
                                             {"dbr_umem_valid", 0x86, 1, 1, 1},
                                             {"cqe_sz", 0x88, 3, 0, 0},
                                             {"cc", 0x8b, 1, 1, 1},
                                             {"oi", 0x8e, 1, 1, 1},
                                             {"dbr_umem_id", 0xa0, 32, ANY32},
                                             {"log_cq_size", 0xe3, 5, 0, 15},
                                             {"uar_page", 0xe8, 24, ANY24},
                                             {"c_eqn", 0x138, 8, 7, 7},
                                             {"log_page_size", 0x143, 5, 0, 20},
                                             {"dbr_addr", 0x240, 64, 0, UINT64_MAX},
                                             {"cq_umem_offset", 0x280, 64, 0, UINT64_MAX},
                                             {"cq_umem_id", 0x2c0, 32, ANY32},
                                             {"cq_umem_valid", 0x2e0, 1, 1, 1},
                                             {0}};

/* That of a queue pair begins at bit 0xc0, its address path at 0x180. */
static const struct nic_field create_qp[] = {{"opcode", 0x00, 16, 0x500, 0x500},
                                             {"state", 0xc0, 4, 0, 0},
                                             {"st", 0xc8, 8, 0, 0},
                                             {"pm_state", 0xd3, 2, 3, 3},
                                             {"pd", 0xe8, 24, ANY24},
                                             {"log_rq_size", 0x109, 4, 0, 0},
                                             {"no_sq", 0x110, 1, 0, 0},
                                             {"log_sq_size", 0x111, 4, 0, 15},
                                             {"ts_format", 0x118, 2, 1, 1},
                                             {"uar_page", 0x128, 24, ANY24},
                                             {"send_dbr_mode", 0x140, 2, 0, 0},
                                             {"user_index", 0x148, 24, ANY24},
                                             {"log_page_size", 0x163, 5, 0, 20},
                                             {"cqn_snd", 0x4a8, 24, ANY24},
                                             {"cqn_rcv", 0x5a8, 24, ANY24},
                                             {"dbr_addr", 0x5c0, 64, 0, UINT64_MAX},
                                             {"rq_type", 0x625, 3, 3, 3},
                                             {"dbr_umem_valid", 0x743, 1, 1, 1},
                                             {"dbr_umem_id", 0x7e0, 32, ANY32},
                                             {"wq_umem_offset", 0x800, 64, 0, UINT64_MAX},
                                             {"wq_umem_id", 0x840, 32, ANY32},
                                             {"wq_umem_valid", 0x860, 1, 1, 1},
                                             {0}};

static const struct nic_field rst2init[] = {{"opcode", 0x00, 16, 0x502, 0x502},
                                            {"qpn", 0x48, 24, ANY24},
                                            {"pm_state", 0xd3, 2, 3, 3},
                                            {"pkey_index", 0x190, 16, 0, 0},
                                            {"vhca_port_num", 0x2a8, 8, 1, 1},
                                            {"atomic_mode", 0x54c, 4, 3, 3},
                                            {"rre", 0x550, 1, 1, 1},
                                            {"rwe", 0x551, 1, 1, 1},
                                            {"rae", 0x552, 1, 1, 1},
                                            {0}};

static const struct nic_field init2rtr[] = {{"opcode", 0x00, 16, 0x503, 0x503},
                                            {"qpn", 0x48, 24, ANY24},
                                            {"mtu", 0x100, 3, 1, 5},
                                            {"log_msg_max", 0x103, 5, 30, 30},
                                            {"remote_qpn", 0x168, 24, ANY24},
                                            {"grh", 0x1a8, 1, 0, 0},
                                            {"rlid", 0x1b0, 16, 0, UINT16_MAX},
                                            {"src_addr_index", 0x1c8, 8, 0, UINT8_MAX},
                                            {"hop_limit", 0x1d8, 8, 0, UINT8_MAX},
                                            {"rgid", 0x200, 128, 0, 0},
                                            {"udp_sport", 0x290, 16, 0, UINT16_MAX},
                                            {"sl", 0x2a4, 4, 0, 0},
                                            {"vhca_port_num", 0x2a8, 8, 1, 1},
                                            {"rmac", 0x2b0, 48, 0, UINT64_MAX},
                                            {"log_rra_max", 0x548, 3, 1, 4},
                                            {"min_rnr_nak", 0x563, 5, 0, 31},
                                            {"next_rcv_psn", 0x568, 24, 0, 0},
                                            {0}};

static const struct nic_field rtr2rts[] = {{"opcode", 0x00, 16, 0x504, 0x504},
                                           {"qpn", 0x48, 24, ANY24},
                                           {"ack_timeout", 0x1c0, 5, 8, 18},
                                           {"log_ack_req_freq", 0x440, 4, 0, 0},
                                           {"log_sra_max", 0x448, 3, 1, 4},
                                           {"retry_count", 0x44d, 3, 1, 7},
                                           {"rnr_retry", 0x450, 3, 1, 7},
                                           {"next_send_psn", 0x488, 24, 0, 0},
                                           {0}};

static const struct nic_field query_hca_cap[] = {
    {"opcode", 0x00, 16, 0x100, 0x100}, {"op_mod", 0x30, 16, 1, 9}, {0}};

enum { COMMAND_BYTES = 272, QUERY_BYTES = 16 };

static const struct nic_command_layout layouts[] = {
    {"CREATE_CQ", 0x400, COMMAND_BYTES, create_cq},
    {"CREATE_QP", 0x500, COMMAND_BYTES, create_qp},
    {"RST2INIT", 0x502, COMMAND_BYTES, rst2init},
    {"INIT2RTR", 0x503, COMMAND_BYTES, init2rtr},
    {"RTR2RTS", 0x504, COMMAND_BYTES, rtr2rts},
    {"QUERY_HCA_CAP", 0x100, QUERY_BYTES, query_hca_cap}};

const struct nic_command_layout *nic_firmware_layout(const uint8_t *bytes, size_t num_bytes)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].num_bytes == num_bytes &&
            layouts[i].opcode == nic_firmware_get(bytes, 0, 16))
            return &layouts[i];
    return NULL;
}

const struct nic_field *nic_firmware_field(const struct nic_command_layout *layout, uint32_t bit)
{
    for (const struct nic_field *field = layout->fields; field->name != NULL; field++)
        if (bit >= field->bit && bit < field->bit + field->num_bits)
            return field;
    return NULL;
}

uint64_t nic_firmware_get(const uint8_t *bytes, uint32_t bit, uint32_t num_bits)
{
    uint64_t value = 0;
    for (uint32_t i = bit; i < bit + num_bits; i++)
        value = value << 1 | (bytes[i / 8] >> (7 - i % 8) & 1u);
    return value;
}

void nic_firmware_put(uint8_t *bytes, uint32_t bit, uint32_t num_bits, uint64_t value)
{
    for (uint32_t i = 0; i < num_bits; i++) {
        const uint32_t at = bit + num_bits - 1 - i;
        const uint8_t mask = (uint8_t)(0x80 >> at % 8);
        bytes[at / 8] = (uint8_t)((bytes[at / 8] & ~mask) | (value >> i & 1 ? mask : 0));
    }
}

uint64_t nic_firmware_value(const uint8_t *bytes, size_t num_bytes, const char *name)
{
    const struct nic_command_layout *layout = nic_firmware_layout(bytes, num_bytes);
    assert_non_null(layout);
    const struct nic_field *field = layout->fields;
    while (field->name != NULL && strcmp(field->name, name) != 0)
        field++;
    assert_non_null(field->name);
    return nic_firmware_get(bytes, field->bit, field->num_bits);
}

uint32_t nic_firmware_check(const uint8_t *bytes, size_t num_bytes,
                            char text[NIC_FIRMWARE_TEXT_BYTES])
{
    const struct nic_command_layout *layout = nic_firmware_layout(bytes, num_bytes);
    if (layout == NULL) {
        snprintf(text, NIC_FIRMWARE_TEXT_BYTES, "opcode is 0x%x with %zu bytes: no command",
                 (unsigned)nic_firmware_get(bytes, 0, 16), num_bytes);
        return 1;
    }
    for (uint32_t bit = 0; bit < num_bytes * 8; bit++) {
        if (nic_firmware_get(bytes, bit, 1) == 0 || nic_firmware_field(layout, bit) != NULL)
            continue;
        snprintf(text, NIC_FIRMWARE_TEXT_BYTES, "%s: bit 0x%x is set, which no field has",
                 layout->name, bit);
        return bit + 1;
    }
    for (const struct nic_field *field = layout->fields; field->name != NULL; field++) {
        const uint64_t value = nic_firmware_get(bytes, field->bit, field->num_bits);
        if (field->num_bits > 64 || (value >= field->min && value <= field->max))
            continue;
        snprintf(text, NIC_FIRMWARE_TEXT_BYTES, "%s: %s is 0x%llx, not from 0x%llx to 0x%llx",
                 layout->name, field->name, (unsigned long long)value,
                 (unsigned long long)field->min, (unsigned long long)field->max);
        return field->bit + 1;
    }
    return 0;
}
