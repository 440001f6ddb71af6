/* SPDX-License-Identifier: MIT */
/* Descriptors that the library keeps never have the numbers of standard input, output and error, even where the
 * program has closed these: what it prints must not go into a socket or a heap. */
#pragma once

/* Takes what a system call has just made: `fd`, or its duplicate above these numbers, which is closed on exec. -1
 * with errno if there is none, then `fd` is closed; -1 stays -1. */
int weft__descriptor_keep(int fd);
