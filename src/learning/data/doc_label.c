/* Labels learnt from examples: words of some categories, each with a made-up label. */
#include <stdio.h>
#include <string.h>

#include "data/doc_writer.h"

enum { LABELS_MAX = 6, SHOWN_MAX = 1024 };

typedef struct labels {
    size_t n;
    skv_word_list category[LABELS_MAX]; /* no two alike */
    skv_doc_word name[LABELS_MAX];
} labels;

/* Draws a word of a category: for a question one from the document's own set, for an example any.
 * The words of the evaluation must not have been seen with the rest of their category. */
static const char *draw_member(skv_doc_writer *w, skv_word_list category)
{
    const char *word = skv_doc_pick(w, category);
    for (size_t i = 0; i < 1000; i++) {
        if (skv_doc_held_out(word, strlen(word)) == w->held_out) break;
        word = skv_doc_pick(w, category);
    }
    return word;
}

static bool was_shown(const skv_doc_writer *w, const char *word)
{
    for (size_t i = 0; i < w->n_facts; i++) {
        if (strcmp(w->facts[i].key.text, word) == 0) return true;
    }
    return false;
}

static bool add_example(skv_doc_writer *w, const labels *l, size_t i_label)
{
    skv_doc_fact fact = {.number = {(int64_t)i_label}};
    const char *word = skv_doc_pick(w, l->category[i_label]);
    while (!w->held_out && skv_doc_held_out(word, strlen(word))) {
        word = skv_doc_pick(w, l->category[i_label]);
    }
    snprintf(fact.key.text, sizeof fact.key.text, "%s", word);
    if (!skv_doc_line(w, &fact.at, "word: %s label: %s\n", word, l->name[i_label].text)) {
        return false;
    }
    skv_doc_fact *kept = skv_doc_fact_new(w);
    if (kept) *kept = fact;
    return kept;
}

/* The place of the last example of a label. */
static size_t example_of(const skv_doc_writer *w, size_t i_label)
{
    size_t at = 0;
    for (size_t i = 0; i < w->n_facts; i++) {
        if (w->facts[i].number[0] == (int64_t)i_label) at = w->facts[i].at;
    }
    return at;
}

static void draw_labels(skv_doc_writer *w, labels *l)
{
    bool used[SKV_WORDS_CATEGORIES] = {0};
    l->n = 2 + skv_doc_below(w, w->budget < 200 ? 2 : LABELS_MAX - 1);
    for (size_t i = 0; i < l->n; i++) {
        size_t category = skv_doc_below(w, SKV_WORDS_CATEGORIES);
        while (used[category]) category = (category + 1) % SKV_WORDS_CATEGORIES;
        used[category] = true;
        l->category[i] = (skv_word_list)(SKV_WORDS_ANIMALS + category);
        bool again = true;
        while (again) {
            skv_doc_syllables(w, 1 + skv_doc_below(w, 2), &l->name[i]);
            again = false;
            for (size_t k = 0; k < i; k++) {
                again = again || strcmp(l->name[k].text, l->name[i].text) == 0;
            }
        }
    }
}

void skv_doc_write_labels(skv_doc_writer *w)
{
    labels l;
    draw_labels(w, &l);
    size_t n = 0; /* every label occurs once before any is repeated */
    while (n < SHOWN_MAX && add_example(w, &l, n < l.n ? n : skv_doc_below(w, l.n))) n++;
    if (n < l.n) l.n = n;
    bool more = n > 0;
    while (more) {
        const size_t i = skv_doc_below(w, l.n);
        const char *word = draw_member(w, l.category[i]);
        for (size_t k = 0; k < 20 && was_shown(w, word); k++) word = draw_member(w, l.category[i]);
        char question[128];
        snprintf(question, sizeof question, "word: %s label:", word);
        more = skv_doc_ask(w, example_of(w, i), question, l.name[i].text);
    }
}
