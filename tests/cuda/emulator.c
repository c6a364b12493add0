/* The emulated GPU: fibers, what warps do together, copies that are under way. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "emulator.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

enum {
    LANES_MAX = 1024,
    WARP = 32,
    STACK_BYTES = 256 * 1024,
    COPIES = 256,      /* of a lane that are under way */
    STORES = 512,      /* chunks of 16 bytes that a lane has stored since its last proxy fence */
    PRODUCTS = 64,     /* wgmma of a lane that are under way */
    SUMS = 2,          /* arrays that they add to */
    COLUMNS_MAX = 256, /* of a wgmma */
    ISSUED = 256,      /* wgmma that a warp of a warpgroup may be ahead of another */
    PART_BYTES = 1024  /* of shared memory whose changes are counted together */
};

typedef struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    unsigned group;
} copy;

/* A wgmma under way. */
typedef struct product {
    unsigned sums; /* which of the lane's */
    uint32_t add;
    const uint32_t *a; /* NULL: at a_at */
    uint32_t a_was[4];
    uint64_t a_at, b_at;
    unsigned n, group;
    uint32_t version; /* of its operands in shared memory */
} product;

/* Numbers of a lane that wgmma add to: NaNs there, and their values here. */
typedef struct sums {
    float *d;
    unsigned n, n_products; /* n_products 0: it is free */
    float values[COLUMNS_MAX / 2];
} sums;

typedef struct lane {
    void *stack_top; /* saved stack pointer */
    unsigned thread, warp, lane;
    bool done;
    emu_exchange *exchange; /* of what its warp does together */
    copy copies[COPIES];    /* a ring */
    unsigned copy_first, copy_end, group;
    uint32_t stores[STORES]; /* where in shared memory */
    unsigned n_stores;
    product products[PRODUCTS]; /* a ring */
    unsigned product_first, product_end, product_group;
    sums sums[SUMS];
    bool fenced; /* a wgmma may begin */
    unsigned char *stack;
#ifdef __SANITIZE_ADDRESS__
    void *fake_stack;
#endif
} lane;

typedef struct warp_state {
    emu_op op;
    int where;
    unsigned extra;
    unsigned n_here; /* lanes that have arrived */
    unsigned n_done;
    unsigned last; /* the lane that arrived last: it goes on when `stopped` ends */
    bool stopped;  /* by `op`: for a barrier, a phase or a wgmma */
    bool released; /* from a barrier at which all have been */
} warp_state;

/* What a barrier of phases is in shared memory. */
typedef struct phases_state {
    uint16_t n, n_left; /* n 0xffff: it has not been made */
    uint32_t phase;
} phases_state;

/* What the warps of a warpgroup have issued: all the same. */
typedef struct issued {
    uint64_t a_at, b_at;
    unsigned n;
} issued;

_Thread_local emu_index emu_thread, emu_block, emu_grid, emu_threads;
_Thread_local unsigned char *emu_shared;

static _Thread_local lane *lanes; /* [LANES_MAX], kept as long as the thread runs */
static _Thread_local lane *now;   /* NULL: the host runs */
static _Thread_local lane host;
static _Thread_local warp_state warps[LANES_MAX / WARP];
static _Thread_local void (*kernel)(const void *args);
static _Thread_local const void *kernel_args;
static _Thread_local size_t shared_size;
static _Thread_local unsigned step = 1; /* from one lane to the next: 1, or 31 backwards */
static _Thread_local emu_order order;
static _Thread_local unsigned long long bank_conflicts;
static _Thread_local unsigned char *proxy; /* shared memory as wgmma sees it; NULL: none */
static _Thread_local uint32_t
    versions[SKV_CUDA_WGMMA_SHARED_MAX / PART_BYTES + 1]; /* of its parts */
static _Thread_local issued all_issued[LANES_MAX / 128][ISSUED];
static _Thread_local unsigned n_issued[LANES_MAX / 128];

_Noreturn void emu_fail(const char *what)
{
    (void)fprintf(stderr, "emulated GPU: %s (block %u,%u,%u thread %u)\n", what, emu_block.x,
                  emu_block.y, emu_block.z, now ? now->thread : 0);
    abort();
}

void emu_set_order(emu_order wanted)
{
    order = wanted;
}

unsigned long long emu_bank_conflicts(void)
{
    return bank_conflicts;
}

