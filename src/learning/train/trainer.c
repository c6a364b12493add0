/* One training run: see trainer.h. */
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/verify.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"
#include "base/team_work.h"

enum { CONFIG_BYTES_MAX = 16 << 20, RATE_STEPS = 16 };

/* ---- opening ---- */

static skv_status read_config(const char *folder, skv_config *out, skv_error *err)
{
    char *path = skv_path_join(folder, "config.json"), *text = NULL;
    size_t n = 0;
    SKV_REQUIRE(path, err, SKV_MEMORY, "training: no memory");
    skv_status status = skv_file_read(path, CONFIG_BYTES_MAX, &text, &n, err);
    if (status == SKV_OK) status = skv_config_parse(text, n, path, out, err);
    skv_free(text);
    skv_free(path);
    return status;
}

/* Makes the configuration that of a SwiftKV model, if the options ask for one. */
static skv_status set_swiftkv(skv_trainer *t, skv_error *err)
{
    const skv_train_options *o = t->options;
    skv_config *c = &t->config;
    SKV_REQUIRE(c->exit_words == 0, err, SKV_UNSUPPORTED,
                "%s: swiftkv_exit_words %zu: a cut exit head is not trained: train the model that "
                "has the whole one, and cut the result (transform --exit-words)",
                o->model, c->exit_words);
    if (o->early_exit) c->early_exit = true;
    if (o->kv_layers == 0) return SKV_OK;
    size_t group = o->group ? o->group : 1;
    if (c->swiftkv) {
        SKV_REQUIRE(c->kv_layers == o->kv_layers && c->kv_group == group, err, SKV_ARGUMENT,
                    "%s: has SwiftKV weights for %zu layers in groups of %zu, not %zu and %zu",
                    o->model, c->kv_layers, c->kv_group, o->kv_layers, group);
        return SKV_OK;
    }
    SKV_REQUIRE(o->kv_layers < c->n_layers, err, SKV_RANGE,
                "%s: kv-layers %zu, expected 1 to %zu: it has %zu layers", o->model, o->kv_layers,
                c->n_layers - 1, c->n_layers);
    size_t n = strlen(c->architecture);
    SKV_REQUIRE(n + sizeof "_swiftkv" <= sizeof c->architecture, err, SKV_RANGE,
                "%s: model_type %s is too long", o->model, c->architecture);
    memcpy(c->architecture + n, "_swiftkv", sizeof "_swiftkv");
    c->swiftkv = true;
    c->kv_layers = o->kv_layers;
    c->kv_group = group;
    return skv_config_check(c, o->model, err);
}

static bool is_trained(void *user, const skv_param *p)
{
    const skv_trainer *t = user;
    const bool deep = p->layer >= t->config.kv_layers;
    if (p->role == SKV_ROLE_EXIT_HEAD) return t->options->early_exit;
    switch (t->options->part) {
    case SKV_TRAIN_QKV: return p->role == SKV_ROLE_SWIFTKV;
    case SKV_TRAIN_DEEP:
        if (p->role == SKV_ROLE_OUTSIDE || !deep) return false;
        break;
    case SKV_TRAIN_EXIT: return false;
    case SKV_TRAIN_ALL: break;
    }
    /* A student does not compute with the projections of its teacher. */
    return !(t->config.swiftkv && deep && p->role == SKV_ROLE_QKV);
}

static skv_status parse_cpu(const skv_train_options *o, skv_cpu_level *level, skv_error *err)
{
    *level = SKV_CPU_LEVEL_BEST;
    SKV_REQUIRE(!o->cpu || skv_cpu_level_parse(o->cpu, level), err, SKV_ARGUMENT,
                "cpu: unknown name \"%s\"", o->cpu);
    SKV_REQUIRE(skv_cpu_level_runs(*level, skv_cpu_verified()), err, SKV_UNSUPPORTED,
                "cpu: this processor has no %s", o->cpu);
    return SKV_OK;
}

