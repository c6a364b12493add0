/*
 * The prefix cache on disk: what is written is read, whatever is wrong with a file makes it go and
 * nothing else, the limit holds, a full disk drops blocks, and nobody waits.
 * Labels: threads
 */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "base/system.h"
#include "scheduler/spill.h"
#include "temp_folder.h"

enum { PAGE_BYTES = 512, N_PAGES = 3, N_IDS = 64, PATH_MAX_BYTES = 256 };

typedef struct fixture {
    char folder[64];
    skv_spill_options options;
    char lines[4096]; /* what was logged */
} fixture;

static void keep_line(void *user, const char *line)
{
    fixture *f = user;
    size_t n = strlen(f->lines);
    (void)snprintf(f->lines + n, sizeof f->lines - n, "%s\n", line);
}

static int set_up(void **state)
{
    fixture *f = test_calloc(1, sizeof *f);
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/skv-spill-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    f->options = (skv_spill_options){.folder = f->folder,
                                     .bytes_max = 1 << 20,
                                     .queue_bytes = 1 << 20,
                                     .page_bytes = PAGE_BYTES,
                                     .log = keep_line,
                                     .log_user = f};
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    assert_int_equal(temp_folder_remove(f->folder), 0);
    test_free(f);
    return 0;
}

static skv_spill *open_spill(const fixture *f)
{
    skv_spill *spill = NULL;
    skv_error err;
    if (skv_spill_open(&f->options, &spill, &err) != SKV_OK) fail_msg("%s", err.text);
    return spill;
}

/* Block i of a chain: its ids and pages are a function of i. */
static void make_ids(size_t i, int32_t *ids)
{
    for (size_t t = 0; t < N_IDS; t++) ids[t] = (int32_t)(skv_mix64(i * 1000 + t) % 90);
}

static void make_names(const skv_spill *spill, skv_spill_name *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t ids[N_IDS];
        make_ids(i, ids);
        skv_spill_block_name(spill, 7, i > 0 ? &names[i - 1] : NULL, ids, N_IDS, &names[i]);
    }
}

static void put_block(skv_spill *spill, const skv_spill_name *names, size_t i)
{
    skv_spill_item *item = skv_spill_item_create(N_IDS, N_PAGES, PAGE_BYTES);
    assert_non_null(item);
    item->kind = SKV_SPILL_BLOCK;
    item->name = names[i];
    if (i > 0) item->parent = names[i - 1];
    make_ids(i, item->ids);
    memset(item->pages, (int)i + 1, (size_t)N_PAGES * PAGE_BYTES);
    skv_spill_put(spill, item);
}

