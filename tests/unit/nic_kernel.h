/* SPDX-License-Identifier: MIT */
/*
 * Stands in for what the Linux kernel and the firmware do for mlx5 NICs, so that an unmodified
 * libmlx5 opens them, makes queues, posts and polls. Queues that are made by commands of DEVX are
 * joined to a model of the NIC, which reads them; those that are made by verbs are read by nobody
 * but the test.
 *
 * The program that includes it is linked with -Wl,--export-dynamic: libibverbs then calls open,
 * stat, write, close, mmap, ioctl and socket of nic_kernel.c.
 */
#pragma once

#include <stdint.h>

enum { NIC_KERNEL_QP = 0xabcde, NIC_KERNEL_MAX_DEVICES = 4 };

/* Calls of the kernel; a command of DEVX is its opcode. */
enum nic_kernel_call {
    NIC_CALL_NONE,
    NIC_CALL_OPEN,
    NIC_CALL_PD,
    NIC_CALL_MR,
    NIC_CALL_DMABUF_MR,
    NIC_CALL_AH,
    NIC_CALL_EQN,
    NIC_CALL_UAR,
    NIC_CALL_UMEM
};

/* A test may change it at any time. */
extern struct nic_kernel_world {
    uint32_t link;       /* 1: InfiniBand, 2: Ethernet */
    uint32_t port_state; /* 4: active */
    uint32_t first_lid;  /* of device 0; 0: nobody has one */
    uint32_t cqe_version, max_log_depth, max_log_message, log_reads;
    int atomics_are_big_endian;
    int is_old; /* a kernel that makes all pages of doorbells when a device is opened */
    /* This call fails with `error`; a command with `status`, too, unless that is 0. */
    uint32_t failing, status;
    int error;
} nic_kernel_world;

/* Makes the devices' files, mlx5_0 and on, under a temporary folder, where libibverbs looks for the
 * rest of the process. */
void nic_kernel_start(int num_devices);
/* A world with InfiniBand, where nothing fails; as after the start. */
void nic_kernel_reset(void);
void nic_kernel_stop(void);
/* How the library has named the queue pair that it made last by verbs: completions carry the
 * name. */
uint32_t nic_kernel_user_index(void);
