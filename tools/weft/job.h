/* SPDX-License-Identifier: MIT */
/* Commands that are themselves the ranks of a job: started alone they start themselves as its
 * ranks. */
#pragma once

#include <stdint.h>

#include "weft.h"

/* Limits of options that several have. MAX_ITERS doubles are one gathered blob, of which the
 * library takes at most 1 MiB. */
enum { MAX_ITERS = 100000, MAX_BLOCKS = 1024, MAX_WARPS = 32, MAX_TIMEOUT_MS = 86400000 };
enum { MAX_CHANNELS = 64, MAX_STAGING_SLOTS = 1 << 16, MAX_STAGING_SLOT_BYTES = 1 << 30 };
extern const char *const job_machine_names[]; /* by weft_machine; NULL behind the last */

/* Rows of options that several have; `...` is OPTION_AT of the place. */
#define JOB_MACHINE(...)                                                                           \
    OPTION_CHOICE, "machine", NULL,                                                                \
        "Run the operations on CPUs, or on a GPU per rank, which several may share; auto is what " \
        "WEFT_MACHINE says, without it cuda where it can be used, else cpu",                       \
        "auto", __VA_ARGS__, .choices = job_machine_names,                                         \
                             .hint = "weft sim checks operations on the sim machine"
#define JOB_TIMEOUT(...)                                                                           \
    OPTION_INTEGER, "timeout-ms", "MS", "Deadline of every wait for another rank", NULL,           \
        __VA_ARGS__, 1, MAX_TIMEOUT_MS, .without = "WEFT_TIMEOUT_MS, or 30000"
#define JOB_ITERS(...)                                                                             \
    OPTION_INTEGER, "iters", "I", "Timed iterations", "20", __VA_ARGS__, 1, MAX_ITERS
#define JOB_WARMUP(usual, ...)                                                                     \
    OPTION_INTEGER, "warmup", "I", "Iterations before these, which are not timed", usual,          \
        __VA_ARGS__, 0, MAX_ITERS
#define JOB_CHANNELS(doc, ...)                                                                     \
    OPTION_INTEGER, "channels", "C", doc "; 0: the library's choice", "0", __VA_ARGS__, 0,         \
        MAX_CHANNELS
#define JOB_STAGING_SLOTS(doc, ...)                                                                \
    OPTION_INTEGER, "staging-slots", "S", doc "; 0: the library's choice", "0", __VA_ARGS__, 0,    \
        MAX_STAGING_SLOTS
#define JOB_STAGING_SLOT_BYTES(doc, ...)                                                           \
    OPTION_SIZE, "staging-slot-bytes", "BYTES", doc "; 0: the library's choice", "0", __VA_ARGS__, \
        0, MAX_STAGING_SLOT_BYTES

enum { JOB_ERROR_BYTES = 256 };

/* Options of commands that are the ranks of a job; 0 is not given. Once the job is known, all but
 * timeout_ms are the job's. */
struct job_options {
    int32_t num_ranks, num_nodes;
    weft_machine machine;
    int32_t timeout_ms;
};

struct job_command {
    const char *name; /* as in messages: "weft coll" */
    int32_t default_ranks;
    struct job_options *job;
    void *options; /* of the command */
    /* Once the job's ranks and nodes are known: 0, or -1 with the error. */
    int (*resolve)(void *options, char error[JOB_ERROR_BYTES]);
    /* Before ranks are started on the machine, or NULL: 0, or -1 to start none, with the exit
     * status. */
    int (*prepare)(void *options, weft_machine machine, int *status);
    /* The work of a rank; returns its exit status. */
    int (*work)(void *options, weft_comm *comm);
};

/* Is a rank of a job, or starts its ranks; argv as the command got it. Returns the exit status. */
int job_run(const struct job_command *command, char **argv);

/* 1 if a launcher that weft_comm_create_from_env knows has started this process; also if variables
 * are missing, which job_join() reports. */
int job_has_rank(void);

/* A rank of a job cannot choose the number of ranks: returns -1, with the reason printed, if the
 * user asks for another number than the job has. Each rank prints it: perhaps this process is no
 * rank, but was started by one. num_ranks 0 or less: the user does not ask. */
int job_check_ranks(const char *name, int32_t num_ranks);

/* Starts this program with `arguments` (a command first, NULL at the end) as the ranks of a job,
 * and returns its exit status. name is that of the command in messages. */
int job_launch(const char *name, int32_t num_ranks, int32_t num_nodes, char *const *arguments);

/* Called before a command starts its own ranks, so that an error is printed once and not by every
 * rank. Returns 0 and the machine for these ranks, or the exit status, with the reason printed. */
int job_choose_machine(const char *name, weft_machine wanted, weft_machine *machine);

/* The communicator of the job that this process is a rank of; or NULL, with the reason told, and
 * the exit status in *status. */
weft_comm *job_join(const char *name, const weft_comm_config *config, int *status);

/* The exit status of a command that ends with result. An argument that the library refuses was an
 * option or a setting. */
int job_status_of(weft_result result);

/* How often ranks that make like steps meet: some times a second. It begins as zeros. */
struct job_pace {
    int32_t num_steps, num_left; /* from meeting to meeting */
    int64_t last_ns;
};
/* Collective, in each step, once signals_heed() was called: WEFT_ERROR_ABORTED if a rank has noted
 * a signal, which job_signal() then tells on all. So all stop at the same place with what there
 * is. */
weft_result job_check_signals(weft_comm *comm, struct job_pace *pace);
int job_signal(void); /* 0: none */
/* The exit status of a command to whose ranks a signal may have come; then rank 0 says so, and that
 * what it has written are the `what` until then. */
int job_status_after_signals(const char *name, weft_comm *comm, const char *what, int status);

/* Collective: rank 0 prints the ranks with their hosts and devices, as nccl-tests does. */
weft_result job_print_ranks(weft_comm *comm);

struct json_t;
/* output_json() of a result on this machine, of whose devices the first is named. */
int job_print_json(struct json_t *object, weft_machine machine);

/* Tells on standard error what is wrong with the arguments; returns the exit status. */
int job_report_usage(const char *name, const char *error);

/* Tells on standard error why a call failed. That a rank failed or aborted is told by one of the
 * others; that the rendezvous is lost, by all. comm may be NULL. */
void job_report_failure(const char *name, weft_comm *comm, weft_result result);
/* The same, and aborts the communicator, so that no rank waits for this one. */
void job_report_and_abort(const char *name, weft_comm *comm, weft_result result);