/* Those of the thread that ends the program; others free theirs when they end. */
__attribute__((destructor)) static void free_lanes(void)
{
    free(lanes);
}

static pthread_key_t lanes_key;
static pthread_once_t lanes_once = PTHREAD_ONCE_INIT;

static void free_own(void *own)
{
    for (size_t i = 0; i < LANES_MAX; i++) {
        if (lanes[i].stack) (void)munmap(lanes[i].stack, STACK_BYTES);
    }
    free(own);
    lanes = NULL;
}

static void make_key(void)
{
    if (pthread_key_create(&lanes_key, free_own) != 0) emu_fail("no key of threads");
}

static void make_lanes(void)
{
    (void)pthread_once(&lanes_once, make_key);
    lanes = calloc(LANES_MAX, sizeof *lanes);
    if (!lanes || pthread_setspecific(lanes_key, lanes) != 0) emu_fail("no memory");
}

/* ---- switching ---- */

#ifdef __x86_64__
void emu_switch_stack(void **save, void *to);
__asm__(".text\n.globl emu_switch_stack\n.type emu_switch_stack,@function\nemu_switch_stack:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size emu_switch_stack,.-emu_switch_stack\n");

static void switch_stack(lane *from, lane *to)
{
    emu_switch_stack(&from->stack_top, to->stack_top);
}
#else
static _Thread_local ucontext_t contexts[LANES_MAX + 1];

static ucontext_t *context_of(const lane *l)
{
    return &contexts[l == &host ? LANES_MAX : (size_t)(l - lanes)];
}

static void switch_stack(lane *from, lane *to)
{
    (void)swapcontext(context_of(from), context_of(to));
}
#endif

#ifdef __SANITIZE_ADDRESS__
static _Thread_local const lane *came_from;
static _Thread_local const void *host_stack;
static _Thread_local size_t host_stack_size;

static void leaving(lane *from, const lane *to)
{
    came_from = from;
    __sanitizer_start_switch_fiber(from->done ? NULL : &from->fake_stack,
                                   to == &host ? host_stack : to->stack,
                                   to == &host ? host_stack_size : STACK_BYTES);
}

static void arrived(void *fake_stack)
{
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
    if (came_from == &host) {
        host_stack = bottom;
        host_stack_size = size;
    }
}
#define FAKE_STACK(l) ((l)->fake_stack)
/* The frame of the last one that ended there is not to be written to. */
#define UNPOISON(l) __asan_unpoison_memory_region(stack_end(l) - 4096, 4096)
#else
static void leaving(lane *from, const lane *to)
{
    (void)from, (void)to;
}

static void arrived(void *fake_stack)
{
    (void)fake_stack;
}
#define FAKE_STACK(l) NULL
#define UNPOISON(l) ((void)0)
#endif

/* Where the lane's first frame is. Those of the lanes of a warp lie in different sets of a cache:
 * stacks that all ended at multiples of a page would push each other out. */
static unsigned char *stack_end(const lane *l)
{
    return l->stack + STACK_BYTES - 64 - (size_t)l->thread % 512 * 192;
}

static void switch_to(lane *to)
{
    lane *from = now ? now : &host;
    if (from == to) return;
    now = to == &host ? NULL : to;
    emu_thread.x = to->thread;
    leaving(from, to);
    switch_stack(from, to);
    arrived(FAKE_STACK(from));
}

static lane *lane_after(const lane *l)
{
    return lanes + l->warp * WARP + (l->lane + step) % WARP;
}

static void lane_main(void)
{
    arrived(NULL);
    kernel(kernel_args);
    lane *me = now;
    warp_state *w = &warps[me->warp];
    if (me->copy_first != me->copy_end) emu_fail("a thread ends before its cp.async");
    if (me->product_first != me->product_end) emu_fail("a thread ends before its wgmma");
    if (w->n_here > 0) emu_fail("a thread ends while its warp waits for it");
    me->done = true;
    w->n_done++;
    switch_to(w->n_done == WARP ? &host : lane_after(me));
    abort(); /* nothing comes back here */
}

