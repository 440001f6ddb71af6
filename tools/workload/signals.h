/* SPDX-License-Identifier: MIT */
#pragma once

/* "TERM" for SIGTERM: the signals by which users and terminals end a command. glibc names signals
 * since 2.32 only. */
const char *signal_name(int signal_number);
