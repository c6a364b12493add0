/*
 * swiftkv tune: the cheapest setting of the methods that keeps a share of a model's quality.
 *
 * The order of the search: first a model's forms (SwiftKV, KV Prediction, further folders), since
 * they change most and each is one setting. Then it adds options to the cheapest forms that keep
 * the floor, one after the other: 8-bit weights, 4-bit weights, 8-bit keys and values, SnapKV. Each
 * option stays if the floor is kept and the cost falls. Fewer rows never score better, so the
 * smallest capacity that keeps the floor is found by bisection.
 */
#include <stdlib.h>
#include <string.h>

#include "skv/combine.h"
#include "tune.h"

enum { BASES = 2, STEPS_MAX = TUNE_MADE_MAX, CAPACITY_MIN = 48, TEXT_WINDOW = 1024 };

/* Which tokens vote, and over how many rows votes are smoothed: as published, and wider, for
 * questions that are longer than that window. */
static const struct {
    size_t window, kernel;
} votes[] = {{32, 7}, {48, 15}};

static bool same(const tune_setting *a, const tune_setting *b)
{
    char x[SKV_EVICTION_TEXT], y[SKV_EVICTION_TEXT];
    skv_eviction_print(&a->eviction, x);
    skv_eviction_print(&b->eviction, y);
    return strcmp(a->path, b->path) == 0 && a->prefill == b->prefill && a->weights == b->weights &&
           a->kv == b->kv && strcmp(x, y) == 0;
}

static int measure(tune *t, const tune_setting *how)
{
    const int status = tune_measure(t, how);
    if (status == CLI_DONE && !t->options->json) tune_print_point(t, &t->points[t->n_points - 1]);
    return status;
}

/* The point of a setting, measured unless it has been; NULL: it does not go together. */
static int visit(tune *t, const tune_setting *how, const tune_point **out)
{
    *out = NULL;
    for (size_t i = 0; i < t->n_points; i++) {
        if (!same(&t->points[i].how, how)) continue;
        *out = &t->points[i];
        return CLI_DONE;
    }
    skv_error err = {0};
    skv_model_info info;
    const int known = cli_check(skv_model_info_read(how->path, &info, &err), &err);
    if (known != CLI_DONE) return known;
    const cli_options o = tune_options_of(t, how);
    const skv_engine_options engine = cli_engine_options(&o);
    const skv_combination c = skv_combination_of(&info.traits, &engine, SKV_WHERE_EVAL);
    if (t->n_points == TUNE_POINTS_MAX || skv_combination_refused(&c) != SIZE_MAX) return CLI_DONE;
    const int status = measure(t, how);
    if (status == CLI_DONE) *out = &t->points[t->n_points - 1];
    return status;
}

/* Takes a change if the floor is kept and it costs less. */
static int try_change(tune *t, const tune_setting *how, const tune_point **current, bool *keeps)
{
    const tune_point *p;
    const int status = visit(t, how, &p);
    *keeps = p && p->keeps;
    if (*keeps && tune_is_cheaper(p, *current)) *current = p;
    return status;
}

/* Something that saves more and keeps less from one step to the next. */
typedef struct ladder {
    size_t n;
    size_t at[STEPS_MAX];
    int (*try_step)(tune *t, struct ladder *l, size_t i, bool *keeps);
    size_t i_votes;             /* of SnapKV's steps */
    tune_setting before;        /* the setting that the steps change */
    const tune_point **current; /* the best so far */
} ladder;

/* Finds the last step that keeps the floor. */
static int descend(tune *t, ladder *l)
{
    int status = CLI_DONE;
    for (size_t low = 0, high = l->n; low < high && status == CLI_DONE;) {
        const size_t i = (low + high) / 2;
        bool keeps = false;
        status = l->try_step(t, l, i, &keeps);
        if (keeps) {
            low = i + 1;
        } else {
            high = i;
        }
    }
    return status;
}