static void start_lane(lane *l, unsigned i)
{
    if (!l->stack) {
        l->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (l->stack == MAP_FAILED) emu_fail("no memory for stacks");
    }
    l->thread = i;
    UNPOISON(l);
    l->warp = i / WARP;
    l->lane = i % WARP;
    l->done = false;
    l->copy_first = l->copy_end = l->group = 0;
    l->product_first = l->product_end = l->product_group = l->n_stores = 0;
    l->fenced = false;
    for (unsigned s = 0; s < SUMS; s++) l->sums[s].n_products = 0;
#ifdef __x86_64__
    void **top = (void **)(void *)stack_end(l);
    *--top = NULL; /* a return address for lane_main: the stack is aligned as after a call */
    void (*entry)(void) = lane_main;
    memcpy(--top, &entry, sizeof entry);
    for (int r = 0; r < 6; r++) *--top = NULL;
    l->stack_top = top;
#else
    ucontext_t *c = context_of(l);
    (void)getcontext(c);
    c->uc_stack.ss_sp = l->stack;
    c->uc_stack.ss_size = (size_t)(stack_end(l) - l->stack);
    c->uc_link = NULL;
    makecontext(c, lane_main, 0);
#endif
}

/* ---- what a warp does together ---- */

static float bf16(uint32_t bits)
{
    return skv_from_bits(bits << 16);
}

/* Fragments: group g = lane / 4, t = lane % 4. a0 (g, 2t..), a1 (g + 8, 2t..), a2 (g, 2t + 8..),
 * a3 (g + 8, 2t + 8..); b0 (2t.., g), b1 (2t + 8.., g); c0, c1 (g, 2t..), c2, c3 (g + 8, 2t..). */
static void do_mma(const lane *l)
{
    float A[16][16], B[8][16];
    for (unsigned i = 0; i < WARP; i++) {
        const unsigned g = i / 4, t = i % 4;
        const uint32_t *u = l[i].exchange->u;
        for (unsigned r = 0; r < 4; r++) {
            const unsigned row = g + 8 * (r % 2), k = 2 * t + 8 * (r / 2);
            A[row][k] = bf16(u[r] & 0xffffu);
            A[row][k + 1] = bf16(u[r] >> 16);
        }
        for (unsigned r = 0; r < 2; r++) {
            B[g][2 * t + 8 * r] = bf16(u[4 + r] & 0xffffu);
            B[g][2 * t + 8 * r + 1] = bf16(u[4 + r] >> 16);
        }
    }
    for (unsigned i = 0; i < WARP; i++) {
        for (unsigned r = 0; r < 4; r++) {
            const float *x = A[i / 4 + 8 * (r / 2)], *y = B[i % 4 * 2 + r % 2];
            float sum = 0;
            for (unsigned k = 0; k < 16; k++) sum += x[k] * y[k];
            l[i].exchange->f[r] += sum;
        }
    }
}

/* Matrix m, whose rows lanes 8 m .. 8 m + 7 have named. */
static void load_matrix(const lane *l, unsigned m, bool trans)
{
    uint16_t x[8][8];
    unsigned banks[8] = {0}, most = 0;
    for (unsigned r = 0; r < 8; r++) {
        const emu_exchange *e = l[8 * m + r].exchange;
        const size_t offset = (uintptr_t)e->address - (uintptr_t)emu_shared;
        memcpy(x[r], e->row, 16);
        const unsigned n = ++banks[offset / 16 % 8];
        most = n > most ? n : most;
    }
    bank_conflicts += most - 1;
    for (unsigned i = 0; i < WARP; i++) {
        const unsigned g = i / 4, t = 2 * (i % 4);
        l[i].exchange->u[m] =
            trans ? x[t][g] | (uint32_t)x[t + 1][g] << 16 : x[g][t] | (uint32_t)x[g][t + 1] << 16;
    }
}

static void do_shuffle(const lane *l, unsigned mask)
{
    uint32_t x[WARP];
    for (unsigned i = 0; i < WARP; i++) x[i] = l[i].exchange->u[0];
    for (unsigned i = 0; i < WARP; i++) l[i].exchange->u[0] = x[i ^ mask];
}

