/*
 * libnccl.so.2 for machines without a GPU: what cuda_nccl.h declares, over fake_driver.c. A sum is
 * done when its last rank calls, in the order from the last rank to the first. It ends the program
 * where ranks call for different sums, where one calls again before the others have, and where a
 * communicator is destroyed, or left, with a sum that waits: a GPU would wait forever.
 * SKV_FAKE_NCCL_FAILS=R:N: call N of rank R fails, from 1; N 0: communicators cannot be made.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/cuda_nccl.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { INTERNAL = 3, INVALID = 4, RANKS_MAX = 16, VERSION = 22703 };

/* The driver's, which are exported. */
skv_cu_result cuCtxSetCurrent(skv_cu_context context);
skv_cu_result cuDeviceGetCount(int *n);
skv_cu_result cuMemcpyDtoHAsync_v2(void *to, skv_cu_address from, size_t n, skv_cu_stream stream);
skv_cu_result cuMemcpyHtoDAsync_v2(skv_cu_address to, const void *from, size_t n,
                                   skv_cu_stream stream);

typedef struct team team;

struct ncclComm {
    team *of;
    int rank, n_calls;
    float *x; /* owned; NULL: it waits for no sum */
    skv_cu_address to;
    skv_cu_stream stream;
};

struct team {
    struct ncclComm ranks[RANKS_MAX];
    int n, n_left, n_here;
    bool aborted;
    size_t count; /* of the sum that waits */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int n_teams;

static void fault(const char *what)
{
    (void)fprintf(stderr, "fake NCCL: %s\n", what);
    abort();
}

__attribute__((destructor)) static void check_end(void)
{
    if (n_teams > 0) fault("communicators are left");
}

int ncclGetVersion(int *version)
{
    *version = VERSION;
    return 0;
}

static bool fails(int rank, int call)
{
    const char *text = getenv("SKV_FAKE_NCCL_FAILS");
    char *end = NULL;
    return text && strtol(text, &end, 10) == rank && strtol(end + 1, NULL, 10) == call;
}

int ncclCommInitAll(skv_nccl_comm *out, int n, const int *devices)
{
    int n_devices = 0;
    if (cuDeviceGetCount(&n_devices) != 0 || n < 1 || n > RANKS_MAX) return INVALID;
    for (int i = 0; i < n; i++) {
        if (devices[i] < 0 || devices[i] >= n_devices || fails(i, 0)) return INTERNAL;
        for (int j = 0; j < i; j++) {
            if (devices[j] == devices[i]) return INVALID;
        }
    }
    team *t = calloc(1, sizeof *t);
    if (!t) return INTERNAL;
    t->n = t->n_left = n;
    for (int i = 0; i < n; i++) {
        t->ranks[i] = (struct ncclComm){.of = t, .rank = i};
        out[i] = &t->ranks[i];
    }
    (void)pthread_mutex_lock(&mutex);
    n_teams++;
    (void)pthread_mutex_unlock(&mutex);
    return 0;
}

static void leave(skv_nccl_comm comm)
{
    team *t = comm->of;
    free(comm->x);
    comm->x = NULL;
    if (--t->n_left > 0) return;
    free(t);
    n_teams--;
}

int ncclCommDestroy(skv_nccl_comm comm)
{
    (void)pthread_mutex_lock(&mutex);
    if (comm->x) fault("a communicator is destroyed while its sum waits");
    leave(comm);
    (void)pthread_mutex_unlock(&mutex);
    return 0;
}

int ncclCommAbort(skv_nccl_comm comm)
{
    (void)pthread_mutex_lock(&mutex);
    comm->of->aborted = true;
    leave(comm);
    (void)pthread_mutex_unlock(&mutex);
    return 0;
}

/* A stream of the fake driver has the address of its context. */
static void deliver(team *t, skv_cu_stream now)
{
    float *sum = t->ranks[t->n - 1].x;
    for (int i = t->n - 1; i-- > 0;) {
        for (size_t k = 0; k < t->count; k++) sum[k] += t->ranks[i].x[k];
    }
    for (int i = 0; i < t->n; i++) {
        const struct ncclComm *c = &t->ranks[i];
        (void)cuCtxSetCurrent((skv_cu_context)(void *)c->stream);
        if (cuMemcpyHtoDAsync_v2(c->to, sum, t->count * sizeof *sum, c->stream) != 0) {
            fault("a sum goes nowhere");
        }
    }
    (void)cuCtxSetCurrent((skv_cu_context)(void *)now);
    for (int i = 0; i < t->n; i++) {
        free(t->ranks[i].x);
        t->ranks[i].x = NULL;
    }
    t->n_here = 0;
}

static int add_up(const void *from, void *to, size_t n, skv_nccl_comm comm, skv_cu_stream stream)
{
    team *t = comm->of;
    if (t->aborted || fails(comm->rank, ++comm->n_calls)) return INTERNAL;
    if (comm->x) fault("a rank calls again before the others have called");
    if (t->n_here > 0 && t->count != n) fault("ranks call for different sums");
    comm->x = malloc((n + (n == 0)) * sizeof *comm->x);
    if (!comm->x) return INTERNAL;
    if (cuMemcpyDtoHAsync_v2(comm->x, (skv_cu_address)(uintptr_t)from, n * sizeof *comm->x,
                             stream) != 0) {
        fault("a rank gives memory that is not its GPU's");
    }
    comm->to = (skv_cu_address)(uintptr_t)to;
    comm->stream = stream;
    t->count = n;
    if (++t->n_here == t->n) deliver(t, stream);
    return 0;
}

int ncclAllReduce(const void *from, void *to, size_t n, int type, int operation, skv_nccl_comm comm,
                  skv_cu_stream stream)
{
    if (!comm || type != SKV_NCCL_F32 || operation != SKV_NCCL_SUM) return INVALID;
    (void)pthread_mutex_lock(&mutex);
    const int result = add_up(from, to, n, comm, stream);
    (void)pthread_mutex_unlock(&mutex);
    return result;
}