static bool is_block(const skv_spill_item *item, const skv_spill_name *names, size_t i)
{
    int32_t ids[N_IDS];
    unsigned char page[PAGE_BYTES];
    make_ids(i, ids);
    memset(page, (int)i + 1, sizeof page);
    bool same = item->kind == SKV_SPILL_BLOCK && item->n_ids == N_IDS && item->n_pages == N_PAGES &&
                memcmp(&item->name, &names[i], sizeof item->name) == 0 &&
                memcmp(item->ids, ids, sizeof ids) == 0;
    for (size_t p = 0; same && p < N_PAGES; p++) {
        same = memcmp(item->pages + p * PAGE_BYTES, page, sizeof page) == 0;
    }
    return same;
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Reads a chain; returns how many blocks came, which must be the first ones. */
static size_t fetch(skv_spill *spill, const skv_spill_name *names, size_t n)
{
    skv_spill_fetch *f = skv_spill_fetch_begin(spill, names, n);
    assert_non_null(f);
    size_t n_read = 0;
    for (;;) {
        skv_spill_item *item = skv_spill_fetch_next(f);
        if (item) {
            assert_true(is_block(item, names, n_read));
            n_read++;
            skv_free(item);
        } else if (skv_spill_fetch_done(f)) {
            break;
        } else {
            rest();
        }
    }
    skv_spill_fetch_end(f);
    return n_read;
}

static skv_spill_stats stats_of(skv_spill *spill)
{
    skv_spill_stats stats;
    skv_spill_get_stats(spill, &stats);
    return stats;
}

static void wait_written(skv_spill *spill)
{
    while (stats_of(spill).queue_items > 0) rest();
}

static void path_of(const fixture *f, const skv_spill_name *name, char *path)
{
    char text[SKV_SPILL_FILE_NAME];
    skv_spill_name_format(name, false, text);
    (void)snprintf(path, PATH_MAX_BYTES, "%s/%s", f->folder, text);
}

/* Writes n blocks and closes. */
static void fill(const fixture *f, skv_spill_name *names, size_t n)
{
    skv_spill *spill = open_spill(f);
    make_names(spill, names, n);
    for (size_t i = n; i-- > 0;) put_block(spill, names, i);
    skv_spill_close(spill, 60);
}

static void test_sha256(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n_times;
        uint8_t first[4], last[4];
    } cases[] = {
        {"", 1, {0xe3, 0xb0, 0xc4, 0x42}, {0x78, 0x52, 0xb8, 0x55}},
        {"abc", 1, {0xba, 0x78, 0x16, 0xbf}, {0xf2, 0x00, 0x15, 0xad}},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         1,
         {0x24, 0x8d, 0x6a, 0x61},
         {0x19, 0xdb, 0x06, 0xc1}},
        {"aaaaaaaaaa", 100000, {0xcd, 0xc7, 0x6e, 0x5c}, {0xc7, 0x11, 0x2c, 0xd0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        skv_sha256 sha;
        uint8_t digest[SKV_SHA256_BYTES];
        skv_sha256_init(&sha);
        for (size_t k = 0; k < cases[i].n_times; k++) {
            skv_sha256_add(&sha, cases[i].text, strlen(cases[i].text));
        }
        skv_sha256_end(&sha, digest);
        assert_memory_equal(digest, cases[i].first, 4);
        if (i != 3) assert_memory_equal(digest + 28, cases[i].last, 4);
    }
}

static void test_what_is_written_is_read(void **state)
{
    const fixture *f = *state;
    skv_spill_name names[20];
    fill(f, names, 20);
    skv_spill *spill = open_spill(f);
    assert_int_equal(stats_of(spill).n_files, 20);
    assert_true(skv_spill_has(spill, &names[19]));
    assert_int_equal(fetch(spill, names, 20), 20);
    put_block(spill, names, 3); /* it is there */
    wait_written(spill);
    assert_int_equal(stats_of(spill).n_written, 0);
    assert_int_equal(stats_of(spill).n_read, 20);
    /* One that is ended early, at any moment. */
    for (int i = 0; i < 200; i++) {
        skv_spill_fetch *early = skv_spill_fetch_begin(spill, names, 20);
        if (i % 3 == 0) rest();
        skv_free(skv_spill_fetch_next(early));
        skv_spill_fetch_end(early);
    }
    skv_spill_close(spill, 60);
    assert_string_equal(f->lines, "");
}

/* Every way to damage a file: it goes, with one line, and the chain before it is still read. */
static void damage(const char *path, size_t kind, size_t n_file, skv_rng *rng)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    unsigned char byte;
    off_t at = (off_t)skv_rng_below(rng, kind == 0 ? 128 : n_file);
    if (kind == 2) {
        assert_int_equal(ftruncate(fd, at), 0);
    } else if (kind == 3) {
        assert_int_equal(ftruncate(fd, (off_t)n_file + 1), 0);
    } else {
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (unsigned char)(1u << skv_rng_below(rng, 8));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    assert_int_equal(close(fd), 0);
}

static void test_damaged_files_go(void **state)
{
    fixture *f = *state;
    skv_rng rng;
    skv_rng_init(&rng, 3);
    size_t n_file = skv_spill_item_bytes(N_IDS, N_PAGES, PAGE_BYTES);
    for (size_t turn = 0; turn < 120; turn++) {
        skv_spill_name names[5];
        char path[PATH_MAX_BYTES];
        struct stat info;
        size_t bad = (size_t)skv_rng_below(&rng, 5);
        fill(f, names, 5);
        bool while_open = turn % 2 == 0;
        skv_spill *spill = while_open ? open_spill(f) : NULL;
        path_of(f, &names[bad], path);
        damage(path, turn / 2 % 4, n_file, &rng);
        if (!spill) spill = open_spill(f);
        assert_int_equal(fetch(spill, names, 5), bad);
        assert_int_equal(stats_of(spill).n_removed, 1);
        assert_int_equal(stats_of(spill).n_files, 4);
        assert_int_not_equal(stat(path, &info), 0);
        skv_spill_close(spill, 60);
        const char *first_end = strchr(f->lines, '\n');
        assert_non_null(first_end);
        assert_string_equal(first_end, "\n");
        f->lines[0] = 0;
    }
}

/* Another model's files and what was not finished go; what is not ours stays. */
static void test_foreign_files(void **state)
{
    fixture *f = *state;
    skv_spill_name names[4], others[4];
    static const char *const foreign[] = {"notes.txt", "0123.skv", "secret.bak", ".hidden"};
    char path[PATH_MAX_BYTES];
    struct stat info;
    fill(f, names, 4);
    for (size_t i = 0; i < 4; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", f->folder, foreign[i]);
        FILE *file = fopen(path, "we");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
    }
    path_of(f, &names[0], path);
    char *dot = strrchr(path, '.');
    memcpy(dot, ".tmp", 4);
    assert_int_equal(symlink("/dev/zero", path), 0);
    f->options.model[0] = 1;
    skv_spill *spill = open_spill(f);
    make_names(spill, others, 4);
    assert_int_not_equal(memcmp(names, others, sizeof names), 0);
    assert_int_equal(stats_of(spill).n_files, 0);
    assert_int_equal(stats_of(spill).n_removed, 5);
    assert_int_equal(fetch(spill, names, 4), 0);
    skv_spill_close(spill, 60);
    assert_non_null(strstr(f->lines, "5 files that were"));
    assert_int_not_equal(lstat(path, &info), 0);
    for (size_t i = 0; i < 4; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", f->folder, foreign[i]);
        assert_int_equal(stat(path, &info), 0);
    }
}

static void test_a_new_secret_makes_all_foreign(void **state)
{
    fixture *f = *state;
    skv_spill_name names[4];
    char path[PATH_MAX_BYTES];
    fill(f, names, 4);
    (void)snprintf(path, sizeof path, "%s/secret", f->folder);
    assert_int_equal(truncate(path, 5), 0);
    skv_spill *spill = open_spill(f);
    assert_int_equal(stats_of(spill).n_files, 0);
    skv_spill_name again[4];
    make_names(spill, again, 4);
    assert_int_not_equal(memcmp(names, again, sizeof names), 0);
    skv_spill_close(spill, 60);
}

/* The least recently used go; a chain loses its end first. */
static void test_limit(void **state)
{
    fixture *f = *state;
    skv_spill_name names[30];
    size_t n_file = skv_spill_item_bytes(N_IDS, N_PAGES, PAGE_BYTES);
    f->options.bytes_max = 10 * n_file + 1;
    fill(f, names, 30); /* the first blocks come last */
    skv_spill *spill = open_spill(f);
    assert_int_equal(stats_of(spill).n_files, 10);
    assert_int_equal(stats_of(spill).n_bytes, 10 * n_file);
    assert_int_equal(fetch(spill, names, 30), 10);
    skv_spill_close(spill, 60);
    f->options.bytes_max = 4 * n_file;
    spill = open_spill(f);
    assert_int_equal(fetch(spill, names, 30), 4);
    skv_spill_close(spill, 60);
    f->options.bytes_max = n_file - 1;
    spill = open_spill(f);
    assert_int_equal(stats_of(spill).n_files, 0);
    put_block(spill, names, 0);
    assert_int_equal(stats_of(spill).n_dropped, 1);
    skv_spill_close(spill, 60);
}

/* Pins the first n of some blocks for so many milliseconds. */
static void pin(skv_spill *spill, const skv_spill_name *names, size_t n, uint64_t ms)
{
    skv_spill_pin pins[30];
    for (size_t i = 0; i < n; i++) {
        pins[i] = (skv_spill_pin){names[i], skv_spill_item_bytes(N_IDS, N_PAGES, PAGE_BYTES)};
    }
    const uint64_t end = skv_clock_ns() + ms * 1000000u;
    skv_spill_pin_text(spill, &(skv_pinned_text){1, end, pins, n});
}

static bool has_all(skv_spill *spill, const skv_spill_name *names, size_t n)
{
    size_t i = 0;
    while (i < n && skv_spill_has(spill, &names[i])) i++;
    return i == n;
}

/* A pinned block outlives newer ones that are not, and one whose pin has ended does not. */
static void test_pins(void **state)
{
    enum { LIMIT = 12, PINNED = 2 };
    fixture *f = *state;
    skv_spill_name names[30];
    f->options.bytes_max = LIMIT * skv_spill_item_bytes(N_IDS, N_PAGES, PAGE_BYTES);
    skv_spill *spill = open_spill(f);
    make_names(spill, names, 30);
    pin(spill, names, PINNED, 3600000); /* before they are there */
    for (size_t i = 0; i < 30; i++) put_block(spill, names, i);
    wait_written(spill);
    assert_true(has_all(spill, names, PINNED));
    assert_false(skv_spill_has(spill, &names[PINNED]));
    assert_false(skv_spill_has(spill, &names[30 - LIMIT + PINNED - 1]));
    assert_true(has_all(spill, names + 30 - LIMIT + PINNED, LIMIT - PINNED));
    assert_int_equal(stats_of(spill).n_files, LIMIT);
    assert_int_equal(fetch(spill, names, PINNED), PINNED);
    skv_spill_close(spill, 60);
    spill = open_spill(f); /* a restart forgets pins, and not what has been used */
    pin(spill, names, PINNED, 1);
    rest();
    rest();
    for (size_t i = PINNED; i < PINNED + LIMIT; i++) put_block(spill, names, i);
    wait_written(spill);
    assert_false(skv_spill_has(spill, &names[0]) || skv_spill_has(spill, &names[1]));
    skv_spill_close(spill, 60);
}

/* More than a part of the disk cannot be pinned: the first blocks stay. */
static void test_most_that_is_pinned(void **state)
{
    enum { LIMIT = 12, SHARE = LIMIT / 4 };
    fixture *f = *state;
    skv_spill_name names[30];
    f->options.bytes_max = LIMIT * skv_spill_item_bytes(N_IDS, N_PAGES, PAGE_BYTES);
    skv_spill *spill = open_spill(f);
    make_names(spill, names, 30);
    pin(spill, names, 30, 3600000);
    for (size_t i = 0; i < 30; i++) put_block(spill, names, i);
    wait_written(spill);
    assert_true(has_all(spill, names, SHARE));
    assert_false(skv_spill_has(spill, &names[SHARE]));
    assert_true(has_all(spill, names + 30 - LIMIT + SHARE, LIMIT - SHARE));
    skv_spill_close(spill, 60);
}

/* An owner pins `n` names, numbered from `first` on. */
static void pin_numbers(skv_spill_pins *pins, uint64_t owner, uint8_t first, uint8_t n)
{
    skv_spill_pin at[32] = {{.weight = 0}};
    for (uint8_t i = 0; i < n; i++) {
        at[i].name.bytes[0] = (uint8_t)(first + i);
        at[i].weight = 10;
    }
    skv_spill_pins_add(pins, &(skv_pinned_text){owner, 100, at, n}, 1);
}

static size_t count_numbers(const skv_spill_pins *pins, uint8_t first, uint8_t n, uint64_t now)
{
    size_t n_pinned = 0;
    for (uint8_t i = 0; i < n; i++) {
        const skv_spill_name name = {{(uint8_t)(first + i)}};
        n_pinned += skv_spill_pins_has(pins, &name, now);
    }
    return n_pinned;
}

/* One key's pins take no more than its share, and another's only beyond that. */
static void test_shares_of_pins(void **state)
{
    (void)state;
    skv_spill_pins pins;
    skv_spill_name names[8];
    assert_int_equal(skv_spill_pins_init(&pins, 200, NULL), SKV_OK);
    pin_numbers(&pins, 1, 0, 5);
    pin_numbers(&pins, 2, 50, 30);
    assert_int_equal(count_numbers(&pins, 0, 5, 99), 5);
    assert_int_equal(count_numbers(&pins, 50, 10, 99), 10); /* the beginning */
    assert_int_equal(count_numbers(&pins, 60, 20, 99), 0);
    pin_numbers(&pins, 3, 100, 30); /* 5 + 10 + 10: the largest loses until all fit */
    assert_int_equal(count_numbers(&pins, 0, 5, 99), 5);
    const size_t n_2 = count_numbers(&pins, 50, 10, 99), n_3 = count_numbers(&pins, 100, 10, 99);
    assert_int_equal(n_2 + n_3, 15);
    assert_true(n_2 >= 7 && n_3 >= 7);
    assert_int_equal(count_numbers(&pins, 50, 7, 99), 7);
    pin_numbers(&pins, 2, 150, 10); /* its own older ones go */
    assert_int_equal(count_numbers(&pins, 0, 5, 99), 5);
    assert_true(count_numbers(&pins, 150, 7, 99) == 7 && count_numbers(&pins, 50, 10, 99) <= 1);
    assert_int_equal(count_numbers(&pins, 0, 5, 100), 0);
    size_t n_told = 0, n; /* each in its turn */
    for (size_t i = 0; i < 3; i++) {
        n = skv_spill_pins_next(&pins, 99, names, 8);
        for (size_t k = 0; k < n; k++) n_told += names[k].bytes[0] < 5;
    }
    assert_int_equal(n_told, 5);
    for (uint64_t owner = 4; owner < 4 + 2 * SKV_SPILL_PIN_OWNERS; owner++) {
        pin_numbers(&pins, owner, (uint8_t)owner, 1);
    }
    assert_true(pins.weight <= 200);
    pin_numbers(&pins, 9, 200, 0);
    skv_spill_pins_add(&pins, &(skv_pinned_text){.owner = 9, .end_ns = 1}, UINT64_C(2000000000));
    assert_int_equal(pins.entries.n, 0); /* the ended ones are gone */
    skv_spill_pins_release(&pins);
}

/* A disk that takes no more: blocks are lost, one line is said, and later ones are written. */
static void test_full_disk(void **state)
{
    fixture *f = *state;
    skv_spill_name names[8];
    struct rlimit before, small = {.rlim_cur = 1000, .rlim_max = 0};
    skv_spill *spill = open_spill(f);
    make_names(spill, names, 8);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (size_t i = 0; i < 4; i++) put_block(spill, names, i);
    wait_written(spill);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(stats_of(spill).n_failed, 4);
    assert_int_equal(stats_of(spill).n_files, 0);
    for (size_t i = 0; i < 8; i++) put_block(spill, names, i);
    wait_written(spill);
    assert_int_equal(fetch(spill, names, 8), 8);
    skv_spill_close(spill, 60);
    assert_non_null(strstr(f->lines, "cannot write"));
    assert_string_equal(strchr(f->lines, '\n'), "\n");
}

/* Who puts never waits: what does not fit into the queue is dropped, and counted. */
static void test_queue_is_bounded(void **state)
{
    fixture *f = *state;
    enum { N = 300 };
    static skv_spill_name names[N];
    size_t n_file = skv_spill_item_bytes(N_IDS, N_PAGES, PAGE_BYTES);
    f->options.queue_bytes = 3 * n_file;
    skv_spill *spill = open_spill(f);
    make_names(spill, names, N);
    for (size_t i = 0; i < N; i++) {
        put_block(spill, names, i);
        assert_true(stats_of(spill).queue_bytes <= 3 * n_file);
    }
    wait_written(spill);
    skv_spill_stats stats = stats_of(spill);
    assert_int_equal(stats.n_written + stats.n_dropped, N);
    assert_true(stats.n_written >= 3);
    /* A long chain comes through the same small room. */
    for (size_t i = 0; i < N; i++) {
        if (skv_spill_has(spill, &names[i])) continue;
        assert_true(skv_spill_wait_room(spill, n_file, 60));
        put_block(spill, names, i);
    }
    wait_written(spill);
    assert_int_equal(fetch(spill, names, N), N);
    skv_spill_close(spill, 60);
}

static void test_one_process_at_a_time(void **state)
{
    const fixture *f = *state;
    skv_spill *spill = open_spill(f), *other;
    skv_error err;
    assert_int_equal(skv_spill_open(&f->options, &other, &err), SKV_IO);
    assert_non_null(strstr(err.text, "another process"));
    skv_spill_close(spill, 60);
    spill = open_spill(f);
    skv_spill_close(spill, 60);
}

typedef struct seen_text {
    size_t n;
    uint64_t domain, key;
    int32_t last;
} seen_text;

static void see_text(void *user, uint64_t domain, uint64_t key, const int32_t *ids, size_t n_ids)
{
    seen_text *seen = user;
    seen->n++;
    seen->domain = domain;
    seen->key = key;
    seen->last = ids[n_ids - 1];
}

static void test_texts(void **state)
{
    const fixture *f = *state;
    int32_t ids[] = {5, 6, 7};
    skv_spill *spill = open_spill(f);
    for (int32_t i = 0; i < 10; i++) {
        ids[2] = i;
        skv_spill_put_text(spill, 11, 100 + (uint64_t)i, ids, 3);
    }
    skv_spill_close(spill, 60);
    seen_text seen = {.n = 0};
    spill = open_spill(f);
    skv_spill_load_texts(spill, see_text, &seen);
    assert_int_equal(seen.n, 10);
    assert_true(seen.domain == 11 && seen.key == 109 && seen.last == 9);
    skv_spill_close(spill, 60);
}

static void test_hidden_bits(void **state)
{
    const fixture *f = *state;
    skv_spill *spill = open_spill(f);
    uint64_t a = skv_spill_hide(spill, "key", "alpha", 5);
    assert_true(a == skv_spill_hide(spill, "key", "alpha", 5));
    assert_true(a != skv_spill_hide(spill, "key", "alphb", 5));
    assert_true(a != skv_spill_hide(spill, "kez", "alpha", 5));
    skv_spill_close(spill, 60);
    spill = open_spill(f); /* the secret stays */
    assert_true(a == skv_spill_hide(spill, "key", "alpha", 5));
    skv_spill_close(spill, 60);
}

static bool open_and_use(void *arg)
{
    const fixture *f = arg;
    skv_spill *spill;
    skv_spill_name names[3];
    if (skv_spill_open(&f->options, &spill, NULL) != SKV_OK) return false;
    make_names(spill, names, 3);
    skv_spill_fetch *fetched = skv_spill_fetch_begin(spill, names, 3);
    bool ok = fetched;
    skv_spill_fetch_end(fetched);
    skv_spill_close(spill, 60);
    return ok;
}

static void test_without_memory(void **state)
{
    fixture *f = *state;
    skv_spill_name names[3];
    fill(f, names, 3);
    assert_int_not_equal(alloc_fail_each(open_and_use, f, true), SIZE_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),
        TEST(test_what_is_written_is_read),
        TEST(test_damaged_files_go),
        TEST(test_foreign_files),
        TEST(test_a_new_secret_makes_all_foreign),
        TEST(test_limit),
        TEST(test_pins),
        TEST(test_most_that_is_pinned),
        cmocka_unit_test(test_shares_of_pins),
        TEST(test_full_disk),
        TEST(test_queue_is_bounded),
        TEST(test_one_process_at_a_time),
        TEST(test_texts),
        TEST(test_hidden_bits),
        TEST(test_without_memory),
    };
    return cmocka_run_group_tests_name("spill", tests, NULL, NULL);
}
