/* Split GGUF files: see gguf_parts.h. */
#include "format/gguf_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

/* "-00001-of-00003.gguf" */
enum {
    NUMBER_DIGITS = 5,
    ENDING_BYTES = 1 + NUMBER_DIGITS + 4 + NUMBER_DIGITS + 5,
    PARTS_MAX = 99999
};

/* Reads a number of the metadata; `fallback` if it is absent. */
static skv_status number_of(const skv_gguf *g, const char *key, uint64_t fallback, uint64_t *out,
                            skv_error *err)
{
    const skv_gguf_value *v = skv_gguf_find(g, key);
    *out = fallback;
    return v ? skv_gguf_u64(v, out, err) : SKV_OK;
}

/* The path of part `number`, from 1 on, on the heap; NULL: no memory. `path` ends as a part does.
 */
static char *part_path(const char *path, size_t number, size_t count)
{
    const size_t n = strlen(path);
    char *other = skv_strndup(path, n);
    if (!other) return NULL;
    (void)snprintf(other + n - ENDING_BYTES, ENDING_BYTES + 1, "-%05zu-of-%05zu.gguf", number,
                   count);
    return other;
}

/* Whether the path is that of this part. */
static bool is_named_so(const char *path, size_t number, size_t count)
{
    char ending[64];
    const size_t n = strlen(path);
    (void)snprintf(ending, sizeof ending, "-%05zu-of-%05zu.gguf", number, count);
    return n > ENDING_BYTES && strcmp(path + n - ENDING_BYTES, ending) == 0;
}

/* The first part is the one to open: the others have no metadata of the model. */
static skv_status check_first(const skv_gguf *g, uint64_t number, uint64_t count, skv_error *err)
{
    const char *path = skv_gguf_name(g);
    SKV_REQUIRE(count <= PARTS_MAX && number < count, err, SKV_FORMAT,
                "%s: split.no %llu, split.count %llu", path, (unsigned long long)number,
                (unsigned long long)count);
    const bool named = is_named_so(path, (size_t)number + 1, (size_t)count);
    if (number == 0 && named) return SKV_OK;
    char *first = named ? part_path(path, 1, (size_t)count) : NULL;
    const skv_status status =
        number > 0 ? skv_fail(err, SKV_FORMAT, "%s: part %llu of %llu: open the first part%s%s",
                              path, (unsigned long long)number + 1, (unsigned long long)count,
                              first ? ", " : "", first ? first : "")
                   : skv_fail(err, SKV_FORMAT,
                              "%s: the first of %llu parts, whose name has to end with "
                              "-00001-of-%05llu.gguf",
                              path, (unsigned long long)count, (unsigned long long)count);
    skv_free(first);
    return status;
}

static skv_status check_part(const skv_gguf *g, size_t number, size_t count, skv_error *err)
{
    uint64_t no, n;
    SKV_TRY(number_of(g, "split.no", UINT64_MAX, &no, err));
    SKV_TRY(number_of(g, "split.count", 0, &n, err));
    SKV_REQUIRE(no == number - 1 && n == count, err, SKV_FORMAT,
                "%s: split.no and split.count do not make it part %zu of %zu", skv_gguf_name(g),
                number, count);
    return SKV_OK;
}

static skv_status open_part(const char *first, size_t number, size_t count, skv_gguf **out,
                            skv_error *err)
{
    char *path = part_path(first, number, count);
    SKV_REQUIRE(path, err, SKV_MEMORY, "%s: no memory", first);
    skv_status status = skv_file_exists(path)
                            ? skv_gguf_open_one(path, out, err)
                            : skv_fail(err, SKV_IO, "%s: missing: part %zu of the %zu of the model",
                                       path, number, count);
    skv_free(path);
    return status == SKV_OK ? check_part(*out, number, count, err) : status;
}

/* Checks that the parts together have the number of tensors that the first one states. */
static skv_status check_tensors(const skv_gguf *first, const skv_gguf_parts *parts, skv_error *err)
{
    uint64_t n = skv_gguf_tensor_count(first), expected;
    for (size_t i = 0; i < parts->n; i++) n += skv_gguf_tensor_count(parts->at[i]);
    SKV_TRY(number_of(first, "split.tensors.count", n, &expected, err));
    SKV_REQUIRE(n == expected, err, SKV_FORMAT, "%s: split.tensors.count %llu, the parts have %llu",
                skv_gguf_name(first), (unsigned long long)expected, (unsigned long long)n);
    return SKV_OK;
}

/* Opens the parts beside a first part. Fails with the name of a missing part, and with the first
 * part's name if `first` is a later one. */
static skv_status open_parts(const skv_gguf *first, skv_gguf_parts *out, skv_error *err)
{
    uint64_t number, count;
    *out = (skv_gguf_parts){0};
    SKV_TRY(number_of(first, "split.no", 0, &number, err));
    SKV_TRY(number_of(first, "split.count", 1, &count, err));
    if (count <= 1 && number == 0) return SKV_OK;
    SKV_TRY(check_first(first, number, count, err));
    out->at = skv_alloc_zero((size_t)count - 1, sizeof(skv_gguf *));
    SKV_REQUIRE(out->at, err, SKV_MEMORY, "%s: no memory", skv_gguf_name(first));
    skv_status status = SKV_OK;
    for (size_t i = 2; i <= count && status == SKV_OK; i++) {
        status = open_part(skv_gguf_name(first), i, (size_t)count, &out->at[out->n++], err);
    }
    if (status == SKV_OK) status = check_tensors(first, out, err);
    if (status != SKV_OK) skv_gguf_parts_close(out);
    return status;
}

skv_status skv_gguf_open(const char *path, skv_gguf **out, skv_error *err)
{
    skv_gguf *g = NULL;
    skv_gguf_parts parts;
    SKV_TRY(skv_gguf_open_one(path, &g, err));
    skv_status status = open_parts(g, &parts, err);
    if (status == SKV_OK && parts.n > 0) status = skv_gguf_take_parts(g, &parts, err);
    if (status == SKV_OK) {
        *out = g;
    } else {
        skv_gguf_parts_close(&parts);
        skv_gguf_close(g);
    }
    return status;
}
