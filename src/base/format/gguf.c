/*
 * Reading GGUF: see gguf.h.
 *
 *     "GGUF" | u32 version | u64 n_tensors | u64 n_entries
 *     n_entries x: string key | u32 type | value
 *     n_tensors x: string name | u32 n_dims | n_dims x u64 (innermost first) | u32 type | u64
 * offset padding to general.alignment | the data, where the offsets count from
 *
 * A string is a u64 length and its bytes; an array a u32 element type, a u64 count and the
 * elements. Every count is held against the bytes that are left before anything is allocated.
 */
#include "format/gguf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "format/gguf_parts.h"
#include "format/tensor.h"

enum {
    NAME_BYTES_MAX = 1024,
    ENTRY_BYTES_MIN = 8 + 1 + 4 + 1,          /* of a key, its type and a one-byte value */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8, /* of a tensor of one dimension */
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MAX = 64 << 10
};

struct skv_gguf {
    char *name; /* owned */
    skv_file_map map;
    skv_gguf_parts parts;   /* owned: their tensors are in `tensors` too */
    skv_gguf_value *values; /* [n_values], owned, with keys and starts */
    size_t n_values;
    skv_name_index keys;
    skv_tensor *tensors; /* [n_tensors], owned, with names */
    size_t n_tensors;
    skv_name_index tensor_names;
    char **texts; /* [n_texts], owned: copies of keys and names */
    size_t n_texts;
    size_t **starts; /* [n_starts], owned: offsets of arrays of strings */
    size_t n_starts;
};

/* The unread part of the file. */
typedef struct cursor {
    const unsigned char *data;
    size_t at, n;
    const char *name;
    skv_error *err;
} cursor;

static uint64_t load_le(const unsigned char *p, size_t n_bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n_bytes; i++) value |= (uint64_t)p[i] << (8 * i);
    return value;
}

static skv_status take(cursor *c, size_t n_bytes, const char *what, const unsigned char **out)
{
    SKV_REQUIRE(n_bytes <= c->n - c->at, c->err, SKV_FORMAT,
                "%s: byte %zu: %s: %zu bytes, the file has %zu more", c->name, c->at, what, n_bytes,
                c->n - c->at);
    *out = c->data + c->at;
    c->at += n_bytes;
    return SKV_OK;
}

static skv_status take_u32(cursor *c, const char *what, uint32_t *out)
{
    const unsigned char *p = NULL;
    SKV_TRY(take(c, 4, what, &p));
    *out = (uint32_t)load_le(p, 4);
    return SKV_OK;
}

/* A u64 that counts or measures something in memory. */
static skv_status take_size(cursor *c, const char *what, size_t *out)
{
    const unsigned char *p = NULL;
    SKV_TRY(take(c, 8, what, &p));
    uint64_t value = load_le(p, 8);
    SKV_REQUIRE(value <= SIZE_MAX / 2, c->err, SKV_FORMAT, "%s: byte %zu: %s: %llu is too large",
                c->name, c->at - 8, what, (unsigned long long)value);
    *out = (size_t)value;
    return SKV_OK;
}

/* A count of things that take at least `bytes_min` each. */
static skv_status take_count(cursor *c, const char *what, size_t bytes_min, size_t *out)
{
    size_t count = 0;
    SKV_TRY(take_size(c, what, &count));
    SKV_REQUIRE(count <= (c->n - c->at) / bytes_min, c->err, SKV_FORMAT,
                "%s: byte %zu: %s: %zu, the file has %zu more bytes", c->name, c->at - 8, what,
                count, c->n - c->at);
    *out = count;
    return SKV_OK;
}

