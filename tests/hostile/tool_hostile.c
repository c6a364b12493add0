/*
 * Runs hostile inputs (hostile.h) within limits on time, memory and stack (hostile_run.h).
 *
 *     tool_hostile [--kind KIND[,KIND...]] [--shape NAME] [--seed S] [--cases N | --seconds N]
 *                  [--jobs N] [--scale X] [--stack KIB] [--ms N] [--mb N] [--faults FOLDER]
 *                  [--list]               a line for each case
 *     tool_hostile --replay FILE [limits]     one case that was written before
 *     tool_hostile --print N [what to make]   writes N cases as JSON lines and runs none
 *     tool_hostile --check-limits             shows that the limits catch what exceeds them
 *
 * Cases run in processes of their own. What one dies of is told, written to FOLDER with its seed
 * (at most three files a shape) and made again with half of the scale, and half of that, as long
 * as the fault stays. The status is 1 when there was a fault.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/system.h"
#include "hostile_run.h"

enum { JOBS_MAX = 16, FAULTS_MAX = 200, FILES_A_SHAPE = 3, HALVES_MAX = 12, HEADER_MAX = 400 };

typedef struct options {
    bool kinds[HOSTILE_KINDS];
    const char *shape, *faults, *replay; /* NULL: any; none */
    uint64_t seed, n_cases, n_print;
    double seconds, scale;
    unsigned n_jobs;
    bool check_limits, list;
    hostile_limits limits;
} options;

/* What was seen of one kind. */
typedef struct tally {
    uint64_t n_died, n_cases, n_tokens, by_status[SKV_STATUS_COUNT];
    uint64_t ns, mask_ns, piece_ns, bytes, stack;        /* the most */
    uint64_t ns_seed, mask_seed, bytes_seed, stack_seed; /* and whose */
} tally;

typedef struct found {
    hostile_kind kind;
    char shape[24], fault[HOSTILE_FAULT_MAX];
    uint64_t seed;
    double scale;
} found;

/* What a worker shares with the process that started it. */
typedef struct board {
    uint64_t next; /* index of the case */
    bool running;  /* it has begun and not ended */
    hostile_result result;
    tally tallies[HOSTILE_KINDS];
    found faults[FAULTS_MAX];
    size_t n_faults;
    uint64_t n_more; /* faults that have no room */
} board;

static void *share(size_t n_bytes)
{
    void *block = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) abort();
    return block;
}

/* ---- which case ---- */

static void make_case(const options *o, uint64_t i, hostile_case *c)
{
    size_t n = 0, k = 0;
    for (size_t j = 0; j < HOSTILE_KINDS; j++) n += o->kinds[j];
    size_t left = (size_t)(i % n);
    while (!o->kinds[k] || left > 0) left -= o->kinds[k++];
    /* The seed of a case says its kind alone: --kind takes nothing away from the others. */
    uint64_t seed = skv_mix64(o->seed ^ skv_mix64((i / n) * HOSTILE_KINDS + k));
    hostile_make((hostile_kind)k, seed, o->scale, o->shape, c);
}

/* ---- counting ---- */

static void raise_top(uint64_t *top, uint64_t *whose, uint64_t value, uint64_t seed)
{
    if (value <= *top) return;
    *top = value;
    if (whose) *whose = seed;
}

static void count(board *b, const hostile_case *c)
{
    const hostile_result *r = &b->result;
    tally *t = &b->tallies[c->kind];
    t->n_cases++;
    t->n_tokens += r->n_tokens;
    t->by_status[r->status]++;
    raise_top(&t->ns, &t->ns_seed, r->ns, c->seed);
    raise_top(&t->mask_ns, &t->mask_seed, r->mask_ns, c->seed);
    raise_top(&t->piece_ns, NULL, r->piece_ns, 0);
    raise_top(&t->bytes, &t->bytes_seed, r->bytes, c->seed);
    raise_top(&t->stack, &t->stack_seed, r->stack, c->seed);
}

static void add_fault(board *b, const hostile_case *c, const char *fault)
{
    if (b->n_faults == FAULTS_MAX) {
        b->n_more++;
        return;
    }
    found *f = &b->faults[b->n_faults++];
    *f = (found){.kind = c->kind, .seed = c->seed, .scale = c->scale};
    (void)snprintf(f->shape, sizeof f->shape, "%s", c->shape);
    (void)snprintf(f->fault, sizeof f->fault, "%s", fault);
}

