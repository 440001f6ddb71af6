/* SPDX-License-Identifier: MIT */
/* Communicators from the environments of launchers. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/memory.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 4 };

enum style { WEFT_RUN, TORCHRUN, OPEN_MPI, OPEN_MPI_HOSTS, SLURM, PMI, NUM_STYLES };

struct plan {
    enum style style;
    int port; /* free */
    char job[64];
};

static void set_number(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", number);
    setenv(name, text, 1);
}

static void set_weft_id(const weft_unique_id *id)
{
    char hex[2 * sizeof(id->bytes) + 1];
    for (size_t byte = 0; byte < sizeof(id->bytes); byte++)
        snprintf(hex + 2 * byte, 3, "%02x", id->bytes[byte]);
    setenv("WEFT_ID", hex, 1);
}

static void set_ranks(const struct ranks_context *context, const char *rank, const char *num_ranks)
{
    set_number(rank, context->rank);
    set_number(num_ranks, context->num_ranks);
}

static void become(const struct ranks_context *context, const struct plan *plan)
{
    switch (plan->style) {
    case WEFT_RUN:
        set_weft_id(&context->id);
        set_ranks(context, "WEFT_RANK", "WEFT_WORLD_SIZE");
        break;
    case TORCHRUN:
        set_ranks(context, "RANK", "WORLD_SIZE");
        setenv("MASTER_ADDR", "localhost", 1);
        set_number("MASTER_PORT", plan->port);
        break;
    case OPEN_MPI_HOSTS:
        setenv("WEFT_ADDR", "127.0.0.1", 1);
        set_number("WEFT_PORT", plan->port);
        setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
        /* fall through */
    case OPEN_MPI:
        set_ranks(context, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
        setenv("PMIX_NAMESPACE", plan->job, 1);
        break;
    case SLURM:
        set_ranks(context, "SLURM_PROCID", "SLURM_NTASKS");
        setenv("SLURM_JOB_ID", plan->job, 1);
        setenv("SLURM_STEP_ID", "0", 1);
        break;
    case PMI:
        set_ranks(context, "PMI_RANK", "PMI_SIZE");
        setenv("PMI_PORT", plan->job, 1);
        break;
    case NUM_STYLES:
        break;
    }
}

static int check_world(struct ranks_context *context, weft_comm *comm)
{
    int32_t ranks[NUM_RANKS];
    CHECK(weft_comm_num_ranks(comm) == context->num_ranks, "%d ranks", weft_comm_num_ranks(comm));
    CHECK(weft_comm_rank(comm) == context->rank, "rank %d", weft_comm_rank(comm));
    CHECK_OK(weft_comm_host_all_gather(comm, &context->rank, sizeof(int32_t), ranks));
    for (int32_t rank = 0; rank < context->num_ranks; rank++)
        CHECK(ranks[rank] == rank, "rank %d says %d", rank, ranks[rank]);
    return 0;
}

static int start_from_environment(struct ranks_context *context)
{
    weft_comm *comms[3], *child;
    become(context, context->argument);
    for (int index = 0; index < 3; index++)
        CHECK_OK(weft_comm_create_from_env(NULL, &comms[index]));
    CHECK_OK(weft_comm_split(comms[1], context->rank % 2, 0, NULL, &child));
    CHECK_OK(weft_comm_host_barrier(child));
    for (int index = 0; index < 3; index++) {
        if (check_world(context, comms[index]) != 0)
            return 1;
        CHECK_OK(weft_comm_destroy(comms[index]));
    }
    CHECK_OK(weft_comm_host_barrier(child));
    CHECK_OK(weft_comm_destroy(child));
    /* Rank 0 serves: it stays until the others have what they need. */
    ranks_barrier(context);
    return 0;
}

static int is_free(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    int result = bind(fd, (struct sockaddr *)&address, sizeof(address));
    close(fd);
    return result == 0;
}

/* Below those that the system hands out, so that nobody takes it in the meantime. */
static int find_free_port(void)
{
    static int port = 0;
    if (port == 0)
        port = 10000 + getpid() * 16 % 9000;
    do
        port++;
    while (!is_free(port));
    return port;
}

static struct plan plan_of(enum style style)
{
    struct plan plan = {.style = style, .port = find_free_port()};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(plan.job, sizeof(plan.job), "%d-%ld", getpid(), now.tv_nsec);
    return plan;
}

static void run_plan(struct plan plan, int32_t num_ranks, rank_function function)
{
    const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                          .id = plan.style == WEFT_RUN ? RANKS_ID_BY_HOST
                                                                       : RANKS_ID_NONE,
                                          .num_ranks = num_ranks,
                                          RANKS_ARGUMENT(&plan)};
    assert_int_equal(ranks_run_with(&options, function), 0);
}

TEST(every_launcher_starts_a_world)
{
    for (int style = 0; style < NUM_STYLES; style += tests_rounds(1, 2))
        run_plan(plan_of((enum style)style), NUM_RANKS, start_from_environment);
}