/* A key or a tensor's name, copied with a terminating zero; g owns the copy. */
static skv_status take_name(cursor *c, skv_gguf *g, const char *what, const char **out)
{
    size_t n = 0, at = c->at;
    const unsigned char *p = NULL;
    SKV_TRY(take_size(c, what, &n));
    SKV_REQUIRE(n >= 1 && n <= NAME_BYTES_MAX, c->err, SKV_FORMAT,
                "%s: byte %zu: %s: %zu bytes long, expected 1 to %d", c->name, at, what, n,
                NAME_BYTES_MAX);
    SKV_TRY(take(c, n, what, &p));
    SKV_REQUIRE(!memchr(p, 0, n), c->err, SKV_FORMAT, "%s: byte %zu: %s: a zero byte in it",
                c->name, at, what);
    char *copy = skv_strndup((const char *)p, n);
    SKV_REQUIRE(copy, c->err, SKV_MEMORY, "%s: no memory", c->name);
    g->texts[g->n_texts++] = copy;
    *out = copy;
    return SKV_OK;
}

static skv_status take_string(cursor *c, const char *key, const unsigned char **text, size_t *n)
{
    SKV_TRY(take_size(c, key, n));
    return take(c, *n, key, text);
}

/* starts[i] = where the text of string i begins, counted from the array's first byte; its length is
 * starts[i + 1] - 8 - starts[i], because the next string's length lies between them. */
static skv_status read_strings(cursor *c, skv_gguf *g, skv_gguf_value *v)
{
    size_t *starts = skv_alloc(v->count + 1, sizeof *starts);
    SKV_REQUIRE(starts, c->err, SKV_MEMORY, "%s: %s: no memory for %zu strings", c->name, v->key,
                v->count);
    g->starts[g->n_starts++] = starts;
    size_t at = c->at;
    for (size_t i = 0; i < v->count; i++) {
        const unsigned char *text = NULL;
        size_t n = 0;
        SKV_TRY(take_string(c, v->key, &text, &n));
        starts[i] = c->at - n - at;
    }
    starts[v->count] = c->at - at + 8;
    v->starts = starts;
    return SKV_OK;
}

static skv_status take_type(cursor *c, const char *key, skv_gguf_type *out)
{
    uint32_t type = 0;
    SKV_TRY(take_u32(c, key, &type));
    SKV_REQUIRE(type < SKV_GGUF_TYPE_COUNT, c->err, SKV_FORMAT,
                "%s: byte %zu: %s: value type %u, expected 0 to %d", c->name, c->at - 4, key,
                (unsigned)type, SKV_GGUF_TYPE_COUNT - 1);
    *out = (skv_gguf_type)type;
    return SKV_OK;
}

static skv_status read_array(cursor *c, skv_gguf *g, skv_gguf_value *v)
{
    SKV_TRY(take_type(c, v->key, &v->element));
    SKV_REQUIRE(v->element != SKV_GGUF_ARRAY, c->err, SKV_UNSUPPORTED,
                "%s: %s: arrays of arrays are not supported", c->name, v->key);
    size_t size = v->element == SKV_GGUF_STRING ? 8 : skv_gguf_type_bytes(v->element);
    SKV_TRY(take_count(c, v->key, size, &v->count));
    v->data = c->data + c->at;
    if (v->element == SKV_GGUF_STRING) return read_strings(c, g, v);
    return take(c, v->count * size, v->key, &v->data);
}

static skv_status read_value(cursor *c, skv_gguf *g, skv_gguf_value *v)
{
    SKV_TRY(take_name(c, g, "key", &v->key));
    SKV_TRY(take_type(c, v->key, &v->type));
    v->file = g->name;
    v->element = v->type;
    if (v->type == SKV_GGUF_ARRAY) return read_array(c, g, v);
    if (v->type == SKV_GGUF_STRING) return take_string(c, v->key, &v->data, &v->count);
    v->count = 1;
    SKV_TRY(take(c, skv_gguf_type_bytes(v->type), v->key, &v->data));
    SKV_REQUIRE(v->type != SKV_GGUF_BOOL || *v->data <= 1, c->err, SKV_FORMAT,
                "%s: byte %zu: %s: %d, expected false or true", c->name, c->at - 1, v->key,
                (int)*v->data);
    return SKV_OK;
}

