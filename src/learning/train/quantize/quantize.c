/* Quantising a model: see quantizer.h and skv/quantize.h. */
#include "train/quantize/quantizer.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/system.h"
#include "format/source_impl.h"

/* ---- which tensors there are, and which are quantised ---- */

/* A layer's matrix in a GGUF file, except a router of experts and the matrices on the path of a
 * token's layer embedding (Gemma 4), which lose most at 4 bits. */
static bool is_gguf_projection(const char *name)
{
    return strncmp(name, "blk.", 4) == 0 && !strstr(name, "_inp.") && !strstr(name, ".inp_gate.") &&
           !strstr(name, ".proj.");
}

/* Whether a name is that of a layer's projection, in any of the spellings of published files. */
static bool is_projection(const char *name)
{
    static const char *const ends[] = {
        "_proj.weight", "_proj_swiftkv.weight", "ffn.proj_1.weight", "ffn.proj_2.weight",
        ".w1.weight",   ".w2.weight",           ".w3.weight"}; /* of Mixtral's experts */
    const size_t n = strlen(name);
    char buffer[256];
    if (!strstr(name, "layers.") || !skv_text_part_name(name, true, buffer, sizeof buffer)) {
        return false;
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n_end = strlen(ends[i]);
        if (n > n_end && strcmp(name + n - n_end, ends[i]) == 0) return true;
    }
    return false;
}

/* The offset of written norm weights: GGUF's of Gemma include the 1 that published ones leave
 * out. */
static float norm_offset(const skv_quantizer *q)
{
    const skv_config *c = skv_source_config(q->source);
    const bool from_gguf = skv_source_gguf(q->source),
               is_gemma = strncmp(c->architecture, "gemma", 5) == 0;
    if (from_gguf == q->to_gguf || !is_gemma) return 0;
    if (q->to_gguf) return c->norm_offset_one ? 1 : 0;
    return c->norm_offset_one ? 0 : -1;
}

/* The part of a norm's weight that is missing as written. */
static float norm_centre(const skv_quantizer *q)
{
    return (skv_source_config(q->source)->norm_offset_one ? 1.0F : 0.0F) - norm_offset(q);
}

/* `name` is owned by the item then; NULL: the tensor's. */
static void add_item(skv_quantizer *q, const skv_tensor *t, char *name)
{
    const bool stays_gguf = q->to_gguf && skv_source_gguf(q->source);
    const bool is_matrix = stays_gguf ? t->n_dims >= 2 && is_gguf_projection(t->name)
                                      : t->n_dims == 2 && is_projection(t->name);
    const bool is_norm = strstr(t->name, "norm");
    q->items[q->n++] = (skv_quantize_item){.name = name ? name : t->name,
                                           .own_name = name,
                                           .tensor = t,
                                           .is_projection = is_matrix,
                                           .offset = is_norm ? norm_offset(q) : 0,
                                           .centre = is_norm ? norm_centre(q) : 0};
}

/* ---- matrices that a file holds of all experts of a layer ---- */

enum { NAME_BYTES = 256 };

/* The tensor of an expert's part beside the fused one that `rest`, "3.mlp...", belongs to. */
static const skv_tensor *find_expert(const skv_quantizer *q, const char *rest, size_t e,
                                     const char *part)
{
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "model.layers.%.*s.mlp.experts.%zu.%s.weight",
                   (int)strspn(rest, "0123456789"), rest, e, part);
    return skv_source_find(q->source, name);
}

/* Adds each expert's part of a fused tensor under the family's published name, since packed layouts
 * have two dimensions. A tensor without such parts, or with rows that groups do not fill, stays
 * whole. */
static skv_status add_fused(skv_quantizer *q, const skv_tensor *t, skv_error *err)
{
    static const char *const parts[2][2] = {{"gate_proj", "up_proj"}, {"down_proj", NULL}};
    const char *at = strstr(t->name, "layers."), *rest = at ? at + strlen("layers.") : "";
    const size_t is_down = strstr(t->name, ".experts.down_proj") ? 1 : 0;
    const skv_tensor *part = find_expert(q, rest, 0, parts[is_down][0]);
    if (!part || skv_tensor_columns(part) % q->rounding.group != 0) {
        add_item(q, t, NULL);
        q->items[q->n - 1].is_projection = part;
        return SKV_OK;
    }
    for (size_t i = 0; i < 2 * t->dims[0]; i++) {
        const char *which = parts[is_down][i % 2];
        part = which ? find_expert(q, rest, i / 2, which) : NULL;
        if (!part) continue;
        char name[NAME_BYTES], whole[NAME_BYTES];
        const bool named =
            skv_source_written_name(skv_source_config(q->source), part->name, name, sizeof name);
        const int n = snprintf(whole, sizeof whole, "%.*s%s", (int)(at - t->name), t->name,
                               strstr(name, "layers."));
        char *own = named && n < NAME_BYTES ? skv_strndup(whole, (size_t)n) : NULL;
        SKV_REQUIRE(own, err, SKV_MEMORY, "%s: no memory for a name, or one that is too long",
                    t->name);
        add_item(q, part, own);
        q->items[q->n - 1].is_projection = true;
    }
    return SKV_OK;
}

