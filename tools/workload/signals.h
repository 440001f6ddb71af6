/* SPDX-License-Identifier: MIT */
#pragma once

/* "TERM" for SIGTERM: the signals by which users and terminals end a command. glibc names signals
 * since 2.32 only. */
const char *signal_name(int signal_number);

/* A second signal: */
enum signals_second { SIGNALS_SECOND_KILLS, SIGNALS_SECOND_WAITS };

/* From now on SIGINT and SIGTERM are noted, so that a command can end with what it has. Those that
 * are ignored stay so. */
void signals_heed(enum signals_second second);
int signals_noted(void); /* the number of the one that came, or 0 */
