/*
 * What a block of the prefix cache takes on disk, and how long it takes to come back, in two forms:
 * the K,V of all layers; or the K,V below layer l with the rows that the deep ones are a product
 * of.
 *
 *     tool_spill_forms [FOLDER [THREADS [SHAPE ...]]]
 *
 * FOLDER (/tmp) is where the files are written. They are read from memory that the system keeps of
 * them (warm), and again after it was told to forget them (cold), which is the speed of the disk.
 * Beside both stands the time that computing the tokens takes. Each figure is the best of some
 * runs.
 */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "engine/engine.h"
#include "scheduler/spill_file.h"
#include "skv/skv.h"

enum { N_BLOCKS = 8, N_TOKENS = N_BLOCKS * SKV_PAGE_ROWS, RUNS = 5 };

typedef struct shape {
    const char *preset;
    size_t layers, group;
    skv_weights weights;
    skv_kv kv;
} shape;

static const shape shapes[] = {
    {"llama-3.2-1b", 8, 1, SKV_WEIGHTS_BF16, SKV_KV_BF16},
    {"llama-3.2-1b", 8, 1, SKV_WEIGHTS_BF16, SKV_KV_FP8},
    {"llama-3.2-1b", 8, 2, SKV_WEIGHTS_BF16, SKV_KV_BF16},
    {"llama-3.2-1b", 8, 2, SKV_WEIGHTS_BF16, SKV_KV_FP8},
    {"llama-3.2-1b", 8, 1, SKV_WEIGHTS_INT8, SKV_KV_BF16},
    {"llama-3.2-1b", 8, 1, SKV_WEIGHTS_INT8, SKV_KV_FP8},
    {"smollm2-135m", 15, 1, SKV_WEIGHTS_BF16, SKV_KV_BF16},
    {"smollm2-135m", 15, 1, SKV_WEIGHTS_BF16, SKV_KV_FP8},
    {"mini", 6, 1, SKV_WEIGHTS_BF16, SKV_KV_BF16},
    {"mini", 6, 1, SKV_WEIGHTS_BF16, SKV_KV_FP8},
    {"mini", 6, 2, SKV_WEIGHTS_BF16, SKV_KV_BF16},
};

typedef struct run {
    skv_engine *engine;
    skv_sequence *sequence;
    skv_spill_place place;
    unsigned char *rows; /* [N_TOKENS][row_bytes] */
    size_t row_bytes, n_taken;
    size_t n_tracks, n_shallow, page_bytes;
    uint32_t *pages; /* [n_tracks] */
} run;

static void stop(const char *what)
{
    (void)fprintf(stderr, "tool_spill_forms: %s\n", what);
    exit(1);
}

static double seconds_since(uint64_t begin)
{
    return (double)(skv_clock_ns() - begin) * 1e-9;
}

/* ---- making the blocks ---- */

static void take(void *user, size_t i_layer, skv_rows x, size_t n_rows)
{
    run *r = user;
    if (i_layer != skv_boundary_layer(r->engine)) return;
    skv_boundary_take(r->engine, x, n_rows, r->rows + r->n_taken * r->row_bytes);
    r->n_taken += n_rows;
}

/* Seconds that the tokens take to compute, with and without taking their rows. */
static double compute(run *r, bool with_rows)
{
    skv_error err;
    int32_t ids[N_TOKENS];
    size_t vocab = skv_engine_vocab(r->engine), n_step = r->engine->options.step_tokens;
    for (size_t i = 0; i < N_TOKENS; i++) ids[i] = (int32_t)(i * 37 % vocab);
    skv_sequence_truncate(r->sequence, 0);
    r->n_taken = 0;
    uint64_t begin = skv_clock_ns();
    for (size_t i = 0; i < N_TOKENS; i += n_step) {
        skv_span span = {.sequence = r->sequence,
                         .ids = ids + i,
                         .n = skv_min_size(n_step, N_TOKENS - i),
                         .want = SKV_WANT_NONE};
        const skv_hook tap = {.user = r, .on_hidden = take};
        const skv_step_sink sink = {.tap = with_rows ? &tap : NULL};
        if (skv_engine_step(r->engine, &span, 1, &sink, &err)) {
            stop(err.text);
        }
    }
    return seconds_since(begin);
}

static void name_of(size_t i, bool rows, skv_spill_name *name)
{
    memset(name, 0, sizeof *name);
    name->bytes[0] = (uint8_t)i;
    name->bytes[1] = rows;
}

