/* The CPU back end: its life, its workspace and its table of operations. */
#include "backend/cpu/cpu_backend.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu_cut.h"
#include "backend/cpu/forms.h"
#include "backend/cpu/verify.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"

static size_t vote_norms_bytes(const skv_backend_limits *limits)
{
    return limits->max_rows * limits->max_heads * sizeof(float);
}

/* Memory of one thread: a product's rows and tiles, or an attention task. */
static size_t thread_scratch(const skv_cpu_backend *be, const skv_backend_limits *limits)
{
    size_t linear = skv_cpu_linear_scratch(be, limits->max_K);
    size_t attention = skv_cpu_votes_scratch(be, limits->head_dim);
    for (size_t g = 1; g <= limits->max_group; g++) {
        attention = skv_max_size(attention, be->kernels.attention_scratch(g, limits->head_dim));
    }
    const size_t most = skv_max_size(linear, attention);
    return skv_round_up(skv_max_size(most, skv_cpu_scan_scratch(limits)), 4096);
}

static skv_bytes cpu_reserve_bytes(const skv_backend *base, const skv_backend_limits *limits)
{
    const skv_cpu_backend *be = (const skv_cpu_backend *)base;
    return (skv_bytes){
        .host = skv_cpu_packed_bytes(be, limits) + limits->max_experts * skv_cpu_product_bytes() +
                skv_cpu_routes_bytes(limits) +
                skv_pool_threads(be->pool) * thread_scratch(be, limits) + vote_norms_bytes(limits) +
                skv_cpu_pick_bytes(be, limits) +
                skv_cpu_attention_partials(be, limits) * sizeof(float) +
                skv_cpu_attention_tasks(be, limits) * skv_cpu_attention_task_bytes()};
}

static void release_workspace(skv_cpu_backend *be)
{
    skv_unmap(be->packed, be->packed_bytes);
    skv_unmap(be->scratch, skv_pool_threads(be->pool) * be->scratch_bytes);
    skv_unmap(be->partials, be->n_partials * sizeof *be->partials);
    skv_unmap(be->tasks, be->n_tasks_max * skv_cpu_attention_task_bytes());
    skv_unmap(be->products, be->limits.max_experts * skv_cpu_product_bytes());
    skv_cpu_routes_release(&be->routes);
    skv_unmap(be->vote_norms, vote_norms_bytes(&be->limits));
    skv_unmap(be->pick_memory, be->pick_bytes);
    be->pick_memory = NULL;
    be->desks = NULL;
    be->packed = be->scratch = NULL;
    be->partials = be->vote_norms = NULL;
    be->tasks = NULL;
    be->products = NULL;
}

/* The desks of `pick`, unless nothing is picked. */
static bool take_desks(skv_cpu_backend *be)
{
    be->pick_bytes = skv_cpu_pick_bytes(be, &be->limits);
    if (be->pick_bytes == 0) return true;
    be->pick_memory = skv_map_zero(be->pick_bytes);
    if (be->pick_memory) skv_cpu_lay_out_desks(be, be->pick_memory);
    return be->pick_memory;
}

static skv_status cpu_reserve(skv_backend *base, const skv_backend_limits *limits, skv_error *err)
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    release_workspace(be);
    SKV_REQUIRE(limits->vocab <= SKV_LOGIT_VOCAB_MAX, err, SKV_RANGE,
                "logits: a vocabulary of %zu, expected at most %d", limits->vocab,
                (int)SKV_LOGIT_VOCAB_MAX);
    be->limits = *limits;
    be->packed_bytes = skv_cpu_packed_bytes(be, limits);
    be->scratch_bytes = thread_scratch(be, limits);
    be->n_partials = skv_cpu_attention_partials(be, limits);
    be->n_tasks_max = skv_cpu_attention_tasks(be, limits);
    be->packed = skv_map_zero(be->packed_bytes);
    be->scratch = skv_map_zero(skv_pool_threads(be->pool) * be->scratch_bytes);
    be->partials = skv_map_zero(be->n_partials * sizeof *be->partials);
    be->tasks = skv_map_zero(be->n_tasks_max * skv_cpu_attention_task_bytes());
    be->vote_norms = skv_map_zero(vote_norms_bytes(limits));
    const size_t product_bytes = limits->max_experts * skv_cpu_product_bytes();
    if (product_bytes > 0) be->products = skv_map_zero(product_bytes);
    const bool routes = skv_cpu_routes_init(&be->routes, limits);
    SKV_REQUIRE(be->packed && be->scratch && be->partials && be->tasks && be->vote_norms &&
                    (product_bytes == 0 || be->products) && routes && take_desks(be),
                err, SKV_MEMORY, "workspace: no memory for %zu bytes",
                cpu_reserve_bytes(base, limits).host);
    return SKV_OK;
}

