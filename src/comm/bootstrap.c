/* SPDX-License-Identifier: MIT */
#include "comm/bootstrap.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/error.h"
#include "comm/log.h"
#include "comm/rendezvous.h"
#include "comm/settings.h"
#include "comm/wire.h"

static const char loopback[] = "127.0.0.1";

/* A launcher that says nothing about addresses, and the variables by which it says the rest. */
struct job_launcher {
    enum weft__launcher launcher;
    const char *name;
    const char *rank, *num_ranks;
    const char *job_ids[2]; /* the same on all ranks; of each the first that is set counts */
    const char *step_id;    /* part of the job's id */
    const char *local_size; /* all ranks are on this host if it is num_ranks */
    const char *num_hosts;  /* or if this is 1 */
    enum {
        NUM_RANKS_NEEDS_RANK,
        NUM_RANKS_MAY_BE_ALONE /* in an allocation, where nothing has been started */
    } completeness;
};

static const struct job_launcher job_launchers[] = {
    {.launcher = WEFT__LAUNCHER_OPEN_MPI,
     .name = "Open MPI",
     .rank = "OMPI_COMM_WORLD_RANK",
     .num_ranks = "OMPI_COMM_WORLD_SIZE",
     .job_ids = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {.launcher = WEFT__LAUNCHER_SLURM,
     .name = "Slurm",
     .rank = "SLURM_PROCID",
     .num_ranks = "SLURM_NTASKS",
     .job_ids = {"SLURM_JOB_ID", "SLURM_JOBID"},
     .step_id = "SLURM_STEP_ID",
     .num_hosts = "SLURM_NNODES",
     .completeness = NUM_RANKS_MAY_BE_ALONE},
    {.launcher = WEFT__LAUNCHER_PMI,
     .name = "PMI",
     .rank = "PMI_RANK",
     .num_ranks = "PMI_SIZE",
     .job_ids = {"PMI_JOBID", "PMI_PORT"},
     .local_size = "MPI_LOCALNRANKS"},
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
                            : weft__error(WEFT_ERROR_INVALID_ARGUMENT, "%s is set, but %s %s not",
                                          set, missing, num_missing == 1 ? "is" : "are");
}

static weft_result read_ranks(struct weft__bootstrap *bootstrap, const char *rank_name,
                              const char *num_ranks_name)
{
    int64_t num_ranks = -1, rank = -1;
    weft_result result = weft__environment_number(num_ranks_name, 1, WEFT__MAX_RANKS, &num_ranks);
    if (result == WEFT_OK && num_ranks < 0)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "%s is set, but %s is not", rank_name,
                           num_ranks_name);
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
    int64_t port = point->port;
    weft_result result = weft__setting_number(WEFT__SETTING_PORT, &port);
    point->port = (uint16_t)port;
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

/* MASTER_PORT itself is taken by the store of torchrun. */
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
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "RANK is set, but %s is not",
                           address == NULL ? "MASTER_ADDR" : "MASTER_PORT");
    result = weft__environment_number("MASTER_PORT", 1, UINT16_MAX - 1, &port);
    if (result == WEFT_OK)
        result = weft__meeting_point_set_address(&bootstrap->point, "MASTER_ADDR", address);
    if (result != WEFT_OK)
        return result;
    const int one_host = local_size == bootstrap->num_ranks || strcmp(address, loopback) == 0 ||
                         strcmp(address, "localhost") == 0;
    bootstrap->trust = one_host ? WEFT__TRUST_SECRET : WEFT__TRUST_JOB;
    const char *run_id = environment("TORCHELASTIC_RUN_ID");
    snprintf(job, sizeof(job), "torchrun %s %lld %.256s", address, (long long)port,
             run_id != NULL ? run_id : "");
    bootstrap->point.port = (uint16_t)(port + 1);
    result = set_nonce(bootstrap, job);
    return result == WEFT_OK ? override_point(&bootstrap->point) : result;
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

/* Without a job's id the session is what the ranks of a launcher on one host have in common; on
 * several they have nothing. */
static void describe_job(const struct job_launcher *launcher, int one_host, char *job,
                         size_t job_bytes)
{
    const char *id = environment(launcher->job_ids[0]);
    const char *step = environment(launcher->step_id);
    char session[32] = "";
    if (one_host)
        snprintf(session, sizeof(session), "session %d", getsid(0));
    if (id == NULL)
        id = environment(launcher->job_ids[1]);
    snprintf(job, job_bytes, "%s %u %.256s %.64s", launcher->name, getuid(),
             id != NULL ? id : session, step != NULL ? step : "");
}