static skv_status check_stage(const skv_train_stage *s, size_t i, skv_error *err)
{
    SKV_REQUIRE(s->seq > 0 && s->rows > 0 && s->accumulate > 0, err, SKV_ARGUMENT,
                "training: stage %zu: %zu batches of %zu sequences of %zu tokens", i, s->accumulate,
                s->rows, s->seq);
    SKV_REQUIRE(s->seq < (1u << 24) && s->rows < (1u << 16) && s->accumulate < (1u << 16), err,
                SKV_RANGE,
                "training: stage %zu: accumulate %zu, rows %zu, seq %zu, expected at most 65535, "
                "65535 and 16777215",
                i, s->accumulate, s->rows, s->seq);
    SKV_REQUIRE(s->steps > 0 && s->steps < UINT64_C(1) << 50, err, SKV_ARGUMENT,
                "training: stage %zu: steps %llu, expected 1 or more", i,
                (unsigned long long)s->steps);
    SKV_REQUIRE(s->rate > 0 && isfinite(s->rate), err, SKV_ARGUMENT,
                "training: stage %zu: learning rate %g, expected more than 0", i, s->rate);
    SKV_REQUIRE(s->warmup_share >= 0 && s->warmup_share <= 1, err, SKV_ARGUMENT,
                "training: stage %zu: warm-up %g, a share of the steps", i, s->warmup_share);
    return SKV_OK;
}

static skv_status check_options(const skv_train_options *o, skv_error *err)
{
    SKV_REQUIRE(o->model && o->out, err, SKV_ARGUMENT, "training: %s is missing",
                o->model ? "folder for the result" : "model");
    SKV_REQUIRE(o->n_stages > 0 && o->n_stages <= SKV_TRAIN_STAGES_MAX, err, SKV_RANGE,
                "training: %zu stages, expected 1 to %d", o->n_stages, SKV_TRAIN_STAGES_MAX);
    for (size_t i = 0; i < o->n_stages; i++) SKV_TRY(check_stage(&o->stages[i], i, err));
    const bool alone = o->n_stages == 1 && (!o->team || o->team->size == 1);
    SKV_REQUIRE(!o->until_flat || alone, err, SKV_ARGUMENT,
                "training: until-flat needs one stage and one process");
    return skv_trainer_check_team(o, err);
}

/* The auxiliary model's net, which brings its base. */
static skv_status create_auxiliary(skv_trainer *t, skv_net_options *net, skv_error *err)
{
    const skv_train_options *o = t->options;
    const skv_auxiliary *a = t->auxiliary;
    const double even = 1.0 / (double)t->config.n_layers;
    const skv_net_prediction prediction = {.base = &t->config,
                                           .source = t->source,
                                           .layers = a->layers,
                                           .file = a->file,
                                           .path = a->path,
                                           .identity = o->identity,
                                           .base_loss = o->base_loss,
                                           .auxiliary_loss = o->auxiliary_loss,
                                           .consistency_loss =
                                               o->consistency_loss < 0 ? even : o->consistency_loss,
                                           .own_answers = o->own_answers};
    net->prediction = &prediction;
    net->layer_from = a->pruned ? a->kept : NULL;
    return skv_net_create(a->config, a->pruned ? t->source : a->source, net, &t->net, err);
}

static skv_status open_net(skv_trainer *t, bool plan, skv_error *err)
{
    const skv_train_options *o = t->options;
    bool distill = o->task == SKV_TRAIN_DISTILL;
    skv_net_options net = {.threads = o->threads || !o->team ? o->threads : o->team->threads,
                           .max_tokens = skv_trainer_tokens(o),
                           .bf16 = !o->f32,
                           .student = t->config.swiftkv,
                           .loss = distill && o->loss == SKV_TRAIN_KL ? SKV_LOSS_KL : SKV_LOSS_LM,
                           .tau = o->tau,
                           .hidden_mult = distill ? o->hidden_mult : 0,
                           .router_loss =
                               o->router_loss < 0 ? t->config.router_loss : o->router_loss,
                           .all_positions = o->all_positions,
                           .early_exit = o->early_exit,
                           .trainable = is_trained,
                           .user = t,
                           .seed = o->seed,
                           .plan = plan};
    SKV_TRY(parse_cpu(o, &net.cpu, err));
    SKV_REQUIRE(!distill || t->config.swiftkv, err, SKV_ARGUMENT,
                "%s: no SwiftKV weights, and no kv-layers that says which layers get them",
                o->model);
    SKV_TRY(t->auxiliary ? create_auxiliary(t, &net, err)
                         : skv_net_create(&t->config, t->source, &net, &t->net, err));
    if (plan) return SKV_OK;
    const skv_adamw_options adamw = {.beta1 = o->beta1,
                                     .beta2 = o->beta2,
                                     .eps = o->eps,
                                     .weight_decay = o->weight_decay,
                                     .max_norm = o->max_norm,
                                     .cpu = net.cpu};
    return skv_adamw_init(&t->opt, &adamw, skv_net_params(t->net), skv_net_pool(t->net), err);
}