/* ---- workers ---- */

typedef struct worker {
    const options *o;
    board *b;
    uint64_t first, step; /* its cases */
    uint64_t end_ns;      /* 0: by count */
    pid_t pid;
} worker;

static bool is_left(const worker *w)
{
    if (w->end_ns > 0) return skv_clock_ns() < w->end_ns;
    return w->b->next < w->o->n_cases;
}

static void list_case(const hostile_case *c, const hostile_result *r)
{
    printf("%s %s%s seed %" PRIu64 " %zu bytes: %.3f s, %.1f MB, stack %zu, %s %s\n",
           hostile_kind_name(c->kind), c->shape, c->mutated ? " mutated" : "", c->seed,
           c->text.size, (double)r->ns * 1e-9, (double)r->bytes * 1e-6, r->stack,
           skv_status_name(r->status), r->message);
}

/* The child: runs cases until it dies or none is left. */
static void work(const worker *w)
{
    board *b = w->b;
    hostile_bench *bench = hostile_bench_create(&w->o->limits);
    for (; is_left(w); b->next += w->step) {
        hostile_case c;
        make_case(w->o, b->next, &c);
        b->running = true;
        hostile_run(bench, &c, &b->result);
        b->running = false;
        count(b, &c);
        if (w->o->list) list_case(&c, &b->result);
        if (b->result.fault[0] != '\0') add_fault(b, &c, b->result.fault);
        hostile_case_release(&c);
    }
    hostile_bench_free(bench);
    exit(0); /* with the sanitizers' own checks */
}

static void begin(worker *w)
{
    (void)fflush(NULL);
    w->pid = fork();
    if (w->pid < 0) abort();
    if (w->pid == 0) work(w);
}

static const char *death(const board *b, int status, char *text, size_t n)
{
    if (b->result.fault[0] != '\0') return b->result.fault;
    if (WIFSIGNALED(status)) {
        (void)snprintf(text, n, "died of %s", strsignal(WTERMSIG(status)));
    } else {
        (void)snprintf(text, n, "ended with status %d", WEXITSTATUS(status));
    }
    return text;
}

/* A worker has ended; true when it has to go on behind the case that ended it. */
static bool bury(worker *w, int status)
{
    char text[64];
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
    hostile_case c;
    make_case(w->o, w->b->next, &c);
    add_fault(w->b, &c, death(w->b, status, text, sizeof text));
    w->b->tallies[c.kind].n_cases++;
    w->b->tallies[c.kind].n_died++;
    hostile_case_release(&c);
    bool in_case = w->b->running;
    w->b->running = false;
    w->b->next += w->step;
    return in_case;
}

static void run_workers(const options *o, worker *workers)
{
    uint64_t end = o->seconds > 0 ? skv_clock_ns() + (uint64_t)(o->seconds * 1e9) : 0;
    for (size_t i = 0; i < o->n_jobs; i++) {
        board *b = share(sizeof *b);
        b->next = i;
        workers[i] = (worker){o, b, i, o->n_jobs, end, 0};
        begin(&workers[i]);
    }
    for (size_t n = o->n_jobs; n > 0;) {
        int status;
        pid_t pid = wait(&status);
        if (pid < 0) abort();
        for (size_t i = 0; i < o->n_jobs; i++) {
            if (workers[i].pid != pid) continue;
            if (bury(&workers[i], status)) {
                begin(&workers[i]);
            } else {
                n--;
            }
        }
    }
}

/* ---- one case in a process of its own ---- */

/* Whether it fails; `b` tells how. */
static bool fails(const options *o, const hostile_case *c, board *b)
{
    char text[64];
    int status;
    (void)fflush(NULL);
    b->result = (hostile_result){.status = SKV_OK};
    pid_t pid = fork();
    if (pid < 0) abort();
    if (pid == 0) {
        hostile_bench *bench = hostile_bench_create(&o->limits);
        hostile_run(bench, c, &b->result);
        hostile_bench_free(bench);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid) abort();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return b->result.fault[0] != '\0';
    const char *how = death(b, status, text, sizeof text);
    if (how == text) (void)snprintf(b->result.fault, sizeof b->result.fault, "%s", text);
    return true;
}

/* ---- files: one line that says what it is, and the bytes ---- */