/* Lane i adds what lane i ^ m has, for m from 16 down, or takes the larger. */
static void do_reduce(const lane *l, bool sum)
{
    float x[2][WARP];
    unsigned at = 0;
    for (unsigned i = 0; i < WARP; i++) x[0][i] = l[i].exchange->f[0];
    for (unsigned m = WARP / 2; m > 0; m /= 2, at ^= 1) {
        for (unsigned i = 0; i < WARP; i++) {
            const float own = x[at][i], other = x[at][i ^ m];
            x[at ^ 1][i] = sum ? own + other : fmaxf(own, other);
        }
    }
    for (unsigned i = 0; i < WARP; i++) l[i].exchange->f[0] = x[at][i];
}

static void do_op(const warp_state *w, const lane *l)
{
    switch (w->op) {
    case EMU_SUM:
    case EMU_MAX: do_reduce(l, w->op == EMU_SUM); break;
    case EMU_SHFL: do_shuffle(l, w->extra); break;
    case EMU_MMA: do_mma(l); break;
    case EMU_LDMATRIX:
    case EMU_LDMATRIX_TRANS:
        for (unsigned m = 0; m < 4; m++) load_matrix(l, m, w->op == EMU_LDMATRIX_TRANS);
        break;
    case EMU_SYNC:
    case EMU_SYNC_WARP:
    case EMU_PHASES_WAIT:
    case EMU_WGMMA_WAIT: break;
    }
}

/* ---- wgmma ---- */

/* Where in shared memory element (mn, k) of a matrix is, by its descriptor: rows of 128, 64 or 32
 * bytes whose chunks of 16 are exclusively ored with bits of the address, or of 16 bytes. Rows are
 * those of mn; by_rows: those of k. */
static size_t place_of(uint64_t matrix, unsigned mn, unsigned k, bool by_rows)
{
    const size_t at = (size_t)(matrix & 0x3fffu) << 4, leading = (matrix >> 16 & 0x3fffu) << 4;
    const size_t stride = (matrix >> 32 & 0x3fffu) << 4, swizzle = matrix >> 62;
    const size_t width = swizzle == 0 ? 16 : (size_t)256 >> swizzle;
    size_t place = at;
    if (by_rows) {
        if (swizzle == 0) emu_fail("wgmma: rows of k without a swizzle");
        place += mn / (width / 2) * leading + k / 8 * stride + k % 8 * width + mn % (width / 2) * 2;
    } else if (swizzle == 0) {
        place += mn / 8 * stride + k / 8 * leading + mn % 8 * width + k % 8 * 2;
    } else {
        place += mn / 8 * stride + mn % 8 * width + k * 2;
    }
    place ^= (place >> 7 & (width / 16 - 1)) << 4;
    if (place > shared_size - 2) emu_fail("wgmma: beyond shared memory");
    return place;
}

static float element_at(uint64_t matrix, unsigned mn, unsigned k, bool by_rows)
{
    uint16_t x;
    memcpy(&x, proxy + place_of(matrix, mn, k, by_rows), sizeof x);
    return bf16(x);
}

static uint32_t version_of(uint64_t matrix, unsigned n, bool by_rows)
{
    uint32_t version = 0;
    for (unsigned mn = 0; mn < n; mn += 8) {
        for (unsigned k = 0; k < 16; k += 8) {
            version += versions[place_of(matrix, mn, k, by_rows) / PART_BYTES];
        }
    }
    return version;
}

/* Of all operands in shared memory. */
static uint32_t versions_of(const product *p)
{
    return version_of(p->b_at, 2 * p->n, p->a) + (p->a ? 0 : version_of(p->a_at, 64, false));
}

/* The 16 rows of a warp of the left matrix. */
static void left_matrix(const lane *l, float A[16][16])
{
    const product *first = &l->products[l->product_first % PRODUCTS];
    for (unsigned i = 0; first->a && i < WARP; i++) {
        const product *p = &l[i].products[l[i].product_first % PRODUCTS];
        for (unsigned r = 0; r < 4; r++) {
            const unsigned row = i / 4 + 8 * (r % 2), k = 2 * (i % 4) + 8 * (r / 2);
            if (p->a[r] != p->a_was[r]) emu_fail("wgmma: a register changes that it reads");
            A[row][k] = bf16(p->a[r] & 0xffffu);
            A[row][k + 1] = bf16(p->a[r] >> 16);
        }
    }
    for (unsigned i = 0; !first->a && i < 256; i++) {
        A[i / 16][i % 16] = element_at(first->a_at, l->warp % 4 * 16 + i / 16, i % 16, false);
    }
}