/* The element types that we compute with, under ggml's numbers; COUNT for the others. */
static const struct {
    uint32_t number;
    const char *name;
    skv_dtype type;
} types[] = {
    {0, "F32", SKV_DTYPE_F32},        {1, "F16", SKV_DTYPE_F16},
    {2, "Q4_0", SKV_DTYPE_Q4_0},      {3, "Q4_1", SKV_DTYPE_Q4_1},
    {6, "Q5_0", SKV_DTYPE_Q5_0},      {7, "Q5_1", SKV_DTYPE_Q5_1},
    {8, "Q8_0", SKV_DTYPE_Q8_0},      {9, "Q8_1", SKV_DTYPE_COUNT},
    {10, "Q2_K", SKV_DTYPE_Q2_K},     {11, "Q3_K", SKV_DTYPE_Q3_K},
    {12, "Q4_K", SKV_DTYPE_Q4_K},     {13, "Q5_K", SKV_DTYPE_Q5_K},
    {14, "Q6_K", SKV_DTYPE_Q6_K},     {15, "Q8_K", SKV_DTYPE_COUNT},
    {16, "IQ2_XXS", SKV_DTYPE_COUNT}, {17, "IQ2_XS", SKV_DTYPE_COUNT},
    {18, "IQ3_XXS", SKV_DTYPE_COUNT}, {19, "IQ1_S", SKV_DTYPE_COUNT},
    {20, "IQ4_NL", SKV_DTYPE_IQ4_NL}, {21, "IQ3_S", SKV_DTYPE_COUNT},
    {22, "IQ2_S", SKV_DTYPE_COUNT},   {23, "IQ4_XS", SKV_DTYPE_IQ4_XS},
    {24, "I8", SKV_DTYPE_COUNT},      {25, "I16", SKV_DTYPE_COUNT},
    {26, "I32", SKV_DTYPE_COUNT},     {27, "I64", SKV_DTYPE_COUNT},
    {28, "F64", SKV_DTYPE_COUNT},     {29, "IQ1_M", SKV_DTYPE_COUNT},
    {30, "BF16", SKV_DTYPE_BF16},     {34, "TQ1_0", SKV_DTYPE_COUNT},
    {35, "TQ2_0", SKV_DTYPE_COUNT},   {39, "MXFP4", SKV_DTYPE_MXFP4},
};

static skv_dtype find_dtype(uint32_t number, const char **name)
{
    *name = "unknown";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].number != number) continue;
        *name = types[i].name;
        return types[i].type;
    }
    return SKV_DTYPE_COUNT;
}

bool skv_gguf_number_of(skv_dtype type, uint32_t *number)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].type != type) continue;
        *number = types[i].number;
        return true;
    }
    return false;
}

/* Dimensions, outermost first, and the size that they and the type make. */
static skv_status read_dims(cursor *c, skv_tensor *t)
{
    uint32_t n_dims = 0;
    SKV_TRY(take_u32(c, t->name, &n_dims));
    SKV_REQUIRE(n_dims >= 1 && n_dims <= SKV_TENSOR_DIMS_MAX, c->err, SKV_FORMAT,
                "%s: %s: %u dimensions, expected 1 to %d", c->name, t->name, (unsigned)n_dims,
                SKV_TENSOR_DIMS_MAX);
    t->n_dims = n_dims;
    for (size_t i = n_dims; i-- > 0;) {
        SKV_TRY(take_size(c, t->name, &t->dims[i]));
        SKV_REQUIRE(t->dims[i] > 0, c->err, SKV_FORMAT, "%s: %s: a dimension is 0", c->name,
                    t->name);
    }
    uint32_t number = 0;
    const char *type_name;
    SKV_TRY(take_u32(c, t->name, &number));
    t->type = find_dtype(number, &type_name);
    SKV_REQUIRE(t->type != SKV_DTYPE_COUNT, c->err, SKV_UNSUPPORTED,
                "%s: %s: element type %u (%s) is not supported", c->name, t->name, (unsigned)number,
                type_name);
    size_t n = 1;
    bool fits = true;
    for (size_t i = 0; i < n_dims; i++) fits = fits && skv_size_mul(n, t->dims[i], &n);
    SKV_REQUIRE(
        fits && t->dims[n_dims - 1] % skv_dtype_block_elements(t->type) == 0 &&
            skv_dtype_bytes(t->type, n, &t->n_bytes),
        c->err, SKV_FORMAT,
        "%s: %s: rows of %zu elements are not a multiple of a %s block, or the size does not fit",
        c->name, t->name, t->dims[n_dims - 1], type_name);
    return SKV_OK;
}