/* Every shape that an engine asks for. */
static skv_status cpu_fits(const skv_backend *base, const skv_backend_shape *shape, skv_error *err)
{
    (void)base;
    SKV_REQUIRE(shape->weights != SKV_WEIGHT_FP8, err, SKV_UNSUPPORTED,
                "device cpu: no weights of fp8 (files of fp8 are read as bf16)");
    return SKV_OK;
}

static skv_bytes cpu_available(const skv_backend *base)
{
    (void)base;
    return (skv_bytes){.host = skv_memory_available()};
}

bool skv_cpu_find(char *found, size_t room, skv_bytes *memory, skv_bytes *available)
{
    char name[128];
    skv_cpu_name(name, sizeof name);
    const skv_cpu_level level = skv_cpu_level_clamp(SKV_CPU_LEVEL_BEST, skv_cpu_verified());
    (void)snprintf(found, room, "%s, %s", name, skv_cpu_level_name(level));
    *memory = (skv_bytes){.host = skv_memory_total()};
    *available = cpu_available(NULL);
    return true;
}

static void cpu_free(skv_backend *base)
{
    skv_cpu_backend *be = (skv_cpu_backend *)base;
    if (!be) return;
    skv_cpu_release_weights(be);
    release_workspace(be);
    skv_free(be);
}

/* The nodes that pages can be placed on: those of the threads, if the system places any. */
static size_t count_nodes(const skv_pool *pool)
{
    const skv_nodes *nodes = skv_pool_nodes(pool);
    return nodes->n > 1 && skv_pages_place(NULL, 0, nodes->number[0]) ? nodes->n : 1;
}

/* A form that is named is not used where this processor computes it wrongly. */
static skv_status check_form(const skv_matmul_form *form, skv_cpu_level level, unsigned features,
                             skv_error *err)
{
    if (!form) return SKV_OK;
    size_t n;
    skv_kernels usual, other;
    skv_kernels_init(&usual, level, features);
    const bool right = skv_form_is_right(form, skv_matmul_forms(level, &n)) &&
                       (!form->q || skv_matmul_q_agrees(form->q, &usual.q));
    SKV_REQUIRE(right, err, SKV_UNSUPPORTED, "cpu: products of %s are wrong on this processor",
                form->name);
    if (!form->attention) return SKV_OK;
    other = usual;
    form->attention(&other);
    SKV_REQUIRE(skv_attention_agrees(&other, &usual), err, SKV_UNSUPPORTED,
                "cpu: attention of %s is wrong on this processor", form->name);
    return SKV_OK;
}

/* Adds a choice to the name of the form. */
static void tell_choice(skv_cpu_backend *be, const char *choice)
{
    const size_t n = strlen(be->form);
    (void)snprintf(be->form + n, sizeof be->form - n, "%s%s", n > 0 ? ", " : "", choice);
    be->base.form = be->form;
}

/* The form of the products, where the level has several: that of the options, or the fastest of
 * those with the bits of the first. */
static void take_form(skv_cpu_backend *be, const skv_matmul_form *form, const skv_form_clock *clock)
{
    size_t n;
    const skv_matmul_form *forms = skv_matmul_forms(be->kernels.level, &n);
    const bool timed = !form;
    if (!forms) return;
    assert(n <= SKV_FORMS_MAX);
    if (timed) {
        skv_form_times times;
        const size_t n_timed = skv_forms_timed(forms, n);
        skv_forms_time(forms, n_timed, clock, &times);
        form = &forms[skv_forms_choose(forms, n_timed, &times)];
    }
    skv_form_use(&be->kernels, form);
    be->base.level = form->level;
    tell_choice(be, form->name);
    if (!timed) return;
    double ratios[SKV_FORMS_MAX];
    const size_t i_q = skv_forms_choose_q(forms, n, &be->kernels.q, clock, ratios);
    if (i_q < n) be->kernels.q = *forms[i_q].q;
    tell_choice(be, i_q < n ? forms[i_q].name : "without amx-q");
}

