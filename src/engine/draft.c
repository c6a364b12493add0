/* The table of draft sources, sources as text ("text:8"), and the drafts of a sequence: see draft.h
 * and skv/speculation.h. */
#include "engine/draft.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"

/* Logits that are further below the best one count as nothing. */
#define FAR_BELOW 20.0f

static const skv_draft_method text_self = {.name = "text+self",
                                           .form = "[K,P]",
                                           .about = "text where it has something to say, else self",
                                           .id = SKV_DRAFT_TEXT_SELF,
                                           .most = 12,
                                           .sure = 0.4,
                                           .first = &skv_draft_text,
                                           .then = &skv_draft_self};
static const skv_draft_method text_aux = {.name = "text+aux",
                                          .form = "[K,P]",
                                          .about = "text where it has something to say, else aux",
                                          .id = SKV_DRAFT_TEXT_AUX,
                                          .most = 12,
                                          .sure = 0.4,
                                          .first = &skv_draft_text,
                                          .then = &skv_draft_aux};

static const skv_draft_method *const methods[] = {&skv_draft_text, &skv_draft_self, &skv_draft_aux,
                                                  &text_self, &text_aux};

enum { N_METHODS = sizeof methods / sizeof methods[0] };

static const skv_draft_method *method_of(skv_drafting id)
{
    for (size_t i = 0; i < N_METHODS; i++) {
        if (methods[i]->id == id) return methods[i];
    }
    return NULL;
}

bool skv_speculation_form(size_t i, const char **name, const char **form, const char **about)
{
    if (i >= N_METHODS) return false;
    *name = methods[i]->name;
    *form = methods[i]->form;
    *about = methods[i]->about;
    return true;
}

const char *skv_drafting_name(skv_drafting source)
{
    const skv_draft_method *method = method_of(source);
    return method ? method->name : NULL;
}

/* ---- as text ---- */

static const skv_draft_method *find_method(const char *name, size_t n)
{
    for (size_t i = 0; i < N_METHODS; i++) {
        if (strlen(methods[i]->name) == n && memcmp(methods[i]->name, name, n) == 0) {
            return methods[i];
        }
    }
    return NULL;
}

/* "K" or, where the source takes a probability, "K,P". */
static skv_status parse_numbers(const skv_draft_method *method, const char *text,
                                skv_speculation *how, skv_error *err)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long most = strtoull(text, &end, 10);
    const bool more = *end == ',' && method->sure > 0;
    const bool ok = *text >= '0' && *text <= '9' && (*end == 0 || more) && errno == 0;
    SKV_REQUIRE(ok && most <= SKV_DRAFT_MAX, err, SKV_ARGUMENT, "K '%.40s' is not from 1 to %d",
                text, SKV_DRAFT_MAX);
    how->most = (size_t)most;
    if (!more) return SKV_OK;
    const char *number = end + 1;
    how->sure = strtod(number, &end);
    SKV_REQUIRE((*number == '.' || (*number >= '0' && *number <= '9')) && *end == 0, err,
                SKV_ARGUMENT, "P '%.40s' is not from 0 to 1", number);
    return SKV_OK;
}

static skv_status check(const skv_speculation *how, skv_error *err)
{
    if (how->source == SKV_DRAFT_NONE) return SKV_OK;
    SKV_REQUIRE(method_of(how->source), err, SKV_ARGUMENT, "no source %d", (int)how->source);
    SKV_REQUIRE(how->most >= 1 && how->most <= SKV_DRAFT_MAX, err, SKV_ARGUMENT,
                "K '%zu' is not from 1 to %d", how->most, SKV_DRAFT_MAX);
    SKV_REQUIRE(how->sure >= 0 && how->sure <= 1, err, SKV_ARGUMENT, "P '%g' is not from 0 to 1",
                how->sure);
    return SKV_OK;
}

