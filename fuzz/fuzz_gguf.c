/* GGUF: whatever parses lies inside the file; as a model, every tensor that it presents too. */
#include "fuzz.h"

#include <stdlib.h>

#include "format/gguf.h"
#include "format/source.h"

static void check(int ok)
{
    if (!ok) abort();
}

static void check_inside(const void *from, size_t n, const uint8_t *data, size_t size)
{
    const uint8_t *begin = from;
    check(begin >= data && n <= size && begin <= data + size - n);
}

static void read_value(const skv_gguf *g, const skv_gguf_value *v, const uint8_t *data, size_t size)
{
    const char *text;
    size_t n = 0;
    uint64_t natural;
    int64_t whole;
    double real;
    bool yes;
    check(skv_gguf_find(g, v->key) == v);
    if (skv_gguf_string(v, &text, &n, NULL) == SKV_OK) check_inside(text, n, data, size);
    if (skv_gguf_u64(v, &natural, NULL) == SKV_OK) check(skv_gguf_f64(v, &real, NULL) == 0);
    (void)!skv_gguf_i64(v, &whole, NULL);
    (void)!skv_gguf_bool(v, &yes, NULL);
    for (size_t i = 0; v->type == SKV_GGUF_ARRAY && i < v->count; i++) {
        if (v->element == SKV_GGUF_STRING) {
            text = skv_gguf_string_at(v, i, &n);
            check_inside(text, n, data, size);
        } else if (v->element == SKV_GGUF_F32) {
            (void)skv_gguf_f32_at(v, i);
        } else if (v->element != SKV_GGUF_F64) {
            (void)skv_gguf_integer_at(v, i);
        }
    }
}

/* Its first and last row. */
static void read_tensor(const skv_tensor *t, const uint8_t *data, size_t size)
{
    check_inside(t->data, t->n_bytes, data, size);
    size_t rows = skv_tensor_rows(t), columns = skv_tensor_columns(t);
    float *row = malloc(columns * sizeof *row);
    if (!row) return;
    skv_tensor_read_rows(t, 0, 1, row);
    skv_tensor_read_rows(t, rows - 1, 1, row);
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    skv_gguf *g = NULL;
    if (skv_gguf_parse(data, size, "fuzz", &g, NULL) != SKV_OK) return 0;
    for (size_t i = 0; i < skv_gguf_count(g); i++) read_value(g, skv_gguf_at(g, i), data, size);
    for (size_t i = 0; i < skv_gguf_tensor_count(g); i++) {
        read_tensor(skv_gguf_tensor_at(g, i), data, size);
    }
    skv_gguf_close(g);

    skv_source *s = NULL;
    if (skv_source_parse_gguf(data, size, "fuzz", &s, NULL) != SKV_OK) return 0;
    for (size_t i = 0; i < skv_source_count(s); i++) read_tensor(skv_source_at(s, i), data, size);
    skv_source_close(s);
    return 0;
}
