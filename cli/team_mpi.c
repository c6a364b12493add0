/* A team over MPI. Without MPI, it only reports that. */
#include "training.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/system.h"
#include "skv/tools.h"

/* Environment variables that launchers set for the processes that they start: Open MPI's mpirun,
 * srun and others by PMIx, MPICH's and srun by PMI. */
static bool was_launched(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (getenv(names[i])) return true;
    }
    return false;
}

#ifdef SKV_MPI

#include <limits.h>
#include <mpi.h>

#include <stdint.h>
#include <time.h>

#define BUSY_NS UINT64_C(3000000)
enum { PAUSE_NS = 50000, REST_NS = 1000000 };

struct cli_team {
    skv_team table;
    MPI_Comm comm;
};

static skv_status check(int code, const char *what, skv_error *err)
{
    if (code == MPI_SUCCESS) return SKV_OK;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    if (err) {
        err->status = SKV_IO;
        snprintf(err->text, sizeof err->text, "MPI: %s: %.400s", what, text);
    }
    return SKV_IO;
}

static skv_status gather(void *ctx, const void *mine, void *all, size_t n, skv_error *err)
{
    const cli_team *team = ctx;
    if (n > INT_MAX) return check(MPI_ERR_COUNT, "gather", err);
    const int code = MPI_Allgather(mine, (int)n, MPI_BYTE, all, (int)n, MPI_BYTE, team->comm);
    return check(code, "gather", err);
}

static skv_status exchange(void *ctx, const void *to, void *from, size_t n, skv_error *err)
{
    const cli_team *team = ctx;
    if (n > INT_MAX) return check(MPI_ERR_COUNT, "exchange", err);
    const int code = MPI_Alltoall(to, (int)n, MPI_BYTE, from, (int)n, MPI_BYTE, team->comm);
    return check(code, "exchange", err);
}

/* Between requests a server is silent, and a waiting rank must leave the processor to others. It
 * polls without a pause at first, since another step usually follows soon, then more and more
 * rarely. */
static int wait_quietly(MPI_Request *request)
{
    const uint64_t start = skv_now_ns();
    for (int done = 0;;) {
        const int code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS || done) return code;
        const uint64_t waited = skv_now_ns() - start;
        const long pause = waited < BUSY_NS ? 0 : waited < 100 * BUSY_NS ? PAUSE_NS : REST_NS;
        (void)nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    }
}

static skv_status share(void *ctx, void *data, size_t n, skv_error *err)
{
    const cli_team *team = ctx;
    MPI_Request request = MPI_REQUEST_NULL;
    if (n > INT_MAX) return check(MPI_ERR_COUNT, "share", err);
    int code = MPI_Ibcast(data, (int)n, MPI_BYTE, 0, team->comm, &request);
    if (code == MPI_SUCCESS) code = wait_quietly(&request);
    const int ended = MPI_Wait(&request, MPI_STATUS_IGNORE); /* at once: it is done */
    return check(code != MPI_SUCCESS ? code : ended, "share", err);
}

static skv_status collect(void *ctx, const void *mine, void *all, size_t n, skv_error *err)
{
    const cli_team *team = ctx;
    if (n > INT_MAX) return check(MPI_ERR_COUNT, "collect", err);
    const void *given = team->table.rank == 0 ? MPI_IN_PLACE : mine;
    const int code = MPI_Gather(given, (int)n, MPI_BYTE, all, (int)n, MPI_BYTE, 0, team->comm);
    return check(code, "collect", err);
}

static bool has_processor(const skv_processor_set *set, size_t cpu)
{
    return set->bits[cpu / 64] >> cpu % 64 & 1;
}

/* Of n processes on this machine, each processor of this one divided by the number of those that
 * may run on it: the launcher may have bound every process to its own, or none to any. */
static double share_of_affinity(const skv_processor_set *mine, const skv_processor_set *all,
                                size_t n)
{
    double processors = 0;
    for (size_t cpu = 0; cpu < SKV_PROCESSORS_MAX; cpu++) {
        int users = 0;
        if (!has_processor(mine, cpu)) continue;
        for (size_t i = 0; i < n; i++) users += has_processor(&all[i], cpu);
        processors += 1.0 / users;
    }
    return processors;
}

/* The default number of threads: by affinity, and no more than this process's part of the time that
 * control groups allow, which the processes of a machine use together. *place: the
 * process among them. */
static size_t share_of_processors(MPI_Comm comm, size_t *place)
{
    MPI_Comm local;
    skv_processor_set mine;
    int n = 1, rank = 0;
    skv_processors_get(&mine);
    if (MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local) != MPI_SUCCESS) {
        return 1;
    }
    MPI_Comm_size(local, &n);
    MPI_Comm_rank(local, &rank);
    *place = (size_t)rank;
    skv_processor_set *all = cli_alloc((size_t)n, sizeof *all);
    double processors = 0;
    if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, local) ==
        MPI_SUCCESS) {
        processors = share_of_affinity(&mine, all, (size_t)n);
    }
    free(all);
    MPI_Comm_free(&local);
    const double allowed = (double)skv_processors_quota() / n;
    if (processors > allowed) processors = allowed;
    return processors < 1 ? 1 : (size_t)(processors + 1e-6);
}

static int join(cli_team *team)
{
    int rank = 0, size = 0;
    skv_error err;
    if (check(MPI_Comm_dup(MPI_COMM_WORLD, &team->comm), "start", &err) != SKV_OK) {
        return cli_fail("%s", err.text);
    }
    size_t place = 0;
    MPI_Comm_set_errhandler(team->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(team->comm, &rank);
    MPI_Comm_size(team->comm, &size);
    team->table = (skv_team){.ctx = team,
                             .rank = (size_t)rank,
                             .size = (size_t)size,
                             .threads = share_of_processors(team->comm, &place),
                             .gather = gather,
                             .exchange = exchange,
                             .share = share,
                             .collect = collect};
    team->table.device = place;
    return CLI_DONE;
}

int cli_team_join(cli_team **out)
{
    *out = NULL;
    if (!was_launched()) return CLI_DONE;
    cli_team *team = cli_alloc(1, sizeof *team);
    int level = 0;
    /* A server's steps run on a thread of their own, and nothing beside them. */
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
        free(team);
        return cli_fail("MPI does not start");
    }
    const int status = join(team);
    if (status == CLI_DONE) {
        *out = team;
    } else {
        MPI_Abort(MPI_COMM_WORLD, CLI_FAILED);
    }
    return status;
}

void cli_team_abort(const cli_team *team)
{
    MPI_Abort(team->comm, CLI_FAILED);
}

void cli_team_leave(cli_team *team)
{
    if (!team) return;
    MPI_Comm_free(&team->comm);
    MPI_Finalize();
    free(team);
}

const skv_team *cli_team_table(const cli_team *team)
{
    return team ? &team->table : NULL;
}

bool cli_team_speaks(const cli_team *team)
{
    return !team || team->table.rank == 0;
}

#else

int cli_team_join(cli_team **out)
{
    *out = NULL;
    if (!was_launched()) return CLI_DONE;
    return cli_fail("started by an MPI launcher, but built without MPI");
}

void cli_team_abort(const cli_team *team)
{
    (void)team;
}

void cli_team_leave(cli_team *team)
{
    (void)team;
}

const skv_team *cli_team_table(const cli_team *team)
{
    (void)team;
    return NULL;
}

bool cli_team_speaks(const cli_team *team)
{
    return !team;
}

#endif
