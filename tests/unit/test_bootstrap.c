/* SPDX-License-Identifier: MIT */
/* Settings, unique ids and the environments of launchers, as far as they are only read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"
#include "comm/host/settings.h"
#include "comm/rendezvous/bootstrap.h"
#include "harness/cmocka.h"

static const char *const launcher_variables[] = {"RANK",
                                                 "WORLD_SIZE",
                                                 "MASTER_ADDR",
                                                 "MASTER_PORT",
                                                 "TORCHELASTIC_RUN_ID",
                                                 "TORCHELASTIC_RESTART_COUNT",
                                                 "LOCAL_WORLD_SIZE",
                                                 "OMPI_COMM_WORLD_RANK",
                                                 "PMIX_NAMESPACE",
                                                 "OMPI_COMM_WORLD_SIZE",
                                                 "OMPI_COMM_WORLD_LOCAL_SIZE",
                                                 "SLURM_PROCID",
                                                 "SLURM_NTASKS",
                                                 "OMPI_MCA_ess_base_jobid",
                                                 "SLURM_JOB_ID",
                                                 "SLURM_STEP_ID",
                                                 "SLURM_NNODES",
                                                 "SLURM_JOBID",
                                                 "PMI_RANK",
                                                 "PMI_SIZE",
                                                 "PMI_JOBID",
                                                 "PMI_PORT",
                                                 "PMI_ID",
                                                 "PMI_FD",
                                                 "PMI_SPAWNED",
                                                 "MPI_LOCALNRANKS"};

static int clear_environment(void **state)
{
    (void)state;
    for (size_t index = 0; index < sizeof(launcher_variables) / sizeof(launcher_variables[0]);
         index++)
        unsetenv(launcher_variables[index]);
    for (int setting = 0; setting < WEFT__NUM_SETTINGS; setting++)
        unsetenv(weft__settings[setting].name);
    return 0;
}

#define TEST_IN_EMPTY(name) TEST_AS(name, cmocka_unit_test_setup(name, clear_environment))

/* Sets "NAME=value" pairs separated by blanks. */
static void set_environment(const char *assignments)
{
    char copy[512];
    clear_environment(NULL);
    snprintf(copy, sizeof(copy), "%s", assignments);
    for (char *rest = copy, *item; (item = strtok_r(rest, " ", &rest)) != NULL;) {
        char *value = strchr(item, '=');
        *value = '\0';
        setenv(item, value + 1, 1);
    }
}

static struct weft__bootstrap read_good(const char *assignments)
{
    struct weft__bootstrap bootstrap;
    set_environment(assignments);
    weft_result result = weft__bootstrap_read(&bootstrap);
    if (result != WEFT_OK)
        fail_msg("%s: %s", assignments, weft__last_error());
    return bootstrap;
}

/* The message must contain each of `words`, which are separated by blanks. */
static void check_bad(const char *assignments, const char *words)
{
    struct weft__bootstrap bootstrap;
    char copy[256];
    set_environment(assignments);
    assert_int_equal(weft__bootstrap_read(&bootstrap), WEFT_ERROR_INVALID_ARGUMENT);
    snprintf(copy, sizeof(copy), "%s", words);
    for (char *rest = copy, *word; (word = strtok_r(rest, " ", &rest)) != NULL;)
        if (strstr(weft__last_error(), word) == NULL)
            fail_msg("%s: the message lacks \"%s\": %s", assignments, word, weft__last_error());
}

TEST_IN_EMPTY(every_setting_is_documented)
{
    for (int setting = 0; setting < WEFT__NUM_SETTINGS; setting++) {
        assert_int_equal(strncmp(weft__settings[setting].name, "WEFT_", 5), 0);
        assert_true(strlen(weft__settings[setting].help) > 10);
        const char *text = weft__setting_text((enum weft__setting)setting);
        assert_ptr_equal(text, weft__settings[setting].default_value);
    }
}