static bool write_case(const char *path, const hostile_case *c)
{
    FILE *file = fopen(path, "wb");
    if (!file) return false;
    (void)fprintf(file, "hostile %s %s seed %" PRIu64 " scale %g ordinary %d text %zu more %zu\n",
                  hostile_kind_name(c->kind), c->shape, c->seed, c->scale, c->ordinary,
                  c->text.size, c->more.size);
    (void)fwrite(c->text.data, 1, c->text.size, file);
    (void)fwrite(c->more.data, 1, c->more.size, file);
    return fclose(file) == 0;
}

static bool read_bytes(FILE *file, size_t n, skv_buf *out)
{
    char block[4096];
    skv_buf_init(out, n);
    while (out->size < n) {
        size_t piece = n - out->size < sizeof block ? n - out->size : sizeof block;
        if (fread(block, 1, piece, file) != piece) return false;
        if (!skv_buf_append(out, block, piece)) return false;
    }
    return true;
}

static bool read_case(FILE *file, hostile_case *c)
{
    static char shape[32];
    char line[HEADER_MAX], kind[16], *rest = line;
    int n = 0;
    *c = (hostile_case){.shape = shape};
    if (!fgets(line, sizeof line, file) || strncmp(line, "hostile ", 8) != 0) return false;
    rest += 8;
    size_t n_kind = strcspn(rest, " "), n_shape;
    if (n_kind >= sizeof kind) return false;
    (void)snprintf(kind, sizeof kind, "%.*s", (int)n_kind, rest);
    c->kind = hostile_kind_of(kind);
    rest += n_kind + 1;
    n_shape = strcspn(rest, " ");
    (void)snprintf(shape, sizeof shape, "%.*s", (int)n_shape, rest);
    const char *text = strstr(rest, " text "), *more = strstr(rest, " more ");
    const char *seed = strstr(rest, " seed "), *ordinary = strstr(rest, " ordinary ");
    if (c->kind == HOSTILE_KINDS || !text || !more || !seed || n < 0) return false;
    c->seed = strtoull(seed + 6, NULL, 10);
    c->ordinary = ordinary && ordinary[10] == '1';
    return read_bytes(file, strtoul(text + 6, NULL, 10), &c->text) &&
           read_bytes(file, strtoul(more + 6, NULL, 10), &c->more);
}

/* ---- what is told ---- */

static void print_result(const hostile_result *r)
{
    printf("status %s%s%s\n", skv_status_name(r->status), r->message[0] != '\0' ? ": " : "",
           r->message);
    printf(
        "%.3f s, longest mask %.3f s, longest piece %.3f s, %.1f MB, stack %zu bytes, %zu tokens\n",
        (double)r->ns * 1e-9, (double)r->mask_ns * 1e-9, (double)r->piece_ns * 1e-9,
        (double)r->bytes * 1e-6, r->stack, r->n_tokens);
}

static void print_tally(const char *name, const tally *t)
{
    const uint64_t *s = t->by_status;
    const double n = (double)(t->n_cases > 0 ? t->n_cases : 1) / 100;
    uint64_t other = t->n_cases - s[SKV_OK] - s[SKV_FORMAT] - s[SKV_UNSUPPORTED] - s[SKV_RANGE] -
                     s[SKV_ARGUMENT];
    printf("%-9s %7" PRIu64
           " cases: %4.1f %% taken, %4.1f limit, %4.1f malformed, %4.1f unsupported, "
           "%4.1f invalid, %4.1f other; most: %.3f s, mask %.3f s, piece %.3f s, %5.1f MB, stack "
           "%3.0f KiB\n",
           name, t->n_cases, (double)s[SKV_OK] / n, (double)s[SKV_RANGE] / n,
           (double)s[SKV_FORMAT] / n, (double)s[SKV_UNSUPPORTED] / n, (double)s[SKV_ARGUMENT] / n,
           (double)other / n, (double)t->ns * 1e-9, (double)t->mask_ns * 1e-9,
           (double)t->piece_ns * 1e-9, (double)t->bytes * 1e-6, (double)t->stack / 1024);
    if (t->n_cases > 0) {
        printf("          of seeds: time %" PRIu64 ", mask %" PRIu64 ", memory %" PRIu64
               ", stack %" PRIu64 "\n",
               t->ns_seed, t->mask_seed, t->bytes_seed, t->stack_seed);
    }
}

