/* SPDX-License-Identifier: MIT */
/*
 * Stands in for what the Linux kernel does for an mlx5 device, so that an unmodified libmlx5
 * opens one, makes queues, posts and polls. Nobody reads the queues but the test: there is no
 * NIC.
 *
 * The program that includes it is linked with -Wl,--export-dynamic: libibverbs then calls open,
 * stat, write, mmap and socket of nic_kernel.c.
 */
#pragma once

#include <stdint.h>

enum { NIC_KERNEL_QP = 0xabcde, NIC_KERNEL_FIRST_KEY = 0x1b01 };

/* Makes the device's files under a temporary folder, where libibverbs looks from now on. */
void nic_kernel_start(void);
void nic_kernel_stop(void);
/* How the library has named the queue pair that it made last: completions carry the name. */
uint32_t nic_kernel_user_index(void);