/* The oldest product of each lane of a warp. */
static void do_product(lane *l)
{
    static _Thread_local float A[16][16], B[COLUMNS_MAX][16];
    const product *first = &l->products[l->product_first % PRODUCTS];
    left_matrix(l, A);
    for (unsigned n = 0; n < 2 * first->n; n++) {
        for (unsigned k = 0; k < 16; k++) B[n][k] = element_at(first->b_at, n, k, first->a);
    }
    for (unsigned i = 0; i < WARP; i++) {
        const product *p = &l[i].products[l[i].product_first++ % PRODUCTS];
        sums *s = &l[i].sums[p->sums];
        if (p->version != versions_of(p)) emu_fail("wgmma: memory changes that it reads");
        for (unsigned j = 0; j < p->n; j++) {
            const float *x = A[i / 4 + 8 * (j % 4 / 2)], *y = B[j / 4 * 8 + i % 4 * 2 + j % 2];
            float sum = 0;
            for (unsigned k = 0; k < 16; k++) sum += x[k] * y[k];
            s->values[j] = (p->add ? s->values[j] : 0) + sum;
        }
        if (--s->n_products == 0) memcpy(s->d, s->values, s->n * sizeof *s->d);
    }
}

/* All but the last n_left groups of a warp. */
static void do_products(lane *l, unsigned n_left)
{
    for (unsigned i = 0; i < WARP; i++) {
        if (l[i].product_end != l->product_end || l[i].product_group != l->product_group) {
            emu_fail("lanes of a warp have issued different wgmma");
        }
        l[i].fenced = false; /* their registers may be used now */
    }
    while (l->product_first != l->product_end &&
           l->products[l->product_first % PRODUCTS].group + n_left < l->product_group) {
        do_product(l);
    }
}

/* The lane's sums at d, which wgmma add to from now on. */
static unsigned sums_of(lane *l, float *d, unsigned n)
{
    unsigned s = 0;
    for (unsigned i = 0; i < SUMS; i++) {
        if (l->sums[i].n_products > 0 && l->sums[i].d == d) return i;
        if (l->sums[i].n_products == 0) s = i;
    }
    if (l->sums[s].n_products > 0) emu_fail("wgmma to too many sums are under way");
    l->sums[s].d = d;
    l->sums[s].n = n;
    memcpy(l->sums[s].values, d, n * sizeof *d);
    memset(d, 0xff, n * sizeof *d);
    return s;
}

/* All warps of a warpgroup issue the same. */
static void check_issued(const lane *l, const product *p)
{
    const unsigned group = l->warp / 4, i = l->product_end;
    issued *there = &all_issued[group][i % ISSUED];
    if (i == n_issued[group]) {
        *there = (issued){.a_at = p->a_at, .b_at = p->b_at, .n = p->n};
        n_issued[group]++;
    } else if (there->a_at != p->a_at || there->b_at != p->b_at || there->n != p->n) {
        emu_fail("warps of a warpgroup issue different wgmma");
    }
}

void emu_wgmma(float *d, unsigned n, const uint32_t *a, uint64_t a_at, uint64_t b_at, uint32_t add)
{
    lane *l = now;
    product p = {.a = a, .a_at = a_at, .b_at = b_at, .add = add, .n = n, .group = l->product_group};
    if (!proxy) emu_fail("wgmma in a kernel that has none");
    if (!l->fenced) emu_fail("wgmma without its fence");
    if (l->product_end - l->product_first == PRODUCTS) emu_fail("too many wgmma are under way");
    check_issued(l, &p);
    if (a) memcpy(p.a_was, a, sizeof p.a_was);
    p.version = versions_of(&p);
    p.sums = sums_of(l, d, n);
    l->sums[p.sums].n_products++;
    l->products[l->product_end++ % PRODUCTS] = p;
}

void emu_wgmma_fence(void)
{
    now->fenced = true;
}

void emu_wgmma_commit(void)
{
    now->product_group++;
}

void emu_wgmma_wait(unsigned n_left)
{
    emu_together(EMU_WGMMA_WAIT, 0, n_left, &(emu_exchange){.f = {0}});
}

/* ---- the other proxy ---- */

