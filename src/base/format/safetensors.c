/* Reading safetensors: see safetensors.h. */
#include "format/safetensors.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "format/coded.h"
#include "format/json_doc.h"
#include "format/tensor.h"

enum {
    HEADER_BYTES_MAX = 100000000, /* the library's own limit */
    INDEX_BYTES_MAX = 100000000,
    SHARDS_MAX = 4096,
    NAME_BYTES = 256 /* of a tensor in parts */
};

/* One tensor of a header, usable or not. */
typedef struct record {
    skv_tensor tensor;
    char *name;                   /* borrowed from the shard: the tensor's */
    const char *unusable;         /* why, or NULL */
    size_t begin, end;            /* bytes within the data */
    bool joined;                  /* a part of another tensor: not listed */
    const struct join_rule *rule; /* of codes that have become a matrix, or NULL */
} record;

/* One file: its map (if it owns one) and the entries of its header. */
typedef struct shard {
    skv_file_map map;
    char *names; /* owned: all names, one after the other */
    record *records;
    size_t n;
} shard;

struct skv_safetensors {
    shard *shards; /* [n_shards], owned */
    size_t n_shards;
    skv_tensor *tensors; /* [n], owned: the usable ones of all shards */
    size_t n;
    skv_name_index index;    /* of tensors */
    skv_name_index unusable; /* name -> number in reasons */
    const char **reasons;    /* owned list of constant texts */
};

typedef struct type_name {
    const char *name;
    size_t bits;
    skv_dtype type;     /* SKV_DTYPE_COUNT: not one we compute with */
    const char *reason; /* why not */
} type_name;

#define UNUSABLE(name, bits)                                                                       \
    {                                                                                              \
        name, bits, SKV_DTYPE_COUNT, "element type " name                                          \
    }
static const type_name type_names[] = {
    {"F32", 32, SKV_DTYPE_F32, NULL},
    {"F16", 16, SKV_DTYPE_F16, NULL},
    {"BF16", 16, SKV_DTYPE_BF16, NULL},
    UNUSABLE("F64", 64),
    {"I64", 64, SKV_DTYPE_I64, "element type I64"},
    UNUSABLE("U64", 64),
    UNUSABLE("C64", 64),
    {"I32", 32, SKV_DTYPE_I32, "element type I32"},
    UNUSABLE("U32", 32),
    UNUSABLE("I16", 16),
    UNUSABLE("U16", 16),
    {"I8", 8, SKV_DTYPE_I8, "element type I8 without scales"},
    {"U8", 8, SKV_DTYPE_U8, "element type U8"},
    UNUSABLE("BOOL", 8),
    {"F8_E4M3", 8, SKV_DTYPE_F8_E4M3, "element type F8_E4M3 without scales"},
    UNUSABLE("F8_E5M2", 8),
    UNUSABLE("F8_E8M0", 8),
    UNUSABLE("F8_E4M3FNUZ", 8),
    UNUSABLE("F8_E5M2FNUZ", 8),
    UNUSABLE("F4", 4),
    UNUSABLE("F6_E2M3", 6),
    UNUSABLE("F6_E3M2", 6),
};

static const type_name *find_type(const char *name)
{
    for (size_t i = 0; i < sizeof type_names / sizeof *type_names; i++) {
        if (strcmp(type_names[i].name, name) == 0) return &type_names[i];
    }
    return NULL;
}

/* Makes "FILE: tensor NAME" the name of a reader, so that its errors identify the tensor. */
static skv_status fail_in(skv_error *err, const char *file, const char *tensor, skv_status status)
{
    if (!err) return status;
    char prefix[SKV_ERROR_TEXT_MAX];
    (void)snprintf(prefix, sizeof prefix, "%.200s: %.200s", file, tensor);
    return skv_fail_within(err, status, prefix);
}

static skv_status refuse_shape(const size_t *dims, size_t n_dims, skv_error *err)
{
    char text[96];
    (void)skv_tensor_shape_text(dims, skv_min_size(n_dims, SKV_TENSOR_DIMS_MAX), text, sizeof text);
    return skv_fail(err, SKV_FORMAT, "header: shape: %s: its size in bytes does not fit", text);
}