static void add_tally(tally *sum, const tally *t)
{
    sum->n_cases += t->n_cases;
    sum->n_died += t->n_died;
    sum->n_tokens += t->n_tokens;
    for (size_t i = 0; i < SKV_STATUS_COUNT; i++) sum->by_status[i] += t->by_status[i];
    raise_top(&sum->ns, &sum->ns_seed, t->ns, t->ns_seed);
    raise_top(&sum->mask_ns, &sum->mask_seed, t->mask_ns, t->mask_seed);
    raise_top(&sum->piece_ns, NULL, t->piece_ns, 0);
    raise_top(&sum->bytes, &sum->bytes_seed, t->bytes, t->bytes_seed);
    raise_top(&sum->stack, &sum->stack_seed, t->stack, t->stack_seed);
}

/* Halves the scale as long as the fault stays, and writes the smallest case. */
static void keep_fault(const options *o, const found *f, board *scratch)
{
    char path[HEADER_MAX];
    hostile_case best, c;
    hostile_make(f->kind, f->seed, f->scale, o->shape, &best);
    bool again = fails(o, &best, scratch);
    for (int i = 0; again && i < HALVES_MAX; i++) {
        hostile_make(f->kind, f->seed, best.scale / 2, o->shape, &c);
        bool smaller = c.text.size <= best.text.size && fails(o, &c, scratch);
        hostile_case_release(smaller ? &best : &c);
        if (!smaller) break;
        best = c;
    }
    (void)snprintf(path, sizeof path, "%s/%s-%s-%" PRIu64 ".case", o->faults,
                   hostile_kind_name(f->kind), f->shape, f->seed);
    bool written = write_case(path, &best);
    printf("      %s: %zu + %zu bytes, scale %g%s\n", written ? path : "cannot be written",
           best.text.size, best.more.size, best.scale, again ? "" : " (not seen again)");
    hostile_case_release(&best);
}

/* One line a kind, shape and symptom, with files for the first of them. */
static size_t tell_faults(const options *o, const board *b, board *scratch)
{
    bool told[FAULTS_MAX] = {false};
    for (size_t i = 0; i < b->n_faults; i++) {
        size_t n = 0;
        if (told[i]) continue;
        for (size_t k = i; k < b->n_faults; k++) {
            const found *f = &b->faults[k];
            if (f->kind != b->faults[i].kind || strcmp(f->shape, b->faults[i].shape) != 0 ||
                strncmp(f->fault, b->faults[i].fault, 6) != 0) {
                continue;
            }
            told[k] = true;
            n++;
            if (n <= FILES_A_SHAPE) {
                printf("FAULT %s %s seed %" PRIu64 ": %s\n", hostile_kind_name(f->kind), f->shape,
                       f->seed, f->fault);
            }
            if (n <= FILES_A_SHAPE && o->faults) keep_fault(o, f, scratch);
        }
        if (n > FILES_A_SHAPE) printf("      and %zu more of it\n", n - FILES_A_SHAPE);
    }
    return b->n_faults + (size_t)b->n_more;
}

static int run_all(const options *o)
{
    worker workers[JOBS_MAX];
    board *scratch = share(sizeof *scratch);
    tally sum = {0};
    size_t n_faults = 0;
    printf("seed %" PRIu64 ", limits: %.1f s, %.2f s a piece, %.0f MB, %zu KiB of stack%s\n",
           o->seed, (double)o->limits.ns * 1e-9, (double)o->limits.piece_ns * 1e-9,
           (double)o->limits.bytes * 1e-6, o->limits.stack >> 10,
           hostile_slower() > 1 ? " (scaled for the sanitizer)" : "");
    if (o->faults) (void)mkdir(o->faults, 0777);
    run_workers(o, workers);
    for (size_t k = 0; k < HOSTILE_KINDS; k++) {
        tally of_kind = {0};
        for (size_t i = 0; i < o->n_jobs; i++) add_tally(&of_kind, &workers[i].b->tallies[k]);
        if (o->kinds[k]) print_tally(hostile_kind_name((hostile_kind)k), &of_kind);
        add_tally(&sum, &of_kind);
    }
    print_tally("all", &sum);
    for (size_t i = 0; i < o->n_jobs; i++) n_faults += tell_faults(o, workers[i].b, scratch);
    printf("%" PRIu64 " tokens accepted, %zu faults\n", sum.n_tokens, n_faults);
    return n_faults > 0 ? 1 : 0;
}

