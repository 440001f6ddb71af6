/* SPDX-License-Identifier: MIT */
/* What ranks have started in process groups or sessions of its own: it does not go with its rank, but becomes a
 * child of ours when its parent has ended. */
#pragma once

enum orphans { ORPHANS_LEFT, ORPHANS_ADOPTED };

/* Before the first rank. ORPHANS_LEFT if we have children already, as a shell may have that became us by exec:
 * those could not be told from orphans. */
enum orphans orphans_adopt(void);

/* Kills all children of this process, and theirs; returns when there are none, or after a second. */
void orphans_kill(void);
