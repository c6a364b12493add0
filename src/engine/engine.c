/* An engine's life: options, opening, the memory plan. */
#include "engine/engine.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/size.h"
#include "kernels/matmul.h"
#include "prefill/method.h"
#include "ranks/ranks_tell.h"
#include "skv/tools.h"

enum {
    SHORT_HEAD = 32, /* heads shorter than this keep K and V in f32 */
    STEP_TOKENS_MAX = 1 << 16,
    CONTEXT_MAX = 1 << 24,
    KV_TOKENS_MAX = 1 << 28 /* that a plan looks for */
};

skv_engine_options skv_engine_options_default(void)
{
    return (skv_engine_options){0};
}

/* ---- resolving options ---- */

/* AUTO, by any matrix that has codes (gpt-oss's are those of the experts alone), else by one that
 * every model has. */
static skv_weights weights_of_file(const skv_source *source)
{
    if (!source) return SKV_WEIGHTS_BF16;
    for (size_t i = 0; i < skv_source_count(source); i++) {
        if (skv_tensor_form(skv_source_at(source, i))) return SKV_WEIGHTS_FILE;
    }
    static const char *const names[] = {"self_attn.o_proj", "linear_attn.out_proj",
                                        "conv.out_proj"};
    const skv_tensor *t = NULL;
    for (size_t i = 0; !t && i < sizeof names / sizeof *names; i++) {
        char name[80];
        (void)snprintf(name, sizeof name, "model.layers.0.%s.weight", names[i]);
        t = skv_source_find(source, name);
    }
    return t && t->type == SKV_DTYPE_F32 ? SKV_WEIGHTS_F32 : SKV_WEIGHTS_BF16;
}

/* Whether the model, the methods, the device and their use go together. */
static skv_status check_methods(const skv_engine *e, unsigned device, bool no_skip, skv_error *err)
{
    const skv_engine_options *o = &e->options;
    const skv_model_traits model = skv_model_traits_of(e->config, e->source);
    const bool is_for[SKV_WHERE_INVARIANT + 1] = {[SKV_WHERE_GENERATE] = true,
                                                  [SKV_WHERE_SIMILARITY] = no_skip,
                                                  [SKV_WHERE_READ] = o->prompt_only,
                                                  [SKV_WHERE_RANKS] = e->ranks,
                                                  [SKV_WHERE_INVARIANT] = o->batch_invariant};
    for (skv_where where = 0; where <= SKV_WHERE_INVARIANT; where++) {
        skv_combination c = skv_combination_of(&model, o, where);
        c.at[SKV_AXIS_DEVICE] = device;
        if (is_for[where]) SKV_TRY(skv_combination_check(&c, err));
    }
    return SKV_OK;
}

static skv_status resolve_prefill(skv_engine *e, skv_error *err)
{
    skv_engine_options *o = &e->options;
    const skv_model_traits model = skv_model_traits_of(e->config, e->source);
    const unsigned device = skv_device_value_of(o, e->config->n_layers);
    SKV_TRY(check_methods(e, device, o->no_skip, err));
    SKV_REQUIRE(!o->prompt_only || (!o->no_skip && !o->with_teacher && !o->draft_model && !o->mtp),
                err, SKV_ARGUMENT,
                "prompt only: not with no_skip, a teacher beside the student or a draft model");
    SKV_REQUIRE(!o->prompt_only || !e->ranks, err, SKV_UNSUPPORTED,
                "prompt only: a reader is one process (mpirun starts several)");
    /* Of models born with shared keys and values rows stop early unless somebody says "full", or
     * nothing is there that they could go on with. */
    if (e->config->n_shared > 0 && o->prefill == SKV_PREFILL_FULL) o->no_skip = !o->prompt_only;
    o->prefill = skv_prefill_resolve(o->prefill, model.kind);
    /* On a SwiftKV file "full" means: nothing is skipped. */
    if (e->config->swiftkv && o->prefill == SKV_PREFILL_FULL) o->prefill = SKV_PREFILL_SWIFTKV_FULL;
    if (o->prefill == SKV_PREFILL_SWIFTKV_FULL) o->no_skip = true;
    return SKV_OK;
}

static skv_status check_pruning(const skv_pruning *p, skv_error *err)
{
    if (p->kind == SKV_PRUNE_NONE) return SKV_OK;
    SKV_REQUIRE(p->keep > 0 && p->keep <= 1, err, SKV_RANGE,
                "prune: a share of %g, expected above 0 and at most 1", p->keep);
    SKV_REQUIRE(p->kind != SKV_PRUNE_LAZY || (p->end > 0 && p->end <= p->keep), err, SKV_RANGE,
                "prune: a share of %g at the end, expected above 0 and at most %g", p->end,
                p->keep);
    return SKV_OK;
}