static skv_status read_shape(skv_json_reader *r, record *out, size_t *n_elements)
{
    const json_t *shape = skv_json_get(r, "shape");
    if (!json_is_array(shape)) {
        skv_json_refuse(r, "shape", shape, "an array");
        return r->status;
    }
    size_t n = 1, n_dims = json_array_size(shape);
    bool fits = true, empty = false;
    if (n_dims > SKV_TENSOR_DIMS_MAX) out->unusable = "more than four dimensions";
    for (size_t i = 0; i < n_dims; i++) {
        size_t dim = skv_json_size_of(r, json_array_get(shape, i), "shape", SIZE_MAX / 2);
        SKV_TRY(r->status);
        if (!dim) empty = true;
        fits = fits && skv_size_mul(n, skv_max_size(dim, 1), &n);
        if (i < SKV_TENSOR_DIMS_MAX) out->tensor.dims[i] = dim;
    }
    if (!fits) return refuse_shape(out->tensor.dims, n_dims, r->err);
    out->tensor.n_dims = skv_min_size(n_dims, SKV_TENSOR_DIMS_MAX);
    *n_elements = empty ? 0 : n;
    return SKV_OK;
}

/* One entry of the header. Messages get the file's and the tensor's name from the caller. */
static skv_status read_record(const json_t *entry, size_t n_data, record *out, skv_error *err)
{
    skv_json_reader r = {entry, "header", err, SKV_OK};
    if (!json_is_object(entry)) {
        skv_json_refuse(&r, "entry", entry, "an object");
        return r.status;
    }
    const char *type_text = skv_json_text(&r, "dtype", "");
    SKV_TRY(r.status);
    const type_name *type = find_type(type_text);
    SKV_REQUIRE(type, err, SKV_UNSUPPORTED, "dtype %.40s is not known", type_text);
    out->tensor.type = type->type;
    out->unusable = type->reason;

    size_t n_elements = 0, n_bits = 0;
    SKV_TRY(read_shape(&r, out, &n_elements));
    if (!skv_size_mul(n_elements, type->bits, &n_bits) || n_bits % 8 != 0) {
        return refuse_shape(out->tensor.dims, out->tensor.n_dims, err);
    }

    const json_t *offsets = skv_json_get(&r, "data_offsets");
    if (!json_is_array(offsets) || json_array_size(offsets) != 2) {
        skv_json_refuse(&r, "data_offsets", offsets, "two integers");
        return r.status;
    }
    out->begin = skv_json_size_of(&r, json_array_get(offsets, 0), "data_offsets", SIZE_MAX / 2);
    out->end = skv_json_size_of(&r, json_array_get(offsets, 1), "data_offsets", SIZE_MAX / 2);
    SKV_TRY(r.status);
    SKV_REQUIRE(out->begin <= out->end && out->end <= n_data, err, SKV_FORMAT,
                "data_offsets: [%zu, %zu] outside the %zu bytes of data", out->begin, out->end,
                n_data);
    SKV_REQUIRE(out->end - out->begin == n_bits / 8, err, SKV_FORMAT,
                "data_offsets: %zu bytes, its shape takes %zu", out->end - out->begin, n_bits / 8);
    out->tensor.n_bytes = n_bits / 8;
    return SKV_OK;
}