/* Half panels, where there are threads enough to cut products so. */
static void take_halves(skv_cpu_backend *be, const skv_form_clock *clock)
{
    const skv_matmul *mm = be->kernels.i8.halves ? &be->kernels.i8 : &be->kernels.bf16;
    be->halves = true;
    if (!mm->halves || skv_pool_threads(be->pool) < SKV_CUT_HALVES_FROM) return;
    be->halves = skv_form_gains(skv_form_halves_ratio(mm, be->pool, clock));
    if (!be->base.form) tell_choice(be, be->base.level);
    tell_choice(be, be->halves ? "half panels" : "whole panels");
}

/* All that several forms give to the same bits is timed, unless the options say which. */
static void take_forms(skv_cpu_backend *be, const skv_matmul_form *form)
{
    const skv_form_clock clock = skv_form_clock_start();
    be->base.level = skv_cpu_level_name(be->kernels.level);
    take_form(be, form, &clock);
    take_halves(be, &clock);
}

skv_status skv_backend_cpu_create(const skv_backend_options *options, skv_backend **out,
                                  skv_error *err)
{
    const skv_cpu_level level = options->level;
    unsigned features = skv_cpu_verified();
    SKV_REQUIRE(skv_cpu_level_runs(level, features), err, SKV_UNSUPPORTED,
                "cpu: this processor does not run %s", skv_cpu_level_name(level));
    SKV_TRY(check_form(options->form, level, features, err));
    skv_cpu_backend *be = skv_alloc_zero(1, sizeof *be);
    SKV_REQUIRE(be, err, SKV_MEMORY, "cpu: no memory");
    be->pool = options->threads;
    be->base = (skv_backend){
        .name = "cpu",
        .promises = SKV_PROMISE_ALL,
        .free = cpu_free,
        .fits = cpu_fits,
        .available = cpu_available,
        .areas_create = skv_cpu_areas_create,
        .areas_free = skv_cpu_areas_free,
        .areas_bytes = skv_cpu_areas_bytes,
        .map = skv_cpu_map,
        .unmap = skv_cpu_unmap,
        .reserve = cpu_reserve,
        .reserve_bytes = cpu_reserve_bytes,
        .linear_bytes = skv_cpu_linear_bytes,
        .linear_create = skv_cpu_linear_create,
        .linear_free = skv_cpu_linear_free,
        .states_bytes = skv_cpu_states_bytes,
        .states_create = skv_cpu_states_create,
        .states_free = skv_cpu_states_free,
        .state_copy = skv_cpu_state_copy,
        .state_clear = skv_cpu_state_clear,
        .state_read = skv_cpu_state_read,
        .state_write = skv_cpu_state_write,
        .linear = skv_cpu_linear,
        .experts_create = skv_cpu_experts_create,
        .experts_free = skv_cpu_experts_free,
        .route = skv_cpu_route,
        .experts_linear = skv_cpu_experts_linear,
        .mix = skv_cpu_mix,
        .place = skv_cpu_place,
        .attention = skv_cpu_attention,
        .votes = skv_cpu_votes,
        .norm = skv_cpu_norm,
        .norm_add = skv_cpu_norm_add,
        .glu = skv_cpu_glu,
        .embed_gate = skv_cpu_embed_gate,
        .conv = skv_cpu_conv,
        .scan = skv_cpu_scan,
        .gated_norm = skv_cpu_gated_norm,
        .sum = skv_cpu_sum,
        .copy_rows = skv_cpu_copy_rows,
        .scale = skv_cpu_scale,
        .softcap = skv_cpu_softcap,
        .pick = skv_cpu_pick,
        .picked = skv_cpu_picked_row,
        .row_bytes = skv_cpu_row_bytes,
        .save_rows = skv_cpu_save_rows,
        .load_rows = skv_cpu_load_rows,
    };
    be->base.n_nodes = count_nodes(be->pool);
    skv_cpu_add_pages(&be->base);
    be->base.pages_turn = skv_cpu_pages_turn;
    skv_cpu_add_steps(&be->base);
    skv_kernels_init(&be->kernels, level, features);
    take_forms(be, options->form);
    *out = &be->base;
    return SKV_OK;
}
