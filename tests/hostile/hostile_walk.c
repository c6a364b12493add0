/* What is done with a grammar and a template: see hostile_run.h. */
#include <string.h>

#include "alloc_meter.h"
#include "grammar/token_table.h"
#include "hostile_run.h"
#include "skv/grammar.h"
#include "skv/text.h"

enum {
    STEPS = 24,
    PIECE_WORK = 1 << 18, /* units: some milliseconds */
    PIECES_MAX = 1000,
    MATCHER_BYTES = 160 << 20,
    UNCOUNTED = 1 << 20 /* bytes that need not be in an account */
};

/* ---- masks ---- */

typedef struct hostile_walk {
    hostile_job *job;
    skv_matcher *m;
    skv_rng rng;
    uint64_t begun;
    uint32_t bits[1 << 8];
} hostile_walk;

static skv_budget piece_budget(void)
{
    skv_limits limits = skv_limits_default();
    skv_budget budget;
    limits.work = PIECE_WORK;
    limits.max_ns = 0;
    skv_budget_init(&budget, &limits);
    return budget;
}

/* Times a piece; what it adds up to is a mask or a token. */
static void count_piece(hostile_walk *w, uint64_t before, uint64_t *sum)
{
    uint64_t ns = hostile_cpu_ns() - before;
    hostile_result *out = w->job->out;
    *sum += ns;
    if (ns > out->piece_ns) out->piece_ns = ns;
    if (*sum > out->mask_ns) out->mask_ns = *sum;
    if (ns > w->job->limits->piece_ns) {
        hostile_fault(w->job, "piece: %.3f s, at most %.3f", (double)ns * 1e-9,
                      (double)w->job->limits->piece_ns * 1e-9);
    }
}

/* False: the walk ends here. A limit of masks is an answer's end, and no fault; how long a whole
 * mask may take is the scheduler's business. */
static bool prepare(hostile_walk *w)
{
    skv_error err = {0};
    uint64_t sum = 0;
    bool ready = false;
    skv_status status = SKV_OK;
    while (sum < w->job->limits->ns / 2 && status == SKV_OK && !ready) {
        skv_budget budget = piece_budget();
        uint64_t before = hostile_cpu_ns();
        status = skv_matcher_prepare(w->m, &budget, &ready, &err);
        count_piece(w, before, &sum);
        skv_budget_release(&budget);
    }
    if (status != SKV_OK && status != SKV_FULL && status != SKV_RANGE) {
        hostile_fault(w->job, "mask: status \"%s\": %s", skv_status_name(status), err.text);
    }
    return status == SKV_OK && ready;
}

/* A random allowed token; -1: there is none. */
static int32_t pick(hostile_walk *w)
{
    float logits[1 << 12];
    size_t n = w->job->table->n_tokens, n_allowed = 0;
    int32_t chosen = -1;
    for (size_t i = 0; i < n; i++) logits[i] = 0;
    bool any = skv_matcher_mask_logits(w->m, logits, n);
    for (size_t i = 0; i < n; i++) {
        if (logits[i] < 0) continue;
        if (skv_rng_below(&w->rng, ++n_allowed) == 0) chosen = (int32_t)i;
    }
    if (any != (chosen >= 0)) hostile_fault(w->job, "mask: %d, but token %d", any, (int)chosen);
    return any ? chosen : -1;
}

static bool accept(hostile_walk *w, int32_t id)
{
    skv_error err = {0};
    uint64_t sum = 0;
    bool done = false;
    skv_status status = SKV_OK;
    for (size_t i = 0; i < PIECES_MAX && status == SKV_OK && !done; i++) {
        skv_budget budget = piece_budget();
        uint64_t before = hostile_cpu_ns();
        status = skv_matcher_accept(w->m, id, &budget, &done, &err);
        count_piece(w, before, &sum);
        skv_budget_release(&budget);
    }
    if (status == SKV_ARGUMENT) hostile_fault(w->job, "token %d: allowed, but not taken", (int)id);
    return status == SKV_OK && done;
}

/* A copy goes another way, and what it takes back it can do again. */
static void try_copy(hostile_walk *w, int32_t id)
{
    hostile_walk other = *w;
    if (skv_matcher_copy(w->m, &other.m, NULL) != SKV_OK) return;
    char forced[32];
    size_t n = skv_matcher_forced(other.m, forced, sizeof forced);
    if (n > sizeof forced) hostile_fault(w->job, "forced: %zu bytes", n);
    if (accept(&other, id)) {
        if (!skv_matcher_rollback(other.m, 1)) hostile_fault(w->job, "rollback: refused");
        if (!accept(&other, id)) hostile_fault(w->job, "token %d: not taken again", (int)id);
    }
    skv_matcher_free(other.m);
}