skv_status skv_speculation_parse(const char *text, skv_speculation *out, skv_error *err)
{
    const size_t n = strcspn(text, ":");
    const skv_draft_method *method = find_method(text, n);
    if (strcmp(text, "none") == 0) {
        *out = (skv_speculation){.source = SKV_DRAFT_NONE};
        return SKV_OK;
    }
    SKV_REQUIRE(method, err, SKV_ARGUMENT,
                "'%.40s' is neither none, text[:K], self[:K,P], aux[:K,P], text+self[:K,P] nor "
                "text+aux[:K,P]",
                text);
    skv_speculation how = {method->id, method->most, method->sure};
    if (text[n] == ':') SKV_TRY(parse_numbers(method, text + n + 1, &how, err));
    SKV_TRY(check(&how, err));
    *out = how;
    return SKV_OK;
}

skv_status skv_speculation_check(const skv_speculation *how, skv_error *err)
{
    const skv_status status = check(how, err);
    return status == SKV_OK ? SKV_OK : skv_fail_within(err, status, "speculation");
}

void skv_speculation_print(const skv_speculation *how, char out[SKV_SPECULATION_TEXT])
{
    const skv_draft_method *method = method_of(how->source);
    const char *name = method ? method->name : NULL;
    if (name && method->sure > 0) {
        (void)snprintf(out, SKV_SPECULATION_TEXT, "%s:%zu,%.6g", name, how->most, how->sure);
    } else if (name) {
        (void)snprintf(out, SKV_SPECULATION_TEXT, "%s:%zu", name, how->most);
    } else {
        (void)snprintf(out, SKV_SPECULATION_TEXT, "none");
    }
}

/* ---- of a sequence ---- */

bool skv_draft_is_sure(const float *logits, size_t n, size_t best, double sure)
{
    /* 1 / sum of exp(logit - best) is its probability. */
    const float top = logits[best];
    double sum = 0;
    for (size_t i = 0; i < n && sum * sure <= 1; i++) {
        if (logits[i] > top - FAR_BELOW) sum += (double)expf(logits[i] - top);
    }
    return sum * sure <= 1;
}

void skv_drafter_free(skv_drafter *d)
{
    if (!d) return;
    if (d->text) d->text->free(d->state);
    skv_free(d->ready.x);
    skv_free(d);
}

static skv_status create_drafter(const skv_speculation *how, const skv_sequence *s,
                                 skv_drafter **out, skv_error *err)
{
    skv_drafter *d = skv_alloc_zero(1, sizeof *d);
    SKV_REQUIRE(d, err, SKV_MEMORY, "drafts: no memory");
    const skv_draft_method *method = method_of(how->source);
    d->text = method->first ? method->first : method->propose ? method : NULL;
    d->model = method->then ? method->then : method->run ? method : NULL;
    d->most = how->most;
    d->reach = how->most;
    d->sure = how->sure;
    skv_status status = SKV_OK;
    if (d->model && d->model->keeps_rows) {
        d->ready.x = skv_alloc((SKV_DRAFT_MAX + 1) * s->engine->config->hidden, sizeof(float));
        if (!d->ready.x) status = skv_fail(err, SKV_MEMORY, "drafts: no memory");
    }
    if (d->text && status == SKV_OK) status = d->text->create(s->max_tokens, &d->state, err);
    if (status != SKV_OK) {
        skv_drafter_free(d);
        return status;
    }
    *out = d;
    return SKV_OK;
}

/* How its tokens are read, where that is not as the engine's options say. */
static skv_prefill prefill_of(const skv_sequence *s)
{
    if (s->plan == &s->engine->teacher_plan) return SKV_PREFILL_TEACHER;
    return s->unskipped ? SKV_PREFILL_FULL : SKV_PREFILL_AUTO;
}

skv_status skv_sequence_set_speculation(skv_sequence *s, const skv_speculation *how, skv_error *err)
{
    skv_drafter *drafter = NULL;
    SKV_TRY(skv_speculation_check(how, err));
    if (how->source != SKV_DRAFT_NONE) {
        SKV_TRY(skv_engine_check_speculation(s->engine, prefill_of(s), how, err));
        SKV_TRY(create_drafter(how, s, &drafter, err));
    }
    skv_sequence_keep_ready(s, 0);
    skv_drafter_free(s->drafter);
    s->drafter = drafter;
    return SKV_OK;
}