static skv_status open_all(skv_trainer *t, bool plan, skv_error *err)
{
    const skv_train_options *o = t->options;
    SKV_TRY(check_options(o, err));
    if (o->task == SKV_TRAIN_SCRATCH) {
        SKV_TRY(read_config(o->model, &t->own_config, err));
        t->config = t->own_config;
    } else {
        SKV_TRY(skv_source_open(o->model, &t->source, err));
        t->config = *skv_source_config(t->source);
    }
    SKV_REQUIRE(!t->config.kv_prediction || o->task == SKV_TRAIN_KVPRED, err, SKV_UNSUPPORTED,
                "%s: only task kvpred trains a model with an auxiliary model", o->model);
    SKV_REQUIRE(!t->source || !skv_source_gguf(t->source) || !skv_config_is_hybrid(&t->config), err,
                SKV_UNSUPPORTED,
                "%s: %s: layers that keep a state are not trained from a GGUF file: train the "
                "folder that it was made from",
                o->model, t->config.architecture);
    SKV_TRY(set_swiftkv(t, err));
    if (o->task == SKV_TRAIN_KVPRED) SKV_TRY(skv_auxiliary_open(t, err));
    for (size_t i = 0; i < o->n_stages; i++) {
        t->steps += o->stages[i].steps;
        t->n_copies = skv_max_size(t->n_copies, o->stages[i].accumulate);
    }
    t->copies = skv_alloc_zero(t->n_copies, sizeof *t->copies);
    const size_t n_scratch = skv_team_scratch(o->team);
    if (n_scratch > 0) t->team_scratch = skv_alloc(n_scratch, sizeof *t->team_scratch);
    SKV_REQUIRE(t->copies && (t->team_scratch || n_scratch == 0), err, SKV_MEMORY,
                "training: no memory for %zu batches", t->n_copies);
    return open_net(t, plan, err);
}

static skv_status open_or_close(skv_trainer *t, const skv_train_options *options, bool plan,
                                skv_error *err)
{
    *t = (skv_trainer){.options = options, .last_good = UINT64_MAX};
    skv_status status = open_all(t, plan, err);
    if (status != SKV_OK) skv_trainer_close(t);
    return status;
}

skv_status skv_trainer_open(skv_trainer *t, const skv_train_options *options, skv_error *err)
{
    return open_or_close(t, options, false, err);
}

skv_status skv_trainer_plan(skv_trainer *t, const skv_train_options *options, skv_error *err)
{
    return open_or_close(t, options, true, err);
}

void skv_trainer_close(skv_trainer *t)
{
    for (size_t i = 0; t->copies && i < t->n_copies; i++) skv_train_copy_clear(&t->copies[i]);
    skv_free(t->copies);
    skv_trainer_release_held(t);
    skv_free(t->team_scratch);
    skv_adamw_release(&t->opt);
    skv_net_free(t->net);
    skv_auxiliary_close(t->auxiliary);
    skv_source_close(t->source);
    skv_config_release(&t->own_config);
    *t = (skv_trainer){0};
}

/* ---- stages ---- */

static bool stage_is_over(const skv_trainer *t)
{
    return t->step == t->stage_start + t->options->stages[t->i_stage].steps && t->step < t->steps;
}

/* ---- a step ---- */

enum { GOOD_MAX = 64 };

static void name_last_good(const skv_trainer *t, char good[GOOD_MAX])
{
    if (t->last_good == UINT64_MAX) {
        memcpy(good, "none", sizeof "none");
    } else {
        (void)snprintf(good, GOOD_MAX, "step %llu", (unsigned long long)t->last_good);
    }
}

static skv_status fail_loss(const skv_trainer *t, size_t i_batch, const char *what, double value,
                            skv_error *err)
{
    const struct skv_train_copy *c = &t->copies[i_batch];
    char good[GOOD_MAX];
    name_last_good(t, good);
    return skv_fail(err, SKV_RANGE,
                    "training: step %llu, batch %zu (%zu tokens, the first %d): %s is %g; last "
                    "good checkpoint: %s in %s",
                    (unsigned long long)t->step + 1, i_batch, c->n_tokens, c->ids[0], what,
                    isnan(value) ? fabs(value) : value, good, t->options->out);
}

