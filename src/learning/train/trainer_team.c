/*
 * A training run on several processes: each has the whole model and all data, and works on its
 * rows of every step; gradients are added up, and all take the same step of the optimiser. Losses
 * are those of one process up to the order of sums. Process 0 alone writes.
 */
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/size.h"
#include "base/team_work.h"
#include "format/json_doc.h"
#include "train/trainer.h"

enum { OPTIONS_BYTES_MAX = 1 << 20, SAMPLE = 64 };

/* ---- dealing rows ---- */

/* Where every batch can be dealt to all processes, each needs memory for its part alone; else the
 * rows of the whole step are dealt. */
static bool deals_batches(const skv_train_options *o, const skv_train_stage *s)
{
    return s->rows % skv_team_size(o->team) == 0;
}

skv_status skv_trainer_check_team(const skv_train_options *o, skv_error *err)
{
    SKV_TRY(skv_team_check(o->team, err));
    const size_t size = skv_team_size(o->team);
    for (size_t i = 0; i < o->n_stages; i++) {
        const skv_train_stage *s = &o->stages[i];
        SKV_REQUIRE(deals_batches(o, s) || s->rows * s->accumulate % size == 0, err, SKV_ARGUMENT,
                    "training: stage %zu: %zu batches of %zu rows are %zu rows a step, which %zu "
                    "processes cannot share evenly",
                    i, s->accumulate, s->rows, s->rows * s->accumulate, size);
    }
    return SKV_OK;
}

size_t skv_trainer_tokens(const skv_train_options *o)
{
    size_t most = 0;
    for (size_t i = 0; i < o->n_stages; i++) {
        const skv_train_stage *s = &o->stages[i];
        const size_t rows = deals_batches(o, s) ? s->rows / skv_team_size(o->team) : s->rows;
        most = skv_max_size(most, s->seq * rows);
    }
    return most;
}

/* This process's rows [*from, *to) of batch i. */
static void deal(const skv_train_options *o, const skv_train_stage *s, size_t i, size_t *from,
                 size_t *to)
{
    const size_t size = skv_team_size(o->team), rank = o->team ? o->team->rank : 0;
    if (deals_batches(o, s)) {
        *from = rank * (s->rows / size);
        *to = *from + s->rows / size;
        return;
    }
    const size_t each = s->rows * s->accumulate / size;
    const size_t mine = rank * each, first = i * s->rows, end = first + s->rows;
    *from = skv_min_size(skv_max_size(mine, first), end) - first;
    *to = skv_min_size(skv_max_size(mine + each, first), end) - first;
}

skv_train_batch skv_trainer_cut(const skv_trainer *t, size_t i, const skv_train_batch *whole,
                                uint32_t *doc_start)
{
    const skv_train_stage *s = &t->options->stages[t->i_stage];
    const size_t row_tokens = whole->n_tokens / s->rows;
    size_t from, to;
    deal(t->options, s, i, &from, &to);
    const size_t at = from * row_tokens, n = (to - from) * row_tokens;
    for (size_t k = at; k < at + n; k++) doc_start[k] = whole->doc_start[k] - (uint32_t)at;
    return (skv_train_batch){n, whole->ids + at, whole->targets + at, whole->positions + at,
                             doc_start + at};
}

/* ---- the start ---- */

static uint64_t hash_weights(const skv_trainer *t)
{
    const skv_params *p = skv_net_params(t->net);
    uint64_t hash = skv_team_hash(p->n_weights, p->weights, p->n_weights * sizeof *p->weights);
    for (size_t i = 0; i < p->n; i++) {
        const skv_tensor *file = p->at[i].file; /* raw, as stored */
        if (!file || skv_tensor_check(file, NULL) != SKV_OK) continue;
        hash = skv_team_hash(hash, file->data, file->n_bytes);
        if (file->file) skv_file_map_forget(file->data, file->n_bytes);
    }
    return hash;
}

/* Hashes the results of one optimiser step on this processor. */
static uint64_t hash_arithmetic(const skv_trainer *t)
{
    float w[SAMPLE], m[SAMPLE], v[SAMPLE], g[SAMPLE];
    for (size_t i = 0; i < SAMPLE; i++) {
        w[i] = sinf((float)i);
        m[i] = cosf((float)i);
        v[i] = 1.0f / (float)(i + 3);
        g[i] = w[i] * m[i];
    }
    const skv_adamw_options *o = &t->opt.options;
    const skv_adamw_row row = {.beta1 = (float)o->beta1,
                               .beta2 = (float)o->beta2,
                               .step_size = 1.0f / 3.0f,
                               .root_scale = (float)(1 / sqrt(1 - pow(o->beta2, 7))),
                               .eps = (float)o->eps,
                               .decay = 0.7f,
                               .grad_scale = 0.3f};
    double square = t->opt.rows.square_sum(g, SAMPLE);
    t->opt.rows.adamw(w, m, v, g, &row, SAMPLE);
    uint64_t hash = skv_team_hash(0, &square, sizeof square);
    hash = skv_team_hash(hash, w, sizeof w);
    hash = skv_team_hash(hash, m, sizeof m);
    return skv_team_hash(hash, v, sizeof v);
}

/* Hashes the options without file names, which may differ between machines. */
static skv_status hash_options(const skv_trainer *t, uint64_t *hash, skv_error *err)
{
    skv_buf text;
    json_t *options = skv_checkpoint_options(t), *stage, *data;
    size_t i, k;
    json_array_foreach(json_object_get(options, "stages"), i, stage)
    {
        json_array_foreach(json_object_get(stage, "data"), k, data)
        {
            (void)json_object_del(data, "file");
        }
    }
    skv_buf_init(&text, OPTIONS_BYTES_MAX);
    const bool printed = options && skv_json_print(&text, options);
    *hash = printed ? skv_team_hash(t->options->checkpoint_every, text.data, text.size) : 0;
    skv_buf_release(&text);
    json_decref(options);
    SKV_REQUIRE(printed, err, SKV_MEMORY, "training: no memory for the options");
    return SKV_OK;
}