static int try_capacity(tune *t, ladder *l, size_t i, bool *keeps)
{
    tune_setting how = l->before;
    char text[SKV_EVICTION_TEXT];
    skv_error err = {0};
    const size_t rows = l->at[i], most = votes[l->i_votes].window;
    const size_t window = rows / 2 < most ? rows / 2 : most;
    snprintf(text, sizeof text, "snapkv:%zu,%zu,%zu", rows, window, votes[l->i_votes].kernel);
    const int status = cli_check(skv_eviction_parse(text, &how.eviction, &err), &err);
    return status == CLI_DONE ? try_change(t, &how, l->current, keeps) : status;
}

/* Tries SnapKV with fewer and fewer rows: 1/2, 1/4, ... of the timed prompt or, if shorter, of the
 * examples' prompts, since a larger capacity would not be tested by these. Wider votes are tried if
 * the published ones never keep the floor. */
static int evict(tune *t, const tune_point **current)
{
    const tune_point *before = *current;
    ladder l = {.try_step = try_capacity, .before = before->how, .current = current};
    const size_t prompt = t->asked < t->prompt ? t->asked : t->prompt;
    for (size_t i = 1; i <= STEPS_MAX && prompt >> i >= CAPACITY_MIN; i++) {
        l.at[l.n++] = prompt >> i;
    }
    int status = CLI_DONE;
    for (; l.i_votes < sizeof votes / sizeof *votes && *current == before && status == CLI_DONE;
         l.i_votes++) {
        status = descend(t, &l);
    }
    return status;
}

/* ---- SwiftKV forms that need no training ---- */

static int try_layers(tune *t, ladder *l, size_t i, bool *keeps)
{
    tune_setting how = l->before;
    skv_error err = {0};
    skv_model_info info;
    char *out = t->made[t->n_made];
    const int n = snprintf(out, sizeof t->made[0], "%s/kv%zu", t->options->work, l->at[i]);
    if (n < 0 || (size_t)n >= sizeof t->made[0]) return cli_fail("--work: the path is too long");
    t->n_made++;
    skv_status made = skv_model_info_read(out, &info, &err);
    if (made != SKV_OK) {
        err = (skv_error){0};
        made = skv_transform(l->before.path, out, l->at[i], 1, &err);
    }
    int status = cli_check(made, &err);
    how.path = out;
    const tune_point *point;
    if (status == CLI_DONE) status = visit(t, &how, &point);
    *keeps = status == CLI_DONE && point && point->keeps;
    return status;
}

/* An ordinary model as SwiftKV with copied projections: fewer and fewer layers run prompts. */
static int rewire(tune *t, const tune_setting *how, size_t n_layers)
{
    ladder l = {.try_step = try_layers, .before = *how};
    for (size_t i = 0; i < STEPS_MAX; i++) {
        const size_t layers = n_layers * (2 * STEPS_MAX - 1 - i) / (2 * STEPS_MAX);
        if (layers >= 1 && (l.n == 0 || l.at[l.n - 1] > layers)) l.at[l.n++] = layers;
    }
    return descend(t, &l);
}

/* ---- the search ---- */

/* Adds options to one form. */
static int refine(tune *t, const tune_point *form)
{
    const tune_point *current = form;
    const cli_options *o = t->options;
    bool keeps;
    int status = CLI_DONE;
    /* The form itself has those of its file. */
    static const skv_weights narrower[] = {SKV_WEIGHTS_INT8, SKV_WEIGHTS_INT4};
    const bool by_time = o->weights == SKV_WEIGHTS_AUTO && t->cost != TUNE_COST_KV_BYTES;
    for (size_t i = 0; by_time && i < 2 && status == CLI_DONE; i++) {
        tune_setting how = current->how;
        how.weights = narrower[i];
        status = try_change(t, &how, &current, &keeps);
    }
    if (t->cost == TUNE_COST_TTFT)
        return status; /* the other options only act after the first
                        * token */
    if (o->kv == SKV_KV_AUTO && status == CLI_DONE) {
        tune_setting how = current->how;
        how.kv = SKV_KV_INT8;
        status = try_change(t, &how, &current, &keeps);
    }
    return status == CLI_DONE ? evict(t, &current) : status;
}