/* Data of a step, beside its batches. */
typedef struct step_work {
    size_t n;            /* batches */
    skv_net_scale scale; /* of all processes */
    uint64_t data;       /* hash of the batches */
    skv_net_sums sums;
} step_work;

static skv_status fetch_all(skv_trainer *t, step_work *w, skv_train_progress *p, skv_error *err)
{
    for (size_t i = 0; i < w->n; i++) {
        struct skv_train_copy *c = &t->copies[i];
        SKV_TRY(skv_trainer_fetch(t, c, err));
        w->scale.positions += (double)skv_net_count(t->net, &c->batch);
        w->scale.hidden += (double)c->n_tokens * (double)t->config.hidden;
        w->scale.tokens += (double)c->n_tokens;
        w->data = skv_trainer_hash_batch(w->data, &c->batch);
        p->tokens += c->n_tokens;
        c->batch = skv_trainer_cut(t, i, &c->batch, c->doc_start);
    }
    if (w->scale.positions < 1) w->scale.positions = 1; /* a step with every position masked */
    return SKV_OK;
}

/* Forward and backward through this process's rows. */
static skv_status run_batches(skv_trainer *t, step_work *w, skv_error *err)
{
    skv_net_zero_gradients(t->net);
    for (size_t i = 0; i < w->n; i++) {
        skv_net_sums sums;
        if (t->copies[i].batch.n_tokens == 0) continue;
        SKV_TRY(skv_net_run(t->net, &t->copies[i].batch, &w->scale, true, &sums, err));
        const double all =
            sums.loss + sums.hidden + sums.exit + sums.auxiliary + sums.consistency + sums.balance;
        if (!isfinite(all)) return fail_loss(t, i, "the loss", all, err);
        skv_net_sums_add(&w->sums, &sums);
    }
    return SKV_OK;
}

/* Forward, backward and the optimiser. */
static skv_status take_step(skv_trainer *t, skv_train_progress *p, skv_error *err)
{
    step_work w = {.n = t->options->stages[t->i_stage].accumulate, .data = t->step};
    skv_status status = fetch_all(t, &w, p, err);
    if (status == SKV_OK) status = run_batches(t, &w, err);
    SKV_TRY(skv_team_agree(t->options->team, status, err));
    SKV_TRY(skv_trainer_add_up(t, &w.sums, w.data, err));
    p->loss = w.sums.loss / w.scale.positions;
    p->hidden = w.sums.hidden / w.scale.hidden;
    p->loss_tokens = w.sums.n_loss;
    p->exit = w.sums.exit / w.scale.positions;
    p->auxiliary = w.sums.auxiliary / w.scale.positions;
    p->consistency = w.sums.consistency / w.scale.tokens;
    p->balance = w.sums.balance / w.scale.tokens;
    memcpy(p->exit_seen, w.sums.exit_seen, sizeof p->exit_seen);
    memcpy(p->exit_agreed, w.sums.exit_agreed, sizeof p->exit_agreed);
    p->rate = skv_schedule_rate(&t->schedule, t->step - t->stage_start);
    p->norm = skv_adamw_norm(&t->opt);
    if (!isfinite(p->norm)) return fail_loss(t, 0, "the gradients' norm", p->norm, err);
    skv_adamw_step(&t->opt, p->rate, p->norm);
    t->step++;
    return SKV_OK;
}

/* Time of the last steps, for a rate that follows the machine. */
typedef struct step_times {
    uint64_t start, at[RATE_STEPS];
    size_t n;
} step_times;

static void tell_pace(step_times *pace, skv_train_progress *p)
{
    uint64_t now = skv_clock_ns();
    size_t kept = pace->n < RATE_STEPS ? pace->n : RATE_STEPS;
    uint64_t since = kept == RATE_STEPS ? pace->at[pace->n % RATE_STEPS] : pace->start;
    size_t steps = kept == RATE_STEPS ? RATE_STEPS : pace->n + 1;
    double each = (double)(now - since) * 1e-9 / (double)steps;
    pace->at[pace->n++ % RATE_STEPS] = now;
    p->seconds = (double)(now - pace->start) * 1e-9;
    p->tokens_s = (double)p->tokens / each;
    p->eta = each * (double)(p->steps - p->step);
}