/* The data offset stays in dims' sibling until the place of the data is known. */
static skv_status read_tensor(cursor *c, skv_gguf *g, skv_tensor *t, size_t *offset)
{
    SKV_TRY(take_name(c, g, "tensor name", &t->name));
    SKV_TRY(read_dims(c, t));
    return take_size(c, t->name, offset);
}

static skv_status read_alignment(const skv_gguf *g, size_t *out, skv_error *err)
{
    uint64_t alignment = ALIGNMENT_DEFAULT;
    const skv_gguf_value *v = skv_gguf_find(g, "general.alignment");
    if (v) SKV_TRY(skv_gguf_u64(v, &alignment, err));
    SKV_REQUIRE(alignment >= 1 && alignment <= ALIGNMENT_MAX && !(alignment & (alignment - 1)), err,
                SKV_FORMAT, "%s: general.alignment: %llu, expected a power of two up to %d",
                g->name, (unsigned long long)alignment, ALIGNMENT_MAX);
    *out = (size_t)alignment;
    return SKV_OK;
}

static int by_data(const void *a, const void *b)
{
    const skv_tensor *x = *(const skv_tensor *const *)a, *y = *(const skv_tensor *const *)b;
    return x->data < y->data ? -1 : x->data > y->data;
}

static skv_status check_overlaps(const skv_gguf *g, skv_error *err)
{
    const skv_tensor **order = skv_alloc(g->n_tensors, sizeof *order);
    SKV_REQUIRE(order, err, SKV_MEMORY, "%s: no memory", g->name);
    for (size_t i = 0; i < g->n_tensors; i++) order[i] = &g->tensors[i];
    if (g->n_tensors) qsort(order, g->n_tensors, sizeof *order, by_data);
    skv_status status = SKV_OK;
    for (size_t i = 1; i < g->n_tensors && status == SKV_OK; i++) {
        if (order[i - 1]->data + order[i - 1]->n_bytes <= order[i]->data) continue;
        status = skv_fail(err, SKV_FORMAT, "%s: tensors %.100s and %.100s overlap", g->name,
                          order[i - 1]->name, order[i]->name);
    }
    skv_free(order);
    return status;
}

/* Turns offsets into pointers: aligned, inside the file, not overlapping. */
static skv_status place_tensors(cursor *c, skv_gguf *g, const size_t *offsets)
{
    size_t alignment = 0;
    SKV_TRY(read_alignment(g, &alignment, c->err));
    size_t begin = skv_round_up(c->at, alignment); /* at <= the file's size: cannot overflow */
    size_t n_data = begin < c->n ? c->n - begin : 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        skv_tensor *t = &g->tensors[i];
        SKV_REQUIRE(offsets[i] % alignment == 0, c->err, SKV_FORMAT,
                    "%s: %s: offset %zu is not a multiple of %zu", c->name, t->name, offsets[i],
                    alignment);
        SKV_REQUIRE(offsets[i] <= n_data && t->n_bytes <= n_data - offsets[i], c->err, SKV_FORMAT,
                    "%s: %s: bytes %zu to %zu + %zu lie outside the %zu bytes of data", c->name,
                    t->name, offsets[i], offsets[i], t->n_bytes, n_data);
        t->data = c->data + begin + offsets[i];
    }
    return check_overlaps(g, c->err);
}