static int by_begin(const void *a, const void *b)
{
    const record *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Sorts the records by their place and refuses overlaps. */
static skv_status check_overlaps(shard *s, const char *file, skv_error *err)
{
    if (s->n) qsort(s->records, s->n, sizeof *s->records, by_begin);
    for (size_t i = 1; i < s->n; i++) {
        SKV_REQUIRE(s->records[i].begin >= s->records[i - 1].end, err, SKV_FORMAT,
                    "%s: tensors %.100s and %.100s overlap", file, s->records[i - 1].tensor.name,
                    s->records[i].tensor.name);
    }
    return SKV_OK;
}

/* "X.ids", a vector of I32: no other list of integers is read. */
static bool is_id_list(const skv_tensor *t)
{
    static const char end[] = ".ids";
    const size_t n = strlen(t->name), n_end = sizeof end - 1;
    return t->type == SKV_DTYPE_I32 && t->n_dims == 1 && n > n_end &&
           strcmp(t->name + n - n_end, end) == 0;
}

/* Copies the names out of the header, which is let go, and reads every entry. */
static skv_status read_entries(json_t *header, const unsigned char *data, size_t n_data,
                               const char *file, shard *out, skv_error *err)
{
    size_t n_names = 0;
    const char *key;
    json_t *entry;
    json_object_foreach(header, key, entry) n_names += strlen(key) + 1;
    out->names = skv_alloc(n_names, 1);
    out->records = skv_alloc_zero(json_object_size(header), sizeof *out->records);
    SKV_REQUIRE(out->names && out->records, err, SKV_MEMORY, "%s: no memory for the header", file);
    char *at = out->names;
    json_object_foreach(header, key, entry)
    {
        if (strcmp(key, "__metadata__") == 0) continue;
        record *rec = &out->records[out->n];
        size_t n = strlen(key) + 1;
        memcpy(at, key, n);
        rec->tensor.name = rec->name = at;
        at += n;
        skv_status status = read_record(entry, n_data, rec, err);
        if (status != SKV_OK) return fail_in(err, file, key, status);
        rec->tensor.data = data + rec->begin;
        if (is_id_list(&rec->tensor)) rec->unusable = NULL;
        out->n++;
    }
    return check_overlaps(out, file, err);
}

static skv_status parse_shard(const unsigned char *data, size_t n, const char *file, shard *out,
                              skv_error *err)
{
    SKV_REQUIRE(n >= 8, err, SKV_FORMAT, "%s: %zu bytes, too short for a safetensors file", file,
                n);
    uint64_t n_header = 0;
    for (size_t i = 0; i < 8; i++) n_header |= (uint64_t)data[i] << (8 * i);
    SKV_REQUIRE(n_header <= HEADER_BYTES_MAX && n_header <= n - 8, err, SKV_FORMAT,
                "%s: header of %llu bytes, at most %zu", file, (unsigned long long)n_header,
                skv_min_size(n - 8, HEADER_BYTES_MAX));
    SKV_REQUIRE(n_header && data[8] == '{', err, SKV_FORMAT,
                "%s: byte 8: the header starts with byte 0x%02x, expected 0x7b", file,
                n_header ? data[8] : 0u);
    json_t *header;
    SKV_TRY(skv_json_load((const char *)data + 8, (size_t)n_header, HEADER_BYTES_MAX, file, &header,
                          err));
    skv_status status =
        read_entries(header, data + 8 + n_header, n - 8 - (size_t)n_header, file, out, err);
    json_decref(header);
    return status;
}

/* ---- tensors in parts: codes and their scales, see coded.h ---- */

/* The suffixes that identify the parts of a matrix after a common prefix; NULL: none. */
typedef struct join_rule {
    const char *codes;
    skv_dtype type; /* of the codes */
    const char *scales[2], *zeros, *groups, *shape;
    const char *matrix; /* suffix of the joined matrix, no longer than that of the codes */
    bool optional;      /* without scales it is none */
} join_rule;

static const join_rule join_rules[] = {
    {"_packed", SKV_DTYPE_I32, {"_scale"}, "_zero_point", "_g_idx", "_shape", "", false},
    {"_packed", SKV_DTYPE_U8, {"_scale"}, NULL, NULL, NULL, "", false},
    {"_blocks", SKV_DTYPE_U8, {"_scales"}, NULL, NULL, NULL, "", false},
    {".qweight", SKV_DTYPE_I32, {".scales"}, ".qzeros", ".g_idx", NULL, ".weight", false},
    {".weight",
     SKV_DTYPE_F8_E4M3,
     {".weight_scale", ".weight_scale_inv"},
     ".weight_zero_point",
     NULL,
     NULL,
     ".weight",
     true},
    {".weight", SKV_DTYPE_I8, {".weight_scale"}, ".weight_zero_point", NULL, NULL, ".weight", true},
};

/* Whether `name` ends in `suffix`; *n is its length without it. */
static bool ends_in(const char *name, const char *suffix, size_t *n)
{
    const size_t n_name = strlen(name), n_suffix = strlen(suffix);
    *n = n_name > n_suffix ? n_name - n_suffix : 0;
    return *n > 0 && n_name < NAME_BYTES && strcmp(name + *n, suffix) == 0;
}

static const join_rule *find_join_rule(const skv_tensor *t, size_t *n)
{
    for (size_t i = 0; i < sizeof join_rules / sizeof *join_rules; i++) {
        const join_rule *rule = &join_rules[i];
        if (t->type == rule->type && ends_in(t->name, rule->codes, n)) return rule;
    }
    return NULL;
}

static record *find_part(const skv_name_index *index, record *const *all, const char *stem,
                         const char *suffix)
{
    char name[NAME_BYTES];
    if (!suffix || snprintf(name, sizeof name, "%s%s", stem, suffix) >= (int)sizeof name) {
        return NULL;
    }
    const size_t i = skv_name_index_find(index, name);
    return i == SIZE_MAX ? NULL : all[i];
}

static skv_status fail_missing(skv_error *err, const char *file, const record *codes,
                               const char *stem, const char *suffix)
{
    return skv_fail(err, SKV_FORMAT, "%s: %s: %s%s is missing", file, codes->tensor.name, stem,
                    suffix);
}

/* Makes a matrix of codes and of the tensors beside them; other tensors stay as they are. How
 * activations were quantised elsewhere is left out. */
static skv_status join(const skv_name_index *index, record *const *all, record *codes,
                       const char *file, skv_error *err)
{
    size_t n = 0;
    const join_rule *rule = find_join_rule(&codes->tensor, &n);
    char stem[NAME_BYTES];
    if (!rule) return SKV_OK;
    (void)snprintf(stem, sizeof stem, "%.*s", (int)n, codes->tensor.name);
    record *scales = find_part(index, all, stem, rule->scales[0]);
    record *inverse = find_part(index, all, stem, rule->scales[1]);
    SKV_REQUIRE(!scales || !inverse, err, SKV_FORMAT, "%s: %s: both _scale and _scale_inv", file,
                codes->tensor.name);
    if (!scales) scales = inverse;
    if (!scales && rule->optional) return SKV_OK; /* unusable */
    if (!scales) return fail_missing(err, file, codes, stem, rule->scales[0]);
    record *rest[] = {
        find_part(index, all, stem, rule->zeros), find_part(index, all, stem, rule->groups),
        find_part(index, all, stem, rule->shape), find_part(index, all, stem, ".input_scale"),
        find_part(index, all, stem, ".activation_scale")};
    if (rule->shape && !rest[2]) return fail_missing(err, file, codes, stem, rule->shape);
    const skv_coded_parts parts = {&scales->tensor, rest[0] ? &rest[0]->tensor : NULL,
                                   rest[1] ? &rest[1]->tensor : NULL,
                                   rest[2] ? &rest[2]->tensor : NULL};
    skv_status status = skv_coded_join(&codes->tensor, &parts, &codes->unusable, err);
    if (status != SKV_OK) return fail_in(err, file, codes->tensor.name, status);
    codes->rule = rule;
    scales->joined = true;
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        if (rest[i]) rest[i]->joined = true;
    }
    return SKV_OK;
}

