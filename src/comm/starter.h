/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>

/* Names the process that has started this one, and others of its job, at the other end of socket fd:
 * by pid and time, so that no other has the same name. "" if there is none. It is not spoken to, for
 * somebody else in this process may be speaking with it. */
void weft__starter_name(int fd, char *name, size_t name_bytes);
