/*
 * Sums over ranks. Those of one program copy from each other's GPU and add up in the order of
 * ranks, as the host does, to the same bits; no thread waits for a GPU:
 *
 *     x is there: an event        -> meet -> wait for it on each GPU; copy every rank's x here
 *     copies have begun: an event -> meet -> wait for it on each GPU; x = the sum
 *
 * Or NCCL adds up, in an order of its own. Its sum on a GPU waits for those of all others, so that
 * no rank may be alone with it:
 *
 *     all ranks are well -> meet -> every rank calls NCCL -> meet: has it failed on one of them?
 *
 * If it has, every rank aborts its communicator, which ends the sums that wait.
 *
 * Ranks of several programs add up in the memory of the host.
 */
#include <stdio.h>

#include "backend/cuda/cuda_backend.h"
#include "base/mem.h"
#include "skv/ranks.h"

/* A rank tells the others. */
struct skv_cuda_part {
    const float *x; /* of its device: [n_rows, n] */
    skv_cu_context context;
    skv_cu_event written, read; /* x is there; all x are copied */
    const skv_nccl_comm *comms; /* [ranks] of rank 0, when they meet to join */
    int ordinal, refused;       /* its device; rank 0: NCCL's reason why there are no comms */
    bool failed, has_nccl;
    char why[128]; /* it has failed */
};

static skv_cuda_part own_part(const skv_cuda_backend *be, const float *x)
{
    skv_cuda_part part = {.x = x,
                          .context = be->device.context,
                          .written = be->sums.written,
                          .read = be->sums.read,
                          .comms = be->sums.comms,
                          .ordinal = be->device.ordinal,
                          .refused = be->sums.refused,
                          .has_nccl = be->nccl.library,
                          .failed = be->device.failed != SKV_OK};
    if (part.failed) (void)snprintf(part.why, sizeof part.why, "%.120s", be->device.error.text);
    return part;
}

/* Waits for all ranks. A device that has failed fails the step on all of them. */
static bool meet(skv_cuda_backend *be, const float *x, size_t n_summed)
{
    const skv_backend_ranks *ranks = &be->limits.ranks;
    const skv_cuda_part mine = own_part(be, x);
    if (!ranks->meet(ranks->ctx, &mine, be->sums.parts, sizeof mine, n_summed)) return false;
    for (size_t i = 0; i < ranks->n; i++) {
        if (be->sums.parts[i].failed && be->device.failed == SKV_OK) {
            be->device.failed =
                skv_fail(&be->device.error, SKV_IO, "device cuda: that of rank %zu has failed: %s",
                         i, be->sums.parts[i].why);
        }
    }
    return true;
}

/* Parts [n] of all ranks are there when the next kernel begins. */
static void copy_parts(skv_cuda_backend *be, size_t n)
{
    const skv_cuda_sums *sums = &be->sums;
    const size_t own = be->limits.ranks.rank;
    for (size_t i = 0; i < be->limits.ranks.n; i++) {
        if (i != own) skv_cuda_event_follow(&be->device, sums->parts[i].written);
        if (i != own && !sums->reaches) skv_cuda_reach(&be->device, sums->parts[i].context);
        skv_cuda_copy_from(&be->device, be->product + i * n, sums->parts[i].context,
                           sums->parts[i].x, n * sizeof(float));
    }
    be->sums.reaches = true;
    skv_cuda_event_record(&be->device, sums->read);
}

static void add_parts(skv_cuda_backend *be, skv_cuda_rows x, size_t n_rows, size_t n)
{
    for (size_t i = 0; i < be->limits.ranks.n; i++) {
        skv_cuda_rows part = skv_cuda_scratch(be->product, SKV_CUDA_F32, n);
        part.at = be->product + i * n_rows * n;
        const skv_cuda_move_args args = {
            .y = x, .x = part, .op = i > 0 ? SKV_CUDA_ADD : SKV_CUDA_COPY, .factor = 1};
        skv_cuda_move(be, args, n_rows, n);
    }
}

static void sum_here(skv_cuda_backend *be, skv_rows x, size_t n_rows, size_t n)
{
    const size_t n_ranks = be->limits.ranks.n, most = be->n_product / (n_ranks * n);
    for (size_t row = 0, n_now; row < n_rows; row += n_now) {
        const skv_cuda_rows rows = skv_cuda_rows_of(skv_rows_from(x, row, 0));
        const float *at = rows.at;
        n_now = skv_min_size(most, n_rows - row);
        skv_cuda_event_record(&be->device, be->sums.written);
        if (!meet(be, at, n_now * n)) return;
        copy_parts(be, n_now * n);
        if (!meet(be, at, 0)) return;
        for (size_t i = 0; i < n_ranks; i++) {
            if (i != be->limits.ranks.rank) {
                skv_cuda_event_follow(&be->device, be->sums.parts[i].read);
            }
        }
        add_parts(be, rows, n_now, n);
    }
}

/* Ends the sums that wait for a rank which will not come. */
static void abort_sums(skv_cuda_backend *be)
{
    skv_cuda_enter(&be->device);
    (void)be->nccl.abort(be->sums.comm);
    be->sums.comm = NULL;
}

