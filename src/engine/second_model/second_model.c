/* A model beside an engine's own: see second_model.h. */
#include "second_model/second_model.h"

#include "base/size.h"
#include "engine/engine.h"
#include "model/pass.h"
#include "text/tokenizer.h"

skv_status skv_second_model_check_ids(const char *path, const char *other, const char *role,
                                      skv_error *err)
{
    skv_tokenizer *base = NULL, *own = NULL;
    skv_status status = skv_tokenizer_open(path, &base, err);
    if (status == SKV_OK) status = skv_tokenizer_open(other, &own, err);
    if (status == SKV_OK && base && own) {
        status = skv_tokenizer_compare(base, own, other, role, err);
    }
    skv_tokenizer_free(base);
    skv_tokenizer_free(own);
    return status;
}

/* How it is loaded beside a model that is loaded as `load` says. */
static skv_load_options options_of(const skv_second_model *second, const skv_load_options *load)
{
    skv_load_options own = *load;
    own.student = second->plan.stack_boundary < second->plan.n_layers && second->config->swiftkv;
    own.teacher = !own.student;
    own.exit_head = false;
    own.borrows = second->config->mtp;
    own.progress = NULL;
    own.seed = load->seed + 1;
    return own;
}

/* Pages for as many tokens as the engine's own model has. */
static size_t count_pages(const skv_engine *e, const skv_second_model *second)
{
    const skv_engine_options *o = &e->options;
    const skv_kv_layout *layout = &second->plan.layout;
    const size_t n_sequences = skv_ceil_div(o->kv_tokens, skv_max_size(1, o->context));
    return skv_kv_layout_pages(layout, o->kv_tokens) + (n_sequences - 1) * layout->n_bundles;
}

skv_status skv_second_model_count(const skv_engine *e, const skv_second_model *second,
                                  const skv_load_options *load, skv_kv_type type,
                                  skv_engine_bytes *bytes, skv_error *err)
{
    const skv_load_options own = options_of(second, load);
    skv_bytes n_bytes;
    SKV_TRY(skv_model_bytes(second->config, second->source, e->be, &own, &n_bytes, err));
    bytes->weights = skv_bytes_add(bytes->weights, n_bytes);
    bytes->workspace = skv_bytes_add(
        bytes->workspace, skv_workspace_bytes(second->config, e->be, e->options.step_tokens));
    const size_t page = skv_plan_page_bytes(second->config, type), n = count_pages(e, second);
    bytes->kv = skv_bytes_add(bytes->kv, e->be->pool_bytes(e->be, page, n));
    SKV_REQUIRE(skv_bytes_sum(bytes->kv) < SIZE_MAX, err, SKV_RANGE,
                "kv cache: %zu pages of %zu bytes do not fit", n, page);
    return SKV_OK;
}

skv_status skv_second_model_load(const skv_engine *e, skv_second_model *second,
                                 const skv_load_options *load, skv_kv_type type, skv_error *err)
{
    const skv_config *c = second->config;
    const skv_load_options own = options_of(second, load);
    SKV_TRY(skv_workspace_init(&second->ws, c, e->be, e->options.step_tokens, err));
    SKV_TRY(skv_kv_store_create(e->be, type, skv_plan_page_bytes(c, type), count_pages(e, second),
                                &second->store, err));
    SKV_TRY(skv_kv_layout_bind(&second->plan.layout, second->store, e->options.context, err));
    return skv_model_load(&second->model, c, second->source, e->be, e->pool, &own, err);
}

skv_pass skv_second_model_pass(skv_engine *e, skv_second_model *second, const skv_step_sink *sink,
                               const skv_hook *hook)
{
    skv_pass p = skv_step_pass(e, NULL, sink, hook);
    p.m = &second->model;
    p.plan = &second->plan;
    p.ws = &second->ws;
    p.adapters = NULL;
    p.states = NULL;
    return p;
}

skv_pass_span skv_second_model_span(skv_sequence *s, const skv_kv_cache *cache, const int32_t *ids,
                                    size_t n, size_t at)
{
    skv_pass_span span = skv_step_span(s, ids, n, at);
    span.cache = cache;
    span.at.table = cache->table;
    span.votes = NULL;
    span.adapters = NULL;
    return span;
}

void skv_second_model_release(skv_second_model *second, skv_backend *be)
{
    skv_model_release(&second->model);
    skv_plan_release(&second->plan);
    skv_kv_store_free(second->store);
    if (be) skv_workspace_release(&second->ws, be);
    skv_source_close(second->source);
    skv_preset_free(second->preset);
    *second = (skv_second_model){0};
}