static skv_status check_early_exit(double above, skv_error *err)
{
    SKV_REQUIRE(above >= 0 && above < 1, err, SKV_RANGE,
                "early exit: above a probability of %g, expected above 0 and below 1", above);
    return SKV_OK;
}

static skv_status resolve_options(skv_engine *e, skv_error *err)
{
    skv_engine_options *o = &e->options;
    const skv_config *c = e->config;
    SKV_TRY(skv_eviction_check(&o->eviction, err));
    SKV_TRY(skv_speculation_check(&o->speculation, err));
    SKV_TRY(skv_engine_check_draft_model(e, &o->speculation, err));
    SKV_TRY(check_pruning(&o->pruning, err));
    SKV_TRY(check_early_exit(o->early_exit, err));
    SKV_REQUIRE(skv_state_type_name(o->state), err, SKV_RANGE, "state: %u is no type",
                (unsigned)o->state);
    SKV_TRY(resolve_prefill(e, err));
    e->draft.weights = o->weights;
    if (o->weights == SKV_WEIGHTS_AUTO) o->weights = weights_of_file(e->source);
    if (o->kv == SKV_KV_AUTO) {
        bool exact = o->weights == SKV_WEIGHTS_F32 || c->head_dim < SHORT_HEAD;
        o->kv = exact ? SKV_KV_F32 : SKV_KV_BF16;
    }
    if (o->context == 0) o->context = skv_min_size(c->context, SKV_CONTEXT_DEFAULT);
    SKV_REQUIRE(o->context <= CONTEXT_MAX, err, SKV_RANGE, "context: %zu tokens, at most %d",
                o->context, CONTEXT_MAX);
    SKV_REQUIRE(!c->ropes[0].within_context || o->context <= c->context, err, SKV_UNSUPPORTED,
                "context: %zu tokens, at most %zu with rope_type dynamic", o->context, c->context);
    if (o->kv_tokens == 0) o->kv_tokens = o->context;
    if (o->step_tokens == 0) o->step_tokens = SKV_STEP_TOKENS_DEFAULT;
    SKV_REQUIRE(o->step_tokens <= STEP_TOKENS_MAX, err, SKV_RANGE, "step tokens: %zu, at most %d",
                o->step_tokens, STEP_TOKENS_MAX);
    e->level = SKV_CPU_LEVEL_BEST;
    SKV_REQUIRE(!o->cpu || skv_matmul_form_parse(o->cpu, &e->level, &e->form), err, SKV_ARGUMENT,
                "cpu: unknown level \"%s\"", o->cpu);
    return SKV_OK;
}

/* Of matrices that the file holds as floats. */
static skv_weight_type weight_type(skv_weights weights)
{
    switch (weights) {
    case SKV_WEIGHTS_F32: return SKV_WEIGHT_F32;
    case SKV_WEIGHTS_INT8: return SKV_WEIGHT_I8;
    case SKV_WEIGHTS_INT4: return SKV_WEIGHT_QUANT;
    case SKV_WEIGHTS_FP8: return SKV_WEIGHT_FP8;
    default: return SKV_WEIGHT_BF16;
    }
}

static skv_kv_type kv_type(skv_kv kv)
{
    switch (kv) {
    case SKV_KV_F32: return SKV_KV_TYPE_F32;
    case SKV_KV_FP8: return SKV_KV_TYPE_FP8;
    case SKV_KV_INT8: return SKV_KV_TYPE_INT8;
    default: return SKV_KV_TYPE_BF16;
    }
}

static skv_load_options load_options(const skv_engine *e)
{
    bool teacher = e->options.prefill == SKV_PREFILL_TEACHER;
    skv_weights weights = e->options.weights;
    return (skv_load_options){
        .type = weight_type(weights),
        .keep_codes = weights == SKV_WEIGHTS_FILE || weights == SKV_WEIGHTS_INT4,
        .f32_rows = e->options.f32_activations,
        .student = !teacher,
        .teacher = teacher || e->has_teacher,
        .exit_head = e->config->early_exit && e->options.prefill == SKV_PREFILL_SWIFTKV &&
                     !e->ranks, /* no rank would have all its logits */
        .ranks = e->ranks,
        .prompt_only = e->options.prompt_only,
        .last_boundary = e->plan.last_boundary,
        .seed = e->options.random_seed,
        .progress = e->options.progress,
        .stopped = e->options.stopped,
        .user = e->options.user};
}

/* The model that drafts has the precision that was asked for, or its own file's. */
static skv_load_options draft_load_options(const skv_engine *e)
{
    skv_load_options out = load_options(e);
    skv_weights weights = e->draft.weights;
    if (weights == SKV_WEIGHTS_AUTO) weights = weights_of_file(e->draft.model.source);
    out.type = weight_type(weights);
    out.keep_codes = weights == SKV_WEIGHTS_FILE || weights == SKV_WEIGHTS_INT4;
    return out;
}