static skv_status join_all(skv_safetensors *s, const char *name, skv_error *err)
{
    size_t n_all = 0;
    for (size_t i = 0; i < s->n_shards; i++) n_all += s->shards[i].n;
    record **all = skv_alloc(n_all, sizeof(record *));
    skv_name_entry *entries = skv_alloc(n_all, sizeof *entries);
    if (!all || !entries) {
        skv_free(all);
        skv_free(entries);
        return skv_fail(err, SKV_MEMORY, "%s: no memory for %zu tensors", name, n_all);
    }
    size_t n = 0;
    for (size_t i = 0; i < s->n_shards; i++) {
        for (size_t j = 0; j < s->shards[i].n; j++, n++) {
            all[n] = &s->shards[i].records[j];
            entries[n] = (skv_name_entry){all[n]->tensor.name, n};
        }
    }
    skv_name_index index;
    skv_status status = skv_name_index_build(&index, entries, n, name, "tensor", err);
    for (size_t i = 0; i < n && status == SKV_OK; i++) {
        status = join(&index, all, all[i], name, err);
    }
    for (size_t i = 0; i < n; i++) { /* the names of the index stay until all are joined */
        const join_rule *rule = all[i]->rule;
        if (!rule) continue;
        char *end = all[i]->name + strlen(all[i]->name) - strlen(rule->codes);
        memcpy(end, rule->matrix, strlen(rule->matrix) + 1);
    }
    skv_name_index_release(&index);
    skv_free(all);
    return status;
}

