/* SPDX-License-Identifier: MIT */
/* The machine that all communicators of a test run on: what WEFT_MACHINE says, without it cpu. */
#ifndef TESTS_MACHINE_H
#define TESTS_MACHINE_H

/* Called before the first rank is started. Ends the test as skipped, with the reason, if the machine
 * cannot be used. Asks a child, since a process that has used CUDA must not fork ranks. */
void tests_choose_machine(void);

/* 1 if the ranks are on GPUs; once the machine is chosen. */
int tests_on_cuda(void);

/* File descriptors of this process, without those that CUDA's driver opens for itself and keeps. */
int tests_count_fds(void);
/* Mappings of heaps of this process. */
int tests_count_heap_mappings(void);

#endif
