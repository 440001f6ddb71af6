/* SPDX-License-Identifier: MIT */
/* Those of the cpu machine (machine/nic_post.h), but for a thread that is also the NIC: it hears
 * each doorbell, and moves on while posters wait. */
#pragma once

#define wp_nic_pause wp_nic_pause_of_cpu
#include "machine/cpu/nic_primitives.h"
#undef wp_nic_pause
#undef wp_nic_ring

void nic_host_ring(uint64_t *doorbell, uint64_t value);
/* FAILED if all stands still: nobody will end the wait. */
enum wp_status nic_host_pause(void);

#define wp_nic_ring(doorbell, value) nic_host_ring(doorbell, value)
#define wp_nic_pause(wait, queue)    nic_host_pause()
