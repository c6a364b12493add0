/*
 * A fingerprint of everything that the rows of the KV cache are a function of: the model's shape,
 * the rows that its layers make of a few fixed tokens (weights, their type, the kernels of this
 * processor), the type of the cache, the files, and the version of this program. If one machine
 * asks, the times of the files stand for their contents. If several have to agree, all bytes of the
 * weights are read once more.
 */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/system.h"
#include "scheduler/worker.h"

static void add_size(skv_sha256 *sha, size_t value)
{
    uint64_t bits = value;
    skv_sha256_add(sha, &bits, sizeof bits);
}

static void add_rope(skv_sha256 *sha, const skv_rope *rope, size_t context)
{
    const double numbers[] = {rope->theta,
                              rope->factor,
                              rope->low_freq_factor,
                              rope->high_freq_factor,
                              rope->attention_factor,
                              rope->beta_fast,
                              rope->beta_slow,
                              (double)rope->ramp_exact,
                              rope->position_growth};
    add_size(sha, (size_t)rope->scaling);
    add_size(sha, rope->n_rot);
    add_size(sha, rope->original_context);
    skv_sha256_add(sha, numbers, sizeof numbers);
    skv_sha256_add(sha, rope->short_factor, rope->n_factors * sizeof(float));
    skv_sha256_add(sha, rope->long_factor, rope->n_factors * sizeof(float));
    /* The length a sequence is made for decides which factors hold. */
    if (rope->scaling == SKV_ROPE_LONGROPE) add_size(sha, context);
}

static void add_shape(skv_sha256 *sha, const skv_engine *e, size_t context)
{
    const skv_config *c = e->config;
    skv_sha256_add(sha, c->architecture, strlen(c->architecture) + 1);
    const size_t sizes[] = {SKV_VERSION_MAJOR,
                            SKV_VERSION_MINOR,
                            SKV_VERSION_PATCH,
                            c->n_layers,
                            c->hidden,
                            c->head_dim,
                            c->vocab,
                            c->swiftkv ? c->kv_layers : 0,
                            c->swiftkv ? c->kv_group : 0,
                            (size_t)e->options.weights,
                            (size_t)e->options.kv,
                            (size_t)e->options.prefill,
                            (size_t)e->level,
                            (size_t)e->options.random_seed,
                            skv_kv_store_page_bytes(e->store)};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) add_size(sha, sizes[i]);
    if (e->states.n > 0) {
        add_size(sha, e->states.state_bytes);
        add_size(sha, (size_t)e->options.state);
    }
    for (size_t i = 0; i < c->n_layers; i++) {
        add_size(sha, c->layers[i].n_heads);
        add_size(sha, c->layers[i].n_kv_heads);
        add_size(sha, c->layers[i].window);
        add_size(sha, c->layers[i].i_rope);
        add_size(sha, c->layers[i].i_rope_q);
    }
    add_rope(sha, &c->ropes[0], context);
    add_rope(sha, &c->ropes[1], context);
}

/* Sizes and times of the files of a model: rows of tokens that were not tried depend on them. */
static void add_file(const char *path, const char *name, uint64_t *sum)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) return;
    const struct timespec at = skv_file_modified(&info);
    const int64_t facts[] = {(int64_t)info.st_size, (int64_t)at.tv_sec, (int64_t)at.tv_nsec};
    uint8_t digest[SKV_SHA256_BYTES];
    uint64_t bits;
    skv_sha256 sha;
    skv_sha256_init(&sha);
    skv_sha256_add(&sha, name, strlen(name) + 1);
    skv_sha256_add(&sha, facts, sizeof facts);
    skv_sha256_end(&sha, digest);
    memcpy(&bits, digest, sizeof bits);
    *sum += bits; /* in whatever order a folder has them */
}

static uint64_t sum_files(const char *path)
{
    uint64_t sum = 0;
    DIR *folder = opendir(path);
    if (!folder) {
        add_file(path, "", &sum);
        return sum;
    }
    const struct dirent *entry;
    while ((entry = readdir(folder))) {
        char *file = skv_path_join(path, entry->d_name);
        if (file) add_file(file, entry->d_name, &sum);
        skv_free(file);
    }
    (void)closedir(folder);
    return sum;
}

/* ---- the contents of the files ---- */

enum { CHUNK_BYTES = 1 << 20, CONFIG_BYTES_MAX = 64 << 20 };

typedef struct file_set {
    const skv_file_map **at; /* owned, [n]; the maps are borrowed */
    size_t n;
} file_set;

static skv_status add_to_set(file_set *set, const skv_file_map *map, skv_error *err)
{
    if (!map) return SKV_OK;
    for (size_t i = set->n; i-- > 0;) {
        if (set->at[i] == map) return SKV_OK;
    }
    const skv_file_map **at = skv_realloc(set->at, set->n + 1, sizeof *at);
    SKV_REQUIRE(at, err, SKV_MEMORY, "cache-store: no memory for %zu files", set->n);
    set->at = at;
    set->at[set->n++] = map;
    return SKV_OK;
}