/* Of adapters: as exact as the model is asked to be. */
static skv_weight_type adapter_type(const skv_engine *e)
{
    return e->options.weights == SKV_WEIGHTS_F32 ? SKV_WEIGHT_F32 : SKV_WEIGHT_BF16;
}

/* ---- the memory plan: everything is counted, said and then taken ---- */

static void add_limits(skv_backend_limits *limits, const skv_config *c)
{
    limits->max_K = skv_max_size(limits->max_K, skv_max_size(c->hidden, c->per_layer));
    limits->max_K = skv_max_size(limits->max_K, c->moe_latent);
    limits->max_K = skv_max_size(limits->max_K, c->mtp ? 2 * c->hidden : 0);
    limits->vocab = skv_max_size(limits->vocab, c->vocab);
    limits->head_dim = skv_max_size(limits->head_dim, c->head_dim);
    limits->state_key_dim = skv_max_size(limits->state_key_dim, c->mixer.key_dim);
    limits->state_value_dim = skv_max_size(limits->state_value_dim, c->mixer.value_dim);
    limits->max_K = skv_max_size(limits->max_K, skv_mixer_value_columns(&c->mixer));
    for (size_t i = 0; i < c->n_layers; i++) {
        const skv_layer_shape *s = &c->layers[i];
        limits->max_K = skv_max_size(limits->max_K, skv_max_size(s->ffn, s->ffn_beside));
        limits->max_K = skv_max_size(limits->max_K, s->ffn_shared);
        limits->max_K = skv_max_size(limits->max_K, skv_config_q_columns(c, i));
        limits->max_heads = skv_max_size(limits->max_heads, s->n_heads);
        limits->max_experts = skv_max_size(limits->max_experts, s->n_experts);
        if (s->n_experts > 0) limits->max_active = skv_max_size(limits->max_active, c->n_active);
        limits->max_group = skv_max_size(limits->max_group, s->n_heads / s->n_kv_heads);
    }
}

static bool unpacks(const skv_load_options *load)
{
    const bool floats = load->type == SKV_WEIGHT_F32 || load->type == SKV_WEIGHT_BF16;
    return !floats || load->keep_codes;
}

static skv_backend_limits backend_limits(const skv_engine *e)
{
    const skv_load_options own = load_options(e);
    skv_backend_limits limits = {.max_rows = e->options.step_tokens,
                                 .max_group = 1,
                                 .max_kv_rows = e->options.context,
                                 .ranks = skv_engine_backend_ranks(e),
                                 .batch_invariant = e->options.batch_invariant,
                                 .unpacks = unpacks(&own)};
    add_limits(&limits, e->config);
    if (e->kvpred.on) add_limits(&limits, e->kvpred.auxiliary.config);
    if (e->draft.model.config) {
        const skv_load_options drafts = draft_load_options(e);
        limits.unpacks |= unpacks(&drafts);
        add_limits(&limits, e->draft.model.config);
    }
    return limits;
}

/* Pages for kv_tokens tokens, with a page more for each sequence that a step could hold; a whole
 * context of the teacher's must fit too. */
static void count_pages(const skv_engine *e, size_t n_pages[SKV_PAGE_RANGES])
{
    const skv_engine_options *o = &e->options;
    const skv_kv_layout *layout = &e->plan.layout;
    const size_t n_caches = skv_min_size(o->kv_sequences, o->kv_tokens);
    const size_t n_sequences = skv_ceil_div(o->kv_tokens, skv_max_size(1, o->context));
    const size_t n_tokens = skv_min_size(o->context, o->kv_tokens);
    size_t teacher[SKV_PAGE_RANGES] = {0};
    for (size_t r = 0; r < SKV_PAGE_RANGES; r++) n_pages[r] = 0;
    skv_kv_layout_add_pages(layout, o->kv_tokens, n_caches, n_pages);
    for (size_t b = 0; b < layout->n_bundles; b++) {
        n_pages[skv_kv_layout_range(layout, b)] += n_sequences - 1;
    }
    if (o->eviction.by_query_head) { /* beside the prompt's rows, which go when these are there */
        skv_kv_layout_add_pages(&e->spread_plans[0].layout, o->kv_tokens, 0, n_pages);
    }
    if (e->has_teacher) skv_kv_layout_add_pages(&e->teacher_plan.layout, n_tokens, 1, teacher);
    for (size_t r = 0; r < SKV_PAGE_RANGES; r++) {
        n_pages[r] = skv_max_size(n_pages[r], teacher[r]);
    }
}

/* Sequences at once, each of which takes a state when it is made: where nobody says how many, as
 * many as there is room for whole contexts. */
static size_t count_states(const skv_engine *e)
{
    const skv_engine_options *o = &e->options;
    if (o->kv_sequences > 0) return o->kv_sequences;
    return skv_max_size(1, skv_ceil_div(o->kv_tokens, skv_max_size(1, o->context)));
}