TEST_IN_EMPTY(numbers_are_checked)
{
    int64_t value = 17;
    assert_ok(weft__setting_number(WEFT__SETTING_NODES, &value));
    assert_int_equal(value, 17);
    assert_ok(weft__setting_number(WEFT__SETTING_TIMEOUT_MS, &value));
    assert_int_equal(value, 30000);
    setenv("WEFT_NODES", "8", 1);
    assert_ok(weft__setting_number(WEFT__SETTING_NODES, &value));
    assert_int_equal(value, 8);
    setenv("WEFT_NODES", "", 1);
    assert_ok(weft__setting_number(WEFT__SETTING_NODES, &value));
    const char *const bad[] = {"65537", "0", "-1", "two", "2x", "0x2", " ", "99999999999999999999"};
    for (size_t index = 0; index < sizeof(bad) / sizeof(bad[0]); index++) {
        setenv("WEFT_NODES", bad[index], 1);
        assert_error(weft__setting_number(WEFT__SETTING_NODES, &value), WEFT_ERROR_INVALID_ARGUMENT,
                     "WEFT_NODES");
        assert_non_null(strstr(weft__last_error(), bad[index]));
        assert_int_equal(value, 8);
    }
}

/* Each word that a setting names is allowed, and no other. */
TEST_IN_EMPTY(words_are_checked)
{
    int num_with_words = 0;
    assert_ok(weft__settings_check());
    for (int setting = 0; setting < WEFT__NUM_SETTINGS; setting++) {
        const struct weft__setting_info *info = &weft__settings[setting];
        int index = -1;
        if (info->words == NULL)
            continue;
        num_with_words++;
        for (int word = 0; info->words[word] != NULL; word++) {
            setenv(info->name, info->words[word], 1);
            assert_ok(weft__setting_word((enum weft__setting)setting, &index));
            assert_int_equal(index, word);
            assert_ok(weft__settings_check());
        }
        setenv(info->name, "pigeon", 1);
        assert_error(weft__settings_check(), WEFT_ERROR_INVALID_ARGUMENT, info->name);
        assert_non_null(strstr(weft__last_error(), " is \"pigeon\"; it must be "));
        unsetenv(info->name);
    }
    assert_int_equal(num_with_words, 6);
    setenv("WEFT_CUDA_HEAP", "IPC", 1);
    assert_int_equal(weft__settings_check(), WEFT_ERROR_INVALID_ARGUMENT);
    assert_string_equal(weft__last_error(), "WEFT_CUDA_HEAP is \"IPC\"; it must be auto or ipc");
}

TEST_IN_EMPTY(ids_keep_the_meeting_point)
{
    struct weft__meeting_point point = {
        .address = "10.1.2.3", .port = 4711, .nonce = {1, 2, 3, 0, 255}};
    struct weft__meeting_point copy;
    weft_unique_id id, parsed;
    weft__meeting_point_to_id(&point, &id);
    assert_ok(weft__meeting_point_from_id(&copy, &id));
    assert_string_equal(copy.address, point.address);
    assert_int_equal(copy.port, point.port);
    assert_memory_equal(copy.nonce, point.nonce, sizeof(point.nonce));

    char hex[2 * sizeof(id.bytes) + 1];
    for (size_t byte = 0; byte < sizeof(id.bytes); byte++)
        snprintf(hex + 2 * byte, 3, byte % 2 ? "%02X" : "%02x", id.bytes[byte]);
    assert_ok(weft__unique_id_from_hex(&parsed, hex));
    assert_memory_equal(&parsed, &id, sizeof(id));
    hex[77] = 'g';
    assert_int_equal(weft__unique_id_from_hex(&parsed, hex), WEFT_ERROR_INVALID_ARGUMENT);
    hex[77] = '\0';
    assert_int_equal(weft__unique_id_from_hex(&parsed, hex), WEFT_ERROR_INVALID_ARGUMENT);

    memset(&id, 0, sizeof(id));
    assert_int_equal(weft__meeting_point_from_id(&copy, &id), WEFT_ERROR_INVALID_ARGUMENT);
    memset(&id, 'w', sizeof(id));
    assert_int_equal(weft__meeting_point_from_id(&copy, &id), WEFT_ERROR_INVALID_ARGUMENT);
}

