/* Hostile inputs on a thread of their own, measured: see hostile_run.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_STACK, pthread_timedjoin_np */
#include "hostile_run.h"

#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "alloc_meter.h"
#include "grammar/token_table.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define PAINT UINT64_C(0xa5a5a5a55a5a5a5a)
#define NO_SANITIZE __attribute__((no_sanitize("address"), noinline))

enum {
    GUARD = 64 << 10,
    BEYOND = 512 << 10, /* room below the limit: who uses it is measured and does not crash */
    SHORT_TOKENS = 272,
    TOKENS = 4096,
    HARD = 5, /* times a limit: the process ends */
    LINGER_MS = 20
};

struct hostile_bench {
    hostile_limits limits;
    skv_token_table *table;
    char *stack; /* mapped, [n_stack] */
    size_t n_stack;
};

/* ---- limits ---- */

unsigned hostile_slower(void)
{
    return SANITIZED ? 8 : 1;
}

unsigned hostile_deeper(void)
{
    return SANITIZED ? 4 : 1;
}

hostile_limits hostile_limits_default(void)
{
    return (hostile_limits){.ns = UINT64_C(1000000000) * hostile_slower(),
                            .piece_ns = UINT64_C(100000000) * hostile_slower(),
                            .bytes = 256000000,
                            .stack = (size_t)(128 << 10) * hostile_deeper()};
}

void hostile_fault(hostile_job *job, const char *format, ...)
{
    va_list arguments;
    if (job->out->fault[0] != '\0') return;
    va_start(arguments, format);
    (void)vsnprintf(job->out->fault, sizeof job->out->fault, format, arguments);
    va_end(arguments);
}

uint64_t hostile_cpu_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void hostile_judge(hostile_job *job, skv_status status, const skv_error *err)
{
    job->out->status = status;
    if (status == SKV_OK) return;
    (void)snprintf(job->out->message, sizeof job->out->message, "%s", err->text);
    if (status != err->status)
        hostile_fault(job, "status %d, error %d", (int)status, (int)err->status);
    if (err->text[0] == '\0' || strchr(err->text, '\n')) {
        hostile_fault(job, "not one line: \"%s\"", err->text);
    }
    if (status != SKV_FORMAT && status != SKV_UNSUPPORTED && status != SKV_RANGE &&
        status != SKV_ARGUMENT) {
        hostile_fault(job, "status \"%s\": %s", skv_status_name(status), err->text);
    }
    if (job->c->ordinary) hostile_fault(job, "an ordinary input is refused: %s", err->text);
}

/* ---- the vocabulary: all bytes, and short words ---- */

static bool tell_token(void *user, uint32_t id, const char **bytes, size_t *n)
{
    static const char *const pairs[] = {"\"}",      "\":",    "\",",  "{\"", "[[",
                                        "]]",       "\n  ",   "12",   "ab",  "xx",
                                        "\xc3\xa4", "\xa4\"", ", \"", ": ",  "true"};
    char *word = user;
    *bytes = word;
    *n = 1;
    word[0] = (char)id;
    if (id < 256) return true;
    if (id < 256 + sizeof pairs / sizeof pairs[0]) {
        *bytes = pairs[id - 256];
        *n = strlen(*bytes);
        return true;
    }
    if (id < SHORT_TOKENS) return false;
    *n = 2 + id % 11;
    for (size_t i = 0; i < *n; i++) word[i] = (char)('a' + skv_mix64(id * 16 + i) % 26);
    if (id % 3 == 0) word[0] = ' ';
    return true;
}

/* ---- the stack ---- */

NO_SANITIZE static void paint(char *from, size_t n)
{
    volatile uint64_t *at = (volatile uint64_t *)(void *)from;
    for (size_t i = 0; i < n / sizeof *at; i++) at[i] = PAINT;
}

/* Bytes that are still painted. */
NO_SANITIZE static size_t painted(const char *from, size_t n)
{
    const volatile uint64_t *at = (const volatile uint64_t *)(const void *)from;
    size_t i = 0;
    while (i < n / sizeof *at && at[i] == PAINT) i++;
    return i * sizeof *at;
}

typedef struct thread_start {
    hostile_job job;
    void (*run)(hostile_job *job);
    const char *top; /* of the stack, when the thread begins */
} thread_start;

static void *begin(void *user)
{
    thread_start *start = user;
    start->top = __builtin_frame_address(0);
    start->run(&start->job);
    return NULL;
}

/* What the process that dies of it has to say first. */
static hostile_job *dying;

static void too_much_memory(void)
{
    hostile_fault(dying, "memory: more than %zu bytes", dying->limits->bytes * HARD);
    _exit(3);
}