skv_status skv_trainer_meet(const skv_trainer *t, skv_error *err)
{
    const skv_team *team = t->options->team;
    if (skv_team_size(team) == 1) return SKV_OK;
    uint64_t options = 0;
    SKV_TRY(skv_team_agree(team, hash_options(t, &options, err), err));
    SKV_TRY(skv_team_same(team, options, "other options", err));
    SKV_TRY(skv_team_same(team, hash_weights(t), "another model", err));
    return skv_team_same(team, hash_arithmetic(t), "a processor that rounds otherwise", err);
}

/* ---- a step ---- */

uint64_t skv_trainer_hash_batch(uint64_t hash, const skv_train_batch *b)
{
    hash = skv_team_hash(hash, b->ids, b->n_tokens * sizeof *b->ids);
    hash = skv_team_hash(hash, b->targets, b->n_tokens * sizeof *b->targets);
    return skv_team_hash(hash, b->doc_start, b->n_tokens * sizeof *b->doc_start);
}

skv_status skv_trainer_add_up(skv_trainer *t, skv_net_sums *sums, uint64_t data, skv_error *err)
{
    const skv_team *team = t->options->team;
    if (skv_team_size(team) == 1) return SKV_OK;
    SKV_TRY(skv_team_same(team, data, "read other data", err));
    enum { BINS = SKV_TRAIN_EXIT_BINS };
    enum { FEW = 7 };
    double x[FEW + 2 * BINS] = {sums->loss,   sums->hidden,    (double)sums->n_loss,
                                sums->exit,   sums->auxiliary, sums->consistency,
                                sums->balance};
    memcpy(x + FEW, sums->exit_seen, sizeof sums->exit_seen);
    memcpy(x + FEW + BINS, sums->exit_agreed, sizeof sums->exit_agreed);
    SKV_TRY(skv_team_sum_doubles(team, x, sizeof x / sizeof x[0], err));
    *sums = (skv_net_sums){.loss = x[0],
                           .hidden = x[1],
                           .n_loss = (size_t)x[2],
                           .exit = x[3],
                           .auxiliary = x[4],
                           .consistency = x[5],
                           .balance = x[6]};
    memcpy(sums->exit_seen, x + FEW, sizeof sums->exit_seen);
    memcpy(sums->exit_agreed, x + FEW + BINS, sizeof sums->exit_agreed);
    skv_params *params = skv_net_params(t->net);
    return skv_team_sum(team, params->grads, params->n_trainable, t->team_scratch, err);
}

/* ---- checkpoints ---- */

static uint64_t hash_trained(const skv_trainer *t)
{
    const skv_params *params = skv_net_params(t->net);
    uint64_t hash = 0;
    for (size_t i = 0; i < params->n; i++) {
        const skv_param *p = &params->at[i];
        if (p->grad) hash = skv_team_hash(hash, p->w, skv_param_size(p) * sizeof *p->w);
    }
    return hash;
}

skv_status skv_trainer_save(const skv_trainer *t, skv_error *err)
{
    const skv_team *team = t->options->team;
    if (skv_team_size(team) > 1) {
        SKV_TRY(skv_team_same(team, hash_trained(t), "other weights after a step", err));
    }
    skv_status status = skv_team_leads(team) ? skv_checkpoint_write(t, err) : SKV_OK;
    return skv_team_agree(team, status, err);
}

/* Distributes the checkpoint, which only process 0 has read, to the others. */
static skv_status share_state(skv_trainer *t, skv_error *err)
{
    const skv_team *team = t->options->team;
    struct {
        uint64_t step, adam, begun, data[SKV_BATCH_STATE_WORDS];
        double held_first;
    } s = {
        .step = t->step, .adam = t->opt.step, .begun = t->held.begun, .held_first = t->held.first};
    t->data.save(t->data.ctx, s.data);
    SKV_TRY(skv_team_share(team, &s, sizeof s, err));
    t->step = t->last_good = s.step;
    t->opt.step = s.adam;
    t->held.begun = s.begun;
    t->held.first = s.held_first;
    skv_status status = skv_team_leads(team) ? SKV_OK : skv_trainer_enter_stage(t, err);
    if (status == SKV_OK && t->step > t->stage_start) {
        status = t->data.restore(t->data.ctx, s.data, err);
    }
    SKV_TRY(skv_team_agree(team, status, err));
    skv_params *params = skv_net_params(t->net);
    size_t n_bytes = params->n_trainable * sizeof(float);
    SKV_TRY(skv_team_share(team, t->opt.m, n_bytes, err));
    SKV_TRY(skv_team_share(team, t->opt.v, n_bytes, err));
    for (size_t i = 0; i < params->n; i++) {
        const skv_param *p = &params->at[i];
        if (!p->grad) continue;
        SKV_TRY(skv_team_share(team, p->w, skv_param_size(p) * sizeof *p->w, err));
    }
    return SKV_OK;
}

skv_status skv_trainer_restore(skv_trainer *t, skv_error *err)
{
    const skv_team *team = t->options->team;
    skv_status status = skv_team_leads(team) ? skv_checkpoint_read(t, err) : SKV_OK;
    SKV_TRY(skv_team_agree(team, status, err));
    return skv_team_size(team) > 1 ? share_state(t, err) : SKV_OK;
}