TEST_IN_EMPTY(no_launcher_is_one_rank)
{
    struct weft__bootstrap alone = read_good("");
    assert_int_equal(alone.launcher, WEFT__LAUNCHER_NONE);
    assert_int_equal(alone.rank, 0);
    assert_int_equal(alone.num_ranks, 1);
    /* A name that others use too says nothing when it is alone; nor does an allocation of Slurm. */
    assert_int_equal(read_good("SLURM_NTASKS=4").launcher, WEFT__LAUNCHER_NONE);
    /* A script of sbatch and a shell of salloc have the variables of a rank, but no step of srun.
     * The step of an interactive shell does not count. */
    static const char *const scripts[] = {
        "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7 SLURM_NNODES=1",
        "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7 SLURM_NNODES=2",
        "SLURM_PROCID=0 SLURM_JOB_ID=7 SLURM_NNODES=1",
        "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7 SLURM_STEP_ID=",
        "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7 SLURM_STEP_ID=4294967290",
        "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7 SLURM_STEP_ID=4294967291"};
    for (size_t index = 0; index < sizeof(scripts) / sizeof(scripts[0]); index++) {
        struct weft__bootstrap script = read_good(scripts[index]);
        assert_int_equal(script.launcher, WEFT__LAUNCHER_NONE);
        assert_int_equal(script.num_ranks, 1);
    }
    assert_int_equal(read_good("MASTER_ADDR=h1 MASTER_PORT=29500").launcher, WEFT__LAUNCHER_NONE);
    assert_int_equal(read_good("WORLD_SIZE=4").launcher, WEFT__LAUNCHER_NONE);
}

/* Not a silent job of one rank. */
TEST_IN_EMPTY(half_of_a_launcher_is_refused)
{
    check_bad("WEFT_RANK=1 WEFT_WORLD_SIZE=2", "WEFT_RANK WEFT_ID");
    check_bad("WEFT_WORLD_SIZE=2", "WEFT_WORLD_SIZE WEFT_ID WEFT_RANK");
    check_bad("WEFT_ID=00", "WEFT_ID WEFT_RANK, WEFT_WORLD_SIZE");
    check_bad("RANK=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500", "RANK WORLD_SIZE");
    check_bad("WORLD_SIZE=3 MASTER_ADDR=127.0.0.1", "RANK, MASTER_PORT WORLD_SIZE");
    check_bad("RANK=0 WORLD_SIZE=2", "MASTER_ADDR");
    check_bad("OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK");
    check_bad("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK");
    check_bad("PMI_SIZE=2", "PMI_SIZE PMI_RANK");
    check_bad("PMI_RANK=0", "PMI_SIZE PMI_RANK");
    check_bad("SLURM_STEP_ID=0 SLURM_PROCID=0", "SLURM_PROCID SLURM_NTASKS");
    check_bad("PMI_ID=1 PMI_PORT=h1:4000", "PMI_ID PMI_RANK, PMI_SIZE"); /* mpiexec -pmi-port */
    /* MPICH's mpiexec runs in a rank of mpirun, or the other way round. In a step of srun this is
     * allowed, since srun starts the daemons of launchers. */
    check_bad("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 PMI_RANK=1 PMI_SIZE=2 "
              "MPI_LOCALNRANKS=2",
              "OMPI_COMM_WORLD_SIZE PMI_SIZE Open MPICH unset");
    assert_int_equal(read_good("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 SLURM_PROCID=1 "
                               "SLURM_NTASKS=2 SLURM_STEP_ID=0")
                         .num_ranks,
                     1);
    /* Who uses a script made for torchrun with another launcher has that launcher's ranks. */
    assert_int_equal(read_good("WORLD_SIZE=2 MASTER_ADDR=h1 MASTER_PORT=29500 "
                               "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "
                               "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=job7")
                         .launcher,
                     WEFT__LAUNCHER_OPEN_MPI);
}