/* The longest draft that a sequence may have: wrong tokens of it are taken back. */
static size_t longest_draft(const skv_engine_options *o)
{
    const size_t own = o->speculation.source == SKV_DRAFT_NONE ? 0 : o->speculation.most;
    return skv_max_size(own, o->draft_tokens);
}

/* n states; layers [SKV_LAYERS_MAX] is room for their layers. */
static skv_states_spec states_spec(const skv_engine *e, skv_state_layer *layers, size_t n)
{
    skv_plan_state_layers(&e->plan, e->config, layers);
    return (skv_states_spec){.layers = layers,
                             .n_layers = e->plan.n_states,
                             .n_states = n,
                             .max_undo = longest_draft(&e->options),
                             .bf16 = e->options.state == SKV_STATE_BF16};
}

static skv_bytes count_state_bytes(const skv_engine *e)
{
    skv_state_layer layers[SKV_LAYERS_MAX];
    const skv_states_spec own = states_spec(e, layers, count_states(e));
    const skv_states_spec kept = states_spec(e, layers, e->options.kv_checkpoints);
    return skv_bytes_add(skv_state_pool_bytes(e->be, &own), skv_state_pool_bytes(e->be, &kept));
}

/* Votes and the choice that is made of them, for one prompt as long as the context. */
static skv_bytes eviction_bytes(const skv_engine *e)
{
    const skv_plan *plan = e->options.eviction.by_query_head ? &e->spread_plans[0] : &e->plan;
    if (e->options.eviction.method == SKV_EVICT_NONE) return (skv_bytes){0};
    return skv_kv_votes_bytes(e->be, skv_kv_layout_tracks(&plan->layout), e->options.context);
}

static skv_status count_weights(const skv_engine *e, skv_bytes *n_bytes, skv_error *err)
{
    const skv_load_options load = load_options(e);
    SKV_TRY(skv_model_bytes(e->config, e->source, e->be, &load, n_bytes, err));
    *n_bytes = skv_bytes_add(
        *n_bytes, skv_adapters_bytes(&e->adapters, e->be, adapter_type(e), e->options.step_tokens));
    return SKV_OK;
}

/* With these weights, what the engine takes for its context and its kv_tokens; *total has SIZE_MAX
 * where that is more than can be counted. */
static skv_status count_memory(const skv_engine *e, skv_bytes weights, skv_engine_bytes *bytes,
                               skv_bytes *total, skv_error *err)
{
    const skv_load_options load = load_options(e);
    const skv_backend_limits limits = backend_limits(e);
    const skv_kv_type type = kv_type(e->options.kv);
    const skv_bytes ranks = {.host = skv_ranks_bytes(e->options.team, e->config->vocab)};
    *bytes = (skv_engine_bytes){.weights = weights,
                                .workspace = skv_bytes_add(ranks, eviction_bytes(e))};
    bytes->workspace = skv_bytes_add(bytes->workspace,
                                     skv_workspace_bytes(e->config, e->be, e->options.step_tokens));
    bytes->workspace = skv_bytes_add(bytes->workspace, e->be->reserve_bytes(e->be, &limits));
    if (e->options.ffn_skip.on) {
        bytes->workspace = skv_bytes_add(
            bytes->workspace, skv_ffn_skipper_bytes(e->config, e->be, e->options.step_tokens));
    }
    bytes->states = count_state_bytes(e);
    size_t n_pages[SKV_PAGE_RANGES];
    count_pages(e, n_pages);
    bytes->kv = skv_kv_store_bytes(e->be, skv_plan_page_bytes(e->config, type), n_pages);
    *total = bytes->kv;
    if (skv_bytes_sum(bytes->kv) == SIZE_MAX) return SKV_OK;
    bytes->kv = skv_bytes_add(bytes->kv, bytes->states);
    if (e->kvpred.on) SKV_TRY(skv_engine_kvpred_count(e, &load, type, bytes, err));
    if (e->draft.model.config) {
        const skv_load_options own = draft_load_options(e);
        SKV_TRY(skv_second_model_count(e, &e->draft.model, &own, type, bytes, err));
        if (e->draft.mtp.on) {
            bytes->workspace = skv_bytes_add(bytes->workspace, skv_engine_mtp_bytes(e));
        }
    }
    *total = skv_bytes_add(skv_bytes_add(bytes->weights, bytes->workspace), bytes->kv);
    return SKV_OK;
}

static skv_status count_all(const skv_engine *e, skv_engine_bytes *bytes, skv_bytes *total,
                            skv_error *err)
{
    skv_bytes weights;
    SKV_TRY(count_weights(e, &weights, err));
    return count_memory(e, weights, bytes, total, err);
}

static skv_status check_memory(skv_engine *e, skv_error *err)
{
    skv_engine_bytes bytes;
    skv_bytes total;
    SKV_TRY(count_all(e, &bytes, &total, err));
    const skv_engine_room room = skv_engine_room_of(e, 0);
    e->workspace_bytes = skv_bytes_sum(bytes.workspace);
    if (e->options.memory_needed) *e->options.memory_needed = skv_room_main(&room, total);
    return skv_engine_check_room(e, &room, &bytes, total, err);
}

