/*
 * An emulated GPU: the primitives of src/engine/backend/cuda/kernels for the host, in place of
 * gpu.inc. The kernels' sources are the same.
 *
 * Blocks run one after the other, and the threads of a block are fibers. What a warp does together
 * (shuffles, ldmatrix, mma, barriers) happens when its 32 lanes have all arrived at it, and it is
 * an error when they arrive at different places. Between two such places a lane runs alone, so a
 * missing barrier is found by running lanes and warps in another order. Shared memory is NaNs at
 * the start of a block and has exactly the size that was asked for. cp.async makes its target NaN
 * at once, and copies when the lane waits for its group. What is wrong ends the program with a
 * line.
 *
 * ldmatrix reads each row when the lane that names it arrives, so a row that another lane stores
 * without a barrier is not there. It cannot see races between blocks: compute-sanitizer on a GPU
 * does.
 *
 * A warp that waits for a phase, or for its wgmma, lets others go on, and in two of the orders only
 * the first (or last) one that can, so warps are as late as they may be. The sums of a
 * wgmma are NaNs until the wait for its group, which computes them. It reads a copy of shared
 * memory that begins as NaNs: cp.async and 16-byte stores make their places there NaNs again, and
 * get there by the proxy fence of the thread that made them. Operands that change while a wgmma is
 * under way are faults, as are warps of a warpgroup that issue different ones, and a wgmma after a
 * wait without a fence. Matrices are read as their descriptors say: swizzle, strides and all.
 */
#ifndef SKV_TESTS_EMULATOR_H
#define SKV_TESTS_EMULATOR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "backend/cuda/kernels/cuda_args.h"

typedef struct emu_index {
    unsigned x, y, z;
} emu_index;

typedef enum emu_op {
    EMU_SHFL = 1,
    EMU_SUM,
    EMU_MAX,
    EMU_MMA,
    EMU_LDMATRIX,
    EMU_LDMATRIX_TRANS,
    EMU_SYNC_WARP,
    EMU_SYNC,
    EMU_PHASES_WAIT,
    EMU_WGMMA_WAIT
} emu_op;

/* What a lane brings to what its warp does together, and takes from it. */
typedef struct emu_exchange {
    float f[4];
    uint32_t u[6];
    const void *address;
    uint16_t row[8]; /* what was at `address` when the lane arrived */
} emu_exchange;

/* The lane that runs. */
extern _Thread_local emu_index emu_thread, emu_block, emu_grid, emu_threads;
extern _Thread_local unsigned char *emu_shared;

/** Returns when all lanes of the warp are here; `where` is a source line, the same for all. */
void emu_together(emu_op op, int where, unsigned extra, emu_exchange *x);
/** emu_together for ldmatrix, with the row at `address` as it is now. */
void emu_load_matrix(emu_op op, emu_exchange *x);
/** From NULL: zeros. */
void emu_copy_async(void *to, const void *from);
void emu_copy_commit(void);
void emu_copy_wait(unsigned n_left);
_Noreturn void emu_fail(const char *what);
/** 16 bytes at `to` were stored. */
void emu_stored(const void *to);
void emu_fence_proxy(void);
void emu_phases_init(uint64_t *phases, uint32_t n);
void emu_phases_arrive(uint64_t *phases);
void emu_phases_wait(uint64_t *phases, uint32_t parity);
void emu_wgmma_fence(void);
void emu_wgmma_commit(void);
void emu_wgmma_wait(unsigned n_left);
/** d [n]: a lane's sums. a in registers: [4], and a_at is 0; else NULL, and b is [N, K]. */
void emu_wgmma(float *d, unsigned n, const uint32_t *a, uint64_t a_at, uint64_t b_at, uint32_t add);

/* ---- launches ---- */

/* In which order lanes and warps run between two meeting points. */
typedef enum emu_order { EMU_FORWARDS, EMU_BACKWARDS, EMU_IN_TURN, EMU_ORDER_COUNT } emu_order;

/** Of what is launched from now on. */
void emu_set_order(emu_order order);

/** Runs run(args) as each thread of each block, with at most shared_most bytes of shared memory. */
void emu_launch(void (*run)(const void *args), const void *args, emu_index grid, unsigned threads,
                size_t shared_bytes, size_t shared_most);

/** How many cycles ldmatrix has lost so far to rows that meet in a bank. */
unsigned long long emu_bank_conflicts(void);

/* ---- what kernels call ---- */

#define threadIdx emu_thread
#define blockIdx emu_block
#define gridDim emu_grid
#define blockDim emu_threads

#define SKV_KERNEL(name, args_type, threads, min_blocks) static void name(const args_type a)
#define SKV_DEVICE static inline __attribute__((unused))
#define SKV_SHARED(name) unsigned char *const name = emu_shared
#define SKV_UNROLL

#define skv_sync() emu_together(EMU_SYNC, __LINE__, 0, &(emu_exchange){.f = {0}})
#define skv_sync_warp() emu_together(EMU_SYNC_WARP, __LINE__, 0, &(emu_exchange){.f = {0}})

SKV_DEVICE uint32_t skv_shfl_xor_u32(uint32_t x, uint32_t mask)
{
    emu_exchange e = {.u = {x}};
    emu_together(EMU_SHFL, 0, mask, &e);
    return e.u[0];
}

SKV_DEVICE float skv_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

SKV_DEVICE uint32_t skv_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

SKV_DEVICE float skv_shfl_xor(float x, uint32_t mask)
{
    return skv_from_bits(skv_shfl_xor_u32(skv_bits(x), mask));
}

/* As gpu.inc has them by five shuffles each, with the same bits. */
SKV_DEVICE float skv_warp_sum(float x)
{
    emu_exchange e = {.f = {x}};
    emu_together(EMU_SUM, 0, 0, &e);
    return e.f[0];
}

