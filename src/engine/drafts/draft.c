/* The table of draft sources, and sources as text ("text:8"): see draft.h and skv/speculation.h. */
#include "drafts/draft.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Text where it proposes a draft, else the other source. */
#define TEXT_ELSE(other, own_id)                                                                   \
    {                                                                                              \
        .name = "text+" #other, .id = (own_id), .most = 12, .sure = 0.4, .first = &skv_draft_text, \
        .then = &skv_draft_##other                                                                 \
    }
static const skv_draft_method text_self = TEXT_ELSE(self, SKV_DRAFT_TEXT_SELF);
static const skv_draft_method text_aux = TEXT_ELSE(aux, SKV_DRAFT_TEXT_AUX);
static const skv_draft_method text_model = TEXT_ELSE(model, SKV_DRAFT_TEXT_MODEL);
static const skv_draft_method text_mtp = TEXT_ELSE(mtp, SKV_DRAFT_TEXT_MTP);
/* A sequence gets one of the others: drafter.c. */
static const skv_draft_method automatic = {
    .name = "auto", .id = SKV_DRAFT_AUTO, .most = 16, .sure = 0.4};

static const skv_draft_method *const methods[] = {
    &skv_draft_text, &skv_draft_self, &skv_draft_aux, &skv_draft_model, &skv_draft_mtp,
    &text_self,      &text_aux,       &text_model,    &text_mtp,        &automatic};

enum { N_METHODS = sizeof methods / sizeof methods[0] };

const skv_draft_method *skv_draft_method_of(skv_drafting id)
{
    for (size_t i = 0; i < N_METHODS; i++) {
        if (methods[i]->id == id) return methods[i];
    }
    return NULL;
}

const char *skv_drafting_name(skv_drafting source)
{
    const skv_draft_method *method = skv_draft_method_of(source);
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
    SKV_REQUIRE(skv_draft_method_of(how->source), err, SKV_ARGUMENT, "no source %d",
                (int)how->source);
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
    SKV_REQUIRE(
        method, err, SKV_ARGUMENT,
        "'%.40s' is neither none, auto[:K,P], text[:K], self[:K,P], aux[:K,P], model[:K,P], "
        "mtp[:K,P], text+self[:K,P], text+aux[:K,P], text+model[:K,P] nor text+mtp[:K,P]",
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
    const skv_draft_method *method = skv_draft_method_of(how->source);
    const char *name = method ? method->name : NULL;
    if (name && method->sure > 0) {
        (void)snprintf(out, SKV_SPECULATION_TEXT, "%s:%zu,%.6g", name, how->most, how->sure);
    } else if (name) {
        (void)snprintf(out, SKV_SPECULATION_TEXT, "%s:%zu", name, how->most);
    } else {
        (void)snprintf(out, SKV_SPECULATION_TEXT, "none");
    }
}
