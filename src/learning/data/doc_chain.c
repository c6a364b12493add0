/* Tasks that combine facts: chains of assignments, and facts over several hops. */
#include <stdio.h>

#include "data/doc_writer.h"

enum { CHAIN_MAX = 5, CHAINS_MAX = 4, QUESTION_MAX = 256 };

/* ---- variables ---- */

/* A chain in progress: the name assigned last, and its number. */
typedef struct chain {
    skv_doc_word name;
    int64_t value;
    size_t n; /* names so far */
    size_t wanted;
} chain;

static bool assign(skv_doc_writer *w, chain *c)
{
    skv_doc_fact fact = {.at = 0};
    skv_doc_new_key(w, skv_doc_below(w, 2) == 0 ? SKV_KEY_CODE : SKV_KEY_PSEUDO, &fact.key);
    if (c->n == 0) {
        c->value = skv_doc_number(w, 100, 99999);
        c->wanted = 1 + skv_doc_below(w, CHAIN_MAX);
        if (!skv_doc_line(w, &fact.at, "%s = %lld\n", fact.key.text, (long long)c->value)) {
            return false;
        }
    } else if (!skv_doc_line(w, &fact.at, "%s = %s\n", fact.key.text, c->name.text)) {
        return false;
    }
    fact.number[0] = c->value;
    c->name = fact.key;
    if (++c->n == c->wanted) c->n = 0;
    skv_doc_fact *kept = skv_doc_fact_new(w);
    if (kept) *kept = fact;
    return kept;
}

void skv_doc_write_variables(skv_doc_writer *w)
{
    chain chains[CHAINS_MAX] = {0};
    const size_t n_chains = 1 + skv_doc_below(w, CHAINS_MAX);
    while (assign(w, &chains[skv_doc_below(w, n_chains)])) continue;
    bool more = w->n_facts > 0;
    while (more) {
        const skv_doc_fact *fact = &w->facts[skv_doc_below(w, w->n_facts)];
        char question[QUESTION_MAX], answer[32];
        snprintf(question, sizeof question, "Which number is %s?", fact->key.text);
        snprintf(answer, sizeof answer, "%lld", (long long)fact->number[0]);
        more = skv_doc_ask(w, fact->at, question, answer);
    }
}

/* ---- hops ---- */

/* number[] of a fact: a person's company and manager (-1: none), a company's city. */
enum { COMPANY, MANAGER };

typedef struct people {
    size_t companies[64], n_companies; /* indices of facts */
    size_t persons[512], n_persons;
} people;

static bool add_company(skv_doc_writer *w, people *p)
{
    skv_doc_fact fact = {.at = 0};
    skv_doc_new_key(w, SKV_KEY_COMPANY, &fact.key);
    snprintf(fact.value.text, sizeof fact.value.text, "%s", skv_doc_pick(w, SKV_WORDS_CITIES));
    if (!skv_doc_line(w, &fact.at, "%s is based in %s.\n", fact.key.text, fact.value.text)) {
        return false;
    }
    p->companies[p->n_companies++] = w->n_facts;
    skv_doc_fact *kept = skv_doc_fact_new(w);
    if (kept) *kept = fact;
    return kept;
}

static bool add_person(skv_doc_writer *w, people *p)
{
    skv_doc_fact fact = {.number = {-1, -1}};
    skv_doc_new_key(w, SKV_KEY_PERSON, &fact.key);
    fact.number[COMPANY] = (int64_t)p->companies[skv_doc_below(w, p->n_companies)];
    const char *company = w->facts[fact.number[COMPANY]].key.text;
    bool fits;
    if (p->n_persons > 0 && skv_doc_below(w, 3) > 0) {
        fact.number[MANAGER] = (int64_t)p->persons[skv_doc_below(w, p->n_persons)];
        fits =
            skv_doc_line(w, &fact.at, "%s works for %s. The manager of %s is %s.\n", fact.key.text,
                         company, fact.key.text, w->facts[fact.number[MANAGER]].key.text);
    } else {
        fits = skv_doc_line(w, &fact.at, "%s works for %s.\n", fact.key.text, company);
    }
    if (!fits) return false;
    p->persons[p->n_persons++] = w->n_facts;
    skv_doc_fact *kept = skv_doc_fact_new(w);
    if (kept) *kept = fact;
    return kept;
}

static bool ask_person(skv_doc_writer *w, const people *p)
{
    const skv_doc_fact *person = &w->facts[p->persons[skv_doc_below(w, p->n_persons)]];
    const bool managed = person->number[MANAGER] >= 0;
    const skv_doc_fact *of = managed ? &w->facts[person->number[MANAGER]] : person;
    const char *name = person->key.text;
    char question[QUESTION_MAX];
    switch (skv_doc_below(w, managed ? 5 : 2)) {
    case 0:
        snprintf(question, sizeof question, "Which company does %s work for?", name);
        return skv_doc_ask(w, person->at, question, w->facts[person->number[COMPANY]].key.text);
    case 1:
        snprintf(question, sizeof question, "In which city does %s work?", name);
        return skv_doc_ask(w, person->at, question, w->facts[person->number[COMPANY]].value.text);
    case 2:
        snprintf(question, sizeof question, "Who is the manager of %s?", name);
        return skv_doc_ask(w, person->at, question, of->key.text);
    case 3:
        snprintf(question, sizeof question, "Which company does the manager of %s work for?", name);
        return skv_doc_ask(w, person->at, question, w->facts[of->number[COMPANY]].key.text);
    default:
        snprintf(question, sizeof question, "In which city does the manager of %s work?", name);
        return skv_doc_ask(w, person->at, question, w->facts[of->number[COMPANY]].value.text);
    }
}

void skv_doc_write_hops(skv_doc_writer *w)
{
    people p = {.n_companies = 0};
    bool more = add_company(w, &p);
    while (more && p.n_persons < 512) {
        const bool company = p.n_persons > 0 && p.n_companies < 64 && skv_doc_below(w, 4) == 0;
        more = company ? add_company(w, &p) : add_person(w, &p);
    }
    more = p.n_persons > 0;
    while (more) more = ask_person(w, &p);
}
