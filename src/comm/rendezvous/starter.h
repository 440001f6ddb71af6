/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

/* Names the process at the other end of socket `fd`, which has started this process and others of
 * its job. The name has pid and start time, so no other process has it. "" if there is no such
 * process. Sends nothing on the socket: other code of this process may use it. */
void weft__starter_name(int fd, char *name, size_t name_bytes);