static weft_result read_job(struct weft__bootstrap *bootstrap, const struct job_launcher *launcher)
{
    enum { FIRST_PORT = 20000, NUM_PORTS = 10000 }; /* below those that systems hand out */
    int one_host = 0;
    char job[512];
    weft_result result = read_ranks(bootstrap, launcher->rank, launcher->num_ranks);
    if (result == WEFT_OK)
        result = is_one_host(launcher, bootstrap->num_ranks, &one_host);
    if (result != WEFT_OK || bootstrap->num_ranks == 1)
        return result;
    if (!one_host && (weft__setting_text(WEFT__SETTING_ADDR) == NULL ||
                      weft__setting_text(WEFT__SETTING_PORT) == NULL))
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "%s started ranks on several hosts: WEFT_ADDR and WEFT_PORT must be set "
                           "to an address of rank 0's host and a free port there",
                           launcher->name);
    describe_job(launcher, one_host, job, sizeof(job));
    bootstrap->trust = one_host ? WEFT__TRUST_SECRET : WEFT__TRUST_JOB;
    result = set_nonce(bootstrap, job);
    if (result != WEFT_OK)
        return result;
    bootstrap->point.port =
        (uint16_t)(FIRST_PORT + weft__hash(WEFT__HASH_SEED, job, strlen(job)) % NUM_PORTS);
    snprintf(bootstrap->point.address, sizeof(bootstrap->point.address), "%s", loopback);
    return override_point(&bootstrap->point);
}

/* Nobody has started this process, as it seems. But a job of one rank would be a silent mistake
 * where a launcher has set a part of its variables; only names that others use too say nothing when
 * they are alone. */
static weft_result check_nothing_is_set(void)
{
    static const char *const torchrun[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    const int has_meeting_point =
        environment("MASTER_ADDR") != NULL || environment("MASTER_PORT") != NULL;
    const int has_number = environment("RANK") != NULL || environment("WORLD_SIZE") != NULL;
    for (size_t index = 0; index < sizeof(job_launchers) / sizeof(job_launchers[0]); index++) {
        const struct job_launcher *launcher = &job_launchers[index];
        const char *const names[] = {launcher->num_ranks, launcher->rank};
        if (launcher->completeness == NUM_RANKS_NEEDS_RANK && environment(names[0]) != NULL)
            return check_complete(names, 2);
    }
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
        return read_weft(bootstrap);
    }
    if (environment("RANK") != NULL && environment("WORLD_SIZE") != NULL) {
        bootstrap->launcher = WEFT__LAUNCHER_TORCHRUN;
        return read_torchrun(bootstrap);
    }
    for (size_t index = 0; index < sizeof(job_launchers) / sizeof(job_launchers[0]); index++) {
        if (environment(job_launchers[index].rank) == NULL)
            continue;
        bootstrap->launcher = job_launchers[index].launcher;
        return read_job(bootstrap, &job_launchers[index]);
    }
    return check_nothing_is_set();
}

/* ---------------------------------------------------------------- starting */

/* How many communicators this process has started at each meeting point. */
struct meeting_count {
    struct meeting_count *next;
    struct weft__meeting_point point;
    uint64_t num_communicators;
};

static struct {
    pthread_mutex_t mutex;
    struct meeting_count *first;
} counts = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static weft_result count_communicator(const struct weft__meeting_point *point, uint64_t *key)
{
    pthread_mutex_lock(&counts.mutex);
    struct meeting_count *count = counts.first;
    while (count != NULL && (count->point.port != point->port ||
                             memcmp(count->point.nonce, point->nonce, sizeof(point->nonce)) != 0))
        count = count->next;
    if (count == NULL && (count = calloc(1, sizeof(*count))) != NULL) {
        count->point = *point;
        count->next = counts.first;
        counts.first = count;
    }
    if (count != NULL)
        *key = count->num_communicators++;
    pthread_mutex_unlock(&counts.mutex);
    return count != NULL ? WEFT_OK
                         : weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a meeting point");
}

weft_result weft__bootstrap_start(struct weft__bootstrap *bootstrap, uint64_t *key)
{
    *key = 0;
    if (bootstrap->num_ranks == 1)
        return WEFT_OK;
    weft_result result = WEFT_OK;
    int serves = bootstrap->rendezvous == WEFT__RENDEZVOUS_AT_RANK_0 && bootstrap->rank == 0;
    if (serves && bootstrap->trust == WEFT__TRUST_JOB)
        weft__log(WEFT__LOG_WARN, 0,
                  "only the job's id tells ranks on other hosts from strangers, who may guess it; "
                  "set WEFT_SECRET, on all hosts, to 32 random hexadecimal digits");
    if (serves)
        result = weft__rendezvous_serve(&bootstrap->point, WEFT__LISTEN_ON_REACHABLE);
    return result == WEFT_OK ? count_communicator(&bootstrap->point, key) : result;
}

weft_result weft__unique_id_create(weft_unique_id *id)
{
    const char *address = weft__setting_text(WEFT__SETTING_ADDR);
    const char *name = weft__settings[WEFT__SETTING_ADDR].name;
    struct weft__meeting_point point = {0};
    weft__log_configure();
    if (address == NULL)
        address = loopback;
    WEFT__TRY(weft__meeting_point_set_address(&point, name, address));
    WEFT__TRY(weft__random_bytes(point.nonce, sizeof(point.nonce)));
    WEFT__TRY(weft__rendezvous_serve(&point, WEFT__LISTEN_ON_ADDRESS));
    weft__meeting_point_to_id(&point, id);
    return WEFT_OK;
}

weft_result weft__unique_id_serve(const weft_unique_id *id)
{
    struct weft__meeting_point point;
    weft__log_configure();
    weft_result result = weft__meeting_point_from_id(&point, id);
    return result == WEFT_OK ? weft__rendezvous_serve(&point, WEFT__LISTEN_FOR_OTHER_HOSTS)
                             : result;
}