/* Whether a SwiftKV file holds the weights of its teacher: they may have been left out. */
static bool holds_teacher(const skv_engine *e)
{
    const skv_config *c = e->config;
    if (!c->swiftkv || e->options.prefill == SKV_PREFILL_TEACHER) return false;
    const skv_model_kind kind = skv_model_traits_of(c, e->source).kind;
    return kind != SKV_MODEL_STUDENT && kind != SKV_MODEL_HYBRID_STUDENT;
}

static skv_status make_teacher_plan(skv_engine *e, skv_error *err)
{
    if (!e->options.with_teacher || !holds_teacher(e)) return SKV_OK;
    e->has_teacher = true;
    return skv_plan_method(&e->teacher_plan, SKV_PREFILL_TEACHER, e->config, !e->options.no_skip,
                           err);
}

/* Rows in front of sliding windows go back, but where rows are not those of a step's tokens. */
static void let_windows_go(skv_engine *e)
{
    if (e->kvpred.on || e->options.pruning.kind != SKV_PRUNE_NONE) return;
    e->plan.layout.step_rows = e->options.step_tokens;
    e->teacher_plan.layout.step_rows = e->options.step_tokens;
}

/* This process's part of the model, where there are others. */
static skv_status divide_model(skv_engine *e, skv_error *err)
{
    const skv_team *team = e->options.team;
    if (skv_team_size(team) == 1) return SKV_OK;
    const skv_status status = skv_ranks_config(e->config, team->size, &e->part, err);
    if (status != SKV_OK) {
        return e->source ? skv_fail_within(err, status, skv_source_path(e->source)) : status;
    }
    e->config = e->part;
    if (e->options.threads == 0) e->options.threads = team->threads;
    return skv_ranks_reserve(e->ranks, e->config->vocab, err);
}

static size_t least_head_dim_of(const skv_config *c)
{
    size_t least = c->head_dim;
    for (size_t i = 0; i < c->n_layers; i++) {
        if (!skv_config_attends(c, i)) continue;
        least = skv_min_size(least, skv_config_head_dim(c, i));
    }
    return least;
}

/* Of all models that the engine runs. */
static size_t least_head_dim(const skv_engine *e)
{
    const skv_config *others[] = {e->kvpred.on ? e->kvpred.auxiliary.config : NULL,
                                  e->draft.model.config};
    size_t least = least_head_dim_of(e->config);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i]) least = skv_min_size(least, least_head_dim_of(others[i]));
    }
    return least;
}

/* Whether the device can compute it at all. */
static skv_status check_shape(const skv_engine *e, skv_error *err)
{
    const skv_backend_limits limits = backend_limits(e);
    const skv_load_options load = load_options(e);
    SKV_REQUIRE(e->options.state == SKV_STATE_F32 || limits.state_key_dim > 0, err, SKV_UNSUPPORTED,
                "state %s: no layer of this model keeps a matrix",
                skv_state_type_name(e->options.state));
    const bool quant = load.keep_codes, floats = load.f32_rows;
    skv_weight_type weights = quant ? SKV_WEIGHT_QUANT : load.type;
    if (quant && floats) weights = SKV_WEIGHT_QUANT_F32;
    const skv_backend_shape shape = {.limits = &limits,
                                     .least_head_dim = least_head_dim(e),
                                     .weights = weights,
                                     .kv = kv_type(e->options.kv),
                                     .adapters = e->adapters.n > 0,
                                     .states = e->plan.n_states > 0};
    return e->be->fits(e->be, &shape, err);
}

/* All that the memory plan depends on. */
static skv_status prepare(skv_engine *e, const char *preset, skv_error *err)
{
    SKV_TRY(resolve_options(e, err));
    SKV_TRY(divide_model(e, err));
    SKV_TRY(skv_pool_create(e->options.threads, &e->pool, err));
    SKV_TRY(skv_engine_create_backend(e, err));
    /* Once more by the report of the device itself; `no_skip` may have another reason by now. */
    SKV_TRY(check_methods(e, skv_backend_value(e->be), false, err));
    SKV_TRY(skv_plan_method(&e->plan, e->options.prefill, e->config, !e->options.no_skip, err));
    if (e->options.prefill == SKV_PREFILL_KVPRED) {
        SKV_TRY(skv_engine_kvpred_open(e, preset, err));
    }
    if (e->options.draft_model) SKV_TRY(skv_engine_draft_open(e, err));
    if (skv_engine_wants_mtp(e)) SKV_TRY(skv_engine_mtp_open(e, err));
    e->runs_swiftkv = e->config->swiftkv && e->options.prefill != SKV_PREFILL_TEACHER;
    SKV_TRY(make_teacher_plan(e, err));
    let_windows_go(e);
    if (e->options.adapters) {
        const skv_adapter_target target = {e->config, e->runs_swiftkv};
        SKV_TRY(skv_adapters_open(&e->adapters, e->options.adapters, &target, err));
    }
    if (e->options.eviction.by_query_head) {
        SKV_TRY(skv_plan_spread(&e->spread_plans[0], &e->plan, e->config, err));
    }
    SKV_TRY(skv_engine_divide_plans(e, err));
    return check_shape(e, err);
}

