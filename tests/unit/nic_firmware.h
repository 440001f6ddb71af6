/* SPDX-License-Identifier: MIT */
/* The fields of the commands that a NIC's firmware takes, and what each may hold. An own reading of
 * the specification: nothing here is shared with net/nic/devx.c. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct nic_field {
    const char *name;
    uint32_t bit, num_bits; /* counted from the begin of the command, the highest bit first */
    uint64_t min, max;      /* of up to 64 bits */
};

struct nic_command_layout {
    const char *name;
    uint32_t opcode, num_bytes;
    const struct nic_field *fields; /* the last one has no name */
};

/* NULL if there is no such command. */
const struct nic_command_layout *nic_firmware_layout(const uint8_t *bytes, size_t num_bytes);
/* NULL if no field has the bit. */
const struct nic_field *nic_firmware_field(const struct nic_command_layout *layout, uint32_t bit);
uint64_t nic_firmware_get(const uint8_t *bytes, uint32_t bit, uint32_t num_bits);
/* The value of a field, which must exist. */
uint64_t nic_firmware_value(const uint8_t *bytes, size_t num_bytes, const char *name);
void nic_firmware_put(uint8_t *bytes, uint32_t bit, uint32_t num_bits, uint64_t value);

enum { NIC_FIRMWARE_TEXT_BYTES = 256 };
/* Returns 0, or with what is wrong the first bit of it, plus 1. */
uint32_t nic_firmware_check(const uint8_t *bytes, size_t num_bytes,
                            char text[NIC_FIRMWARE_TEXT_BYTES]);