static bool is_fused(const skv_quantizer *q, const skv_tensor *t)
{
    return q->files && t->n_dims == 3 && strstr(t->name, "experts.");
}

/* ---- the list ---- */

/* The tensors under the names of the output format: those of the files if these have the same
 * format, else those of the source. */
static size_t count_tensors(const skv_quantizer *q)
{
    const skv_gguf *gguf = q->to_gguf ? skv_source_gguf(q->source) : NULL;
    if (gguf) return skv_gguf_tensor_count(gguf);
    return q->files ? skv_safetensors_count(q->files) : skv_source_count(q->source);
}

static const skv_tensor *tensor_at(const skv_quantizer *q, size_t i)
{
    const skv_gguf *gguf = q->to_gguf ? skv_source_gguf(q->source) : NULL;
    if (gguf) return skv_gguf_tensor_at(gguf, i);
    return q->files ? skv_safetensors_at(q->files, i) : skv_source_at(q->source, i);
}

static skv_status list_items(skv_quantizer *q, const char *path, skv_error *err)
{
    const skv_config *c = skv_source_config(q->source);
    SKV_REQUIRE(!c->kv_prediction && !c->base[0], err, SKV_UNSUPPORTED,
                "%s: %s: it is not supported to quantise a model in several folders", path,
                c->kv_prediction ? "kv_prediction" : "swiftkv_base");
    SKV_REQUIRE(!skv_config_is_hybrid(c), err, SKV_UNSUPPORTED,
                "%s: %s: it is not supported to quantise a model whose layers keep states", path,
                c->architecture);
    if (!skv_source_gguf(q->source) && !q->to_gguf) {
        SKV_TRY(skv_safetensors_open_folder(path, &q->files, err));
    }
    const size_t n = count_tensors(q), n_most = n + skv_source_count(q->source);
    q->items = skv_alloc_zero(n_most, sizeof *q->items);
    SKV_REQUIRE(q->items, err, SKV_MEMORY, "%s: no memory for %zu tensors", path, n_most);
    for (size_t i = 0; i < n; i++) {
        const skv_tensor *t = tensor_at(q, i);
        SKV_REQUIRE(!t->coded.layout, err, SKV_ARGUMENT, "%s: %s: it is quantised already", path,
                    t->name);
        if (is_fused(q, t)) {
            SKV_TRY(add_fused(q, t, err));
        } else {
            add_item(q, t, NULL);
        }
    }
    return SKV_OK;
}

/* The codes and scales of all matrices are held until they are written. */
static skv_status check_memory(const skv_quantizer *q, const char *path, skv_error *err)
{
    const skv_rounding *r = &q->rounding;
    const size_t available = skv_memory_available();
    uint64_t bytes = 0; /* less than twice the size of the files */
    for (size_t i = 0; i < q->n; i++) {
        const skv_tensor *t = q->items[i].tensor;
        if (!skv_quantize_is_quantized(q, &q->items[i])) continue;
        const uint64_t n = (uint64_t)skv_tensor_rows(t) * skv_tensor_columns(t);
        bytes += n * r->bits / 8 + n / r->group * sizeof *q->items->scales;
    }
    SKV_REQUIRE(bytes <= available, err, SKV_MEMORY,
                "%s: memory: the quantised model takes %.0f MiB, %.0f MiB are available", path,
                (double)bytes / 1048576.0, (double)available / 1048576.0);
    return SKV_OK;
}

static uint64_t bytes_of(const skv_quantize_item *item)
{
    const skv_tensor *t = item->tensor;
    if (!item->own_name) return t->n_bytes;
    return (uint64_t)skv_tensor_rows(t) * skv_tensor_columns(t) * skv_dtype_block_bytes(t->type);
}

