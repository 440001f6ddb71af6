/* SPDX-License-Identifier: MIT */
/* Primitives of machine/nic_post.h for programs that post themselves, in the sim. */
#pragma once

#include "machine/nic_wait.h"
#include "machine/sim/nic_words.h"
#include "net/nic/queue.h"

/* Until the channel has news. */
enum wp_status sim_nic_pause(struct wp_nic_wait *wait);
#define wp_nic_pause(wait, queue) ((void)(queue), sim_nic_pause(wait))