/* The page store, and the sequences' layouts for the back end. Page tables of all
 * sequences have one width. */
static skv_status make_store(skv_engine *e, skv_error *err)
{
    const skv_kv_type type = kv_type(e->options.kv);
    const size_t context = e->options.context;
    size_t n_pages[SKV_PAGE_RANGES];
    count_pages(e, n_pages);
    SKV_TRY(skv_kv_store_create_in(e->be, type, skv_plan_page_bytes(e->config, type), n_pages,
                                   &e->store, err));
    SKV_TRY(skv_kv_layout_bind(&e->plan.layout, e->store, context, err));
    if (e->has_teacher) {
        SKV_TRY(skv_kv_layout_bind(&e->teacher_plan.layout, e->store, context, err));
    }
    if (e->spread_plans[0].layers) {
        SKV_TRY(skv_kv_layout_bind(&e->spread_plans[0].layout, e->store, context, err));
    }
    return e->be->table_create(e->be, e->plan.layout.slots, &e->restoring, err);
}

static skv_status make_states(skv_engine *e, skv_error *err)
{
    skv_state_layer layers[SKV_LAYERS_MAX];
    const skv_states_spec own = states_spec(e, layers, count_states(e));
    const skv_states_spec kept = states_spec(e, layers, e->options.kv_checkpoints);
    SKV_TRY(skv_state_pool_init(&e->states, e->be, &own, err));
    return skv_state_pool_init(&e->checkpoints, e->be, &kept, err);
}

static skv_status build(skv_engine *e, const char *preset, skv_error *err)
{
    SKV_TRY(prepare(e, preset, err));
    SKV_TRY(check_memory(e, err));
    const skv_backend_limits limits = backend_limits(e);
    SKV_TRY(e->be->reserve(e->be, &limits, err));
    SKV_TRY(skv_workspace_init(&e->ws, e->config, e->be, e->options.step_tokens, err));
    const skv_kv_type type = kv_type(e->options.kv);
    SKV_TRY(make_store(e, err));
    SKV_TRY(make_states(e, err));
    e->spans = skv_alloc_zero(e->options.step_tokens, sizeof *e->spans);
    SKV_REQUIRE(e->spans, err, SKV_MEMORY, "engine: no memory for spans");
    skv_load_options load = load_options(e);
    SKV_TRY(skv_model_load(&e->model, e->config, e->source, e->be, e->pool, &load, err));
    SKV_TRY(skv_adapters_load(&e->adapters, e->be, adapter_type(e), e->options.step_tokens, err));
    if (e->options.ffn_skip.on) {
        SKV_TRY(skv_ffn_skipper_init(&e->ffn_skipper, &e->options.ffn_skip, e->config, e->be,
                                     e->options.step_tokens, err));
    }
    if (e->options.early_exit > 0) e->early_exit = skv_early_exit_hook(&e->options.early_exit);
    if (e->options.pruning.kind != SKV_PRUNE_NONE) SKV_TRY(skv_engine_prune_init(e, err));
    if (e->kvpred.on) SKV_TRY(skv_engine_kvpred_load(e, &load, type, err));
    if (!e->draft.model.config) return SKV_OK;
    const skv_load_options own = draft_load_options(e);
    SKV_TRY(skv_second_model_load(e, &e->draft.model, &own, type, err));
    return e->draft.mtp.on ? skv_engine_mtp_load(e, err) : SKV_OK;
}

static skv_status create(const skv_engine_options *options, skv_engine **out, skv_error *err)
{
    skv_engine *e = skv_alloc_zero(1, sizeof *e);
    SKV_REQUIRE(e, err, SKV_MEMORY, "engine: no memory");
    e->options = options ? *options : skv_engine_options_default();
    atomic_init(&e->cancel, false);
    skv_status status = skv_ranks_create(e->options.team, &e->ranks, err);
    if (status != SKV_OK) {
        skv_free(e);
        return status;
    }
    *out = e;
    return SKV_OK;
}

/* Finishes an engine whose configuration is known, or frees it. */
static skv_status finish(skv_engine *e, const char *preset, skv_status status, skv_engine **out,
                         skv_error *err)
{
    if (status == SKV_OK) status = build(e, preset, err);
    status = skv_ranks_agree(e, status, err);
    if (status != SKV_OK) {
        skv_engine_close(e);
        return status;
    }
    e->options.cpu = NULL; /* the caller's strings are not kept; that there were any counts */
    e->options.device = NULL;
    if (e->options.adapters) e->options.adapters = "";
    e->options.draft_model = NULL;
    e->options.memory_needed = NULL;
    *out = e;
    return SKV_OK;
}