TEST_IN_EMPTY(torchrun)
{
    const char good[] = "RANK=3 WORLD_SIZE=8 MASTER_ADDR=localhost MASTER_PORT=29500";
    struct weft__bootstrap bootstrap = read_good(good);
    assert_int_equal(bootstrap.launcher, WEFT__LAUNCHER_TORCHRUN);
    assert_int_equal(bootstrap.rank, 3);
    assert_int_equal(bootstrap.num_ranks, 8);
    assert_in_range(bootstrap.point.port, 20000, 28999); /* 29500 and more are MASTER_PORTs */
    assert_int_equal(bootstrap.point.port_choice, WEFT__PORT_DRAWN);
    assert_string_equal(bootstrap.point.address, "127.0.0.1");
    assert_string_equal(bootstrap.launcher_name, "torchrun");
    assert_string_equal(bootstrap.rank_name, "RANK");
    assert_string_equal(bootstrap.num_ranks_name, "WORLD_SIZE");
    assert_int_equal(bootstrap.rendezvous, WEFT__RENDEZVOUS_AT_RANK_0);
    struct weft__bootstrap peer = read_good(
        "RANK=0 WORLD_SIZE=8 MASTER_ADDR=localhost MASTER_PORT=29500 PMI_RANK=7 PMI_SIZE=9");
    assert_memory_equal(&peer.point, &bootstrap.point, sizeof(peer.point));
    struct weft__bootstrap other = read_good(
        "RANK=3 WORLD_SIZE=8 MASTER_ADDR=localhost MASTER_PORT=29500 TORCHELASTIC_RUN_ID=7");
    assert_memory_not_equal(other.point.nonce, bootstrap.point.nonce, sizeof(other.point.nonce));
    struct weft__bootstrap moved =
        read_good("RANK=3 WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=29500 WEFT_ADDR=b WEFT_PORT=77");
    assert_string_equal(moved.point.address, "b");
    assert_int_equal(moved.point.port, 77);
    assert_int_equal(moved.point.port_choice, WEFT__PORT_FIXED);
    moved = read_good("RANK=3 WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=65535 WEFT_ADDR=");
    assert_string_equal(moved.point.address, "a");
    assert_in_range(moved.point.port, 20000, 28999);

    check_bad("RANK=8 WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=1", "RANK 8 0..7");
    check_bad("RANK=x WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=1", "RANK x");
    check_bad("RANK=0 WORLD_SIZE=0 MASTER_ADDR=a MASTER_PORT=1", "WORLD_SIZE");
    check_bad("RANK=0 WORLD_SIZE=2 MASTER_PORT=1", "MASTER_ADDR");
    check_bad("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", "MASTER_PORT");
    check_bad("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65536", "MASTER_PORT 65536");
    check_bad("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=5 WEFT_PORT=no", "WEFT_PORT no");
}

/* Jobs on one host meet on loopback, by any name of the host. Each restart is a job of its own.
 * Hosts may count restarts differently. */
TEST_IN_EMPTY(torchrun_on_one_host)
{
    struct weft__bootstrap here = read_good(
        "RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=this.host.invalid MASTER_PORT=29500");
    assert_string_equal(here.point.address, "127.0.0.1");
    assert_string_equal(read_good("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.2 MASTER_PORT=29500 "
                                  "LOCAL_WORLD_SIZE=1")
                            .point.address,
                        "127.0.0.1");
    assert_string_equal(
        read_good("RANK=0 WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=29500").point.address,
        "127.0.0.1");
    struct weft__bootstrap again =
        read_good("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=this.host.invalid "
                  "MASTER_PORT=29500 TORCHELASTIC_RESTART_COUNT=1");
    assert_memory_not_equal(here.point.nonce, again.point.nonce, sizeof(here.point.nonce));
    assert_int_not_equal(here.point.port, again.point.port);
    again = read_good("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=this.host.invalid "
                      "MASTER_PORT=29500 TORCHELASTIC_RESTART_COUNT=0");
    assert_memory_equal(here.point.nonce, again.point.nonce, sizeof(here.point.nonce));
    const char several[] = "RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h1 MASTER_PORT=1";
    struct weft__bootstrap hosts = read_good(several);
    setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
    assert_ok(weft__bootstrap_read(&again));
    assert_string_equal(again.point.address, "h1");
    assert_memory_equal(hosts.point.nonce, again.point.nonce, sizeof(hosts.point.nonce));
}

/* The ports of a job differ, and the first is that of its meeting point. */
TEST(ports_come_in_a_sequence)
{
    struct weft__meeting_point point = {.address = "a"}, at, before = {.port = 0};
    int num_ports = 0;
    weft__meeting_point_draw_port(&point, "a job");
    for (; weft__meeting_point_at_port(&point, num_ports, &at); num_ports++) {
        assert_int_equal(at.port_choice, WEFT__PORT_FIXED);
        assert_in_range(at.port, 20000, 28999);
        assert_int_not_equal(at.port, before.port);
        assert_true(num_ports > 0 || at.port == point.port);
        before = at;
    }
    assert_true(num_ports > 3);
    assert_true(weft__meeting_point_at_port(&before, 0, &at));
    assert_int_equal(at.port, before.port);
    assert_false(weft__meeting_point_at_port(&before, 1, &at));
}