/* Pages of items are of one size, so the rows fill the last few of them. */
static size_t pages_of(const run *r, bool rows)
{
    size_t n_rows = skv_ceil_div(SKV_PAGE_ROWS * r->row_bytes, r->page_bytes);
    return rows ? r->n_shallow + n_rows : r->n_tracks;
}

static void write_block(const run *r, size_t i, bool rows)
{
    skv_error err;
    const skv_kv_cache *cache = &r->sequence->cache;
    skv_spill_item *item = skv_spill_item_create(SKV_PAGE_ROWS, pages_of(r, rows), r->page_bytes);
    if (!item) stop("no memory");
    item->kind = SKV_SPILL_BLOCK;
    name_of(i, rows, &item->name);
    memset(item->ids, 0, SKV_PAGE_ROWS * sizeof *item->ids);
    size_t n_pages = rows ? r->n_shallow : r->n_tracks;
    for (size_t t = 0; t < n_pages; t++) {
        const void *page = skv_kv_page_map(cache->store, skv_kv_cache_page(cache, t, i));
        memcpy(item->pages + t * r->page_bytes, page, r->page_bytes);
        skv_kv_page_unmap(cache->store, page);
    }
    if (rows) {
        size_t n_bytes = SKV_PAGE_ROWS * r->row_bytes;
        memcpy(item->pages + n_pages * r->page_bytes, r->rows + i * n_bytes, n_bytes);
    }
    if (skv_spill_file_write(&r->place, item, &err) != SKV_OK) stop(err.text);
    skv_free(item);
}

/* ---- and back ---- */

static void forget(const run *r, size_t i, bool rows)
{
    skv_spill_name name;
    char text[SKV_SPILL_FILE_NAME];
    name_of(i, rows, &name);
    skv_spill_name_format(&name, false, text);
    int fd = openat(r->place.folder_fd, text, O_RDONLY);
    if (fd < 0 || fsync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) {
        stop("cannot forget a file");
    }
    (void)close(fd);
}

static void restore_block(run *r, size_t i, bool rows)
{
    skv_error err;
    skv_spill_name name;
    skv_spill_item *item;
    name_of(i, rows, &name);
    if (skv_spill_file_read(&r->place, &name, &item, &err) != SKV_OK) stop(err.text);
    size_t n_pages = rows ? r->n_shallow : r->n_tracks;
    skv_kv_pages_write(r->engine->store, r->pages, n_pages, item->pages);
    if (rows) {
        skv_boundary_restore(r->engine, item->pages + n_pages * r->page_bytes, i * SKV_PAGE_ROWS,
                             r->sequence->max_tokens, r->pages);
    }
    skv_free(item);
}

static bool same_pages(const run *r, size_t i)
{
    const skv_kv_cache *cache = &r->sequence->cache;
    bool same = true;
    for (size_t t = 0; t < r->n_tracks; t++) {
        const void *a = skv_kv_page_map(cache->store, r->pages[t]);
        const void *b = skv_kv_page_map(cache->store, skv_kv_cache_page(cache, t, i));
        same = same && memcmp(a, b, r->page_bytes) == 0;
        skv_kv_page_unmap(cache->store, a);
        skv_kv_page_unmap(cache->store, b);
    }
    return same;
}

/* Microseconds a token, of the fastest block: others may use the machine too. */
static double restore_all(run *r, bool rows, bool cold)
{
    double best = 1e9;
    for (size_t i = 0; i < RUNS * N_BLOCKS; i++) {
        size_t block = i % N_BLOCKS;
        if (cold) forget(r, block, rows);
        uint64_t begin = skv_clock_ns();
        restore_block(r, block, rows);
        double seconds = seconds_since(begin);
        best = seconds < best ? seconds : best;
        if (!same_pages(r, block)) stop("the restored pages differ");
    }
    return best / SKV_PAGE_ROWS * 1e6;
}

/* ---- one shape ---- */