/* Lists the tensors of all shards and indexes their names. */
static skv_status build_lists(skv_safetensors *s, const char *name, skv_error *err)
{
    SKV_TRY(join_all(s, name, err));
    size_t n_all = 0, n_unusable = 0;
    for (size_t i = 0; i < s->n_shards; i++) n_all += s->shards[i].n;
    s->tensors = skv_alloc(n_all, sizeof *s->tensors);
    s->reasons = skv_alloc(n_all, sizeof *s->reasons);
    skv_name_entry *usable = skv_alloc(n_all, sizeof *usable);
    skv_name_entry *unusable = skv_alloc(n_all, sizeof *unusable);
    if (!s->tensors || !s->reasons || !usable || !unusable) {
        skv_free(usable);
        skv_free(unusable);
        return skv_fail(err, SKV_MEMORY, "%s: no memory for %zu tensors", name, n_all);
    }
    for (size_t i = 0; i < s->n_shards; i++) {
        for (size_t j = 0; j < s->shards[i].n; j++) {
            const record *rec = &s->shards[i].records[j];
            if (rec->joined) continue;
            if (rec->unusable) {
                s->reasons[n_unusable] = rec->unusable;
                unusable[n_unusable] = (skv_name_entry){rec->tensor.name, n_unusable};
                n_unusable++;
            } else {
                s->tensors[s->n] = rec->tensor;
                usable[s->n] = (skv_name_entry){rec->tensor.name, s->n};
                s->n++;
            }
        }
    }
    skv_status status = skv_name_index_build(&s->index, usable, s->n, name, "tensor", err);
    skv_status other =
        skv_name_index_build(&s->unusable, unusable, n_unusable, name, "tensor", err);
    return status != SKV_OK ? status : other;
}

static skv_safetensors *create(size_t n_shards)
{
    skv_safetensors *s = skv_alloc_zero(1, sizeof *s);
    if (!s) return NULL;
    s->shards = skv_alloc_zero(n_shards, sizeof *s->shards);
    if (!s->shards) {
        skv_free(s);
        return NULL;
    }
    s->n_shards = n_shards;
    return s;
}

void skv_safetensors_close(skv_safetensors *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n_shards; i++) {
        skv_free(s->shards[i].records);
        skv_free(s->shards[i].names);
        skv_file_map_close(&s->shards[i].map);
    }
    skv_free(s->shards);
    skv_free(s->tensors);
    skv_free(s->reasons);
    skv_name_index_release(&s->index);
    skv_name_index_release(&s->unusable);
    skv_free(s);
}

static skv_status open_shard(const char *path, shard *out, skv_error *err)
{
    SKV_TRY(skv_file_map_open(path, &out->map, err));
    SKV_TRY(parse_shard(out->map.data, out->map.size, path, out, err));
    for (size_t i = 0; i < out->n; i++) out->records[i].tensor.file = &out->map;
    return SKV_OK;
}

/* Hands out a finished object or closes it. */
static skv_status finish(skv_safetensors *s, skv_status status, const char *name,
                         skv_safetensors **out, skv_error *err)
{
    if (status == SKV_OK) status = build_lists(s, name, err);
    if (status != SKV_OK) {
        skv_safetensors_close(s);
        return status;
    }
    *out = s;
    return SKV_OK;
}

skv_status skv_safetensors_parse(const void *data, size_t n, const char *name,
                                 skv_safetensors **out, skv_error *err)
{
    skv_safetensors *s = create(1);
    SKV_REQUIRE(s, err, SKV_MEMORY, "%s: no memory", name);
    return finish(s, parse_shard(data, n, name, &s->shards[0], err), name, out, err);
}

skv_status skv_safetensors_open(const char *path, skv_safetensors **out, skv_error *err)
{
    skv_safetensors *s = create(1);
    SKV_REQUIRE(s, err, SKV_MEMORY, "%s: no memory", path);
    return finish(s, open_shard(path, &s->shards[0], err), path, out, err);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The index may only name files of its own folder. */
static bool is_plain_name(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/') && strlen(name) < 256;
}

/* The distinct file names of a weight map, sorted; borrowed from it, the list is owned. */
static skv_status list_files(const json_t *map, const char *index_path, const char ***out,
                             size_t *n_out, skv_error *err)
{
    size_t n = 0, n_distinct = 0;
    const char **files = skv_alloc(json_object_size(map), sizeof *files);
    SKV_REQUIRE(files, err, SKV_MEMORY, "%s: no memory", index_path);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        const char *file = json_string_value(value);
        if (!file || !is_plain_name(file)) {
            char shown[SKV_JSON_SHOWN];
            skv_json_show(value, shown);
            skv_free(files);
            return skv_fail(err, SKV_FORMAT, "%s: weight_map: %.100s: %s, expected a file name",
                            index_path, key, shown);
        }
        files[n++] = file;
    }
    if (n) qsort(files, n, sizeof *files, by_text);
    for (size_t i = 0; i < n; i++) {
        if (!i || strcmp(files[i], files[i - 1]) != 0) files[n_distinct++] = files[i];
    }
    if (!n_distinct || n_distinct > SHARDS_MAX) {
        skv_free(files);
        return skv_fail(err, SKV_RANGE, "%s: weight_map: %zu files, expected 1 to %d", index_path,
                        n_distinct, SHARDS_MAX);
    }
    *out = files;
    *n_out = n_distinct;
    return SKV_OK;
}

