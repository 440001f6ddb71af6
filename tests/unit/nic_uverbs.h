/* SPDX-License-Identifier: MIT */
/* The kernel's side of uverbs: the older interface, by write, and the part of the newer one, by
 * ioctl, that has no older one. Both return 0, or -1 with errno. */
#pragma once

#include "nic_hardware.h"

struct ib_uverbs_ioctl_hdr;

int nic_uverbs_run(struct nic_hardware *hardware, uint32_t command, const void *question,
                   void *answer);
int nic_uverbs_ioctl(struct nic_hardware *hardware, struct ib_uverbs_ioctl_hdr *header);
/* True if the test wants this call to fail (nic_kernel.h); errno is set then. */
int nic_uverbs_fails(uint32_t call);
/* UARs are mapped as pages of the device's file from this one on, by their handles. */
enum { NIC_UVERBS_FIRST_PAGE = 0x1000 };