static skv_status read_values(cursor *c, skv_gguf *g, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        SKV_TRY(read_value(c, g, &g->values[i]));
        g->n_values++;
    }
    skv_name_entry *entries = skv_alloc(n, sizeof *entries);
    SKV_REQUIRE(entries, c->err, SKV_MEMORY, "%s: no memory", c->name);
    for (size_t i = 0; i < n; i++) entries[i] = (skv_name_entry){g->values[i].key, i};
    return skv_name_index_build(&g->keys, entries, n, c->name, "key", c->err);
}

static skv_status read_tensors(cursor *c, skv_gguf *g, size_t n)
{
    skv_name_entry *entries = skv_alloc(n, sizeof *entries);
    size_t *offsets = skv_alloc(n, sizeof *offsets);
    skv_status status = SKV_OK;
    if (!entries || !offsets) status = skv_fail(c->err, SKV_MEMORY, "%s: no memory", c->name);
    for (size_t i = 0; i < n && status == SKV_OK; i++) {
        status = read_tensor(c, g, &g->tensors[i], &offsets[i]);
        entries[i] = (skv_name_entry){g->tensors[i].name, i};
    }
    if (status == SKV_OK) {
        g->n_tensors = n;
        status = skv_name_index_build(&g->tensor_names, entries, n, c->name, "tensor", c->err);
        entries = NULL;
    }
    if (status == SKV_OK) status = place_tensors(c, g, offsets);
    skv_free(entries);
    skv_free(offsets);
    return status;
}

static skv_status read_file(cursor *c, skv_gguf *g)
{
    const unsigned char *magic = NULL;
    uint32_t version = 0;
    size_t n_tensors = 0, n_values = 0;
    SKV_TRY(take(c, 4, "magic", &magic));
    SKV_REQUIRE(memcmp(magic, "GGUF", 4) == 0, c->err, SKV_FORMAT,
                "%s: byte 0: %02x %02x %02x %02x: not a GGUF file; for safetensors give the folder",
                c->name, magic[0], magic[1], magic[2], magic[3]);
    SKV_TRY(take_u32(c, "version", &version));
    SKV_REQUIRE(version == 2 || version == 3, c->err, SKV_UNSUPPORTED,
                "%s: GGUF version %u, expected 2 or 3, little endian", c->name, (unsigned)version);
    SKV_TRY(take_count(c, "tensor count", TENSOR_BYTES_MIN, &n_tensors));
    SKV_TRY(take_count(c, "key count", ENTRY_BYTES_MIN, &n_values));
    g->values = skv_alloc_zero(n_values, sizeof *g->values);
    g->starts = skv_alloc(n_values, sizeof *g->starts);
    g->tensors = skv_alloc_zero(n_tensors, sizeof *g->tensors);
    g->texts = skv_alloc(n_values + n_tensors, sizeof *g->texts);
    SKV_REQUIRE(g->values && g->starts && g->tensors && g->texts, c->err, SKV_MEMORY,
                "%s: no memory for %zu keys and %zu tensors", c->name, n_values, n_tensors);
    SKV_TRY(read_values(c, g, n_values));
    return read_tensors(c, g, n_tensors);
}

static skv_status create(const char *name, skv_gguf **out, skv_error *err)
{
    skv_gguf *g = skv_alloc_zero(1, sizeof *g);
    SKV_REQUIRE(g, err, SKV_MEMORY, "%s: no memory", name);
    g->name = skv_strndup(name, strlen(name));
    if (!g->name) {
        skv_free(g);
        return skv_fail(err, SKV_MEMORY, "%s: no memory", name);
    }
    *out = g;
    return SKV_OK;
}

skv_status skv_gguf_parse(const void *data, size_t n, const char *name, skv_gguf **out,
                          skv_error *err)
{
    skv_gguf *g = NULL;
    SKV_TRY(create(name, &g, err));
    cursor c = {data, 0, n, g->name, err};
    skv_status status = read_file(&c, g);
    if (status != SKV_OK) {
        skv_gguf_close(g);
        return status;
    }
    *out = g;
    return SKV_OK;
}

