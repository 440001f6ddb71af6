/* SPDX-License-Identifier: MIT */
/* An open NIC, as the kernel and the firmware keep it. Its queues are joined to the model of a NIC
 * (net/nic/model.h), and wires lead to all other open NICs. */
#pragma once

#include <stddef.h>

#include "net/nic/model.h"

enum nic_object_kind { NIC_NO_OBJECT, NIC_PD, NIC_AH, NIC_MR, NIC_UAR, NIC_UMEM, NIC_CQ, NIC_QP };

enum nic_qp_state { NIC_RESET, NIC_INIT, NIC_READY_TO_RECEIVE, NIC_READY_TO_SEND };

enum {
    NIC_MAX_OBJECTS = 64,
    NIC_PAGES_OF_OLD_KERNEL = 4,
    NIC_PAGE_BYTES = 4096,
    NIC_REGISTER_OFFSET = 0x800
};

struct nic_object {
    enum nic_object_kind kind;
    uint32_t number;
    int is_static; /* it goes with the device */
    /* Memory, as the NIC names it, and where it is. */
    uint64_t address, num_bytes, page_bytes;
    char *memory;
    size_t num_mapped; /* of a dmabuf, from `mapping` on */
    char *mapping;
    /* These are of queues. */
    enum nic_qp_state state;
    uint32_t cq_idx, user_index;
    uint64_t units, record;
    uint32_t depth;
};

struct nic_hardware {
    int device, fd; /* fd: -1 if it is not open */
    struct weft__nic_model *model;
    char *pages_of_old_kernel[NIC_PAGES_OF_OLD_KERNEL]; /* of doorbells */
    struct nic_object objects[NIC_MAX_OBJECTS];
};

struct nic_hardware *nic_hardware_open(int device, int fd);
struct nic_hardware *nic_hardware_of(int fd); /* NULL: the descriptor is of no NIC */
int nic_hardware_num_open(void);
/* As the wire calls the NIC of the device that has this queue pair; -1: there is none. */
int nic_hardware_find_peer(int device, uint32_t qp);
void nic_hardware_close(struct nic_hardware *hardware);

/* Handles are indices. */
struct nic_object *nic_hardware_add(struct nic_hardware *hardware, enum nic_object_kind kind,
                                    uint32_t *handle);
/* NULL if there is none. */
struct nic_object *nic_hardware_find(struct nic_hardware *hardware, enum nic_object_kind kind,
                                     uint32_t number);
void nic_hardware_remove(struct nic_hardware *hardware, uint64_t handle);

/* Memory from `address` on in this process, or from an offset in a dmabuf. Returns an errno. */
struct nic_memory {
    uint64_t address, num_bytes;
    int dmabuf; /* or -1 */
};
int nic_hardware_map(struct nic_object *object, const struct nic_memory *memory);
void nic_hardware_add_region(struct nic_hardware *hardware, const struct nic_object *object,
                             uint32_t rights);

/* A command. Returns 0, or with what is wrong a syndrome; the number of what was created. */
uint32_t nic_hardware_run(struct nic_hardware *hardware, const uint8_t *bytes, size_t num_bytes,
                          uint32_t *handle, uint32_t *number);

/* Addresses of ports. */
uint16_t nic_hardware_lid(int device);
void nic_hardware_gid(int device, uint8_t gid[16]);
void nic_hardware_mac(int device, uint8_t mac[6]);

/* Tells what is wrong; the first one stays until nic_kernel_complaint is asked. */
void nic_hardware_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *nic_hardware_complaint(void); /* "" if there is none; forgets it */

/* Doorbells, a step of each model and of the wires. Returns 0 if all stands still. */
int nic_hardware_step(void);
void nic_hardware_hear(void);
void nic_hardware_cut(int device);
