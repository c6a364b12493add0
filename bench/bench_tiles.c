/*
 * bench_tiles: what the tile instructions of AMX take, alone and in loops like those of
 * kernels/x86/matmul_amx.inc. A line is one loop: nanoseconds of a step (four products of two by
 * two tiles, and their loads), the least and the median of its runs, and the share of the limit.
 *
 * Some loops take either 64 cycles a step or about 270, and the same loop may take both. A core
 * that issues at a quarter of its rate, as some do while they ask for more power, would look like
 * this, while a loop of products alone would not: it issues one instruction in 16 cycles. So each
 * line ends with the time of plain additions right after the loop, beside that on a core at rest.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/system.h"
#include "kernels/cpu.h"

enum { RUNS = 25, STEPS = 8192, STEP_BYTES = 2048, X_BYTES = 1 << 20, W_BYTES = 64 << 20 };

#define ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define LOAD(tile, at, between)                                                                    \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile                                            \
                     :                                                                             \
                     : "r"(at), "r"((size_t)(between))                                             \
                     : "memory")
#define LOAD_ONCE(tile, at, between)                                                               \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #tile                                          \
                     :                                                                             \
                     : "r"(at), "r"((size_t)(between))                                             \
                     : "memory")
#define STORE(tile, at, between)                                                                   \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)"                                        \
                     :                                                                             \
                     : "r"(at), "r"((size_t)(between))                                             \
                     : "memory")
#define DOT(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

/* Where a step's operands lie: X goes round x_bytes, W w_bytes; rows of W are `between` apart. */
typedef struct place {
    const char *name;
    size_t x_bytes, w_bytes, between, shift, ahead;
} place;

typedef void step_fn(const unsigned char *x, const unsigned char *w, const unsigned char *w_right,
                     size_t between);

static void loads_as_needed(const unsigned char *x, const unsigned char *w,
                            const unsigned char *w_right, size_t between)
{
    LOAD(4, x, 64);
    LOAD(6, w, between);
    DOT(0, 4, 6);
    LOAD(7, w_right, between);
    DOT(1, 4, 7);
    LOAD(5, x + 1024, 64);
    DOT(2, 5, 6);
    DOT(3, 5, 7);
}

static void loads_first(const unsigned char *x, const unsigned char *w,
                        const unsigned char *w_right, size_t between)
{
    LOAD(6, w, between);
    LOAD(7, w_right, between);
    LOAD(4, x, 64);
    LOAD(5, x + 1024, 64);
    DOT(0, 4, 6);
    DOT(1, 4, 7);
    DOT(2, 5, 6);
    DOT(3, 5, 7);
}

static void by_columns(const unsigned char *x, const unsigned char *w, const unsigned char *w_right,
                       size_t between)
{
    LOAD(4, x, 64);
    LOAD(5, x + 1024, 64);
    LOAD(6, w, between);
    DOT(0, 4, 6);
    DOT(2, 5, 6);
    LOAD(7, w_right, between);
    DOT(1, 4, 7);
    DOT(3, 5, 7);
}

static void w_once(const unsigned char *x, const unsigned char *w, const unsigned char *w_right,
                   size_t between)
{
    LOAD(4, x, 64);
    LOAD(5, x + 1024, 64);
    LOAD_ONCE(6, w, between);
    LOAD_ONCE(7, w_right, between);
    DOT(0, 4, 6);
    DOT(1, 4, 7);
    DOT(2, 5, 6);
    DOT(3, 5, 7);
}

static void no_loads(const unsigned char *x, const unsigned char *w, const unsigned char *w_right,
                     size_t between)
{
    (void)x;
    (void)w;
    (void)w_right;
    (void)between;
    DOT(0, 4, 6);
    DOT(1, 4, 7);
    DOT(2, 5, 6);
    DOT(3, 5, 7);
}

static void configure(void)
{
    _Alignas(64) unsigned char shapes[64] = {1};
    for (size_t i = 0; i < 8; i++) {
        shapes[16 + 2 * i] = 64;
        shapes[48 + i] = 16;
    }
    __asm__ volatile("ldtilecfg (%0)" : : "r"(shapes) : "memory");
    ZERO(0);
    ZERO(1);
    ZERO(2);
    ZERO(3);
    ZERO(4);
    ZERO(5);
    ZERO(6);
    ZERO(7);
}

