/* The emulated GPU: fibers, what warps do together, copies that are under way. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "emulator.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

enum {
    LANES_MAX = 1024,
    WARP = 32,
    STACK_BYTES = 256 * 1024,
    COPIES = 256 /* of a lane that are under way */
};

typedef struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    unsigned group;
} copy;

typedef struct lane {
    void *stack_top; /* saved stack pointer */
    unsigned thread, warp, lane;
    bool done;
    emu_exchange *exchange; /* of what its warp does together */
    copy copies[COPIES];    /* a ring */
    unsigned copy_first, copy_end, group;
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
    unsigned last; /* the lane that arrived last: it goes on after a barrier */
    bool at_barrier;
} warp_state;

_Thread_local emu_index emu_thread, emu_block, emu_grid, emu_threads;
_Thread_local unsigned char *emu_shared;

static _Thread_local lane *lanes; /* [LANES_MAX], kept as long as the thread runs: */
static pthread_key_t lanes_of_thread;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local lane *now; /* NULL: the host runs */
static _Thread_local lane host;
static _Thread_local warp_state warps[LANES_MAX / WARP];
static _Thread_local void (*kernel)(const void *args);
static _Thread_local const void *kernel_args;
static _Thread_local size_t shared_size;
static _Thread_local unsigned step = 1; /* from one lane to the next: 1, or 31 backwards */
static _Thread_local emu_order order;
static _Thread_local unsigned long long bank_conflicts;

static void make_key(void)
{
    (void)pthread_key_create(&lanes_of_thread, free);
}

static void make_lanes(void)
{
    lanes = calloc(LANES_MAX, sizeof *lanes);
    (void)pthread_once(&once, make_key);
    (void)pthread_setspecific(lanes_of_thread, lanes);
}

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

__attribute__((destructor)) static void free_lanes(void)
{
    free(lanes);
    (void)pthread_once(&once, make_key);
    (void)pthread_setspecific(lanes_of_thread, NULL);
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
#endif

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
    l->warp = i / WARP;
    l->lane = i % WARP;
    l->done = false;
    l->copy_first = l->copy_end = l->group = 0;
#ifdef __x86_64__
    void **top = (void **)(void *)(l->stack + STACK_BYTES - 64);
    *--top = NULL; /* a return address for lane_main: the stack is aligned as after a call */
    void (*entry)(void) = lane_main;
    memcpy(--top, &entry, sizeof entry);
    for (int r = 0; r < 6; r++) *--top = NULL;
    l->stack_top = top;
#else
    ucontext_t *c = context_of(l);
    (void)getcontext(c);
    c->uc_stack.ss_sp = l->stack;
    c->uc_stack.ss_size = STACK_BYTES;
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

static void do_op(const warp_state *w, const lane *l)
{
    switch (w->op) {
    case EMU_SHFL: do_shuffle(l, w->extra); break;
    case EMU_MMA: do_mma(l); break;
    case EMU_LDMATRIX:
    case EMU_LDMATRIX_TRANS:
        for (unsigned m = 0; m < 4; m++) load_matrix(l, m, w->op == EMU_LDMATRIX_TRANS);
        break;
    case EMU_SYNC:
    case EMU_SYNC_WARP: break;
    }
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
    if (op != EMU_SYNC) return;
    w->at_barrier = true;
    w->last = me->lane;
    switch_to(&host);
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
    }
}

/* ---- the launch ---- */

/* Runs a warp to its next barrier, or to its end. */
static void run_warp(unsigned i, bool backwards)
{
    warp_state *w = &warps[i];
    if (w->n_done == WARP) return;
    const unsigned first = w->at_barrier ? w->last : backwards ? WARP - 1 : 0;
    w->at_barrier = false;
    switch_to(&lanes[i * WARP + first]);
}

static void run_block(unsigned n_warps, bool backwards)
{
    for (unsigned i = 0; i < n_warps * WARP; i++) start_lane(&lanes[i], i);
    memset(warps, 0, sizeof warps);
    step = backwards ? WARP - 1 : 1;
    for (unsigned n_running = n_warps; n_running > 0;) {
        unsigned n_ended = 0;
        for (unsigned i = 0; i < n_warps; i++) {
            run_warp(backwards ? n_warps - 1 - i : i, backwards);
        }
        for (unsigned i = 0; i < n_warps; i++) n_ended += warps[i].n_done == WARP ? 1u : 0u;
        n_running = n_warps - n_ended;
        if (n_running == 0) return;
        if (n_ended > 0) emu_fail("a barrier that some warps do not reach");
        for (unsigned i = 1; i < n_warps; i++) {
            if (warps[i].where != warps[0].where) emu_fail("warps are at different barriers");
        }
    }
}

void emu_launch(void (*run)(const void *args), const void *args, emu_index grid, unsigned threads,
                size_t shared_bytes)
{
    void *shared = NULL;
    if (threads % WARP != 0 || threads > LANES_MAX || threads == 0) emu_fail("threads of a block");
    if (shared_bytes > SKV_CUDA_SHARED_MAX) emu_fail("more shared memory than every card has");
    if (!lanes) make_lanes();
    if (!lanes || posix_memalign(&shared, 1024, shared_bytes + 1) != 0) emu_fail("no memory");
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
                run_block(threads / WARP, backwards);
                if (order == EMU_IN_TURN) backwards = !backwards;
            }
        }
    }
    free(shared);
    emu_shared = NULL;
}