TEST_IN_EMPTY(weft_run)
{
    struct weft__meeting_point point = {.address = "127.0.0.1", .port = 5, .nonce = {9}};
    weft_unique_id id;
    char text[512];
    size_t length = (size_t)snprintf(text, sizeof(text), "WEFT_RANK=1 WEFT_WORLD_SIZE=2 WEFT_ID=");
    weft__meeting_point_to_id(&point, &id);
    for (size_t byte = 0; byte < sizeof(id.bytes); byte++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%02x", id.bytes[byte]);
    struct weft__bootstrap bootstrap = read_good(text);
    assert_int_equal(bootstrap.launcher, WEFT__LAUNCHER_WEFT);
    assert_int_equal(bootstrap.rank, 1);
    assert_int_equal(bootstrap.num_ranks, 2);
    assert_int_equal(bootstrap.rendezvous, WEFT__RENDEZVOUS_ELSEWHERE);
    assert_memory_equal(&bootstrap.point, &point, sizeof(point));
    check_bad("WEFT_ID=12 WEFT_RANK=0 WEFT_WORLD_SIZE=1", "WEFT_ID 256");
    check_bad("WEFT_ID=12 WEFT_RANK=0", "WEFT_WORLD_SIZE");
    check_bad("WEFT_ID=12 WEFT_WORLD_SIZE=2", "WEFT_RANK");
}

TEST_IN_EMPTY(job_launchers)
{
    struct weft__bootstrap mpi =
        read_good("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4 "
                  "PMIX_NAMESPACE=job7");
    assert_int_equal(mpi.launcher, WEFT__LAUNCHER_OPEN_MPI);
    assert_int_equal(mpi.rank, 1);
    assert_int_equal(mpi.num_ranks, 4);
    assert_string_equal(mpi.point.address, "127.0.0.1");
    assert_in_range(mpi.point.port, 20000, 28999);
    struct weft__bootstrap other_job =
        read_good("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4 "
                  "PMIX_NAMESPACE=job8");
    assert_memory_not_equal(mpi.point.nonce, other_job.point.nonce, sizeof(mpi.point.nonce));
    assert_int_not_equal(mpi.point.port, other_job.point.port);
    check_bad("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2",
              "WEFT_ADDR WEFT_PORT");
    struct weft__bootstrap hosts =
        read_good("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
                  "PMIX_NAMESPACE=job7 WEFT_ADDR=head WEFT_PORT=4000");
    assert_string_equal(hosts.point.address, "head");
    assert_int_equal(hosts.point.port, 4000);
    check_bad("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE");
    check_bad("OMPI_COMM_WORLD_RANK=-1 OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK -1");

    struct weft__bootstrap slurm =
        read_good("SLURM_PROCID=2 SLURM_NTASKS=3 SLURM_JOB_ID=5 SLURM_STEP_ID=0 SLURM_NNODES=1");
    assert_int_equal(slurm.launcher, WEFT__LAUNCHER_SLURM);
    assert_int_equal(slurm.rank, 2);
    struct weft__bootstrap step =
        read_good("SLURM_PROCID=2 SLURM_NTASKS=3 SLURM_JOB_ID=5 SLURM_STEP_ID=1 SLURM_NNODES=1");
    assert_memory_not_equal(slurm.point.nonce, step.point.nonce, sizeof(step.point.nonce));
    check_bad("SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_NTASKS=3 SLURM_NNODES=3", "Slurm WEFT_ADDR");
    check_bad("SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_NTASKS=3", "SLURM_PROCID 3 0..2");

    struct weft__bootstrap pmi = read_good("PMI_RANK=0 PMI_SIZE=2 PMI_JOBID=5.0");
    assert_int_equal(pmi.launcher, WEFT__LAUNCHER_PMI);
    assert_int_equal(pmi.num_ranks, 2);
    check_bad("PMI_RANK=0 PMI_SIZE=x", "PMI_SIZE x");
    /* srun starts one daemon of Hydra on each host: ranks have the variables of both. With srun
     * --mpi=pmi2 they have both, too. */
    struct weft__bootstrap hydra =
        read_good("PMI_RANK=3 PMI_SIZE=4 MPI_LOCALNRANKS=4 PMI_JOBID=x SLURM_STEP_ID=0 "
                  "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_JOB_ID=5");
    assert_int_equal(hydra.launcher, WEFT__LAUNCHER_PMI);
    assert_int_equal(hydra.rank, 3);
    assert_int_equal(read_good("PMI_RANK=1 PMI_SIZE=4 PMI_JOBID=5.0 SLURM_STEP_ID=0 SLURM_PROCID=1 "
                               "SLURM_NTASKS=4 SLURM_JOB_ID=5")
                         .launcher,
                     WEFT__LAUNCHER_SLURM);
}

#define A_SECRET " WEFT_SECRET=00112233445566778899aabbccddeeff"

/* Two such jobs could meet by chance, so the user has to tell them apart. */
TEST_IN_EMPTY(jobs_without_a_name)
{
    static const char *const jobs[] = {
        "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2",
        "PMI_RANK=1 PMI_SIZE=2",
        "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2 PMI_FD=999", /* closed, as behind MPI_Finalize */
        "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2 PMI_FD=x",
        "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2 PMI_FD=0",
        "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2",
        "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2"};
    char text[256];
    for (size_t index = 0; index < sizeof(jobs) / sizeof(jobs[0]); index++) {
        check_bad(jobs[index], "WEFT_PORT WEFT_SECRET");
        snprintf(text, sizeof(text), "%s WEFT_PORT=4711", jobs[index]);
        check_bad(text, "WEFT_SECRET");
        snprintf(text, sizeof(text), "%s WEFT_PORT=4711" A_SECRET, jobs[index]);
        struct weft__bootstrap named = read_good(text);
        assert_int_equal(named.point.port, 4711);
        assert_int_equal(named.rank, 1);
    }
    check_bad("PMI_RANK=1 PMI_SIZE=4 MPI_LOCALNRANKS=2 WEFT_ADDR=h WEFT_PORT=1",
              "WEFT_ADDR WEFT_PORT WEFT_SECRET");
    assert_string_equal(
        read_good("PMI_RANK=1 PMI_SIZE=4 MPI_LOCALNRANKS=2 WEFT_ADDR=h WEFT_PORT=1" A_SECRET)
            .point.address,
        "h");
    /* A job of one rank needs no name. */
    assert_int_equal(read_good("PMI_RANK=0 PMI_SIZE=1").num_ranks, 1);
}

#define SECRET "00112233445566778899aabbccddeeff"

/* The nonce is the job's and the secret's; without one, ranks on several hosts trust whoever knows
 * the job. */
TEST_IN_EMPTY(secrets)
{
    const char job[] = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
                       "WEFT_ADDR=head WEFT_PORT=4000 PMIX_NAMESPACE=job7";
    char text[512];
    struct weft__bootstrap open = read_good(job);
    assert_int_equal(open.trust, WEFT__TRUST_JOB);
    snprintf(text, sizeof(text), "%s WEFT_SECRET=" SECRET, job);
    struct weft__bootstrap closed = read_good(text);
    assert_int_equal(closed.trust, WEFT__TRUST_SECRET);
    assert_memory_not_equal(closed.point.nonce, open.point.nonce, sizeof(open.point.nonce));
    snprintf(text, sizeof(text), "%s WEFT_SECRET=00112233445566778899aabbccddeefe", job);
    struct weft__bootstrap other = read_good(text);
    assert_memory_not_equal(closed.point.nonce, other.point.nonce, sizeof(other.point.nonce));
    snprintf(text, sizeof(text), "%s WEFT_SECRET=" SECRET " PMIX_NAMESPACE=job8", job);
    other = read_good(text);
    assert_memory_not_equal(closed.point.nonce, other.point.nonce, sizeof(other.point.nonce));

    assert_int_equal(read_good("RANK=0 WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=5").trust,
                     WEFT__TRUST_JOB);
    assert_int_equal(
        read_good("RANK=0 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=5").trust,
        WEFT__TRUST_JOB);
    assert_int_equal(
        read_good("RANK=0 WORLD_SIZE=8 LOCAL_WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=5").trust,
        WEFT__TRUST_SECRET);
    check_bad("RANK=0 WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=5 WEFT_SECRET=hunter2",
              "WEFT_SECRET 7 32");
    check_bad("RANK=0 WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=5 "
              "WEFT_SECRET=00112233445566778899aabbccddeefg",
              "WEFT_SECRET hexadecimal");
    assert_null(strstr(weft__last_error(), "aabb")); /* messages do not tell it */
    check_bad("RANK=0 WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=5 "
              "WEFT_SECRET=00000000000000000000000000000000",
              "WEFT_SECRET guess");
    check_bad("RANK=0 WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=5 "
              "WEFT_SECRET=abababababababababababababababab",
              "WEFT_SECRET guess");
}

TEST_IN_EMPTY(agreed_meeting_points)
{
    struct weft__meeting_point point;
    weft_unique_id id, again;
    assert_ok(weft_unique_id_at("192.0.2.1", 4711, SECRET, &id));
    assert_ok(weft_unique_id_at("192.0.2.1", 4711, SECRET, &again));
    assert_memory_equal(&id, &again, sizeof(id));
    assert_ok(weft__meeting_point_from_id(&point, &id));
    assert_string_equal(point.address, "192.0.2.1");
    assert_int_equal(point.port, 4711);
    assert_int_equal(point.nonce[1], 0x11);

    const char *const bad_addresses[] = {"", "0.0.0.0", "::", NULL};
    for (size_t index = 0; index < sizeof(bad_addresses) / sizeof(bad_addresses[0]); index++)
        assert_int_equal(weft_unique_id_at(bad_addresses[index], 4711, SECRET, &id),
                         WEFT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(weft_unique_id_at("a", 0, SECRET, &id), WEFT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(weft_unique_id_at("a", 65536, SECRET, &id), WEFT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(weft_unique_id_at("a", 1, "", &id), WEFT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(weft_unique_id_at("a", 1, NULL, &id), WEFT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(weft_unique_id_at("a", 1, SECRET, NULL), WEFT_ERROR_INVALID_ARGUMENT);
    assert_memory_equal(&id, &again, sizeof(id));
}

TEST_IN_EMPTY(serving_an_agreed_meeting_point)
{
    weft_unique_id elsewhere, chosen, id;
    struct weft__meeting_point point;
    assert_ok(weft_unique_id_at("203.0.113.77", 4711, SECRET, &elsewhere));
    assert_error(weft_rendezvous_serve(&elsewhere), WEFT_ERROR_SYSTEM, "203.0.113.77");
    assert_int_equal(weft_rendezvous_num_ranks(&elsewhere), -1);
    assert_ok(weft_unique_id_at("no-such-host.invalid", 4711, SECRET, &elsewhere));
    assert_error(weft_rendezvous_serve(&elsewhere), WEFT_ERROR_INVALID_ARGUMENT,
                 "no-such-host.invalid");
    assert_int_equal(weft_rendezvous_serve(NULL), WEFT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(weft_rendezvous_num_ranks(NULL), -1);

    /* On this host: on a port that is free, which the system has just chosen for another
     * address. */
    assert_ok(weft_unique_id_create(&chosen));
    assert_int_equal(weft_rendezvous_num_ranks(&chosen), 0);
    assert_ok(weft__meeting_point_from_id(&point, &chosen));
    assert_ok(weft_unique_id_at("127.0.0.2", point.port, SECRET, &id));
    assert_ok(weft_rendezvous_serve(&id));
    assert_ok(weft_rendezvous_serve(&id)); /* it does already */
    assert_int_equal(weft_rendezvous_num_ranks(&id), 0);
}

TEST_IN_EMPTY(addresses_that_nobody_can_connect_to)
{
    weft_unique_id id;
    setenv("WEFT_ADDR", "0.0.0.0", 1);
    assert_error(weft__unique_id_create(&id), WEFT_ERROR_INVALID_ARGUMENT, "WEFT_ADDR");
    setenv("WEFT_ADDR", "203.0.113.77", 1); /* reserved for documentation: never this host's */
    assert_error(weft__unique_id_create(&id), WEFT_ERROR_SYSTEM, "203.0.113.77");
    char long_name[200];
    memset(long_name, 'a', sizeof(long_name));
    long_name[sizeof(long_name) - 1] = '\0';
    setenv("WEFT_ADDR", long_name, 1);
    assert_int_equal(weft__unique_id_create(&id), WEFT_ERROR_INVALID_ARGUMENT);
}
