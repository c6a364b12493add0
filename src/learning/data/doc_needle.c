/* Needles: facts between sentences of prose, from a text that is given or made up. */
#include <stdio.h>

#include "base/size.h"
#include "data/doc_writer.h"

enum { SENTENCE_MAX = 400, NEEDLES_MAX = 16, NEEDLE_TOKENS = 24, SENTENCE_TOKENS = 24 };

static void made_up(skv_doc_writer *w, char out[SENTENCE_MAX])
{
    const char *who = skv_doc_pick(w, SKV_WORDS_FIRST_NAMES);
    const char *how = skv_doc_pick(w, SKV_WORDS_ADJECTIVES), *what = skv_doc_noun(w);
    const char *where = skv_doc_pick(w, SKV_WORDS_PLACES), *other = skv_doc_noun(w);
    const char *town = skv_doc_pick(w, SKV_WORDS_CITIES);
    switch (skv_doc_below(w, 6)) {
    case 0:
        snprintf(out, SENTENCE_MAX, "%s saw the %s %s near the %s.", who, how, what, where);
        break;
    case 1:
        snprintf(out, SENTENCE_MAX, "The %s was closed, so %s went to %s.", where, who, town);
        break;
    case 2:
        snprintf(out, SENTENCE_MAX, "Nobody in %s had ever seen such a %s %s.", town, how, what);
        break;
    case 3:
        snprintf(out, SENTENCE_MAX, "Behind the %s stood a %s and a %s.", where, what, other);
        break;
    case 4:
        snprintf(out, SENTENCE_MAX, "%s wanted to buy a %s, but there was only a %s.", who, what,
                 other);
        break;
    default:
        snprintf(out, SENTENCE_MAX, "On the way to the %s, %s talked about the %s %s.", where, who,
                 how, what);
        break;
    }
}

static bool ends_sentence(const char *text, size_t i, size_t n)
{
    return (text[i] == '.' || text[i] == '!' || text[i] == '?') && i + 1 < n &&
           (text[i + 1] == ' ' || text[i + 1] == '\n');
}

/* The sentence of the prose that begins at or after *at, its line breaks made spaces; moves *at
 * past it. False when there is none of a fitting length within reach. */
static bool from_prose(const skv_doc_prose *prose, size_t *at, char out[SENTENCE_MAX])
{
    const char *text = prose->text;
    for (size_t tries = 0; tries < 64; tries++) {
        size_t i = *at, n = 0;
        while (i < prose->n && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r')) i++;
        for (; i < prose->n && n + 1 < SENTENCE_MAX; i++) {
            char c = text[i];
            const bool gap = c == ' ' || c == '\n' || c == '\r' || c == '\t';
            if (gap && n > 0 && out[n - 1] == ' ') continue;
            out[n++] = gap ? ' ' : c;
            if (ends_sentence(text, i, prose->n)) break;
        }
        if (i >= prose->n) {
            *at = 0;
            continue;
        }
        *at = i + 1;
        out[n] = 0;
        if (n > 8 && n + 1 < SENTENCE_MAX && (unsigned char)out[0] < 0x80) return true;
    }
    return false;
}

static bool put_sentence(skv_doc_writer *w, size_t *at)
{
    char sentence[SENTENCE_MAX];
    if (!w->prose.text || w->prose.n == 0 || !from_prose(&w->prose, at, sentence)) {
        made_up(w, sentence);
    }
    return skv_doc_line(w, NULL, "%s ", sentence);
}

/* A needle takes room that is kept for it while the prose is written. */
static bool put_needle(skv_doc_writer *w)
{
    skv_doc_fact fact = {.at = 0};
    skv_doc_new_key(w, SKV_KEY_PAIR, &fact.key);
    for (char *c = fact.key.text; *c; c++) {
        if (*c == '-') *c = ' ';
    }
    skv_doc_new_key(w, SKV_KEY_NUMBER, &fact.value);
    w->reserve -= NEEDLE_TOKENS;
    if (!skv_doc_line(w, &fact.at, "The secret number of the %s is %s. ", fact.key.text,
                      fact.value.text)) {
        return false;
    }
    skv_doc_fact *kept = skv_doc_fact_new(w);
    if (kept) *kept = fact;
    return kept;
}

void skv_doc_write_needle(skv_doc_writer *w)
{
    const size_t room = w->budget > w->used + w->reserve ? w->budget - w->used - w->reserve : 0;
    const size_t most = skv_max_size(1, skv_min_size(NEEDLES_MAX, room / 4 / NEEDLE_TOKENS));
    size_t left = 1 + skv_doc_below(w, most);
    size_t at = w->prose.n > 0 ? skv_doc_below(w, w->prose.n) : 0;
    const size_t end = w->used + room;
    bool more = true;
    w->reserve += left * NEEDLE_TOKENS;
    /* Each place between two sentences is a needle's with the chance that spreads them evenly. */
    while (more && w->status == SKV_OK) {
        const size_t gaps = (end - skv_min_size(end, w->used)) / SENTENCE_TOKENS + 1;
        if (left > 0 && skv_doc_below(w, skv_max_size(gaps, left)) < left) {
            left--;
            if (!put_needle(w)) break;
        }
        more = put_sentence(w, &at);
    }
    while (left-- > 0 && w->status == SKV_OK) { /* full before its last needle */
        if (!put_needle(w)) break;
    }
    more = w->n_facts > 0;
    while (more) {
        const skv_doc_fact *fact = &w->facts[skv_doc_below(w, w->n_facts)];
        char question[160];
        snprintf(question, sizeof question, "What is the secret number of the %s?", fact->key.text);
        more = skv_doc_ask(w, fact->at, question, fact->value.text);
    }
}