/* The cheapest forms that keep the floor, at most BASES of them. */
static size_t choose_bases(const tune *t, size_t *bases)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_points; i++) {
        if (!t->points[i].keeps) continue;
        size_t at = n < BASES ? n++ : BASES;
        while (at > 0 && t->points[i].cost < t->points[bases[at - 1]].cost) {
            if (at < BASES) bases[at] = bases[at - 1];
            at--;
        }
        if (at < BASES) bases[at] = i;
    }
    return n;
}

/* How the model itself runs, without any method: a SwiftKV file as its teacher. */
static int plain_setting(tune *t, tune_setting *out)
{
    skv_error err = {0};
    skv_model_info info;
    const char *path = t->options->operands[0];
    const int status = cli_check(skv_model_info_read(path, &info, &err), &err);
    if (status != CLI_DONE) return status;
    *out = (tune_setting){.path = path,
                          .prefill = info.swiftkv ? SKV_PREFILL_TEACHER : SKV_PREFILL_FULL,
                          .weights = t->options->weights,
                          .kv = t->options->kv};
    t->context = TEXT_WINDOW < info.context ? TEXT_WINDOW : info.context;
    return CLI_DONE;
}

static int search(tune *t)
{
    tune_setting how;
    const tune_point *point;
    int status = plain_setting(t, &how);
    if (status == CLI_DONE) status = measure(t, &how);
    if (status != CLI_DONE) return status;
    skv_model_info info = {0};
    skv_error err = {0};
    status = cli_check(skv_model_info_read(how.path, &info, &err), &err);
    if (status == CLI_DONE) {
        const cli_model model = {.path = how.path, .info = info};
        cli_note_length(&model, "--ctx", t->options->context);
    }
    how.prefill = SKV_PREFILL_AUTO;
    const skv_model_kind kind = info.traits.kind;
    const bool plain =
        kind == SKV_MODEL_ORDINARY || kind == SKV_MODEL_SHARED || kind == SKV_MODEL_HYBRID;
    if (status == CLI_DONE && !plain) status = visit(t, &how, &point);
    if (status == CLI_DONE && kind == SKV_MODEL_ORDINARY && t->options->work) {
        status = rewire(t, &how, info.layers);
    }
    for (size_t i = 0; i < t->options->also.n && status == CLI_DONE; i++) {
        how.path = t->options->also.at[i];
        status = visit(t, &how, &point);
    }
    size_t bases[BASES];
    const size_t n = choose_bases(t, bases);
    for (size_t i = 0; i < n && status == CLI_DONE; i++) {
        status = refine(t, &t->points[bases[i]]);
    }
    return status;
}

static tune_cost cost_of(const char *name)
{
    if (name && strcmp(name, "ttft") == 0) return TUNE_COST_TTFT;
    if (name && strcmp(name, "kv-bytes") == 0) return TUNE_COST_KV_BYTES;
    return TUNE_COST_TOTAL;
}

int cli_run_tune(const cli_options *options)
{
    tune *t = cli_alloc(1, sizeof *t);
    t->options = options;
    t->cost = cost_of(options->cost);
    cli_interrupt_watch(options->interrupt, NULL);
    int status = search(t);
    if (status == CLI_DONE) status = tune_time_again(t);
    cli_interrupt_unwatch(options->interrupt);
    /* A stopped search prints its results so far. */
    if (t->n_points > 0 && options->json) {
        tune_print_json(t);
    } else if (t->n_points > 0) {
        tune_print_result(t);
    }
    skv_eval_report_free(t->plain);
    free(t);
    return status;
}
