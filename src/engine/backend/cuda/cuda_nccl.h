/*
 * Sums over GPUs by NCCL, opened at run time like the driver (cuda_api.h): only what is used is
 * declared, as libnccl.so.2 exports it.
 */
#ifndef SKV_BACKEND_CUDA_NCCL_H
#define SKV_BACKEND_CUDA_NCCL_H

#include <stddef.h>

#include "backend/cuda/cuda_api.h"

typedef struct ncclComm *skv_nccl_comm; /* a rank of a communicator */

enum { SKV_NCCL_F32 = 7, SKV_NCCL_SUM = 0 };

/* X(member, exported name, arguments); results are 0 for success */
#define SKV_NCCL_FUNCTIONS(X)                                                                      \
    X(version, "ncclGetVersion", (int *))                                                          \
    X(open_all, "ncclCommInitAll", (skv_nccl_comm *, int, const int *))                            \
    X(destroy, "ncclCommDestroy", (skv_nccl_comm))                                                 \
    X(abort, "ncclCommAbort", (skv_nccl_comm))                                                     \
    X(add_up, "ncclAllReduce",                                                                     \
      (const void *, void *, size_t, int, int, skv_nccl_comm, skv_cu_stream))

typedef struct skv_cuda_nccl {
    void *library; /* NULL: there is none */
/* NOLINTNEXTLINE(bugprone-macro-parentheses): parts of a declaration */
#define X(member, name, arguments) int(*member) arguments;
    SKV_NCCL_FUNCTIONS(X)
#undef X
} skv_cuda_nccl;

/** SKV_UNSUPPORTED names the missing part; `nccl` has no library then. */
SKV_MUST_CHECK skv_status skv_cuda_nccl_open(skv_cuda_nccl *nccl, skv_error *err);
/** After its communicators; also of one that could not be opened. */
void skv_cuda_nccl_close(skv_cuda_nccl *nccl);
/** How several GPUs would add up: "by NCCL 2.27.3", or "by copies: " and why. */
void skv_cuda_nccl_describe(char *out, size_t room);

#endif
