/* Files of training data: see data_file.h. */
#include "data/data_file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "format/json_doc.h"

enum { BLOCK = 1 << 16, GUESS_BYTES = 4, JSON_MAX = 1 << 30 }; /* units; bytes a token; bytes */

/* ---- order ---- */

/* The i-th number of a shuffle of 0 .. n - 1: a Feistel network of four rounds permutes the numbers
 * of an even count of bits; those beyond n walk on until they fall below it. */
static uint64_t shuffle(uint64_t seed, uint64_t n, uint64_t i)
{
    unsigned half = 1;
    while (half < 31 && (UINT64_C(1) << (2 * half)) < n) half++;
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = i >> half & mask, right = i & mask;
        for (uint64_t round = 0; round < 4; round++) {
            const uint64_t next = left ^ (skv_mix64(seed ^ skv_mix64(right * 4 + round)) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

static size_t item_at(const skv_data_file *f, uint64_t index)
{
    const uint64_t epoch = index / f->n_items;
    return (size_t)shuffle(f->seed + skv_mix64(epoch), f->n_items, index % f->n_items);
}

uint64_t skv_data_file_epoch(const skv_data_file *f, uint64_t position)
{
    return (f->unit == 0 ? position : position / BLOCK) / f->n_items;
}

/* ---- opening ---- */

/* Where every line that is not empty begins. */
static skv_status find_lines(skv_data_file *f, skv_error *err)
{
    const char *text = (const char *)f->data;
    size_t capacity = 0;
    for (size_t at = 0; at < f->size;) {
        const char *end = memchr(text + at, '\n', f->size - at);
        const size_t next = end ? (size_t)(end - text) + 1 : f->size;
        if (f->n_items + 2 > capacity) {
            capacity = capacity ? capacity * 2 : 1024;
            size_t *lines = skv_realloc(f->lines, capacity, sizeof *lines);
            SKV_REQUIRE(lines, err, SKV_MEMORY, "%s: no memory for %zu lines", f->path, capacity);
            f->lines = lines;
        }
        if (next - at > 1) f->lines[f->n_items++] = at;
        at = next;
    }
    return SKV_OK;
}

static skv_status take_ids(skv_data_file *f, const json_t *root, skv_error *err)
{
    SKV_REQUIRE(json_is_array(root), err, SKV_FORMAT, "%s: not an array of token ids", f->path);
    const size_t n = json_array_size(root);
    f->ids = skv_alloc(n + 1, sizeof(uint32_t));
    SKV_REQUIRE(f->ids, err, SKV_MEMORY, "%s: no memory for %zu ids", f->path, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(root, i);
        const json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        SKV_REQUIRE(id >= 0 && id <= INT32_MAX, err, SKV_FORMAT, "%s: item %zu is not a token id",
                    f->path, i);
        for (size_t k = 0; k < 4; k++) f->ids[4 * i + k] = (unsigned char)(id >> (8 * k));
    }
    f->data = f->ids;
    f->size = 4 * n;
    return SKV_OK;
}

static skv_status read_ids(skv_data_file *f, skv_error *err)
{
    char *text;
    size_t n;
    json_t *root = NULL;
    SKV_TRY(skv_file_read(f->path, JSON_MAX, &text, &n, err));
    skv_status status = skv_json_load(text, n, JSON_MAX, f->path, &root, err);
    skv_free(text);
    if (status == SKV_OK) status = take_ids(f, root, err);
    json_decref(root);
    return status;
}

static skv_status open_file(skv_data_file *f, skv_data_file_form form, skv_error *err)
{
    static const size_t units[] = {[SKV_DATA_FILE_TEXT] = 1,
                                   [SKV_DATA_FILE_U16] = 2,
                                   [SKV_DATA_FILE_U32] = 4,
                                   [SKV_DATA_FILE_JSON_IDS] = 4};
    f->unit = units[form];
    if (form == SKV_DATA_FILE_JSON_IDS) {
        SKV_TRY(read_ids(f, err));
    } else {
        SKV_TRY(skv_file_map_open(f->path, &f->map, err));
        f->data = f->map.data;
        f->size = f->map.size;
    }
    if (f->unit == 0) {
        SKV_TRY(find_lines(f, err));
    } else {
        SKV_REQUIRE(f->size % f->unit == 0, err, SKV_FORMAT, "%s: %zu bytes, not a multiple of %zu",
                    f->path, f->size, f->unit);
        f->n_items = skv_ceil_div(f->size / f->unit, BLOCK);
    }
    SKV_REQUIRE(f->n_items > 0, err, SKV_FORMAT, "%s: empty", f->path);
    return SKV_OK;
}

skv_status skv_data_file_open(const char *path, skv_data_file_form form, uint64_t seed,
                              skv_data_file *f, skv_error *err)
{
    *f = (skv_data_file){.seed = seed, .path = skv_strndup(path, strlen(path))};
    SKV_REQUIRE(f->path, err, SKV_MEMORY, "%s: no memory", path);
    skv_status status = open_file(f, form, err);
    if (status != SKV_OK) skv_data_file_close(f);
    return status;
}

void skv_data_file_close(skv_data_file *f)
{
    skv_file_map_close(&f->map);
    skv_free(f->lines);
    skv_free(f->ids);
    skv_free(f->path);
    *f = (skv_data_file){.path = NULL};
}

/* ---- lines ---- */

static skv_status take_line(const skv_data_file *f, const skv_data_writer *w, uint64_t *position,
                            size_t room, bool cut, bool *taken, skv_data_tokens *out,
                            skv_error *err)
{
    const size_t at = f->lines[item_at(f, *position)];
    const char *line = (const char *)f->data + at;
    const char *end = memchr(line, '\n', f->size - at);
    const size_t n = end ? (size_t)(end - line) : f->size - at, before = out->ids.n;
    char where[256];
    snprintf(where, sizeof where, "%.200s: byte %zu", f->path, at);
    SKV_TRY(skv_data_put_json(w, line, n, where, out, err));
    if (out->ids.n - before > room) {
        out->ids.n = cut ? before + room : before;
        *taken = cut;
    }
    if (*taken) ++*position;
    return SKV_OK;
}

/* ---- text ---- */

static bool is_gap(unsigned char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* The first word that begins at or after `at`: the text is cut there and nowhere else. */
static size_t next_word(const skv_data_file *f, size_t at)
{
    if (at == 0) return 0;
    while (at < f->size && !is_gap(f->data[at])) at++;
    return at;
}

/* Tokens of text[at..end) appended; while they are too many, of a shorter part. */
static skv_status fit_text(const skv_data_file *f, const skv_data_writer *w, size_t at, size_t *end,
                           size_t room, skv_data_tokens *out, skv_error *err)
{
    const char *text = (const char *)f->data;
    const size_t before = out->ids.n;
    for (;;) {
        out->ids.n = before;
        SKV_TRY(skv_data_put_text(w, text + at, *end - at, true, out, err));
        const size_t n = out->ids.n - before;
        if (n <= room) return SKV_OK;
        size_t shorter = at + (size_t)((double)(*end - at) * (double)room / (double)n);
        while (shorter > at && !is_gap(f->data[shorter])) shorter--;
        if (shorter <= at) { /* one word longer than the room: its beginning */
            out->ids.n = before + room;
            return SKV_OK;
        }
        *end = shorter < *end ? shorter : *end - 1;
    }
}

/* A position is block * BLOCK + the byte in it. Blocks begin with a word, so the last piece of one
 * may reach over its end, and the next piece begins the next block. */
static skv_status take_text(const skv_data_file *f, const skv_data_writer *w, uint64_t *position,
                            size_t room, skv_data_tokens *out, skv_error *err)
{
    const uint64_t index = *position / BLOCK;
    const size_t block = item_at(f, index) * BLOCK;
    const size_t begin = next_word(f, skv_min_size(block, f->size));
    const size_t limit = next_word(f, skv_min_size(block + BLOCK, f->size));
    const size_t at = skv_max_size(begin, block + (size_t)(*position % BLOCK));
    if (at < limit) {
        size_t end = next_word(f, skv_min_size(at + room * GUESS_BYTES * 2, limit));
        end = skv_min_size(end, limit);
        SKV_TRY(fit_text(f, w, at, &end, room, out, err));
        if (end < limit && end - block < BLOCK) {
            *position = index * BLOCK + (end - block);
            return SKV_OK;
        }
    }
    *position = (index + 1) * BLOCK;
    return SKV_OK;
}

/* ---- tokens ---- */

static int32_t token_at(const skv_data_file *f, size_t i)
{
    const unsigned char *p = f->data + i * f->unit;
    uint32_t id = p[0] | (uint32_t)p[1] << 8;
    if (f->unit == 4) id |= (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return id <= INT32_MAX ? (int32_t)id : -1;
}

static skv_status take_tokens(const skv_data_file *f, const skv_data_writer *w, uint64_t *position,
                              size_t room, skv_data_tokens *out, skv_error *err)
{
    const size_t n_tokens = f->size / f->unit;
    const size_t block = item_at(f, *position / BLOCK) * BLOCK;
    const size_t limit = skv_min_size(block + BLOCK, n_tokens);
    const size_t at = block + (size_t)(*position % BLOCK);
    const size_t n = at < limit ? skv_min_size(room, limit - at) : 0;
    const size_t vocab = w->vocab, before = out->ids.n;
    for (size_t i = 0; i < n; i++) {
        const int32_t id = token_at(f, at + i);
        SKV_REQUIRE(id >= 0 && (size_t)id < vocab, err, SKV_RANGE,
                    "%s: token %zu is %d, the vocabulary has %zu", f->path, at + i, (int)id, vocab);
        SKV_TRY(skv_ids_push(&out->ids, id, err));
    }
    SKV_TRY(skv_data_mark(out, before, true, err));
    *position = at + n < limit ? *position + n : (*position / BLOCK + 1) * BLOCK;
    return SKV_OK;
}

skv_status skv_data_file_take(const skv_data_file *f, const skv_data_writer *w, uint64_t *position,
                              size_t room, bool cut, bool *taken, skv_data_tokens *out,
                              skv_error *err)
{
    SKV_TRY(skv_file_map_check(&f->map, err));
    *taken = true;
    if (f->unit == 0) return take_line(f, w, position, room, cut, taken, out, err);
    if (f->unit == 1) return take_text(f, w, position, room, out, err);
    return take_tokens(f, w, position, room, out, err);
}