static void walk(hostile_job *job, const skv_grammar *grammar, skv_account *account)
{
    hostile_walk w = {.job = job, .begun = hostile_cpu_ns()};
    size_t before = alloc_meter_used();
    skv_error err = {0};
    skv_rng_init(&w.rng, job->c->seed);
    skv_status status = skv_matcher_create(grammar, job->table, account, &w.m, &err);
    /* Already the first position may meet a limit. */
    if (status == SKV_FULL) job->out->status = SKV_RANGE;
    if (status == SKV_FULL) return;
    if (status != SKV_OK) {
        hostile_fault(job, "matcher: status \"%s\": %s", skv_status_name(status), err.text);
        return;
    }
    for (size_t i = 0; i < STEPS && !skv_matcher_is_finished(w.m); i++) {
        if (hostile_cpu_ns() - w.begun > job->limits->ns / 2 || !prepare(&w)) break;
        int32_t id = pick(&w);
        if (i % 6 == 5 && id >= 0) try_copy(&w, id);
        if (id < 0 || !accept(&w, id)) break;
        job->out->n_tokens++;
        size_t held = alloc_meter_used() - before, counted = skv_account_used(account);
        if (held > counted + counted / 10 + UNCOUNTED) {
            hostile_fault(job, "matcher: %zu bytes held, %zu counted", held, counted);
        }
    }
    size_t n = job->out->n_tokens;
    if (n > 0 && !skv_matcher_rollback(w.m, n))
        hostile_fault(job, "rollback: %zu tokens refused", n);
    skv_matcher_free(w.m);
    if (skv_account_used(account) != 0) {
        hostile_fault(job, "matcher: %zu bytes are still counted", skv_account_used(account));
    }
}

/* ---- grammars ---- */

static skv_grammar_kind grammar_kind(hostile_kind kind)
{
    switch (kind) {
    case HOSTILE_SCHEMA: return SKV_GRAMMAR_JSON_SCHEMA;
    case HOSTILE_REGEX: return SKV_GRAMMAR_REGEX;
    case HOSTILE_CHOICE: return SKV_GRAMMAR_CHOICE;
    case HOSTILE_PARTS: return SKV_GRAMMAR_PARTS;
    default: return SKV_GRAMMAR_GBNF;
    }
}

void hostile_run_grammar(hostile_job *job)
{
    const hostile_case *c = job->c;
    skv_error err = {0};
    skv_grammar *grammar = NULL;
    skv_account *account = NULL;
    skv_budget budget;
    if (skv_account_create(MATCHER_BYTES, &account, &err) != SKV_OK) return;
    skv_budget_init(&budget, NULL);
    budget.account = account;
    size_t before = alloc_meter_used();
    alloc_meter_reset();
    uint64_t begun = hostile_cpu_ns();
    skv_status status = skv_grammar_compile(grammar_kind(c->kind), c->text.data ? c->text.data : "",
                                            c->text.size, &budget, &grammar, &err);
    job->out->ns = hostile_cpu_ns() - begun;
    job->out->bytes = alloc_meter_peak() - before;
    hostile_judge(job, status, &err);
    if (job->out->bytes > budget.max.bytes + budget.max.bytes / 10 + UNCOUNTED) {
        hostile_fault(job, "memory: %zu bytes to compile, %zu counted", job->out->bytes,
                      skv_account_peak(account));
    }
    skv_budget_release(&budget);
    if (status == SKV_OK) walk(job, grammar, account);
    skv_grammar_free(grammar);
    skv_account_free(account);
}

/* ---- templates ---- */

void hostile_run_template(hostile_job *job)
{
    const hostile_case *c = job->c;
    skv_error err = {0};
    char *text = NULL;
    size_t n = 0;
    uint64_t begun = hostile_cpu_ns();
    const skv_render_input input = {
        .template_text = {c->text.data ? c->text.data : "", c->text.size},
        .vars = {c->more.data, c->more.size}};
    skv_status status = skv_render(&input, &text, &n, &err);
    job->out->ns = hostile_cpu_ns() - begun;
    hostile_judge(job, status, &err);
    skv_text_free(text);
}