static int replay(const options *o)
{
    hostile_case c;
    board *b = share(sizeof *b);
    FILE *file = fopen(o->replay, "rb");
    bool ok = file && read_case(file, &c);
    if (file) (void)fclose(file);
    if (!ok) {
        (void)fprintf(stderr, "%s: no case\n", o->replay);
        return 2;
    }
    bool bad = fails(o, &c, b);
    print_result(&b->result);
    if (bad) printf("FAULT %s\n", b->result.fault);
    hostile_case_release(&c);
    return bad ? 1 : 0;
}

static void print_hex(const char *name, const skv_buf *bytes)
{
    printf(",\"%s\":\"", name);
    for (size_t i = 0; i < bytes->size; i++)
        printf("%02x", (unsigned)(unsigned char)bytes->data[i]);
    printf("\"");
}

static int print_cases(const options *o)
{
    for (uint64_t i = 0; i < o->n_print; i++) {
        hostile_case c;
        make_case(o, i, &c);
        printf("{\"kind\":\"%s\",\"shape\":\"%s\",\"seed\":\"%" PRIu64 "\",\"ordinary\":%s",
               hostile_kind_name(c.kind), c.shape, c.seed, c.ordinary ? "true" : "false");
        print_hex("text", &c.text);
        print_hex("more", &c.more);
        printf("}\n");
        hostile_case_release(&c);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}

static int check_limits(const options *o)
{
    hostile_bench *bench = hostile_bench_create(&o->limits);
    const char *missed = hostile_check_limits(bench);
    hostile_bench_free(bench);
    printf("%s%s\n", missed ? "not caught: " : "time, memory, loss and stack are caught",
           missed ? missed : "");
    return missed ? 1 : 0;
}

/* ---- the command line ---- */

static bool read_kinds(char *list, options *o)
{
    for (size_t i = 0; i < HOSTILE_KINDS; i++) o->kinds[i] = strcmp(list, "all") == 0;
    while (list && strcmp(list, "all") != 0) {
        char *comma = strchr(list, ',');
        if (comma) *comma++ = '\0';
        hostile_kind kind = hostile_kind_of(list);
        if (kind == HOSTILE_KINDS) return false;
        o->kinds[kind] = true;
        list = comma;
    }
    return true;
}

static bool read_option(const char *name, char *value, options *o)
{
    const double number = strtod(value, NULL);
    const uint64_t whole = strtoull(value, NULL, 10);
    if (strcmp(name, "--kind") == 0) return read_kinds(value, o);
    if (strcmp(name, "--shape") == 0)
        o->shape = value;
    else if (strcmp(name, "--seed") == 0)
        o->seed = whole;
    else if (strcmp(name, "--cases") == 0)
        o->n_cases = whole;
    else if (strcmp(name, "--seconds") == 0)
        o->seconds = number;
    else if (strcmp(name, "--jobs") == 0)
        o->n_jobs = (unsigned)whole;
    else if (strcmp(name, "--scale") == 0)
        o->scale = number;
    else if (strcmp(name, "--stack") == 0)
        o->limits.stack = (size_t)whole << 10;
    else if (strcmp(name, "--ms") == 0)
        o->limits.ns = whole * 1000000;
    else if (strcmp(name, "--mb") == 0)
        o->limits.bytes = (size_t)whole * 1000000;
    else if (strcmp(name, "--faults") == 0)
        o->faults = value;
    else if (strcmp(name, "--replay") == 0)
        o->replay = value;
    else if (strcmp(name, "--print") == 0)
        o->n_print = whole;
    else
        return false;
    return o->n_jobs >= 1 && o->n_jobs <= JOBS_MAX && o->scale > 0 && o->scale <= 1;
}

int main(int argc, char **argv)
{
    options o = {
        .seed = 1, .n_cases = 1000, .scale = 1, .n_jobs = 1, .limits = hostile_limits_default()};
    char all[] = "all";
    bool ok = read_kinds(all, &o);
    for (int i = 1; i < argc && ok; i++) {
        o.check_limits = o.check_limits || strcmp(argv[i], "--check-limits") == 0;
        o.list = o.list || strcmp(argv[i], "--list") == 0;
        if (strcmp(argv[i], "--check-limits") == 0 || strcmp(argv[i], "--list") == 0) continue;
        ok = i + 1 < argc && read_option(argv[i], argv[i + 1], &o);
        i++;
    }
    if (!ok) {
        (void)fprintf(stderr, "usage: see the beginning of tests/hostile/tool_hostile.c\n");
        return 2;
    }
    if (o.check_limits) return check_limits(&o);
    if (o.replay) return replay(&o);
    return o.n_print > 0 ? print_cases(&o) : run_all(&o);
}
