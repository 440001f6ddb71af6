/* SPDX-License-Identifier: MIT */
/* The part of the network that programs give to the rank's NIC themselves (WEFT_NET_INITIATOR). */
#pragma once

#include "comm/comm.h"
#include "machine/machine.h"

/* True if the access goes to the NIC: the rank has one, and no processor adds to the word. */
int weft__cpu_nic_takes(const weft_comm *comm, const struct wp_access *access);
/* Returns the number, which is none of the work queue's. `flush_number` is one of these, of a
 * flush. */
uint64_t weft__cpu_nic_post(struct wp_warp *warp, const struct wp_access *access,
                            uint64_t flush_number);
int weft__cpu_nic_has_number(uint64_t number);
/* How many of the work queue must be done, too. */
uint64_t weft__cpu_nic_num_flushed(const struct wp_warp *warp, uint64_t number);
enum wp_status weft__cpu_nic_await(struct wp_warp *warp, uint64_t number,
                                   const struct wp_wait_site *site);