/* Keeps the tensors that the index places in this file; returns how many. */
static size_t keep_mapped(shard *s, const json_t *map, const char *file)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        const char *home = json_string_value(json_object_get(map, s->records[i].tensor.name));
        if (home && strcmp(home, file) == 0) s->records[n++] = s->records[i];
    }
    s->n = n;
    return n;
}

static skv_status open_files(skv_safetensors *s, const char *folder, const char *const *files,
                             const json_t *map, skv_error *err)
{
    size_t n_found = 0;
    for (size_t i = 0; i < s->n_shards; i++) {
        char *path = skv_path_join(folder, files[i]);
        SKV_REQUIRE(path, err, SKV_MEMORY, "%s: no memory", folder);
        skv_status status = open_shard(path, &s->shards[i], err);
        skv_free(path);
        SKV_TRY(status);
        n_found += keep_mapped(&s->shards[i], map, files[i]);
    }
    SKV_REQUIRE(n_found == json_object_size(map), err, SKV_FORMAT,
                "%s: the index lists %zu tensors, the files hold %zu of them", folder,
                json_object_size(map), n_found);
    return SKV_OK;
}

static skv_status open_indexed(const char *folder, const char *index_path, const json_t *index,
                               skv_safetensors **out, skv_error *err)
{
    const json_t *map = json_object_get(index, "weight_map");
    char shown[SKV_JSON_SHOWN];
    skv_json_show(map, shown);
    SKV_REQUIRE(json_is_object(map), err, SKV_FORMAT, "%s: weight_map: %s, expected an object",
                index_path, shown);
    const char **files = NULL;
    size_t n_files = 0;
    SKV_TRY(list_files(map, index_path, &files, &n_files, err));
    skv_safetensors *s = create(n_files);
    skv_status status = s ? open_files(s, folder, files, map, err)
                          : skv_fail(err, SKV_MEMORY, "%s: no memory", folder);
    skv_free(files);
    return s ? finish(s, status, folder, out, err) : status;
}

static skv_status open_index(const char *folder, const char *path, skv_safetensors **out,
                             skv_error *err)
{
    char *text;
    size_t n;
    SKV_TRY(skv_file_read(path, INDEX_BYTES_MAX, &text, &n, err));
    json_t *index = NULL;
    skv_status status = skv_json_load(text, n, INDEX_BYTES_MAX, path, &index, err);
    skv_free(text);
    if (status == SKV_OK) status = open_indexed(folder, path, index, out, err);
    json_decref(index);
    return status;
}

bool skv_safetensors_are_in(const char *folder)
{
    return skv_folder_has(folder, "model.safetensors") ||
           skv_folder_has(folder, "model.safetensors.index.json");
}

skv_status skv_safetensors_open_folder(const char *folder, skv_safetensors **out, skv_error *err)
{
    char *single = skv_path_join(folder, "model.safetensors");
    char *index = skv_path_join(folder, "model.safetensors.index.json");
    skv_status status;
    if (!single || !index) {
        status = skv_fail(err, SKV_MEMORY, "%s: no memory", folder);
    } else if (skv_file_exists(single)) {
        status = skv_safetensors_open(single, out, err);
    } else if (skv_file_exists(index)) {
        status = open_index(folder, index, out, err);
    } else {
        status = skv_fail(err, SKV_IO,
                          "%s: neither model.safetensors nor model.safetensors.index.json", folder);
    }
    skv_free(single);
    skv_free(index);
    return status;
}

size_t skv_safetensors_count(const skv_safetensors *s)
{
    return s->n;
}

const skv_tensor *skv_safetensors_at(const skv_safetensors *s, size_t i)
{
    return &s->tensors[i];
}

const skv_tensor *skv_safetensors_find(const skv_safetensors *s, const char *name)
{
    size_t i = skv_name_index_find(&s->index, name);
    return i == SIZE_MAX ? NULL : &s->tensors[i];
}

const char *skv_safetensors_unusable(const skv_safetensors *s, const char *name)
{
    size_t i = skv_name_index_find(&s->unusable, name);
    return i == SIZE_MAX ? NULL : s->reasons[i];
}