static void sum_by_nccl(skv_cuda_backend *be, skv_rows x, size_t n_rows, size_t n)
{
    float *at = skv_cuda_rows_of(x).at;
    if (n_rows * n == 0) return;
    if (meet(be, at, n_rows * n) && be->device.failed == SKV_OK) {
        skv_cuda_enter(&be->device);
        const int bad = be->nccl.add_up(at, at, n_rows * n, SKV_NCCL_F32, SKV_NCCL_SUM,
                                        be->sums.comm, be->device.stream);
        if (bad) {
            be->device.failed =
                skv_fail(&be->device.error, SKV_IO, "ncclAllReduce of %zu floats: failed (%d)",
                         n_rows * n, bad);
        }
        if (meet(be, at, 0) && be->device.failed == SKV_OK) return;
    }
    abort_sums(be);
}

static void sum_on_host(skv_backend *base, skv_rows x, size_t n_rows, size_t n)
{
    const skv_backend_ranks *ranks = &skv_cuda_of(base)->limits.ranks;
    const skv_mapped m = base->map(base, x, n_rows, n, SKV_MAP_BOTH);
    ranks->sum(ranks->ctx, m.at, n_rows * n);
    base->unmap(base, m);
}

static void sum(skv_backend *base, skv_rows x, size_t n_rows, size_t n)
{
    if (skv_cuda_of(base)->sums.comm) {
        sum_by_nccl(skv_cuda_of(base), x, n_rows, n);
    } else if (skv_cuda_of(base)->sums.parts) {
        sum_here(skv_cuda_of(base), x, n_rows, n);
    } else {
        sum_on_host(base, x, n_rows, n);
    }
}

/* ---- life ---- */

/* Rank 0 makes the communicators of all ranks at once, so that none waits for one that cannot. */
static int open_comms(skv_cuda_backend *be)
{
    int devices[SKV_RANKS_THREADS_MAX];
    const size_t n = be->limits.ranks.n;
    be->sums.comms = skv_alloc_zero(n, sizeof *be->sums.comms);
    if (!be->sums.comms || n > SKV_RANKS_THREADS_MAX) return -1;
    for (size_t i = 0; i < n; i++) devices[i] = be->sums.parts[i].ordinal;
    skv_cuda_enter(&be->device);
    const int bad = be->nccl.open_all(be->sums.comms, (int)n, devices);
    if (!bad) return 0;
    skv_free(be->sums.comms);
    be->sums.comms = NULL;
    return bad;
}

static skv_status take_comm(skv_cuda_backend *be, skv_error *err)
{
    const skv_backend_ranks *ranks = &be->limits.ranks;
    if (ranks->rank == 0) be->sums.refused = open_comms(be);
    SKV_REQUIRE(meet(be, NULL, 0), err, SKV_IO, "NCCL: the ranks have ended");
    const skv_nccl_comm *comms = be->sums.parts[0].comms;
    if (comms) be->sums.comm = comms[ranks->rank];
    if (comms) be->base.sums = "nccl";
    SKV_REQUIRE(comms || !be->needs_nccl, err, SKV_IO, "ncclCommInitAll of %zu GPUs: failed (%d)",
                ranks->n, be->sums.parts[0].refused);
    return SKV_OK;
}

/* All of them by NCCL, or none. */
static skv_status join(skv_backend *base, skv_error *err)
{
    skv_cuda_backend *be = skv_cuda_of(base);
    bool all = true;
    if (!be->sums.parts) return SKV_OK;
    SKV_REQUIRE(meet(be, NULL, 0), err, SKV_IO, "sums over ranks: the ranks have ended");
    for (size_t i = 0; i < be->limits.ranks.n; i++) all = all && be->sums.parts[i].has_nccl;
    return all ? take_comm(be, err) : SKV_OK;
}

/* The others may be about to wait for these events, or for a sum of NCCL, until they are here too.
 * Where the team is broken, the events stay until the program ends. */
void skv_cuda_sums_close(skv_cuda_backend *be)
{
    const bool all = (!be->sums.reaches && !be->sums.comm) || meet(be, NULL, 0);
    if (be->sums.comm && all && be->device.failed == SKV_OK) {
        skv_cuda_enter(&be->device);
        (void)be->nccl.destroy(be->sums.comm);
    } else if (be->sums.comm) {
        abort_sums(be);
    }
    if (all) {
        skv_cuda_event_delete(&be->device, be->sums.written);
        skv_cuda_event_delete(&be->device, be->sums.read);
    }
    skv_free(be->sums.comms);
    skv_free(be->sums.parts);
    be->sums = (skv_cuda_sums){.parts = NULL};
    be->base.sums = NULL;
}

skv_status skv_cuda_sums_open(skv_cuda_backend *be, skv_error *err)
{
    const skv_backend_ranks *ranks = &be->limits.ranks;
    if (ranks->n == 0 || !ranks->meet) return SKV_OK;
    SKV_TRY(skv_cuda_event_new(&be->device, &be->sums.written, err));
    SKV_TRY(skv_cuda_event_new(&be->device, &be->sums.read, err));
    be->sums.parts = skv_alloc_zero(ranks->n, sizeof *be->sums.parts);
    SKV_REQUIRE(be->sums.parts, err, SKV_MEMORY, "sums over ranks: out of memory");
    be->base.sums = "copies";
    return SKV_OK;
}

void skv_cuda_fill_sums(skv_backend *table)
{
    table->sum = sum;
    table->join = join;
}
