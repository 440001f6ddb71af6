/* SPDX-License-Identifier: MIT */
/* Descriptors that the library keeps never have the numbers of standard input, output and error. A
 * program may have closed these, and its output must not go into a socket or a heap. */
#pragma once

/* Takes over `fd` from a system call. Returns `fd`, or a duplicate above these numbers, which is
 * closed on exec. Without a duplicate closes `fd` and returns -1 with errno. -1 stays -1. */
int weft__descriptor_keep(int fd);