/* Whether wgmma could see 16 bytes at `to`; what it sees there becomes NaNs. */
static bool hide(const void *to)
{
    const size_t offset = (uintptr_t)to - (uintptr_t)emu_shared;
    if (!proxy || offset > shared_size - 16) return false;
    memset(proxy + offset, 0xff, 16);
    versions[offset / PART_BYTES]++;
    return true;
}

void emu_stored(const void *to)
{
    lane *l = now;
    if (!hide(to)) return;
    if (l->n_stores == STORES) emu_fail("too many stores without a proxy fence");
    l->stores[l->n_stores++] = (uint32_t)((uintptr_t)to - (uintptr_t)emu_shared);
}

void emu_fence_proxy(void)
{
    lane *l = now;
    for (unsigned i = 0; i < l->n_stores; i++) {
        memcpy(proxy + l->stores[i], emu_shared + l->stores[i], 16);
        versions[l->stores[i] / PART_BYTES]++;
    }
    l->n_stores = 0;
}

/* ---- barriers of phases ---- */

static phases_state phases_at(size_t offset)
{
    phases_state p;
    if (offset % 8 != 0 || offset > shared_size - 8) emu_fail("where a barrier of phases is");
    memcpy(&p, emu_shared + offset, sizeof p);
    if (p.n == 0xffff) emu_fail("a barrier of phases that has not been made");
    return p;
}

static size_t offset_of(const uint64_t *phases)
{
    return (uintptr_t)phases - (uintptr_t)emu_shared;
}

static bool has_ended(size_t offset, unsigned parity)
{
    return (phases_at(offset).phase & 1u) != parity;
}

void emu_phases_init(uint64_t *phases, uint32_t n)
{
    const phases_state p = {.n = (uint16_t)n, .n_left = (uint16_t)n};
    memcpy(phases, &p, sizeof p);
}

void emu_phases_arrive(uint64_t *phases)
{
    phases_state p = phases_at(offset_of(phases));
    if (--p.n_left == 0) {
        p.n_left = p.n;
        p.phase++;
    }
    memcpy(phases, &p, sizeof p);
}

void emu_phases_wait(uint64_t *phases, uint32_t parity)
{
    emu_together(EMU_PHASES_WAIT, (int)offset_of(phases), parity, &(emu_exchange){.f = {0}});
}

/* Whether a warp lets others go on first. */
static bool stops(const warp_state *w)
{
    return w->op == EMU_SYNC || w->op == EMU_PHASES_WAIT || w->op == EMU_WGMMA_WAIT;
}

void emu_together(emu_op op, int where, unsigned extra, emu_exchange *x)
{
    lane *me = now;
    warp_state *w = &warps[me->warp];
    me->exchange = x;
    if (w->n_done > 0) emu_fail("a warp acts together after a lane of it has ended");
    if (w->n_here == 0) {
        w->op = op;
        w->where = where;
        w->extra = extra;
    } else if (w->op != op || w->where != where || w->extra != extra) {
        emu_fail("the lanes of a warp are at different places");
    }
    if (++w->n_here < WARP) {
        switch_to(lane_after(me));
        return;
    }
    w->n_here = 0;
    do_op(w, lanes + me->warp * WARP);
    if (!stops(w)) return;
    w->stopped = true;
    w->last = me->lane;
    switch_to(&host);
    if (op == EMU_WGMMA_WAIT) do_products(lanes + me->warp * WARP, extra);
}

void emu_load_matrix(emu_op op, emu_exchange *x)
{
    const size_t offset = (uintptr_t)x->address - (uintptr_t)emu_shared;
    if (offset % 16 != 0) emu_fail("ldmatrix: an address that is not aligned");
    if (offset > shared_size - 16) emu_fail("ldmatrix: beyond shared memory");
    memcpy(x->row, x->address, 16);
    emu_together(op, 0, 0, x);
}

/* ---- cp.async ---- */

void emu_copy_async(void *to, const void *from)
{
    lane *l = now;
    if (l->copy_end - l->copy_first == COPIES) emu_fail("too many cp.async are under way");
    if ((uintptr_t)to - (uintptr_t)emu_shared > shared_size - 16) {
        emu_fail("cp.async: beyond shared memory");
    }
    memset(to, 0xff, 16);
    (void)hide(to);
    l->copies[l->copy_end++ % COPIES] = (copy){.to = to, .from = from, .group = l->group};
}

void emu_copy_commit(void)
{
    now->group++;
}

