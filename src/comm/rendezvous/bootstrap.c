/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/bootstrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/host/error.h"
#include "comm/host/settings.h"
#include "comm/rendezvous/starter.h"
#include "comm/rendezvous/wire.h"

/* A launcher that says nothing about addresses, and the variables by which it says the rest. */
struct job_launcher {
    enum weft__launcher launcher;
    const char *name;
    const char *mark; /* without this one the others do not count; NULL: they do */
    const char *rank, *num_ranks;
    const char *job_ids[2]; /* the same on all ranks; of each the first that is set counts */
    const char *host_id;    /* the same on the ranks of a host */
    const char *socket;     /* a descriptor; the launcher on this host has its other end */
    const char *step_id;    /* part of the job's id */
    const char *local_size; /* all ranks are on this host if it is num_ranks */
    const char *num_hosts;  /* or if this is 1 */
};

/* The first launcher that has started this process counts. Hydra, MPICH's launcher, starts its
 * daemons by srun if there is one: then the variables of both are set. */
static const struct job_launcher job_launchers[] = {
    {.launcher = WEFT__LAUNCHER_OPEN_MPI,
     .name = "Open MPI",
     .rank = "OMPI_COMM_WORLD_RANK",
     .num_ranks = "OMPI_COMM_WORLD_SIZE",
     .job_ids = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {.launcher = WEFT__LAUNCHER_PMI,
     .name = "mpiexec of MPICH",
     .mark = "MPI_LOCALNRANKS",
     .rank = "PMI_RANK",
     .num_ranks = "PMI_SIZE",
     .job_ids = {"PMI_JOBID"},
     .host_id = "PMI_PORT",
     .socket = "PMI_FD",
     .local_size = "MPI_LOCALNRANKS"},
    /* A batch script or a shell of salloc has the other variables too, but is no step of srun. */
    {.launcher = WEFT__LAUNCHER_SLURM,
     .name = "Slurm",
     .mark = "SLURM_STEP_ID",
     .rank = "SLURM_PROCID",
     .num_ranks = "SLURM_NTASKS",
     .job_ids = {"SLURM_JOB_ID", "SLURM_JOBID"},
     .step_id = "SLURM_STEP_ID",
     .num_hosts = "SLURM_NNODES"},
    {.launcher = WEFT__LAUNCHER_PMI,
     .name = "PMI",
     .rank = "PMI_RANK",
     .num_ranks = "PMI_SIZE",
     .job_ids = {"PMI_JOBID"},
     .host_id = "PMI_PORT",
     .socket = "PMI_FD"},
};

/* NULL if not set or empty. */
static const char *environment(const char *name)
{
    const char *text = name != NULL ? getenv(name) : NULL;
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* ---------------------------------------------------------------- parts */

/* All of the variables are set, or the error names those that are not. */
static weft_result check_complete(const char *const *names, size_t num_names)
{
    char missing[256] = "";
    const char *set = NULL;
    size_t length = 0, num_missing = 0;
    for (size_t i = 0; i < num_names; i++) {
        if (environment(names[i]) == NULL)
            length += (size_t)snprintf(missing + length, sizeof(missing) - length, "%s%s",
                                       num_missing++ > 0 ? ", " : "", names[i]);
        else if (set == NULL)
            set = names[i];
    }
    return num_missing == 0 ? WEFT_OK
                            : weft__invalid("%s is set, but %s %s not", set, missing,
                                            num_missing == 1 ? "is" : "are");
}

static weft_result read_ranks(struct weft__bootstrap *bootstrap, const char *rank_name,
                              const char *num_ranks_name)
{
    bootstrap->rank_name = rank_name;
    bootstrap->num_ranks_name = num_ranks_name;
    int64_t num_ranks = -1, rank = -1;
    weft_result result = weft__environment_number(num_ranks_name, 1, WEFT__MAX_RANKS, &num_ranks);
    if (result == WEFT_OK && num_ranks < 0)
        return weft__invalid("%s is set, but %s is not", rank_name, num_ranks_name);
    if (result == WEFT_OK)
        result = weft__environment_number(rank_name, 0, num_ranks - 1, &rank);
    if (result != WEFT_OK)
        return result;
    bootstrap->rank = (int32_t)rank;
    bootstrap->num_ranks = (int32_t)num_ranks;
    return WEFT_OK;
}

/* WEFT_ADDR and WEFT_PORT go before what the launcher says. */
static weft_result override_point(struct weft__meeting_point *point)
{
    const char *address = weft__setting_text(WEFT__SETTING_ADDR);
    int64_t port = 0;
    weft_result result = weft__setting_number(WEFT__SETTING_PORT, &port);
    if (port > 0) {
        point->port = (uint16_t)port;
        point->port_choice = WEFT__PORT_FIXED;
    }
    if (result == WEFT_OK && address != NULL)
        result = weft__meeting_point_set_address(point, weft__settings[WEFT__SETTING_ADDR].name,
                                                 address);
    return result;
}

/* The job keeps those apart that meet by accident; it is no secret from those who know the
 * environment, as WEFT_SECRET is. */
static weft_result set_nonce(struct weft__bootstrap *bootstrap, const char *job)
{
    const char *secret = weft__setting_text(WEFT__SETTING_SECRET);
    const char *name = weft__settings[WEFT__SETTING_SECRET].name;
    uint64_t halves[2] = {weft__hash(WEFT__HASH_SEED, job, strlen(job)), 0};
    uint8_t secret_bytes[WEFT__NONCE_BYTES] = {0};
    halves[1] = weft__hash(halves[0], job, strlen(job));
    _Static_assert(sizeof(halves) == sizeof(secret_bytes), "a nonce is two hashes");
    weft_result result =
        secret != NULL ? weft__secret_from_hex(secret_bytes, name, secret) : WEFT_OK;
    if (result != WEFT_OK)
        return result;
    memcpy(bootstrap->point.nonce, halves, sizeof(halves));
    for (size_t byte = 0; byte < sizeof(secret_bytes); byte++)
        bootstrap->point.nonce[byte] ^= secret_bytes[byte];
    if (secret != NULL)
        bootstrap->trust = WEFT__TRUST_SECRET;
    return WEFT_OK;
}

/* The caller has set the point's address. The user's address and port override the job's. */
static weft_result meet_as(struct weft__bootstrap *bootstrap, const char *job, int one_host)
{
    bootstrap->trust = one_host ? WEFT__TRUST_SECRET : WEFT__TRUST_JOB;
    WEFT__TRY(set_nonce(bootstrap, job));
    weft__meeting_point_draw_port(&bootstrap->point, job);
    return override_point(&bootstrap->point);
}

/* ---------------------------------------------------------------- launchers */

static weft_result read_weft(struct weft__bootstrap *bootstrap)
{
    const char *const names[] = {weft__settings[WEFT__SETTING_ID].name,
                                 weft__settings[WEFT__SETTING_RANK].name,
                                 weft__settings[WEFT__SETTING_WORLD_SIZE].name};
    weft_unique_id id;
    WEFT__TRY(check_complete(names, sizeof(names) / sizeof(names[0])));
    WEFT__TRY(read_ranks(bootstrap, names[1], names[2]));
    WEFT__TRY(weft__unique_id_from_hex(&id, weft__setting_text(WEFT__SETTING_ID)));
    WEFT__TRY(weft__meeting_point_from_id(&bootstrap->point, &id));
    bootstrap->rendezvous = WEFT__RENDEZVOUS_ELSEWHERE;
    return WEFT_OK;
}

/* The port is drawn: torchrun's store has MASTER_PORT itself, and stores of other jobs have the
 * ports around it. The count of restarts keeps new ranks apart from ranks of the last start, which
 * may still run. It is used on one host only, since each host has a count of its own. */
static weft_result read_torchrun(struct weft__bootstrap *bootstrap)
{
    int64_t port = 0, local_size = 0;
    char job[512];
    weft_result result = read_ranks(bootstrap, "RANK", "WORLD_SIZE");
    if (result == WEFT_OK)
        result = weft__environment_number("LOCAL_WORLD_SIZE", 1, bootstrap->num_ranks, &local_size);
    if (result != WEFT_OK || bootstrap->num_ranks == 1)
        return result;
    const char *address = environment("MASTER_ADDR");
    if (address == NULL || environment("MASTER_PORT") == NULL)
        return weft__invalid("RANK is set, but %s is not",
                             address == NULL ? "MASTER_ADDR" : "MASTER_PORT");
    result = weft__environment_number("MASTER_PORT", 1, UINT16_MAX, &port);
    const int one_host = local_size == bootstrap->num_ranks || weft__address_is_loopback(address);
    if (result == WEFT_OK)
        result = weft__meeting_point_set_address(&bootstrap->point, "MASTER_ADDR",
                                                 one_host ? WEFT__LOOPBACK : address);
    if (result != WEFT_OK)
        return result;
    const char *run_id = environment("TORCHELASTIC_RUN_ID");
    const char *restarts = one_host ? environment("TORCHELASTIC_RESTART_COUNT") : NULL;
    snprintf(job, sizeof(job), "torchrun %s %lld %.256s %.16s", address, (long long)port,
             run_id != NULL ? run_id : "", restarts != NULL ? restarts : "0");
    return meet_as(bootstrap, job, one_host);
}

static weft_result is_one_host(const struct job_launcher *job, int32_t num_ranks, int *one_host)
{
    int64_t local_size = num_ranks, num_hosts = 1;
    weft_result result = WEFT_OK;
    if (job->local_size != NULL)
        result = weft__environment_number(job->local_size, 1, WEFT__MAX_RANKS, &local_size);
    if (result == WEFT_OK && job->num_hosts != NULL)
        result = weft__environment_number(job->num_hosts, 1, WEFT__MAX_RANKS, &num_hosts);
    *one_host = local_size == num_ranks && num_hosts == 1;
    return result;
}

/* Finds an id that all ranks of this job have, and no other job has; "" if the launcher gives none.
 * Ranks that an MPI program spawns have the same starter as the program itself, so the starter does
 * not tell the two jobs apart. */
static void find_id(const struct job_launcher *launcher, int one_host, char *id, size_t id_bytes)
{
    const char *given = environment(launcher->job_ids[0]);
    if (given == NULL)
        given = environment(launcher->job_ids[1]);
    if (given == NULL && one_host)
        given = environment(launcher->host_id);
    snprintf(id, id_bytes, "%.256s", given != NULL ? given : "");
    int64_t fd = -1;
    if (given == NULL && one_host && environment(launcher->socket) != NULL &&
        environment("PMI_SPAWNED") == NULL &&
        weft__environment_number(launcher->socket, 0, INT32_MAX, &fd) == WEFT_OK)
        weft__starter_name((int)fd, id, id_bytes);
}

/* Names the variables that the user must set because the launcher does not tell enough. Two jobs
 * must not meet by a guess. */
static weft_result check_can_meet(const struct job_launcher *launcher, int one_host, const char *id)
{
    const int has_address = weft__setting_text(WEFT__SETTING_ADDR) != NULL;
    const int has_port = weft__setting_text(WEFT__SETTING_PORT) != NULL;
    const int has_secret = weft__setting_text(WEFT__SETTING_SECRET) != NULL;
    if (!one_host && (!has_address || !has_port || (id[0] == '\0' && !has_secret)))
        return weft__invalid("%s started ranks on several hosts: WEFT_ADDR and WEFT_PORT must be "
                             "set to an address of rank 0's host and a free port there%s",
                             launcher->name,
                             id[0] != '\0'
                                 ? ""
                                 : ", and WEFT_SECRET to 32 random hexadecimal digits, as "
                                   "nothing tells this job from others");
    if (id[0] == '\0' && (!has_port || !has_secret))
        return weft__invalid("%s and %s are set, as by %s, but nothing tells its job from others: "
                             "WEFT_PORT must be set to a free port and WEFT_SECRET to 32 random "
                             "hexadecimal digits, the same on all ranks",
                             launcher->rank, launcher->num_ranks, launcher->name);
    return WEFT_OK;
}

static weft_result read_job(struct weft__bootstrap *bootstrap, const struct job_launcher *launcher)
{
    int one_host = 0;
    char id[300], job[512];
    weft_result result = read_ranks(bootstrap, launcher->rank, launcher->num_ranks);
    if (result == WEFT_OK)
        result = is_one_host(launcher, bootstrap->num_ranks, &one_host);
    if (result != WEFT_OK || bootstrap->num_ranks == 1)
        return result;
    find_id(launcher, one_host, id, sizeof(id));
    WEFT__TRY(check_can_meet(launcher, one_host, id));
    const char *step = environment(launcher->step_id);
    snprintf(job, sizeof(job), "%s %u %s %.64s", launcher->name, getuid(), id,
             step != NULL ? step : "");
    snprintf(bootstrap->point.address, sizeof(bootstrap->point.address), "%s", WEFT__LOOPBACK);
    return meet_as(bootstrap, job, one_host);
}

/* Slurm has step numbers from 0xfffffff0 on for processes that are no step of srun, such as an
 * interactive shell. */
static int has_started_us(const struct job_launcher *launcher)
{
    const char *mark = environment(launcher->mark);
    if (environment(launcher->rank) == NULL || (launcher->mark != NULL && mark == NULL))
        return 0;
    return launcher->launcher != WEFT__LAUNCHER_SLURM || strtoull(mark, NULL, 10) < 0xfffffff0;
}

static int is_same(const char *name, const char *other_name)
{
    const char *text = environment(name), *other = environment(other_name);
    return text != NULL && other != NULL && strcmp(text, other) == 0;
}

/* mpiexec may run inside a rank of another MPI. Then the environment has the variables of both, and
 * does not tell which of the two is the inner one. */
static weft_result check_is_only_mpi(const struct job_launcher *launcher)
{
    for (size_t index = 0; index < sizeof(job_launchers) / sizeof(job_launchers[0]); index++) {
        const struct job_launcher *other = &job_launchers[index];
        if (other->launcher == launcher->launcher || other->launcher == WEFT__LAUNCHER_SLURM ||
            !has_started_us(other) ||
            (is_same(launcher->rank, other->rank) &&
             is_same(launcher->num_ranks, other->num_ranks)))
            continue;
        return weft__invalid("%s is set, as by %s, and %s, as by %s, and they do not agree: unset "
                             "the variables of the launcher that runs the other one",
                             launcher->num_ranks, launcher->name, other->num_ranks, other->name);
    }
    return WEFT_OK;
}

/* No launcher seems to have started this process. But if a launcher has set a part of its
 * variables, a job of one rank would be a silent mistake. Two cases prove no launcher: a name alone
 * that other programs use too, and the variables of a shell inside an allocation of Slurm. */
static weft_result check_nothing_is_set(void)
{
    static const char *const torchrun[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    static const char *const by_port[] = {"PMI_ID", "PMI_RANK", "PMI_SIZE"};
    const int has_meeting_point =
        environment("MASTER_ADDR") != NULL || environment("MASTER_PORT") != NULL;
    const int has_number = environment("RANK") != NULL || environment("WORLD_SIZE") != NULL;
    for (size_t index = 0; index < sizeof(job_launchers) / sizeof(job_launchers[0]); index++) {
        const struct job_launcher *launcher = &job_launchers[index];
        const char *const names[] = {launcher->num_ranks, launcher->rank};
        if (launcher->launcher != WEFT__LAUNCHER_SLURM && environment(names[0]) != NULL)
            return check_complete(names, 2);
    }
    if (environment("PMI_ID") != NULL && environment("PMI_PORT") != NULL)
        return check_complete(by_port, sizeof(by_port) / sizeof(by_port[0]));
    return has_number && has_meeting_point
               ? check_complete(torchrun, sizeof(torchrun) / sizeof(torchrun[0]))
               : WEFT_OK;
}

weft_result weft__bootstrap_read(struct weft__bootstrap *bootstrap)
{
    *bootstrap = (struct weft__bootstrap){.num_ranks = 1, .rendezvous = WEFT__RENDEZVOUS_AT_RANK_0};
    if (weft__setting_text(WEFT__SETTING_ID) != NULL ||
        weft__setting_text(WEFT__SETTING_RANK) != NULL ||
        weft__setting_text(WEFT__SETTING_WORLD_SIZE) != NULL) {
        bootstrap->launcher = WEFT__LAUNCHER_WEFT;
        bootstrap->launcher_name = "weft run";
        return read_weft(bootstrap);
    }
    if (environment("RANK") != NULL && environment("WORLD_SIZE") != NULL) {
        bootstrap->launcher = WEFT__LAUNCHER_TORCHRUN;
        bootstrap->launcher_name = "torchrun";
        return read_torchrun(bootstrap);
    }
    for (size_t index = 0; index < sizeof(job_launchers) / sizeof(job_launchers[0]); index++) {
        if (!has_started_us(&job_launchers[index]))
            continue;
        WEFT__TRY(check_is_only_mpi(&job_launchers[index]));
        bootstrap->launcher = job_launchers[index].launcher;
        bootstrap->launcher_name = job_launchers[index].name;
        return read_job(bootstrap, &job_launchers[index]);
    }
    return check_nothing_is_set();
}
