/* Trained parameters as safetensors, in the types that their model's files have. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/dtype.h"
#include "format/safetensors_write.h"
#include "train/trainer.h"

typedef struct row_writer {
    const skv_param *param;
    skv_dtype type;
} row_writer;

/* A vector is one row, and so is a matrix's row. Frozen matrices may lie in their file alone. */
static skv_status write_rows(void *arg, size_t row0, size_t n, unsigned char *out, skv_error *err)
{
    const row_writer *w = arg;
    size_t n_elements = n * w->param->n_columns;
    if (!w->param->file) {
        skv_dtype_from_f32(w->type, out, w->param->w + row0 * w->param->n_columns, n_elements);
        return SKV_OK;
    }
    float *x = skv_alloc(n_elements, sizeof *x);
    SKV_REQUIRE(x, err, SKV_MEMORY, "%s: no memory for %zu rows", w->param->name, n);
    skv_status status = skv_tensor_read_checked(w->param->file, row0, n, x, err);
    if (status == SKV_OK) skv_dtype_from_f32(w->type, out, x, n_elements);
    skv_free(x);
    return status;
}

/* The type of the model's file: f32 and f16 stay; everything else is written as bf16. */
static skv_dtype type_of(const skv_trainer *t, const skv_source *source, const skv_param *p)
{
    if (t->options->f32_weights) return SKV_DTYPE_F32;
    if (!source) return strcmp(t->config.dtype, "float32") == 0 ? SKV_DTYPE_F32 : SKV_DTYPE_BF16;
    const skv_tensor *from = skv_source_find(source, p->name);
    if (!from) from = skv_source_find(source, "model.layers.0.self_attn.q_proj.weight");
    if (from && (from->type == SKV_DTYPE_F32 || from->type == SKV_DTYPE_F16)) return from->type;
    return SKV_DTYPE_BF16;
}

skv_status skv_export_params(const skv_trainer *t, const skv_export_set *set, const char *out,
                             skv_error *err)
{
    const skv_params *params = set->params;
    skv_tensor_out *outs = skv_alloc_zero(params->n, sizeof *outs);
    row_writer *writers = skv_alloc_zero(params->n, sizeof *writers);
    size_t n = 0;
    skv_status status = SKV_OK;
    if (!outs || !writers) status = skv_fail(err, SKV_MEMORY, "%s: no memory", out);
    for (size_t i = 0; status == SKV_OK && i < params->n; i++) {
        const skv_param *p = &params->at[i];
        if (!set->wants(t, p)) continue;
        writers[n] = (row_writer){p, type_of(t, set->source, p)};
        outs[n] = (skv_tensor_out){.name = p->name,
                                   .type = writers[n].type,
                                   .n_dims = p->vector ? 1 : 2,
                                   .dims = {p->n_rows, p->n_columns},
                                   .rows = write_rows,
                                   .arg = &writers[n]};
        if (p->vector) outs[n].dims[0] = p->n_columns;
        n++;
    }
    if (status == SKV_OK) {
        status = set->single ? skv_safetensors_write(out, outs, n, err)
                             : skv_safetensors_write_folder(out, outs, n, SKV_SHARD_BYTES_MAX, err);
    }
    skv_free(outs);
    skv_free(writers);
    return status;
}

void skv_export_folder_name(const char *path, char out[64])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t at = n;
    while (at > 0 && path[at - 1] != '/') at--;
    const bool fits = n > at && n - at < 64 && path[at] != '.';
    (void)snprintf(out, 64, "%.*s", fits ? (int)(n - at) : 0, path + at);
}