/* Nanoseconds of 1000 rounds of eight independent additions. */
static double time_additions(void)
{
    uint64_t a = 0, b = 0, c = 0, d = 0;
    const uint64_t start = skv_clock_ns();
    for (size_t i = 0; i < 1000; i++) {
        __asm__ volatile("add $1, %0\n\tadd $1, %1\n\tadd $1, %2\n\tadd $1, %3\n\t"
                         "add $1, %0\n\tadd $1, %1\n\tadd $1, %2\n\tadd $1, %3"
                         : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
    }
    return (double)(skv_clock_ns() - start);
}

static int compare_doubles(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Nanoseconds of a step, and of the additions after it. */
typedef struct timing {
    double least, median, additions;
} timing;

static double median_of(double *ns)
{
    qsort(ns, RUNS, sizeof *ns, compare_doubles);
    return ns[RUNS / 2];
}

/* `group` steps end with the sums stored; 0: never. */
static timing time_loop(step_fn *step, const place *p, size_t group, const unsigned char *x,
                        const unsigned char *w)
{
    _Alignas(64) int32_t sums[32 * 32];
    double ns[RUNS], additions[RUNS];
    for (size_t run = 0; run < RUNS; run++) {
        configure();
        const uint64_t start = skv_clock_ns();
        for (size_t s = 0; s < STEPS; s++) {
            const size_t at = s * STEP_BYTES;
            const unsigned char *left = w + at % p->w_bytes;
            for (size_t i = 0; p->ahead && i < STEP_BYTES; i += 64) {
                __builtin_prefetch(left + p->ahead + i);
            }
            step(x + (at + p->shift) % p->x_bytes, left,
                 p->between == 64 ? left + STEP_BYTES / 2 : left + 64, p->between);
            if (group == 0 || (s + 1) % group != 0) continue;
            STORE(0, sums, 128);
            STORE(1, sums + 16, 128);
            STORE(2, sums + 512, 128);
            STORE(3, sums + 528, 128);
            ZERO(0);
            ZERO(1);
            ZERO(2);
            ZERO(3);
        }
        ns[run] = (double)(skv_clock_ns() - start) / STEPS;
        additions[run] = time_additions();
    }
    __asm__ volatile("tilerelease" : : : "memory");
    timing t = {.median = median_of(ns), .additions = median_of(additions)};
    t.least = ns[0];
    return t;
}

int main(void)
{
    static const struct {
        const char *name;
        step_fn *step;
    } orders[] = {{"loads as needed", loads_as_needed},
                  {"loads first", loads_first},
                  {"by columns", by_columns},
                  {"loads first, W by TILELOADDT1", w_once}};
    static const place places[] = {
        {"16 KiB of X and W", 16384, 16384, 128, 0, 0},
        {"the same, rows of W 64 apart", 16384, 16384, 64, 0, 0},
        {"the same, X 1 KiB further", 16384, 16384, 64, 1024, 0},
        {"32 KiB of X, 16 of W", 32768, 16384, 128, 0, 0},
        {"16 KiB of X, 256 of W", 16384, 1 << 18, 128, 0, 0},
        {"the same, rows of W 64 apart", 16384, 1 << 18, 64, 0, 0},
        {"the same, asked for 4 KiB ahead", 16384, 1 << 18, 64, 0, 4096},
        {"512 KiB of X, 512 of W", 1 << 19, 1 << 19, 128, 0, 0},
        {"16 KiB of X, 16 MiB of W", 16384, 1 << 24, 128, 0, 0},
        {"the same, asked for 4 KiB ahead", 16384, 1 << 24, 128, 0, 4096}};
    if (!(skv_cpu_detect() & SKV_CPU_AMX)) {
        printf("bench_tiles: this processor has no AMX\n");
        return 0;
    }
    unsigned char *x = skv_alloc_aligned(1, X_BYTES), *w = skv_alloc_aligned(1, W_BYTES);
    if (!x || !w) return 1;
    memset(x, 1, X_BYTES);
    memset(w, 1, W_BYTES);
    const double at_rest = time_additions();
    const timing bare = time_loop(no_loads, &places[0], 0, x, w);
    printf("%-30s %-36s %6.1f ns %6.1f, additions %.2f\n", "no loads", "", bare.least, bare.median,
           bare.additions / at_rest);
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        for (size_t j = 0; j < sizeof places / sizeof places[0]; j++) {
            for (size_t group = 0; group <= 8; group += 8) {
                const timing t = time_loop(orders[i].step, &places[j], group, x, w);
                printf(
                    "%-30s %-32s %s %6.1f ns %6.1f  %5.1f %% (median %5.1f %%), additions %.2f\n",
                    orders[i].name, places[j].name, group ? "/ 8" : "   ", t.least, t.median,
                    100.0 * bare.least / t.least, 100.0 * bare.least / t.median,
                    t.additions / at_rest);
            }
        }
    }
    skv_free(x);
    skv_free(w);
    return 0;
}