void emu_copy_wait(unsigned n_left)
{
    lane *l = now;
    for (; l->copy_first != l->copy_end; l->copy_first++) {
        const copy *c = &l->copies[l->copy_first % COPIES];
        if (c->group + n_left >= l->group) break;
        if (c->from) {
            memcpy(c->to, c->from, 16);
        } else {
            memset(c->to, 0, 16);
        }
        emu_stored(c->to);
    }
}

/* ---- the launch ---- */

static bool may_run(const warp_state *w)
{
    if (w->n_done == WARP) return false;
    if (!w->stopped || w->released || w->op == EMU_WGMMA_WAIT) return true;
    return w->op == EMU_PHASES_WAIT && has_ended((size_t)w->where, w->extra);
}

/* Runs a warp until it stops, or to its end. */
static void run_warp(unsigned i, bool backwards)
{
    warp_state *w = &warps[i];
    const unsigned first = w->stopped ? w->last : backwards ? WARP - 1 : 0;
    w->stopped = w->released = false;
    switch_to(&lanes[i * WARP + first]);
}

/* Runs the first warp that can go on, so that others are as late as they may be, or in turn each of
 * them; returns how many it ran. */
static unsigned run_warps(unsigned n_warps, bool backwards)
{
    unsigned n = 0;
    for (unsigned k = 0; k < n_warps && (n == 0 || order == EMU_IN_TURN); k++) {
        const unsigned i = backwards ? n_warps - 1 - k : k;
        if (!may_run(&warps[i])) continue;
        run_warp(i, backwards);
        n++;
    }
    return n;
}

/* No warp can go on: all are at one barrier, from which they go on now. */
static void end_barrier(unsigned n_warps)
{
    for (unsigned i = 0; i < n_warps; i++) {
        if (warps[i].n_done == WARP) emu_fail("a barrier that some warps do not reach");
        if (warps[i].op == EMU_PHASES_WAIT) emu_fail("a phase that does not end");
        if (warps[i].where != warps[0].where) emu_fail("warps are at different barriers");
    }
    for (unsigned i = 0; i < n_warps; i++) warps[i].released = true;
}

static void run_block(unsigned n_warps, bool backwards)
{
    for (unsigned i = 0; i < n_warps * WARP; i++) start_lane(&lanes[i], i);
    memset(warps, 0, sizeof warps);
    memset(n_issued, 0, sizeof n_issued);
    step = backwards ? WARP - 1 : 1;
    for (;;) {
        unsigned n_ended = 0;
        const unsigned n_run = run_warps(n_warps, backwards);
        for (unsigned i = 0; i < n_warps; i++) n_ended += warps[i].n_done == WARP ? 1u : 0u;
        if (n_ended == n_warps) return;
        if (n_run == 0) end_barrier(n_warps);
    }
}

void emu_launch(void (*run)(const void *args), const void *args, emu_index grid, unsigned threads,
                size_t shared_bytes, size_t shared_most)
{
    void *shared = NULL;
    if (threads % WARP != 0 || threads > LANES_MAX || threads == 0) emu_fail("threads of a block");
    if (shared_bytes > shared_most) emu_fail("more shared memory than every card has");
    if (!lanes) make_lanes();
    if (posix_memalign(&shared, 1024, shared_bytes + 1) != 0) emu_fail("no memory");
    if (shared_most > SKV_CUDA_SHARED_MAX && !(proxy = malloc(shared_bytes + 1))) {
        emu_fail("no memory");
    }
    kernel = run;
    kernel_args = args;
    shared_size = shared_bytes;
    emu_shared = shared;
    emu_grid = grid;
    emu_threads = (emu_index){threads, 1, 1};
    bool backwards = order == EMU_BACKWARDS;
    for (emu_block.z = 0; emu_block.z < grid.z; emu_block.z++) {
        for (emu_block.y = 0; emu_block.y < grid.y; emu_block.y++) {
            for (emu_block.x = 0; emu_block.x < grid.x; emu_block.x++) {
                memset(shared, 0xff, shared_bytes);
                if (proxy) memset(proxy, 0xff, shared_bytes);
                run_block(threads / WARP, backwards);
                if (order == EMU_IN_TURN) backwards = !backwards;
            }
        }
    }
    free(shared);
    free(proxy);
    proxy = NULL;
    emu_shared = NULL;
}