static void open_run(run *r, const shape *s, size_t n_threads)
{
    skv_error err;
    skv_engine_options o = skv_engine_options_default();
    o.weights = s->weights;
    o.kv = s->kv;
    o.threads = n_threads;
    o.context = 2 * N_TOKENS;
    o.kv_tokens = 2 * N_TOKENS;
    o.preset_kv_layers = s->layers;
    o.preset_group = s->group;
    skv_status status = skv_engine_open_preset(s->preset, &o, &r->engine, &err);
    if (status == SKV_OK) status = skv_sequence_create(r->engine, 0, &r->sequence, &err);
    if (status != SKV_OK) stop(err.text);
    r->row_bytes = skv_boundary_row_bytes(r->engine);
    if (r->row_bytes == 0) stop("not a SwiftKV model");
    r->n_tracks = skv_kv_layout_tracks(&r->engine->plan.layout);
    r->n_shallow = skv_boundary_tracks(r->engine);
    r->page_bytes = skv_kv_store_page_bytes(r->engine->store);
    r->place.form.page_bytes = r->page_bytes;
    r->rows = skv_alloc(N_TOKENS, r->row_bytes);
    r->pages = skv_alloc(r->n_tracks, sizeof *r->pages);
    if (!r->rows || !r->pages) stop("no memory");
    for (size_t t = 0; t < r->n_tracks; t++) r->pages[t] = skv_kv_page_take(r->engine->store, 0);
}

static void close_run(run *r)
{
    for (size_t t = 0; t < r->n_tracks; t++) skv_kv_page_drop(r->engine->store, r->pages[t]);
    skv_sequence_free(r->sequence);
    skv_engine_close(r->engine);
    skv_free(r->rows);
    skv_free(r->pages);
    for (size_t i = 0; i < N_BLOCKS; i++) {
        skv_spill_name name;
        for (int rows = 0; rows < 2; rows++) {
            name_of(i, rows, &name);
            skv_spill_file_remove(&r->place, &name);
        }
    }
}

static void measure(const shape *s, size_t n_threads, int folder_fd)
{
    run r = {.place.folder_fd = folder_fd};
    open_run(&r, s, n_threads);
    double alone = 1e9, with_rows = 1e9;
    for (size_t turn = 0; turn < 2; turn++) {
        double t = compute(&r, false);
        alone = t < alone ? t : alone;
        t = compute(&r, true);
        with_rows = t < with_rows ? t : with_rows;
    }
    double us = 1e6 / N_TOKENS, warm[2], cold[2], bytes[2];
    for (int rows = 0; rows < 2; rows++) {
        for (size_t i = 0; i < N_BLOCKS; i++) write_block(&r, i, rows);
        bytes[rows] =
            (double)skv_spill_item_bytes(SKV_PAGE_ROWS, pages_of(&r, rows), r.page_bytes) /
            SKV_PAGE_ROWS;
        warm[rows] = restore_all(&r, rows, false);
        cold[rows] = restore_all(&r, rows, true);
    }
    double disk = (bytes[0] - bytes[1]) / (warm[1] - warm[0]); /* bytes a microsecond: MB/s */
    printf("%-13s g=%zu %-5s %-5s  %8.0f %8.0f %5.2f  %8.1f %8.1f %6.2f  %8.1f %8.1f %6.2f  %8.1f "
           "%6.3f  %8.0f\n",
           s->preset, s->group, skv_weights_name(s->weights), skv_kv_name(s->kv), bytes[0],
           bytes[1], bytes[1] / bytes[0], warm[0], warm[1], warm[1] / warm[0], cold[0], cold[1],
           cold[1] / cold[0], alone * us, with_rows / alone, disk);
    (void)fflush(stdout);
    close_run(&r);
}

static bool is_wanted(const shape *s, int n_args, char **args)
{
    bool wanted = n_args <= 3;
    for (int i = 3; i < n_args; i++) wanted = wanted || strcmp(args[i], s->preset) == 0;
    return wanted;
}

int main(int n_args, char **args)
{
    const char *folder = n_args > 1 ? args[1] : "/tmp";
    size_t n_threads = n_args > 2 ? (size_t)strtoul(args[2], NULL, 10) : 0;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/skv-forms-XXXXXX", folder);
    if (!mkdtemp(path)) stop("cannot make a folder");
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) stop("cannot open the folder");
    printf("%-29s  %24s  %24s  %24s  %16s  %8s\n", "", "bytes a token on disk",
           "restore, us a token: warm", "cold", "compute", "even at");
    printf("%-13s %-3s %-5s %-5s  %8s %8s %5s  %8s %8s %6s  %8s %8s %6s  %8s %6s  %8s\n", "shape",
           "", "w", "kv", "kv", "rows", "ratio", "kv", "rows", "ratio", "kv", "rows", "ratio", "us",
           "taking", "MB/s");
    (void)fflush(stdout);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (is_wanted(&shapes[i], n_args, args)) measure(&shapes[i], n_threads, fd);
    }
    (void)close(fd);
    (void)rmdir(path);
    return 0;
}