static bool wants_checkpoint(const skv_trainer *t)
{
    uint64_t every = t->options->checkpoint_every;
    return every > 0 && t->step % every == 0 && t->step < t->steps;
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return false;
    }
    return true;
}

/* A step may break weights although its loss was finite: such a state must not become a good
 * checkpoint. */
static skv_status check_weights(const skv_trainer *t, skv_error *err)
{
    const skv_params *params = skv_net_params(t->net);
    for (size_t i = 0; i < params->n; i++) {
        const skv_param *p = &params->at[i];
        char good[GOOD_MAX];
        if (!p->trainable || all_finite(p->w, skv_param_size(p))) continue;
        name_last_good(t, good);
        return skv_fail(err, SKV_RANGE,
                        "training: step %llu: %s is not finite; last good checkpoint: %s in %s",
                        (unsigned long long)t->step, p->name, good, t->options->out);
    }
    return SKV_OK;
}

static skv_status write_checkpoint(skv_trainer *t, skv_error *err)
{
    SKV_TRY(check_weights(t, err));
    SKV_TRY(skv_trainer_save(t, err));
    t->last_good = t->step;
    return SKV_OK;
}

static skv_status run_steps(skv_trainer *t, skv_error *err)
{
    const skv_train_options *o = t->options;
    step_times pace = {.start = skv_clock_ns()};
    SKV_TRY(skv_trainer_begin_held(t, err));
    while (t->step < t->steps) {
        skv_train_progress p = {.steps = t->steps, .stage = t->i_stage};
        SKV_TRY(take_step(t, &p, err));
        p.step = t->step;
        p.checkpoint = wants_checkpoint(t);
        if (p.checkpoint) SKV_TRY(write_checkpoint(t, err));
        SKV_TRY(skv_trainer_watch_held(t, &p, err));
        tell_pace(&pace, &p);
        bool stop = o->on_step && !o->on_step(o->user, &p);
        SKV_TRY(skv_team_any(o->team, stop, &stop, err));
        if (stop && t->step < t->steps) {
            if (!p.checkpoint) SKV_TRY(write_checkpoint(t, err));
            return skv_fail(err, SKV_CANCELLED,
                            "training: stopped after step %llu; --resume continues",
                            (unsigned long long)t->step);
        }
        if (p.flat) return SKV_OK;
        if (!stage_is_over(t)) continue;
        SKV_TRY(skv_team_agree(o->team, skv_trainer_enter_stage(t, err), err));
    }
    return SKV_OK;
}

/* The folder that a run writes to: process 0's business. */
static skv_status make_folder(const skv_trainer *t, skv_error *err)
{
    SKV_TRY(skv_trainer_check_folder(t->options, 0, err));
    if (!t->options->resume) SKV_TRY(skv_folder_create(t->options->out, err));
    return skv_trainer_check_export(t, err);
}

/* Opens the data of every stage and draws a batch, so that data missing for the last stage is
 * reported before the first begins. Entering a stage opens its data again. */
static skv_status try_feed(skv_trainer *t, skv_error *err)
{
    for (size_t i = 0; i < t->options->n_stages; i++) {
        skv_train_batch batch;
        SKV_TRY(t->feed.open(t->feed.ctx, i, &t->data, err));
        SKV_TRY(t->data.next(t->data.ctx, &batch, err));
    }
    return skv_trainer_enter_stage(t, err);
}

skv_status skv_trainer_run(skv_trainer *t, const skv_trainer_feed *feed, skv_error *err)
{
    const skv_team *team = t->options->team;
    t->feed = *feed;
    skv_status status = try_feed(t, err);
    if (status == SKV_OK && skv_team_leads(team)) status = make_folder(t, err);
    SKV_TRY(skv_team_agree(team, status, err));
    SKV_TRY(skv_trainer_meet(t, err));
    SKV_TRY(skv_trainer_hold_out(t, err));
    if (t->options->resume) SKV_TRY(skv_trainer_restore(t, err));
    SKV_TRY(run_steps(t, err));
    if (t->last_good != t->step) SKV_TRY(write_checkpoint(t, err));
    status = skv_team_leads(team) ? skv_trainer_export(t, err) : SKV_OK;
    return skv_team_agree(team, status, err);
}