skv_status skv_engine_open(const char *path, const skv_engine_options *options, skv_engine **out,
                           skv_error *err)
{
    skv_engine *e = NULL;
    SKV_TRY(create(options, &e, err));
    skv_status status = skv_tell_open(e, path, false, err);
    if (status == SKV_OK) status = skv_source_open(path, &e->source, err);
    if (status == SKV_OK) e->config = skv_source_config(e->source);
    return finish(e, NULL, status, out, err);
}

skv_status skv_engine_open_shape(skv_config *config, const char *name,
                                 const skv_engine_options *options, skv_engine **out,
                                 skv_error *err)
{
    skv_engine *e = NULL;
    skv_status status = create(options, &e, err);
    if (status != SKV_OK) {
        skv_preset_free(config);
        return status;
    }
    e->config = e->preset = config;
    if (name) status = skv_tell_open(e, name, true, err);
    return finish(e, name, status, out, err);
}

/* The shape that the options ask of a preset. */
static skv_status shape_preset(const char *name, const skv_engine_options *options,
                               skv_config **out, skv_error *err)
{
    skv_config *config;
    const size_t kv_layers = options ? options->preset_kv_layers : 0;
    SKV_TRY(skv_preset_config(name, kv_layers, options ? options->preset_group : 0, &config, err));
    const skv_drafting source = options ? options->speculation.source : SKV_DRAFT_NONE;
    config->early_exit =
        kv_layers > 0 &&
        (source == SKV_DRAFT_SELF || source == SKV_DRAFT_TEXT_SELF || source == SKV_DRAFT_AUTO);
    const size_t W = options ? options->preset_exit_words : 0;
    if (W > config->vocab) {
        const size_t V = config->vocab;
        skv_preset_free(config);
        return skv_fail(err, SKV_RANGE, "preset %s: exit words: %zu, at most %zu", name, W, V);
    }
    if (config->early_exit) config->exit_words = W;
    *out = config;
    return SKV_OK;
}

skv_status skv_engine_open_preset(const char *name, const skv_engine_options *options,
                                  skv_engine **out, skv_error *err)
{
    skv_config *config = NULL;
    SKV_TRY(shape_preset(name, options, &config, err));
    return skv_engine_open_shape(config, name, options, out, err);
}

/* ---- the memory plan alone ---- */

/* The most tokens that fit: of one sequence, where context is 0, else in sequences of `context`.
 * What is needed grows with the number, so halving finds it. The options are then others. */
static skv_status find_most(skv_engine *e, size_t context, skv_bytes weights,
                            const skv_engine_room *room, size_t *most, skv_error *err)
{
    size_t low = 0, high = context > 0 ? KV_TOKENS_MAX : CONTEXT_MAX; /* low fits, or is 0 */
    while (low < high) {
        const size_t n = low + (high - low + 1) / 2;
        skv_engine_bytes bytes;
        skv_bytes total;
        e->options.context = context > 0 ? context : n;
        e->options.kv_tokens = n;
        SKV_TRY(count_memory(e, weights, &bytes, &total, err));
        if (skv_room_has(room, total)) {
            low = n;
        } else {
            high = n - 1;
        }
    }
    *most = low;
    return SKV_OK;
}

static skv_status plan_memory(skv_engine *e, size_t available, skv_memory_plan *out, skv_error *err)
{
    const skv_engine_options *o = &e->options;
    skv_engine_bytes bytes;
    skv_bytes weights, total;
    const skv_engine_room room = skv_engine_room_of(e, available);
    *out = (skv_memory_plan){.available = skv_room_main(&room, room.available),
                             .context = o->context,
                             .kv_tokens = o->kv_tokens,
                             .step_tokens = o->step_tokens,
                             .threads = skv_pool_threads(e->pool),
                             .weights = o->weights,
                             .kv = o->kv};
    SKV_TRY(count_weights(e, &weights, err));
    SKV_TRY(count_memory(e, weights, &bytes, &total, err));
    out->needed = skv_room_main(&room, total);
    if (room.is_own) out->host_needed = total.host, out->host_available = room.available.host;
    out->workspace_bytes = skv_bytes_sum(bytes.workspace);
    out->kv_bytes = skv_bytes_sum(bytes.kv);
    out->state_bytes = skv_bytes_sum(bytes.states);
    out->weight_bytes = skv_bytes_sum(bytes.weights);
    out->fits = skv_room_has(&room, total);
    /* Of the engine's own weights: a second model's are counted each time. */
    SKV_TRY(find_most(e, out->context, weights, &room, &out->kv_tokens_max, err));
    SKV_TRY(find_most(e, 0, weights, &room, &out->context_max, err));
    if (!out->fits && room.is_own)
        out->device_layers_max = skv_engine_most_layers(e, &room, count_all);
    return SKV_OK;
}

