/* SPDX-License-Identifier: MIT */
/* The process of a rank ends without weft_comm_destroy, or the system denies what ranks need to
 * share memory. The other ranks learn at once which rank it was, where, and how it ended. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 3, THE_ONE = 1, STATUS = 7, FAR_MS = 30000, SOON_MS = 10000 };

/* ---------------------------------------------------------------- processes that end */

struct plan {
    int32_t rank;
    int status;
};

/* The rank is a child, so that its process may end: the parent belongs to the harness. */
static int end_without_goodbye(struct ranks_context *context, const struct plan *plan)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        weft_comm *comm;
        if (ranks_comm_create(context, NULL, &comm) != WEFT_OK)
            _exit(100);
        exit(plan->status);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status), "it did not exit");
    CHECK(WEXITSTATUS(status) == plan->status, "its status is %d", WEXITSTATUS(status));
    return 0;
}

static int see_one_end(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    char text[96];
    weft_comm *comm;
    int32_t failed_rank;
    if (context->rank == plan->rank)
        return end_without_goodbye(context, plan);
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    weft_result result = WEFT_OK;
    while (result == WEFT_OK)
        result = weft_comm_host_barrier(comm);
    snprintf(text, sizeof text, "left without weft_comm_destroy: its process ended with status %d",
             plan->status);
    CHECK_ERROR(result, WEFT_ERROR_RANK_FAILED, text);
    CHECK(weft_comm_status(comm, &failed_rank) != WEFT_OK && failed_rank == plan->rank,
          "failed_rank is %d", failed_rank);
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

/* The rank is a fork. A fork cannot go on with CUDA, and the address sanitizer takes the
 * allocations of its parent for leaks. */
TEST(a_process_that_ends_is_no_death)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
    if (tests_on_cuda())
        skip();
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        for (int status = 0; status <= STATUS; status += STATUS) {
            struct plan plan = {rank, status};
            assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, see_one_end, &plan), 0);
        }
}

/* ---------------------------------------------------------------- what the system denies */

/* A system call that fails; of socket() only for a family of addresses. */
struct denial {
    int call, family, error;
    const char *text; /* that all ranks are told */
};

/* Denies it to the calling thread and its children. Returns 0 if it cannot. */
static int deny(const struct denial *denial)
{
    const uint32_t domain = offsetof(struct seccomp_data, args);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)denial->call, 0, 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, domain),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)denial->family, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)denial->error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static int create_in_vain(struct ranks_context *context)
{
    const struct denial *denial = context->argument;
    const int64_t begin_ns = clock_ns();
    weft_comm *comm;
    CHECK_ERROR(
        ranks_comm_create(context, WEFT_ARGS(weft_comm_config, .timeout_ms = FAR_MS), &comm),
        WEFT_ERROR_SYSTEM, denial->text);
    CHECK(context->rank == THE_ONE || strstr(weft_last_error(), "rank 1") != NULL, "no rank 1: %s",
          weft_last_error());
    CHECK(clock_ns() - begin_ns < SOON_MS * INT64_C(1000000), "late: %s", weft_last_error());
    return 0;
}

static int create_with_a_denied_one(struct ranks_context *context)
{
    const struct denial *denial = context->argument;
    int status = 0;
    if (context->rank != THE_ONE) /* without a connection nobody can tell them */
        return denial->family == AF_INET ? 0 : create_in_vain(context);
    const pid_t child = fork();
    if (child == 0)
        _exit(deny(denial) ? create_in_vain(context) : 77);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status), "it did not exit");
    CHECK(WEXITSTATUS(status) == 0, "its status is %d", WEXITSTATUS(status));
    return 0;
}

TEST(sockets_denied)
{
    static struct denial all[] = {
        {SYS_socket, AF_UNIX, EACCES,
         "cannot make a Unix socket, over which ranks share memory: Permission denied"},
        {SYS_socket, AF_UNIX, EAFNOSUPPORT,
         "cannot make a Unix socket, over which ranks share memory: Address family not supported "
         "by protocol"},
        {SYS_socket, AF_INET, EPERM,
         "rank 1 cannot make a socket to reach 127.0.0.1: Operation not permitted"},
        {SYS_bind, 0, EPERM,
         "cannot name a Unix socket, over which ranks share memory: Operation not permitted"},
        {SYS_sendmsg, 0, EACCES,
         "rank 1 cannot share its memory with rank 2: sending it a file descriptor over an "
         "abstract Unix socket failed: Permission denied"},
        {SYS_recvmsg, 0, EPERM,
         "rank 1 cannot map the memory of other ranks: receiving a file descriptor over an "
         "abstract Unix socket failed: Operation not permitted"},
    };
#ifdef __SANITIZE_THREAD__ /* forks start no threads */
    skip();
#endif
    if (tests_on_cuda()) /* the denied rank is a fork, too */
        skip();
    const pid_t child = fork();
    int status = 0;
    if (child == 0)
        _exit(deny(&all[0]) ? 0 : 77);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) != 0)
        skip();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (ranks_run(RANKS_PROCESSES, NUM_RANKS, create_with_a_denied_one, &all[i]) != 0)
            fail_msg("%s", all[i].text);
    }
}