SKV_DEVICE float skv_warp_max(float x)
{
    emu_exchange e = {.f = {x}};
    emu_together(EMU_MAX, 0, 0, &e);
    return e.f[0];
}

SKV_DEVICE uint32_t skv_count_bits(uint32_t x)
{
    return (uint32_t)__builtin_popcount(x);
}

SKV_DEVICE double skv_times(double x, double y)
{
    return x * y;
}

SKV_DEVICE double skv_plus(double x, double y)
{
    return x + y;
}

SKV_DEVICE uint64_t skv_double_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

SKV_DEVICE double skv_from_double_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* A lane runs alone. */
SKV_DEVICE uint32_t skv_count_up(uint32_t *n)
{
    return (*n)++;
}

SKV_DEVICE float skv_exp2(float x)
{
    return exp2f(x);
}

SKV_DEVICE float skv_log2(float x)
{
    return log2f(x);
}

SKV_DEVICE float skv_rsqrt(float x)
{
    return 1.0f / sqrtf(x);
}

SKV_DEVICE uint32_t emu_bf16(float x)
{
    const uint32_t u = skv_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}

SKV_DEVICE uint32_t skv_pack_bf16(float lo, float hi)
{
    return emu_bf16(lo) | emu_bf16(hi) << 16;
}

typedef struct skv_u4 {
    uint32_t at[4];
} skv_u4;

SKV_DEVICE void emu_aligned(const void *p, uintptr_t n)
{
    if ((uintptr_t)p % n != 0) emu_fail("an address that is not aligned");
}

SKV_DEVICE skv_u4 skv_load16(const void *p)
{
    emu_aligned(p, 16);
    return *(const skv_u4 *)p;
}

SKV_DEVICE void skv_store16(void *p, skv_u4 x)
{
    emu_aligned(p, 16);
    *(skv_u4 *)p = x;
    emu_stored(p);
}

SKV_DEVICE void skv_load8bytes(const void *p, uint32_t *x, uint32_t *y)
{
    emu_aligned(p, 8);
    *x = ((const uint32_t *)p)[0];
    *y = ((const uint32_t *)p)[1];
}

SKV_DEVICE void skv_store8(void *p, uint32_t x, uint32_t y)
{
    emu_aligned(p, 8);
    ((uint32_t *)p)[0] = x;
    ((uint32_t *)p)[1] = y;
}

SKV_DEVICE void skv_mma_bf16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    emu_exchange e = {.u = {a[0], a[1], a[2], a[3], b0, b1}};
    memcpy(e.f, c, sizeof e.f);
    emu_together(EMU_MMA, 0, 0, &e);
    memcpy(c, e.f, sizeof e.f);
}

SKV_DEVICE void skv_ldmatrix(uint32_t *r, const void *row)
{
    emu_exchange e = {.address = row};
    emu_load_matrix(EMU_LDMATRIX, &e);
    memcpy(r, e.u, 4 * sizeof *r);
}

SKV_DEVICE void skv_ldmatrix_trans(uint32_t *r, const void *row)
{
    emu_exchange e = {.address = row};
    emu_load_matrix(EMU_LDMATRIX_TRANS, &e);
    memcpy(r, e.u, 4 * sizeof *r);
}

SKV_DEVICE void skv_cp_async16(void *to, const void *from, int there)
{
    emu_aligned(to, 16);
    emu_aligned(from, 16);
    emu_copy_async(to, there ? from : NULL);
}

#define skv_cp_async_commit() emu_copy_commit()
#define skv_cp_async_wait(n) emu_copy_wait((unsigned)(n))

SKV_DEVICE void skv_e4m3_to_bf16(uint32_t codes, uint32_t *y)
{
    float x[4];
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t c = codes >> 8 * i & 0xffu;
        x[i] = skv_from_bits((c & 0x80u) << 24 | (c & 0x7fu) << 20) * 0x1p120f;
    }
    y[0] = skv_pack_bf16(x[0], x[1]);
    y[1] = skv_pack_bf16(x[2], x[3]);
}

/* ---- gpu_wgmma.inc ---- */

#define SKV_HAS_WGMMA 1
#define SKV_SHARED_TILES(name) SKV_SHARED(name)
#define skv_trap() emu_fail("a trap")
#define skv_uniform(x) (x)
#define skv_shared_address(p) ((uint32_t)((uintptr_t)(p) - (uintptr_t)emu_shared))
#define skv_phases_init(phases, n) emu_phases_init(phases, n)
#define skv_phases_arrive(phases) emu_phases_arrive(phases)
#define skv_phases_wait(phases, parity) emu_phases_wait(phases, parity)
#define skv_give_registers(n) ((void)0)
#define skv_take_registers(n) ((void)0)
#define skv_fence_proxy() emu_fence_proxy()
#define skv_wgmma_fence() emu_wgmma_fence()
#define skv_wgmma_commit() emu_wgmma_commit()
#define skv_wgmma_wait(n) emu_wgmma_wait((unsigned)(n))
#define skv_wgmma_hold(d, n) ((void)0)
#define skv_wgmma_ss_64(d, a, b, add) emu_wgmma((d)[0], 32, NULL, a, b, add)
#define skv_wgmma_ss_128(d, a, b, add) emu_wgmma((d)[0], 64, NULL, a, b, add)
#define skv_wgmma_rs_64(d, a, b) emu_wgmma((d)[0], 32, a, 0, b, 1)
#define skv_wgmma_rs_128(d, a, b) emu_wgmma((d)[0], 64, a, 0, b, 1)
#define skv_wgmma_rs_256(d, a, b) emu_wgmma((d)[0], 128, a, 0, b, 1)

#endif
