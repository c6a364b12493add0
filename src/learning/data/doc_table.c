/* A table of sales: looking up, counting, totals and extremes. */
#include <stdio.h>
#include <string.h>

#include "data/doc_writer.h"

enum { UNITS, TOWN, GOODS, TOWNS_MAX = 8, QUESTION_MAX = 256 };

typedef struct sales {
    const char *towns[TOWNS_MAX], *goods[TOWNS_MAX]; /* no two alike */
    size_t n_towns, n_goods;
} sales;

static size_t draw_different(skv_doc_writer *w, skv_word_list list, const char **out, size_t n)
{
    for (size_t made = 0; made < n;) {
        const char *word = skv_doc_pick(w, list);
        bool again = false;
        for (size_t i = 0; i < made; i++) again = again || strcmp(out[i], word) == 0;
        if (!again) out[made++] = word;
    }
    return n;
}

/* Units are all different, so that extremes have one answer. They are of any set: the orders keep
 * the sets apart. */
static int64_t new_units(skv_doc_writer *w)
{
    for (;;) {
        const int64_t units = skv_doc_between(w, 1, w->n_facts < 40 ? 99 : 99999);
        bool again = false;
        for (size_t i = 0; i < w->n_facts; i++) again = again || w->facts[i].number[UNITS] == units;
        if (!again) return units;
    }
}

static bool add_row(skv_doc_writer *w, const sales *s)
{
    skv_doc_fact fact = {.at = 0};
    skv_doc_new_key(w, SKV_KEY_CODE, &fact.key);
    fact.number[UNITS] = new_units(w);
    fact.number[TOWN] = (int64_t)skv_doc_below(w, s->n_towns);
    fact.number[GOODS] = (int64_t)skv_doc_below(w, s->n_goods);
    if (!skv_doc_line(w, &fact.at, "| %s | %s | %s | %d |\n", fact.key.text,
                      s->towns[fact.number[TOWN]], s->goods[fact.number[GOODS]],
                      (int)fact.number[UNITS])) {
        return false;
    }
    skv_doc_fact *kept = skv_doc_fact_new(w);
    if (kept) *kept = fact;
    return kept;
}

/* Rows of a town (goods -1) or of goods in a town: how many, and their units. */
static void gather(const skv_doc_writer *w, int64_t town, int64_t goods, size_t *n, int64_t *units)
{
    *n = 0;
    *units = 0;
    for (size_t i = 0; i < w->n_facts; i++) {
        const int64_t *row = w->facts[i].number;
        if (row[TOWN] != town || (goods >= 0 && row[GOODS] != goods)) continue;
        ++*n;
        *units += row[UNITS];
    }
}

static const skv_doc_fact *extreme(const skv_doc_writer *w, bool most)
{
    const skv_doc_fact *best = &w->facts[0];
    for (size_t i = 1; i < w->n_facts; i++) {
        const skv_doc_fact *fact = &w->facts[i];
        if ((fact->number[UNITS] > best->number[UNITS]) == most) best = fact;
    }
    return best;
}

static bool ask_number(skv_doc_writer *w, size_t at, const char *question, int64_t number)
{
    char answer[32];
    snprintf(answer, sizeof answer, "%lld", (long long)number);
    return skv_doc_ask(w, at, question, answer);
}

static bool ask(skv_doc_writer *w, const sales *s)
{
    const skv_doc_fact *row = &w->facts[skv_doc_below(w, w->n_facts)];
    const int64_t town = row->number[TOWN], goods = row->number[GOODS];
    const char *in = s->towns[town], *of = s->goods[goods];
    char question[QUESTION_MAX];
    size_t n;
    int64_t units;
    switch (skv_doc_below(w, 7)) {
    case 0:
        snprintf(question, sizeof question, "How many units does order %s have?", row->key.text);
        return ask_number(w, row->at, question, row->number[UNITS]);
    case 1:
        snprintf(question, sizeof question, "Which city is order %s for?", row->key.text);
        return skv_doc_ask(w, row->at, question, in);
    case 2:
        snprintf(question, sizeof question, "How many orders are for %s?", in);
        gather(w, town, -1, &n, &units);
        return ask_number(w, row->at, question, (int64_t)n);
    case 3:
        snprintf(question, sizeof question, "How many orders of %s are for %s?", of, in);
        gather(w, town, goods, &n, &units);
        return ask_number(w, row->at, question, (int64_t)n);
    case 4:
        snprintf(question, sizeof question, "How many units of %s go to %s in all?", of, in);
        gather(w, town, goods, &n, &units);
        return ask_number(w, row->at, question, units);
    case 5:
        row = extreme(w, true);
        return skv_doc_ask(w, row->at, "Which order has the most units?", row->key.text);
    default:
        row = extreme(w, false);
        return skv_doc_ask(w, row->at, "Which order has the fewest units?", row->key.text);
    }
}

void skv_doc_write_table(skv_doc_writer *w)
{
    sales s = {.n_towns = 0};
    s.n_towns = draw_different(w, SKV_WORDS_CITIES, s.towns, 2 + skv_doc_below(w, TOWNS_MAX - 1));
    s.n_goods = draw_different(w, SKV_WORDS_FOODS, s.goods, 2 + skv_doc_below(w, TOWNS_MAX - 1));
    bool more = skv_doc_line(w, NULL, "| order | city | goods | units |\n");
    while (more) more = add_row(w, &s);
    more = w->n_facts > 0;
    while (more) more = ask(w, &s);
}
