/* Hostile input under limits: see attack.h. */
#define _GNU_SOURCE 1

#include "attack.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

#if defined(SANITIZED)
static const double cpu_max = 4;
static const bool heap_is_ours = false; /* freed blocks stay, and all have borders */
#else
static const double cpu_max = 1;
static const bool heap_is_ours = true;
#endif

enum { PAINT = 0xa5, KEPT_BYTES = 8 << 20 /* by the allocator, and the stack */ };

/* ---- measuring ---- */

/* A line of /proc/self/status in bytes; 0 where it cannot be read. */
static size_t status_bytes(const char *key)
{
    char line[256];
    unsigned long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) == 0) kib = strtoul(line + strlen(key), NULL, 10);
    }
    (void)fclose(f);
    return (size_t)kib << 10;
}

/* The resident size becomes the largest one so far. */
static bool forget_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return false;
    bool done = fputs("5", f) >= 0;
    return fclose(f) == 0 && done;
}

typedef struct job {
    void (*run)(void *arg);
    void *arg;
    double cpu_s;
} job;

static void *run_job(void *arg)
{
    job *j = arg;
    struct timespec spent = {0};
    j->run(j->arg);
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent), 0);
    j->cpu_s = (double)spent.tv_sec + (double)spent.tv_nsec * 1e-9;
    return NULL;
}

void attack_run(void (*run)(void *arg), void *arg, attack_use *use)
{
    job j = {.run = run, .arg = arg};
    pthread_attr_t attributes;
    pthread_t thread;
    uint8_t *stack =
        mmap(NULL, ATTACK_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(stack != MAP_FAILED);
    memset(stack, PAINT, ATTACK_STACK_BYTES);
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstack(&attributes, stack, ATTACK_STACK_BYTES), 0);
    bool known = forget_peak();
    size_t before = status_bytes("VmRSS:"), untouched = 0;
    assert_int_equal(pthread_create(&thread, &attributes, run_job, &j), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    size_t peak = known ? status_bytes("VmHWM:") : 0;
    while (untouched < ATTACK_STACK_BYTES && stack[untouched] == PAINT) untouched++;
    *use = (attack_use){.cpu_s = j.cpu_s,
                        .stack_bytes = ATTACK_STACK_BYTES - untouched,
                        .grown_bytes = peak > before ? peak - before : 0};
    (void)pthread_attr_destroy(&attributes);
    assert_int_equal(munmap(stack, ATTACK_STACK_BYTES), 0);
}

void attack_check_use(const char *name, const attack_use *use, size_t max_bytes)
{
    if (use->cpu_s > cpu_max) fail_msg("%s: %.2f s of processor time", name, use->cpu_s);
    if (use->stack_bytes > ATTACK_STACK_BYTES / 2) {
        fail_msg("%s: %zu bytes of stack", name, use->stack_bytes);
    }
    if (heap_is_ours && use->grown_bytes > max_bytes + max_bytes / 10 + KEPT_BYTES) {
        fail_msg("%s: %zu bytes of memory", name, use->grown_bytes);
    }
}

/* ---- grammars ---- */

typedef struct compiling {
    skv_grammar_kind kind;
    const skv_buf *text;
    skv_budget budget;
    skv_status status;
    skv_error err;
} compiling;

static void compile(void *arg)
{
    compiling *c = arg;
    skv_grammar *grammar = NULL;
    skv_limits limits = skv_limits_default();
    limits.max_ns = 0; /* the work alone must end it in time, however busy the machine is */
    skv_budget_init(&c->budget, &limits);
    c->status =
        skv_grammar_compile(c->kind, c->text->data, c->text->size, &c->budget, &grammar, &c->err);
    skv_grammar_free(grammar);
}

skv_status attack_compile(const char *name, skv_grammar_kind kind, const skv_buf *text,
                          skv_error *err)
{
    compiling c = {.kind = kind, .text = text};
    attack_use use;
    assert_false(text->failed);
    attack_run(compile, &c, &use);
    print_message("%-44s %4.0f ms, %3zu KiB of stack, %3zu MiB: %s\n", name, use.cpu_s * 1e3,
                  use.stack_bytes >> 10, use.grown_bytes >> 20,
                  c.status == SKV_OK ? "compiled" : c.err.text);
    attack_check_use(name, &use, c.budget.max.bytes);
    if (c.budget.bytes > 0) fail_msg("%s: %zu bytes are still counted", name, c.budget.bytes);
    *err = c.err;
    return c.status;
}

void attack_fits(const char *name, skv_grammar_kind kind, const skv_buf *text)
{
    skv_error err = {0};
    if (attack_compile(name, kind, text, &err) != SKV_OK) fail_msg("%s: %s", name, err.text);
}

void attack_refused(const char *name, skv_grammar_kind kind, const skv_buf *text, const char *words)
{
    skv_error err = {0};
    skv_status status = attack_compile(name, kind, text, &err);
    if (status != SKV_RANGE || !strstr(err.text, words)) {
        fail_msg("%s: expected \"%s\", not status %d, %s", name, words, (int)status, err.text);
    }
}

/* ---- texts ---- */

skv_buf attack_text(void)
{
    skv_buf text;
    skv_buf_init(&text, (size_t)64 << 20);
    return text;
}

void attack_repeat(skv_buf *text, const char *unit, const char *between, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i > 0) (void)skv_buf_text(text, between);
        for (const char *c = unit; *c != '\0'; c++) {
            if (*c == '@') {
                (void)skv_buf_printf(text, "%zu", i);
            } else {
                (void)skv_buf_byte(text, *c);
            }
        }
    }
}

void attack_expand(skv_buf *text, const char *pattern)
{
    skv_buf plain = attack_text(), unit = attack_text();
    for (const char *c = pattern; *c != '\0'; c++)
        (void)skv_buf_byte(&plain, *c == '\'' ? '"' : *c);
    for (const char *at = plain.data; at && *at != '\0';) {
        size_t n_plain = strcspn(at, "<");
        (void)skv_buf_append(text, at, n_plain);
        at += n_plain;
        if (*at != '<') continue;
        char *end;
        size_t n = strtoul(at + 1, &end, 10);
        bool commas = *end == ',';
        if (commas) end++;
        const char *close = strchr(end, '>');
        assert_true(*end == ':' && close);
        skv_buf_clear(&unit);
        (void)skv_buf_append(&unit, end + 1, (size_t)(close - end - 1));
        attack_repeat(text, unit.data, commas ? "," : "", n);
        at = close + 1;
    }
    skv_buf_release(&plain);
    skv_buf_release(&unit);
}