skv_status skv_gguf_open_one(const char *path, skv_gguf **out, skv_error *err)
{
    skv_file_map map;
    SKV_TRY(skv_file_map_open(path, &map, err));
    skv_gguf *g = NULL;
    skv_status status = skv_gguf_parse(map.data, map.size, path, &g, err);
    if (status != SKV_OK) {
        skv_file_map_close(&map);
        return status;
    }
    g->map = map;
    for (size_t i = 0; i < g->n_tensors; i++) g->tensors[i].file = &g->map;
    *out = g;
    return SKV_OK;
}

static skv_status index_tensors(skv_gguf *g, skv_error *err)
{
    skv_name_entry *entries = skv_alloc(g->n_tensors, sizeof *entries);
    SKV_REQUIRE(entries, err, SKV_MEMORY, "%s: no memory", g->name);
    for (size_t i = 0; i < g->n_tensors; i++) {
        entries[i] = (skv_name_entry){g->tensors[i].name, i};
    }
    skv_name_index_release(&g->tensor_names);
    return skv_name_index_build(&g->tensor_names, entries, g->n_tensors, g->name, "tensor", err);
}

skv_status skv_gguf_take_parts(skv_gguf *g, skv_gguf_parts *parts, skv_error *err)
{
    size_t n = g->n_tensors;
    for (size_t i = 0; i < parts->n; i++) n += parts->at[i]->n_tensors;
    skv_tensor *all = skv_realloc(g->tensors, n, sizeof *all);
    SKV_REQUIRE(all, err, SKV_MEMORY, "%s: no memory for %zu tensors", g->name, n);
    g->tensors = all;
    for (size_t i = 0; i < parts->n; i++) {
        const skv_gguf *part = parts->at[i];
        for (size_t t = 0; t < part->n_tensors; t++) all[g->n_tensors++] = part->tensors[t];
    }
    g->parts = *parts;
    *parts = (skv_gguf_parts){0};
    return index_tensors(g, err);
}

void skv_gguf_parts_close(skv_gguf_parts *parts)
{
    for (size_t i = 0; i < parts->n; i++) skv_gguf_close(parts->at[i]);
    skv_free(parts->at);
    *parts = (skv_gguf_parts){0};
}

void skv_gguf_close(skv_gguf *g)
{
    if (!g) return;
    skv_gguf_parts_close(&g->parts);
    for (size_t i = 0; i < g->n_texts; i++) skv_free(g->texts[i]);
    for (size_t i = 0; i < g->n_starts; i++) skv_free(g->starts[i]);
    skv_free(g->texts);
    skv_free(g->starts);
    skv_free(g->values);
    skv_free(g->tensors);
    skv_name_index_release(&g->keys);
    skv_name_index_release(&g->tensor_names);
    skv_file_map_close(&g->map);
    skv_free(g->name);
    skv_free(g);
}

const char *skv_gguf_name(const skv_gguf *g)
{
    return g->name;
}

size_t skv_gguf_part_count(const skv_gguf *g)
{
    return g->parts.n + 1;
}

const skv_gguf_value *skv_gguf_find(const skv_gguf *g, const char *key)
{
    size_t i = skv_name_index_find(&g->keys, key);
    return i == SIZE_MAX ? NULL : &g->values[i];
}

size_t skv_gguf_count(const skv_gguf *g)
{
    return g->n_values;
}

const skv_gguf_value *skv_gguf_at(const skv_gguf *g, size_t i)
{
    return &g->values[i];
}

size_t skv_gguf_tensor_count(const skv_gguf *g)
{
    return g->n_tensors;
}

const skv_tensor *skv_gguf_tensor_at(const skv_gguf *g, size_t i)
{
    return &g->tensors[i];
}

const skv_tensor *skv_gguf_tensor_find(const skv_gguf *g, const char *name)
{
    size_t i = skv_name_index_find(&g->tensor_names, name);
    return i == SIZE_MAX ? NULL : &g->tensors[i];
}