/* Not through the map: a file that became shorter is an error, not a signal. */
static skv_status add_content(const skv_file_map *map, unsigned char *chunk, uint64_t *sum,
                              skv_error *err)
{
    uint64_t bits = map->size;
    for (size_t at = 0; at < map->size; at += CHUNK_BYTES) {
        size_t n = skv_min_size(CHUNK_BYTES, map->size - at);
        SKV_TRY(skv_file_map_fetch(map, map->data + at, n, chunk, err));
        bits = skv_mix64(bits) ^ skv_spill_checksum(chunk, n);
    }
    *sum += skv_mix64(bits); /* whatever the order and the names of the files */
    return SKV_OK;
}

static skv_status find_weights(const skv_source *source, file_set *set, skv_error *err)
{
    for (size_t i = 0; i < skv_source_count(source); i++) {
        const skv_tensor *t = skv_source_at(source, i);
        SKV_TRY(add_to_set(set, t->file, err));
        SKV_TRY(add_to_set(set, t->coded.scales.file, err));
        SKV_TRY(add_to_set(set, t->coded.zeros.file, err));
        SKV_TRY(add_to_set(set, t->coded.groups.file, err));
    }
    return SKV_OK;
}

/* A GGUF file has its configuration inside. */
static skv_status add_config(const char *path, uint64_t *sum, skv_error *err)
{
    if (!skv_file_is_folder(path)) return SKV_OK;
    char *file = skv_path_join(path, "config.json"), *data = NULL;
    size_t n = 0;
    SKV_REQUIRE(file, err, SKV_MEMORY, "cache-store: no memory");
    skv_status status = skv_file_read(file, CONFIG_BYTES_MAX, &data, &n, err);
    if (status == SKV_OK) *sum += skv_mix64(skv_spill_checksum(data, n));
    skv_free(data);
    skv_free(file);
    return status;
}

static skv_status sum_contents(const skv_source *source, uint64_t *sum, skv_error *err)
{
    SKV_TRY(add_config(skv_source_path(source), sum, err));
    file_set set = {.n = 0};
    unsigned char *chunk = skv_alloc(1, CHUNK_BYTES);
    skv_status status = chunk ? find_weights(source, &set, err)
                              : skv_fail(err, SKV_MEMORY, "cache-store: no memory");
    for (size_t i = 0; status == SKV_OK && i < set.n; i++) {
        status = add_content(set.at[i], chunk, sum, err);
    }
    skv_free(chunk);
    skv_free(set.at);
    return status;
}

/* ---- the rows that they make ---- */

/* The rows that one method makes of a page of tokens. */
static skv_status add_rows(skv_sha256 *sha, skv_engine *e, skv_sequence *s, skv_error *err)
{
    int32_t ids[SKV_PAGE_ROWS];
    for (size_t i = 0; i < SKV_PAGE_ROWS; i++) {
        ids[i] = (int32_t)(skv_mix64(i) % e->config->vocab);
    }
    SKV_TRY(skv_prompt(e, s, ids, SKV_PAGE_ROWS, NULL, err));
    for (size_t b = 0; b < s->cache.layout->n_bundles; b++) {
        const void *page = skv_kv_page_map(e->store, skv_kv_cache_block(&s->cache, b, 0));
        skv_sha256_add(sha, page, skv_kv_store_page_bytes(e->store));
        skv_kv_page_unmap(e->store, page);
    }
    return SKV_OK;
}

static skv_status add_method(skv_sha256 *sha, skv_engine *e, skv_prefill prefill, size_t context,
                             skv_error *err)
{
    skv_sequence *s;
    SKV_TRY(skv_sequence_create_as(e, prefill, context, &s, err));
    skv_status status =
        skv_sequence_set_adapters(s, NULL, 0, err); /* domains tell adapters apart */
    if (status == SKV_OK) status = add_rows(sha, e, s, err);
    skv_sequence_free(s);
    return status;
}

skv_status skv_rows_print(skv_engine *e, size_t context, bool by_content,
                          uint8_t out[SKV_SHA256_BYTES], skv_error *err)
{
    skv_sha256 sha;
    skv_sha256_init(&sha);
    add_shape(&sha, e, context);
    uint64_t files = 0;
    if (e->source && by_content) SKV_TRY(sum_contents(e->source, &files, err));
    if (e->source && !by_content) files = sum_files(skv_source_path(e->source));
    skv_sha256_add(&sha, &files, sizeof files);
    SKV_TRY(add_method(&sha, e, SKV_PREFILL_AUTO, context, err));
    /* A teacher's blocks have a domain of their own. A server that has not loaded the teacher,
     * as a reader has not, has the same files and kernels. */
    if (e->has_teacher && !by_content) {
        SKV_TRY(add_method(&sha, e, SKV_PREFILL_TEACHER, context, err));
    }
    skv_sha256_end(&sha, out);
    return SKV_OK;
}