static int start_alone(struct ranks_context *context)
{
    weft_comm *comm, *child;
    const size_t bytes = 5 << 20;
    void *ptr, *content = tests_alloc(bytes);
    CHECK_OK(weft_comm_create_from_env(NULL, &comm));
    if (check_world(context, comm) != 0)
        return 1;
    CHECK_OK(weft_heap_alloc(comm, bytes, &ptr));
    CHECK_OK(weft_memory_copy(comm, ptr, content, bytes));
    tests_free(content);
    CHECK(weft_heap_ptr(comm, ptr, 0) == ptr, "its own heap is elsewhere");
    CHECK_OK(weft_comm_split(comm, 0, 0, NULL, &child));
    if (check_world(context, child) != 0)
        return 1;
    CHECK_OK(weft_comm_abort(child));
    CHECK_ERROR(weft_comm_host_barrier(child), WEFT_ERROR_ABORTED, "rank 0");
    CHECK_OK(weft_comm_destroy(child));
    CHECK_OK(weft_heap_free(comm, ptr));
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

TEST_CALL(without_a_launcher_there_is_one_rank, run_plan(plan_of(NUM_STYLES), 1, start_alone))

/* Though one rank of machine cpu needs none of them. */
static int set_wrongly(struct ranks_context *context)
{
    (void)context;
    static const char *const wrong[][2] = {{"WEFT_CUDA_HEAP", "IPC"},
                                           {"WEFT_CUDA_DEVICE", "first"},
                                           {"WEFT_NET", "rdma"},
                                           {"WEFT_NET_TRANSPORT", "roce"},
                                           {"WEFT_NET_GPUDIRECT", "yes"},
                                           {"WEFT_MACHINE", "gpu"},
                                           {"WEFT_HEARTBEAT_MS", "86400001"},
                                           {"WEFT_STREAMS", "0"},
                                           {"WEFT_PORT", "65536"},
                                           {"WEFT_NODES", "-1"},
                                           {"WEFT_SECRET", "0123"}};
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    weft_comm *comm;
    config.machine = WEFT_MACHINE_CPU;
    config.num_nodes = 1;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *before = getenv(wrong[i][0]);
        char saved[64];
        snprintf(saved, sizeof(saved), "%s", before != NULL ? before : "");
        setenv(wrong[i][0], wrong[i][1], 1);
        CHECK_ERROR(weft_comm_create_from_env(&config, &comm), WEFT_ERROR_INVALID_ARGUMENT,
                    wrong[i][0]);
        setenv(wrong[i][0], saved, 1);
    }
    CHECK_OK(weft_comm_create_from_env(&config, &comm));
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

TEST_CALL(wrong_settings_are_named_where_they_do_not_matter_too,
          run_plan(plan_of(NUM_STYLES), 1, set_wrongly))

static int see_nodes(struct ranks_context *context)
{
    weft_comm *comm;
    weft_team_info info = WEFT_INIT(weft_team_info);
    become(context, context->argument);
    setenv("WEFT_NODES", "3", 1);
    CHECK_ERROR(weft_comm_create_from_env(NULL, &comm), WEFT_ERROR_INVALID_ARGUMENT,
                "WEFT_NODES is 3");
    setenv("WEFT_NODES", "2", 1);
    setenv("WEFT_TIMEOUT_MS", "soon", 1);
    CHECK_ERROR(weft_comm_create_from_env(NULL, &comm), WEFT_ERROR_INVALID_ARGUMENT,
                "WEFT_TIMEOUT_MS is \"soon\"");
    setenv("WEFT_TIMEOUT_MS", "20000", 1);
    CHECK_OK(weft_comm_create_from_env(NULL, &comm));
    CHECK_OK(weft_team_query(comm, WEFT_TEAM_LOCAL, &info));
    CHECK(info.num_teams == 2 && info.num_ranks == NUM_RANKS / 2, "%d nodes of %d", info.num_teams,
          info.num_ranks);
    CHECK_OK(weft_comm_host_barrier(comm));
    CHECK_OK(weft_comm_destroy(comm));
    ranks_barrier(context);
    return 0;
}

TEST_CALL(settings_come_from_the_environment, run_plan(plan_of(SLURM), NUM_RANKS, see_nodes))

/* Rank 0 comes when the others have already knocked in vain. */
static int come_late(struct ranks_context *context)
{
    weft_comm *comm;
    const struct timespec pause = {.tv_nsec = 300000000};
    become(context, context->argument);
    if (context->rank == 0)
        nanosleep(&pause, NULL);
    CHECK_OK(weft_comm_create_from_env(NULL, &comm));
    if (check_world(context, comm) != 0)
        return 1;
    CHECK_OK(weft_comm_destroy(comm));
    ranks_barrier(context);
    return 0;
}

TEST_CALL(the_rendezvous_may_come_last, run_plan(plan_of(TORCHRUN), NUM_RANKS, come_late))

static int find_the_port_taken(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    weft_comm *comm;
    char text[32];
    become(context, plan);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    setenv("WEFT_TIMEOUT_MS", "500", 1);
    snprintf(text, sizeof(text), "port %d", plan->port);
    CHECK_ERROR(weft_comm_create_from_env(NULL, &comm), WEFT_ERROR_SYSTEM, text);
    return 0;
}

TEST(a_port_that_is_taken_is_named)
{
    struct plan plan = plan_of(OPEN_MPI_HOSTS);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)plan.port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    run_plan(plan, 1, find_the_port_taken);
    close(fd);
}

static int forget_environment(void **state)
{
    (void)state;
    static const char *const names[] = {"WEFT_ID",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "WEFT_ADDR",
                                        "WEFT_PORT",
                                        "WEFT_NODES",
                                        "OMPI_COMM_WORLD_RANK",
                                        "SLURM_PROCID",
                                        "SLURM_NNODES",
                                        "SLURM_STEP_ID",
                                        "PMI_RANK",
                                        "PMI_JOBID",
                                        "MPI_LOCALNRANKS",
                                        "WEFT_TIMEOUT_MS",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE"};
    for (size_t index = 0; index < sizeof(names) / sizeof(names[0]); index++)
        unsetenv(names[index]);
    return 0;
}

int main(void)
{
    return tests_run(forget_environment, NULL);
}
