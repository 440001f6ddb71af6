/* SPDX-License-Identifier: MIT */
/* The machine that all communicators of a test run on: what WEFT_MACHINE says, without it cpu. */
#pragma once

#include "weft.h"

/* Called before the first rank is started. Ends the test as skipped, with the reason, if the
 * machine cannot be used. Asks a child, since a process that has used CUDA must not fork ranks. */
void tests_choose_machine(void);

/* In a process that is to have so many ranks, before the first of them. The kernels of ranks that
 * share a GPU wait for each other, so they must not queue up behind each other; a device has 8
 * queues, or at most 32 by CUDA_DEVICE_MAX_CONNECTIONS. With 32, making a context takes 0.6 s in
 * place of 0.13, and contexts of other processes wait meanwhile. */
void tests_expect_ranks(int32_t num_ranks);
/* So many queues: 8, 16, 24 or 32. */
int32_t tests_num_queues(int32_t num_ranks);

/* 1 if the ranks are on GPUs; once the machine is chosen. */
int tests_on_cuda(void);
/* Which ranks take in turn; 0 on cpu. */
int32_t tests_num_devices(void);

/* `on_cpu` or, if the ranks are on GPUs, `on_cuda`: how often to do the same again where starting a
 * process takes a second or two. */
int tests_rounds(int on_cpu, int on_cuda);

/* Sizes of a grid of cases: `full`, or `small` where WEFT_TEST_GRID=small says that it must be
 * quick (sanitizers). */
int32_t tests_grid_size(int32_t full, int32_t small);

/* A deadline that a test lets pass on purpose: `ms`, or more under the thread sanitizer and over
 * the model of a NIC, where ranks take longer. */
uint32_t tests_deadline_ms(uint32_t ms);

/* Whether communicators of several nodes can have a network with this engine ("auto", "tcp",
 * "ucx"); if not, says why. */
int tests_network_is_there(const char *engine);
/* Before the body of a test that needs a network between processes, of this engine, or of whichever
 * there is ("auto"): it is skipped where there is none, and its ranks use it. */
#define TEST_OVER(test, engine) TEST_OVER_EACH(test, TEST_OVER_ENGINE(test, #test, engine))
/* The same over each engine. */
#define TEST_OVER_ENGINES(test)                                                                    \
    TEST_OVER_EACH(test, TEST_OVER_ENGINE(test, #test "_over_tcp", "tcp"),                         \
                   TEST_OVER_ENGINE(test, #test "_over_ucx", "ucx"))
#define TEST_OVER_ENGINE(test, title, engine)                                                      \
    {                                                                                              \
        .name = title, .test_func = test, .initial_state = engine                                  \
    }
#define TEST_OVER_EACH(test, ...)                                                                  \
    static void test##_over(const char *engine);                                                   \
    TEST_AS(test, __VA_ARGS__)                                                                     \
    {                                                                                              \
        tests_over(*state, test##_over);                                                           \
    }                                                                                              \
    static void test##_over(const char *engine __attribute__((unused)))
void tests_over(const char *engine, void (*test)(const char *engine));
/* Both before the body of a rank function, which every rank runs (harness/ranks.h). */
#define TEST_ON_RANKS_OVER(test, engine, mode, num_ranks)                                          \
    TEST_ON_RANKS_AS(TEST_OVER(test, engine), test, mode, num_ranks)
#define TEST_ON_RANKS_OVER_ENGINES(test, mode, num_ranks)                                          \
    TEST_ON_RANKS_AS(TEST_OVER_ENGINES(test), test, mode, num_ranks)
/* max_nodes if communicators of several nodes can have a network; if not, 1, and says why. */
int32_t tests_max_nodes(int32_t max_nodes);

/* For tests whose ranks are threads that access each other's memory where it is. 0, and says why,
 * under the thread sanitizer: ranks signal each other in heaps, which each has mapped elsewhere, so
 * that to the sanitizer nothing orders those accesses. */
int tests_have_one_mapping(void);
/* Ends the whole program as skipped if it is 0. */
void tests_need_one_mapping(void);

/* Ranks of each node where the network sends memory that a barrier has ordered. The thread
 * sanitizer does not see what the ranks of a node tell each other by shared memory, and would call
 * a race what the barrier orders over another rank of the node. */
#ifdef __SANITIZE_THREAD__
enum { TESTS_RANKS_OF_NODE = 1 };
#else
enum { TESTS_RANKS_OF_NODE = 2 };
#endif

/* What CUDA's driver opens with a process's first communicator and keeps is opened here, so that it
 * is not counted for the test. The id need not be free. */
weft_result tests_warm_up(const weft_unique_id *id);