static skv_status round_all(skv_quantizer *q, const char *path, skv_quantize_report *report,
                            skv_error *err)
{
    const bool with_text = q->options->n_data > 0;
    if (with_text) SKV_TRY(skv_quantize_with_text(q, path, &report->tokens, err));
    for (size_t i = 0; i < q->n; i++) {
        skv_quantize_item *item = &q->items[i];
        report->bytes_from += bytes_of(item);
        if (skv_quantize_is_quantized(q, item)) {
            if (with_text && !item->codes) report->n_nearest++;
            if (!item->codes) SKV_TRY(skv_quantize_round_item(q, item, NULL, err));
            report->n_quantized++;
        } else if (item->is_projection) {
            report->n_left++;
        }
        if (q->options->progress && !with_text) {
            q->options->progress(q->options->user, (double)(i + 1) / (double)q->n);
        }
    }
    SKV_REQUIRE(report->n_quantized > 0, err, SKV_UNSUPPORTED,
                "%s: no projection has a row length that is a multiple of %zu",
                skv_source_path(q->source), q->rounding.group);
    report->n_scaled = q->n_scaled;
    report->n_inputs = q->n_inputs;
    report->error = q->whole > 0 ? q->error / q->whole : 0;
    return SKV_OK;
}

/* ---- the whole ---- */

static skv_status check_options(const skv_quantize_options *o, skv_error *err)
{
    SKV_REQUIRE(o->weights == SKV_WEIGHTS_INT4 || o->weights == SKV_WEIGHTS_INT8, err, SKV_ARGUMENT,
                "weights: expected int4 or int8");
    SKV_REQUIRE(o->group == 32 || o->group == 128, err, SKV_RANGE, "group: %zu, expected 32 or 128",
                o->group);
    return SKV_OK;
}

/* Scales have the type of their weights if that has 16 bits. */
static skv_dtype scale_type_of(const skv_quantizer *q)
{
    if (q->to_gguf) return SKV_DTYPE_F16;
    const skv_tensor *t = skv_source_find(q->source, "model.layers.0.self_attn.o_proj.weight");
    return t && t->type == SKV_DTYPE_BF16 ? SKV_DTYPE_BF16 : SKV_DTYPE_F16;
}

skv_status skv_quantizer_open(skv_quantizer *q, const char *path,
                              const skv_quantize_options *options, bool to_gguf, skv_error *err)
{
    *q = (skv_quantizer){.options = options, .to_gguf = to_gguf};
    skv_gguf_out_init(&q->metadata);
    SKV_TRY(check_options(options, err));
    SKV_TRY(skv_source_open(path, &q->source, err));
    q->rounding = (skv_rounding){options->weights == SKV_WEIGHTS_INT4 ? 4 : 8, options->group,
                                 scale_type_of(q)};
    SKV_TRY(list_items(q, path, err));
    SKV_TRY(check_memory(q, path, err));
    return skv_pool_create(options->threads, &q->pool, err);
}

void skv_quantizer_release(skv_quantizer *q)
{
    for (size_t i = 0; i < q->n; i++) {
        skv_free(q->items[i].own_name);
        skv_free(q->items[i].columns);
        skv_free(q->items[i].rows);
        skv_free(q->items[i].codes);
        skv_free(q->items[i].scales);
    }
    skv_free(q->items);
    skv_gguf_out_release(&q->metadata);
    skv_pool_free(q->pool);
    skv_safetensors_close(q->files);
    skv_source_close(q->source);
}

static skv_status run(skv_quantizer *q, const char *path, const char *out,
                      skv_quantize_report *report, skv_error *err)
{
    SKV_TRY(q->to_gguf ? skv_quantize_begin_gguf(q, out, err)
                       : skv_quantize_check_folder(out, err));
    SKV_TRY(round_all(q, path, report, err));
    return q->to_gguf ? skv_quantize_write_gguf(q, out, &report->bytes, err)
                      : skv_quantize_write_folder(q, out, &report->bytes, err);
}

skv_quantize_options skv_quantize_options_default(void)
{
    return (skv_quantize_options){.weights = SKV_WEIGHTS_INT4, .group = 32};
}

skv_status skv_quantize(const char *path, const char *out, const skv_quantize_options *options,
                        skv_quantize_report *report, skv_error *err)
{
    skv_quantizer q;
    skv_quantize_report done = {0};
    skv_status status = skv_quantizer_open(&q, path, options, skv_quantize_is_gguf(out), err);
    if (status == SKV_OK) status = run(&q, path, out, &done, err);
    skv_quantizer_release(&q);
    if (status == SKV_OK && report) *report = done;
    return status;
}