/* Tokens that may be drafted; a step has the next token and the draft, and the sequence has room
 * for both. */
static size_t prepare(const skv_draft_request *r)
{
    skv_sequence *s = r->sequence;
    const skv_drafter *d = s->drafter;
    const size_t room = skv_min_size(s->max_tokens - s->n_seen, s->engine->options.step_tokens);
    if (!d || room < 2) return 0;
    skv_sequence_keep_ready(s, 0);
    s->ids[s->n_seen] = r->next;
    return skv_min_size(skv_min_size(r->most, room - 1), d->most);
}

/* The requests from i on that a model drafts for in the same steps as for that one. */
static size_t together(const skv_draft_request *r, size_t i, size_t n)
{
    const skv_sequence *first = r[i].sequence;
    size_t end = i + 1;
    for (; end < n && end - i < SKV_LOGIT_ROWS; end++) {
        const skv_sequence *s = r[end].sequence;
        if (r[end].most == 0 || r[end].n > 0 || s->plan != first->plan) break;
        if (s->drafter->model != first->drafter->model) break;
    }
    return end - i;
}

static void propose(skv_draft_request *r)
{
    const skv_sequence *s = r->sequence;
    skv_drafter *d = s->drafter;
    if (!d->text) return;
    const size_t most = skv_min_size(r->most, d->reach);
    r->n = d->text->propose(d->state, s->ids, s->n_seen + 1, r->out, most);
    d->last = d->text->id;
}

void skv_sequences_draft(skv_draft_request *requests, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        requests[i].n = 0;
        requests[i].most = prepare(&requests[i]);
        if (requests[i].most > 0) propose(&requests[i]);
    }
    for (size_t i = 0, n_same; i < n; i += n_same) {
        skv_draft_request *r = &requests[i];
        n_same = 1;
        if (r->most == 0 || r->n > 0 || !r->sequence->drafter->model) continue;
        n_same = together(requests, i, n);
        for (size_t k = 0; k < n_same; k++) {
            skv_drafter *d = r[k].sequence->drafter;
            d->last = d->model->id;
        }
        r->sequence->drafter->model->run(r, n_same);
    }
}

size_t skv_sequence_draft(skv_sequence *s, int32_t next, int32_t *out, size_t most)
{
    skv_draft_request request = {.sequence = s, .next = next, .out = out, .most = most};
    skv_sequences_draft(&request, 1);
    return request.n;
}

size_t skv_sequence_ready(const skv_sequence *s, const int32_t *ids, size_t n)
{
    const skv_drafter *d = s->drafter;
    if (!d || d->ready.n < n) return 0;
    return memcmp(s->ids + s->n_seen, ids, n * sizeof *ids) == 0 ? n : 0;
}

void skv_sequence_keep_ready(skv_sequence *s, size_t n)
{
    skv_drafter *d = s->drafter;
    if (s->reader) skv_kv_cache_truncate(&s->reader->cache, s->n_seen + n);
    if (!d || d->ready.n <= n) return;
    skv_kv_cache_truncate(&s->cache, s->n_seen + n);
    d->ready.n = n;
}

void skv_sequence_settle(skv_sequence *s, size_t n_drafted, size_t n_right)
{
    skv_drafter *d = s->drafter;
    assert(d && n_right <= n_drafted && n_drafted < s->n_seen);
    skv_sequence_truncate(s, s->n_seen - (n_drafted - n_right));
    d->counts[d->last].drafted += n_drafted;
    d->counts[d->last].accepted += n_right;
    if (d->last != SKV_DRAFT_TEXT) return;
    if (n_right == n_drafted) {
        d->reach = skv_min_size(d->most, 2 * d->reach);
    } else {
        d->reach = skv_max_size(1, (d->reach + n_right) / 2);
    }
}

skv_draft_counts skv_sequence_drafts(const skv_sequence *s, skv_drafting source)
{
    const skv_drafter *d = s->drafter;
    return d ? d->counts[source] : (skv_draft_counts){0};
}
