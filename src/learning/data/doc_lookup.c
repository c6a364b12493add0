/* Lookup: register lines in the style of LongEval, and key-value pairs in several notations. */
#include <stdio.h>

#include "data/doc_writer.h"

enum { REGISTER_MAX = 50000, QUESTION_MAX = 256 };

/* The i-th fact to ask for: any, so that depths are uniform and an entry may be asked twice. */
static const skv_doc_fact *any_fact(skv_doc_writer *w)
{
    return w->n_facts > 0 ? &w->facts[skv_doc_below(w, w->n_facts)] : NULL;
}

void skv_doc_write_lines(skv_doc_writer *w)
{
    const skv_doc_key kind = skv_doc_any_key(w);
    const bool mixed = skv_doc_below(w, 4) == 0;
    (void)skv_doc_line(w, NULL, "%s",
                       skv_doc_below(w, 2) == 0 ? "Remember the content of every line.\n" : "");
    while (w->status == SKV_OK) {
        skv_doc_fact fact = {.at = 0};
        skv_doc_new_key(w, mixed ? skv_doc_any_key(w) : kind, &fact.key);
        fact.number[0] = skv_doc_number(w, 1, REGISTER_MAX);
        if (!skv_doc_line(w, &fact.at, "line %s: REGISTER_CONTENT is <%d>\n", fact.key.text,
                          (int)fact.number[0])) {
            break;
        }
        skv_doc_fact *kept = skv_doc_fact_new(w);
        if (!kept) return;
        *kept = fact;
    }
    const skv_doc_fact *fact;
    bool more = true;
    while (more && (fact = any_fact(w))) {
        char question[QUESTION_MAX], answer[32];
        snprintf(question, sizeof question, "What is the <REGISTER_CONTENT> in line %s?",
                 fact->key.text);
        snprintf(answer, sizeof answer, "%d", (int)fact->number[0]);
        more = skv_doc_ask(w, fact->at, question, answer);
    }
}

/* ---- key-value pairs ---- */

/* A notation: how an entry and its question look; both take key and value or key. */
typedef enum notation { NOTATION_JSON, NOTATION_ASSIGN, NOTATION_ARROW, NOTATION_PROSE } notation;

static bool put_pair(skv_doc_writer *w, notation how, skv_doc_fact *fact)
{
    const char *key = fact->key.text, *value = fact->value.text;
    switch (how) {
    case NOTATION_JSON: return skv_doc_line(w, &fact->at, "\"%s\": \"%s\",\n", key, value);
    case NOTATION_ASSIGN: return skv_doc_line(w, &fact->at, "%s = %s\n", key, value);
    case NOTATION_ARROW: return skv_doc_line(w, &fact->at, "%s -> %s\n", key, value);
    case NOTATION_PROSE: break;
    }
    return skv_doc_line(w, &fact->at, "The code of %s is %s.\n", key, value);
}

static void draw_value(skv_doc_writer *w, size_t kind, skv_doc_word *out)
{
    if (kind == 0) {
        skv_doc_new_key(w, SKV_KEY_NUMBER, out);
    } else if (kind == 1) {
        skv_doc_new_key(w, SKV_KEY_PSEUDO, out);
    } else if (kind == 2) {
        skv_doc_new_key(w, SKV_KEY_PAIR, out);
    } else {
        const uint64_t bits = skv_rng_next(&w->rng);
        snprintf(out->text, sizeof out->text, "%06x", (unsigned)(bits & 0xffffff));
    }
}

void skv_doc_write_kv(skv_doc_writer *w)
{
    const notation how = (notation)skv_doc_below(w, 4);
    const skv_doc_key kind = skv_doc_any_key(w);
    const size_t value_kind = skv_doc_below(w, 4);
    while (w->status == SKV_OK) {
        skv_doc_fact fact = {.at = 0};
        skv_doc_new_key(w, kind, &fact.key);
        draw_value(w, value_kind, &fact.value);
        if (!put_pair(w, how, &fact)) break;
        skv_doc_fact *kept = skv_doc_fact_new(w);
        if (!kept) return;
        *kept = fact;
    }
    const skv_doc_fact *fact;
    bool more = true;
    while (more && (fact = any_fact(w))) {
        char question[QUESTION_MAX];
        snprintf(question, sizeof question,
                 how == NOTATION_PROSE ? "What is the code of %s?" : "What is the value of %s?",
                 fact->key.text);
        more = skv_doc_ask(w, fact->at, question, fact->value.text);
    }
}
