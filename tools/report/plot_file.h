/* SPDX-License-Identifier: MIT */
/* --plot FILE: the figures of one command as a drawing. */
#pragma once

#include "report/figures.h"

/* `command` is as in messages. 0, or -1 with a message when the file cannot be written. */
int plot_file_write(const char *path, const struct figure_list *figures, const char *command);
