/* SPDX-License-Identifier: MIT */
#include "harness/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/cmocka.h"

enum { SKIPPED = 77 };

struct answer {
    weft_result result; /* UNSUPPORTED if the machine is not usable */
    weft_machine machine;
    int32_t num_devices;
    char message[512];
};

static int32_t num_devices;

/* Without a context, which takes long to make. */
static struct answer query(void)
{
    weft_machine_info info = WEFT_INIT(weft_machine_info);
    struct answer answer = {.result = weft_machine_query(WEFT_MACHINE_AUTO, &info)};
    const int is_known = answer.result == WEFT_OK;
    if (is_known && !info.is_usable)
        answer.result = WEFT_ERROR_UNSUPPORTED;
    answer.machine = info.machine;
    answer.num_devices = info.num_devices;
    snprintf(answer.message, sizeof answer.message, "%s",
             is_known ? info.reason : weft_last_error());
    return answer;
}

static struct answer ask_child(void)
{
    struct answer answer = {.result = WEFT_ERROR_SYSTEM, .message = "the child died"};
    int ends[2];
    if (pipe(ends) != 0)
        return answer;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        const struct answer own = query();
        _exit(write(ends[1], &own, sizeof own) != (ssize_t)sizeof own);
    }
    close(ends[1]);
    struct answer told;
    if (read(ends[0], &told, sizeof told) == (ssize_t)sizeof told)
        answer = told;
    close(ends[0]);
    waitpid(pid, NULL, 0);
    return answer;
}

void tests_choose_machine(void)
{
    static int is_chosen;
    if (is_chosen)
        return;
    is_chosen = 1;
    /* Without the caller's word tests take no GPU. */
    setenv("WEFT_MACHINE", "cpu", 0);
    if (strcmp(getenv("WEFT_MACHINE"), "cpu") == 0)
        return;
    const struct answer answer = ask_child();
    if (answer.result == WEFT_ERROR_UNSUPPORTED) {
        printf("skipped: %s\n", answer.message);
        exit(SKIPPED);
    }
    if (answer.result != WEFT_OK) {
        fprintf(stderr, "WEFT_MACHINE=%s: %s: %s\n", getenv("WEFT_MACHINE"),
                weft_result_string(answer.result), answer.message);
        exit(EXIT_FAILURE);
    }
    num_devices = answer.num_devices;
    setenv("WEFT_MACHINE", answer.machine == WEFT_MACHINE_CUDA ? "cuda" : "cpu", 1);
}

int tests_on_cuda(void)
{
    tests_choose_machine();
    return strcmp(getenv("WEFT_MACHINE"), "cuda") == 0;
}

int32_t tests_num_devices(void)
{
    tests_choose_machine();
    return num_devices;
}

int32_t tests_num_queues(int32_t num_ranks)
{
    enum { QUEUES_PER_RANK = 8, MAX_QUEUES = 32 };
    if (!tests_on_cuda() || num_ranks <= num_devices)
        return QUEUES_PER_RANK;
    const int32_t num_queues = (num_ranks + num_devices - 1) / num_devices * QUEUES_PER_RANK;
    return num_queues < MAX_QUEUES ? num_queues : MAX_QUEUES;
}

void tests_expect_ranks(int32_t num_ranks)
{
    char text[16];
    if (!tests_on_cuda() || num_ranks <= num_devices)
        return;
    snprintf(text, sizeof text, "%d", tests_num_queues(num_ranks));
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", text, 1);
}

int tests_rounds(int on_cpu, int on_cuda)
{
    return tests_on_cuda() ? on_cuda : on_cpu;
}

int32_t tests_grid_size(int32_t full, int32_t small)
{
    const char *grid = getenv("WEFT_TEST_GRID");
    return grid != NULL && strcmp(grid, "small") == 0 ? small : full;
}

uint32_t tests_deadline_ms(uint32_t ms)
{
    enum { SLOWDOWN = 3 };
    const char *initiator = getenv("WEFT_NET_INITIATOR");
    int is_slow = initiator != NULL && strcmp(initiator, "model") == 0;
#ifdef __SANITIZE_THREAD__
    is_slow = 1;
#endif
    return is_slow ? ms * SLOWDOWN : ms;
}

weft_result tests_warm_up(const weft_unique_id *id)
{
    weft_comm *comm;
    if (!tests_on_cuda())
        return WEFT_OK;
    const weft_result result = weft_comm_create(id, 0, 1, NULL, &comm);
    return result == WEFT_OK ? weft_comm_destroy(comm) : result;
}

/* In a process of its own: what an engine loads must not be there in the processes that fork. */
int tests_network_is_there(const char *engine)
{
    int status = -1;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        weft_net_info info = WEFT_INIT(weft_net_info);
        setenv("WEFT_NET", engine, 1);
        const weft_result result = weft_net_query(NULL, &info);
        const int is_there = result == WEFT_OK && info.engine[0] != '\0';
        if (!is_there)
            printf("no network engine %s: %s\n", engine,
                   result == WEFT_OK ? info.reason : weft_last_error());
        fflush(NULL);
        _exit(!is_there);
    }
    waitpid(pid, &status, 0);
    return status == 0;
}

void tests_over(const char *engine, void (*test)(const char *engine))
{
    const int is_chosen = strcmp(engine, "auto") != 0;
    if (!tests_network_is_there(engine))
        skip();
    if (is_chosen)
        setenv("WEFT_NET", engine, 1);
    test(engine);
    if (is_chosen)
        unsetenv("WEFT_NET");
}

int32_t tests_max_nodes(int32_t max_nodes)
{
    return tests_network_is_there("auto") ? max_nodes : 1;
}

int tests_have_one_mapping(void)
{
#ifdef __SANITIZE_THREAD__
    printf("skipped: the thread sanitizer does not see signals between mappings\n");
    return 0;
#else
    return 1;
#endif
}

void tests_need_one_mapping(void)
{
    if (!tests_have_one_mapping())
        exit(77);
}