/* Waits for the thread; one that takes far too long ends the process. */
static void wait_for(pthread_t thread, thread_start *start)
{
    uint64_t max = start->job.limits->ns * HARD;
    clockid_t clock;
    struct timespec used = {0}, until;
    if (pthread_getcpuclockid(thread, &clock) != 0) { /* it has ended already */
        (void)pthread_join(thread, NULL);
        return;
    }
    for (;;) {
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LINGER_MS * 1000000L;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        if (pthread_timedjoin_np(thread, NULL, &until) == 0) return;
        if (clock_gettime(clock, &used) != 0) continue;
        uint64_t ns = (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
        if (ns <= max) continue;
        hostile_fault(&start->job, "time: more than %.1f s", (double)max * 1e-9);
        _exit(3);
    }
}

static void run_thread(hostile_bench *bench, thread_start *start)
{
    pthread_attr_t attributes;
    pthread_t thread;
    char *low = bench->stack + GUARD;
    paint(low, bench->n_stack - GUARD);
    if (pthread_attr_init(&attributes) != 0 ||
        pthread_attr_setstack(&attributes, low, bench->n_stack - GUARD) != 0) {
        abort();
    }
    int problem = pthread_create(&thread, &attributes, begin, start);
    if (problem != 0) {
        (void)fprintf(stderr, "no thread: %s\n", strerror(problem));
        abort();
    }
    wait_for(thread, start);
    (void)pthread_attr_destroy(&attributes);
    size_t untouched = painted(low, bench->n_stack - GUARD);
    start->job.out->stack = (size_t)(start->top - low) - untouched;
}

/* ---- one case ---- */

static void run_kind(hostile_job *job)
{
    switch (job->c->kind) {
    case HOSTILE_TEMPLATE: hostile_run_template(job); break;
    case HOSTILE_HISTORY: hostile_run_history(job); break;
    default: hostile_run_grammar(job); break;
    }
}

static void run_measured(hostile_bench *bench, const hostile_case *c, void (*run)(hostile_job *job),
                         hostile_result *out)
{
    thread_start start = {{c, &bench->limits, bench->table, out}, run, NULL};
    hostile_job *job = &start.job;
    *out = (hostile_result){.status = SKV_OK};
    dying = job;
    alloc_meter_reset();
    size_t before = alloc_meter_used();
    alloc_meter_limit(before + bench->limits.bytes * HARD, too_much_memory);
    run_thread(bench, &start);
    alloc_meter_limit(0, NULL);
    out->bytes = alloc_meter_peak() - before;
    if (out->stack > bench->limits.stack) {
        hostile_fault(job, "stack: %zu bytes, at most %zu", out->stack, bench->limits.stack);
    }
    if (out->bytes > bench->limits.bytes) {
        hostile_fault(job, "memory: %zu bytes, at most %zu", out->bytes, bench->limits.bytes);
    }
    if (out->ns > bench->limits.ns) {
        hostile_fault(job, "time: %.3f s, at most %.3f", (double)out->ns * 1e-9,
                      (double)bench->limits.ns * 1e-9);
    }
    if (alloc_meter_used() != before) {
        hostile_fault(job, "memory: %zd bytes are lost", (ssize_t)(alloc_meter_used() - before));
    }
}

void hostile_run(hostile_bench *bench, const hostile_case *c, hostile_result *out)
{
    run_measured(bench, c, run_kind, out);
}

/* ---- the bench ---- */

hostile_bench *hostile_bench_create(const hostile_limits *limits)
{
    char word[16];
    hostile_bench *bench = calloc(1, sizeof *bench);
    if (!bench) abort();
    bench->limits = *limits;
    bench->n_stack = GUARD + BEYOND + limits->stack;
    bench->stack = mmap(NULL, bench->n_stack, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (bench->stack == MAP_FAILED || mprotect(bench->stack, GUARD, PROT_NONE) != 0) abort();
    json_set_alloc_funcs(alloc_meter_malloc, alloc_meter_free);
    if (skv_token_table_build(TOKENS, tell_token, word, &bench->table, NULL) != SKV_OK) abort();
    skv_token_table_add_end(bench->table, SHORT_TOKENS - 1);
    return bench;
}

void hostile_bench_free(hostile_bench *bench)
{
    skv_token_table_free(bench->table);
    (void)munmap(bench->stack, bench->n_stack);
    free(bench);
}

/* ---- does it measure? ---- */

static void take_time(hostile_job *job)
{
    uint64_t begun = hostile_cpu_ns();
    while (hostile_cpu_ns() - begun <= job->limits->ns) continue;
    job->out->ns = hostile_cpu_ns() - begun;
}

static void take_memory(hostile_job *job)
{
    char *volatile block = malloc(job->limits->bytes + 1);
    free(block);
}

static void lose_memory(hostile_job *job)
{
    job->out->n_tokens = (size_t)(uintptr_t)malloc(1000); /* freed below */
}

NO_SANITIZE static void take_stack(hostile_job *job)
{
    volatile char *block = __builtin_alloca(job->limits->stack);
    block[0] = 1;
}

const char *hostile_check_limits(hostile_bench *bench)
{
    static const struct {
        const char *name;
        void (*run)(hostile_job *job);
    } tests[] = {{"time", take_time},
                 {"memory", take_memory},
                 {"memory", lose_memory},
                 {"stack", take_stack}};
    hostile_case none = {.kind = HOSTILE_GBNF, .shape = "limits"};
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        hostile_result out;
        run_measured(bench, &none, tests[i].run, &out);
        if (tests[i].run == lose_memory) free((void *)(uintptr_t)out.n_tokens);
        if (strncmp(out.fault, tests[i].name, strlen(tests[i].name)) != 0) return tests[i].name;
    }
    return NULL;
}