skv_status skv_memory_plan_make(const char *path, const skv_engine_options *options,
                                size_t available, skv_memory_plan *out, skv_error *err)
{
    skv_engine *e = NULL;
    const char *preset = skv_preset_of(path);
    SKV_REQUIRE(!options || skv_team_size(options->team) == 1, err, SKV_UNSUPPORTED,
                "memory plan: of one process, not of %zu ranks", skv_team_size(options->team));
    SKV_TRY(create(options, &e, err));
    skv_status status = preset ? shape_preset(preset, options, &e->preset, err)
                               : skv_model_files_open(path, &e->source, &e->preset, err);
    if (status == SKV_OK) {
        e->config = e->preset ? e->preset : skv_source_config(e->source);
        status = prepare(e, preset, err);
    }
    if (status == SKV_OK) status = plan_memory(e, available, out, err);
    skv_engine_close(e);
    return status;
}

void skv_engine_close(skv_engine *e)
{
    if (!e) return;
    skv_tell_close(e);
    skv_engine_kvpred_release(e);
    skv_engine_mtp_release(e);
    skv_second_model_release(&e->draft.model, e->be);
    skv_engine_prune_release(e);
    skv_ffn_skipper_release(&e->ffn_skipper);
    skv_adapters_release(&e->adapters);
    skv_model_release(&e->model);
    if (e->restoring) e->be->table_free(e->be, e->restoring);
    skv_plan_release(&e->plan);
    skv_plan_release(&e->teacher_plan);
    for (size_t i = 0; i < 2; i++) skv_plan_release(&e->spread_plans[i]);
    skv_kv_store_free(e->store);
    skv_state_pool_release(&e->states);
    skv_state_pool_release(&e->checkpoints);
    if (e->be) {
        skv_workspace_release(&e->ws, e->be);
        e->be->free(e->be);
    }
    skv_pool_free(e->pool);
    skv_free(e->spans);
    skv_source_close(e->source);
    skv_preset_free(e->preset);
    skv_ranks_config_free(e->part);
    skv_ranks_free(e->ranks);
    skv_free(e);
}

/* The memory of a model beside the engine's own. */
static void add_second(const skv_second_model *second, skv_engine_stats *out)
{
    if (!second->config) return;
    size_t page = skv_kv_store_page_bytes(second->store), n = skv_kv_store_pages(second->store);
    out->weight_bytes += second->model.weight_bytes;
    out->kv_bytes_max += n * page;
    out->kv_bytes += (n - skv_kv_store_free_pages(second->store)) * page;
}

void skv_engine_get_stats(const skv_engine *e, skv_engine_stats *out)
{
    size_t page = skv_kv_store_page_bytes(e->store), n = skv_kv_store_pages(e->store);
    size_t n_free = skv_kv_store_free_pages(e->store);
    const skv_state_pool *states = &e->states, *checkpoints = &e->checkpoints;
    const size_t state = states->state_bytes, n_states = states->n + checkpoints->n;
    const size_t n_kept = n_states - states->n_free - checkpoints->n_free;
    *out = (skv_engine_stats){.weight_bytes = e->model.weight_bytes,
                              .workspace_bytes = e->workspace_bytes,
                              .kv_bytes_max = n * page + n_states * state,
                              .kv_bytes = (n - n_free) * page + n_kept * state,
                              .state_bytes = state,
                              .states = states->n,
                              .states_free = states->n_free,
                              .checkpoints = checkpoints->n,
                              .checkpoints_free = checkpoints->n_free,
                              .kv_pages = n,
                              .kv_pages_free = n_free,
                              .kv_tokens = e->options.kv_tokens,
                              .context = e->options.context,
                              .step_tokens = e->options.step_tokens,
                              .threads = skv_pool_threads(e->pool),
                              .weights = e->options.weights,
                              .kv = e->options.kv,
                              .state = e->options.state,
                              .prefill = e->options.prefill,
                              .eviction = e->options.eviction,
                              .swiftkv = e->runs_swiftkv,
                              .has_teacher = e->has_teacher,
                              .pruning = e->options.pruning,
                              .ffn_skip = e->options.ffn_skip,
                              .early_exit = e->options.early_exit,
                              .device = e->be->name,
                              .cpu = e->be->level,
                              .form = e->be->form};
    add_second(&e->kvpred.auxiliary, out);
    add_second(&e->draft.model, out);
    out->kv_prediction = e->kvpred.on;
    if (e->kvpred.on) out->weight_bytes += e->kvpred.predictor.weight_bytes;
}

void skv_cancel(skv_engine *e)
{
    atomic_store(&e->cancel, true);
}

void skv_uncancel(skv_engine *e)
{
    atomic_store(&e->cancel, false);
}
