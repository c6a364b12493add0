/* AdamW and schedules: see optim.h. */
#include "train/optim.h"

#include <math.h>

#include "backend/cpu/verify.h"
#include "base/mem.h"
#include "base/size.h"

enum { CHUNK = 1 << 15 /* floats of a portion */ };

static const double PI = 3.14159265358979323846;

double skv_schedule_rate(const skv_schedule *s, uint64_t step)
{
    if (step < s->warmup) return s->rate * (double)(step + 1) / (double)s->warmup;
    if (s->kind == SKV_SCHEDULE_CONSTANT) return s->rate;
    if (step >= s->steps) return s->rate * s->final_share;
    double done = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
    double share = s->kind == SKV_SCHEDULE_LINEAR ? 1 - done : 0.5 * (1 + cos(PI * done));
    return s->rate * (s->final_share + (1 - s->final_share) * share);
}

struct skv_adamw_chunk {
    const skv_param *param;
    size_t at, n; /* in the tensor */
};

static size_t count_chunks(const skv_params *params)
{
    size_t n = 0;
    for (size_t i = 0; i < params->n; i++) {
        if (params->at[i].grad) n += skv_ceil_div(skv_param_size(&params->at[i]), CHUNK);
    }
    return n;
}

static void list_chunks(skv_adamw *opt)
{
    size_t n = 0;
    for (size_t i = 0; i < opt->params->n; i++) {
        const skv_param *p = &opt->params->at[i];
        size_t size = skv_param_size(p);
        for (size_t at = 0; p->grad && at < size; at += CHUNK) {
            opt->chunks[n++] = (struct skv_adamw_chunk){p, at, skv_min_size(CHUNK, size - at)};
        }
    }
}

skv_status skv_adamw_init(skv_adamw *opt, const skv_adamw_options *options, skv_params *params,
                          skv_pool *pool, skv_error *err)
{
    *opt = (skv_adamw){.options = *options, .params = params, .pool = pool};
    skv_train_rows_init(&opt->rows, options->cpu, skv_cpu_verified());
    size_t n = params->n_trainable;
    SKV_REQUIRE(n > 0, err, SKV_ARGUMENT, "training: no parameter is trained");
    opt->n_chunks = count_chunks(params);
    opt->m = skv_map_zero(n * sizeof(float));
    opt->v = skv_map_zero(n * sizeof(float));
    opt->chunks = skv_alloc(opt->n_chunks, sizeof *opt->chunks);
    opt->squares = skv_alloc(opt->n_chunks, sizeof *opt->squares);
    if (!opt->m || !opt->v || !opt->chunks || !opt->squares) {
        skv_adamw_release(opt);
        return skv_fail(err, SKV_MEMORY, "training: no memory for the moments of %zu weights", n);
    }
    list_chunks(opt);
    return SKV_OK;
}

void skv_adamw_release(skv_adamw *opt)
{
    size_t n_bytes = opt->params ? opt->params->n_trainable * sizeof(float) : 0;
    if (opt->m) skv_unmap(opt->m, n_bytes);
    if (opt->v) skv_unmap(opt->v, n_bytes);
    skv_free(opt->chunks);
    skv_free(opt->squares);
    *opt = (skv_adamw){0};
}

static void square_chunk(void *arg, size_t i, size_t i_thread)
{
    skv_adamw *opt = arg;
    const struct skv_adamw_chunk *c = &opt->chunks[i];
    (void)i_thread;
    opt->squares[i] = opt->rows.square_sum(c->param->grad + c->at, c->n);
}

double skv_adamw_norm(skv_adamw *opt)
{
    double sum = 0.0;
    skv_pool_run(opt->pool, opt->n_chunks, square_chunk, opt);
    for (size_t i = 0; i < opt->n_chunks; i++) sum += opt->squares[i];
    return sqrt(sum);
}

typedef struct step_job {
    skv_adamw *opt;
    skv_adamw_row row;
    double loss; /* the share of a weight that decays */
} step_job;

static void step_chunk(void *arg, size_t i, size_t i_thread)
{
    const step_job *j = arg;
    const struct skv_adamw_chunk *c = &j->opt->chunks[i];
    const skv_param *p = c->param;
    size_t at = (size_t)(p->grad - j->opt->params->grads) + c->at;
    skv_adamw_row row = j->row;
    row.step_size *= p->rate_share;
    row.decay = p->vector && !j->opt->options.decay_vectors
                    ? 1.0f
                    : (float)(1.0 - (double)p->rate_share * j->loss);
    (void)i_thread;
    j->opt->rows.adamw(p->w + c->at, j->opt->m + at, j->opt->v + at, p->grad + c->at, &row, c->n);
}

void skv_adamw_step(skv_adamw *opt, double rate, double norm)
{
    const skv_adamw_options *o = &opt->options;
    double t = (double)++opt->step;
    /* As torch clips: the norm plus 1e-6, so that a norm of the limit is left alone nearly. */
    double clip = o->max_norm > 0 ? fmin(1.0, o->max_norm / (norm + 1e-6)) : 1.0;
    step_job j = {.opt = opt,
                  .row = {.beta1 = (float)o->beta1,
                          .beta2 = (float)o->beta2,
                          .step_size = (float)(rate / (1 - pow(o->beta1, t))),
                          .root_scale = (float)(1 / sqrt(1 - pow(o->beta2, t))),
                          .eps = (float)o->eps,
                          .grad_scale = (float)clip},
                  .loss = rate * o->weight_decay};
    skv_pool_run(opt->pool, opt->n_chunks, step_chunk, &j);
}
