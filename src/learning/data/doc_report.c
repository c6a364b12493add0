/* Annual reports of companies and logs of services, with short questions. */
#include <stdio.h>

#include "data/doc_writer.h"

enum { QUESTION_MAX = 256 };

/* ---- reports ---- */

enum { YEAR, REVENUE, STAFF, PROFIT };

/* Adds four sentences; the facts about the year come in any order. */
static bool add_report(skv_doc_writer *w)
{
    skv_doc_fact fact = {.at = 0};
    skv_doc_new_key(w, SKV_KEY_COMPANY, &fact.key);
    skv_doc_new_key(w, SKV_KEY_PERSON, &fact.value);
    fact.number[YEAR] = skv_doc_between(w, 1990, 2029);
    fact.number[REVENUE] = skv_doc_number(w, 10, 999);
    fact.number[STAFF] = skv_doc_number(w, 100, 9999);
    fact.number[PROFIT] = skv_doc_number(w, 1, 99);
    const char *name = fact.key.text, *chief = fact.value.text;
    const int year = (int)fact.number[YEAR], revenue = (int)fact.number[REVENUE];
    const int staff = (int)fact.number[STAFF], profit = (int)fact.number[PROFIT];
    bool fits;
    if (skv_doc_below(w, 2) == 0) {
        fits =
            skv_doc_line(w, &fact.at,
                         "Report of %s for %d. The chief executive is %s. Revenue was %d million "
                         "and profit %d million. The company employed %d people.\n",
                         name, year, chief, revenue, profit, staff);
    } else {
        fits =
            skv_doc_line(w, &fact.at,
                         "Report of %s for %d. The company employed %d people. Profit reached %d "
                         "million from a revenue of %d million. %s led the company.\n",
                         name, year, staff, profit, revenue, chief);
    }
    if (!fits) return false;
    skv_doc_fact *kept = skv_doc_fact_new(w);
    if (kept) *kept = fact;
    return kept;
}

static bool ask_report(skv_doc_writer *w)
{
    const skv_doc_fact *fact = &w->facts[skv_doc_below(w, w->n_facts)];
    const char *name = fact->key.text;
    char question[QUESTION_MAX], answer[SKV_DOC_WORD_MAX];
    int64_t number = 0;
    switch (skv_doc_below(w, 6)) {
    case 0:
        snprintf(question, sizeof question, "Who led %s?", name);
        return skv_doc_ask(w, fact->at, question, fact->value.text);
    case 1:
        snprintf(question, sizeof question, "Which company did %s lead?", fact->value.text);
        return skv_doc_ask(w, fact->at, question, name);
    case 2:
        snprintf(question, sizeof question, "What was the revenue of %s in million?", name);
        number = fact->number[REVENUE];
        break;
    case 3:
        snprintf(question, sizeof question, "What was the profit of %s in million?", name);
        number = fact->number[PROFIT];
        break;
    case 4:
        snprintf(question, sizeof question, "How many people did %s employ?", name);
        number = fact->number[STAFF];
        break;
    default:
        snprintf(question, sizeof question, "Which year is the report of %s for?", name);
        number = fact->number[YEAR];
        break;
    }
    snprintf(answer, sizeof answer, "%d", (int)number);
    return skv_doc_ask(w, fact->at, question, answer);
}

void skv_doc_write_report(skv_doc_writer *w)
{
    while (add_report(w)) continue;
    bool more = w->n_facts > 0;
    while (more) more = ask_report(w);
}

/* ---- logs ---- */

enum { SECOND, TOOK };

static const char *const levels[] = {"INFO", "INFO", "INFO", "WARN", "ERROR"};

/* number[] of a fact: seconds of the day, milliseconds, index of the level. The value is the
 * service. */
static bool add_entry(skv_doc_writer *w, int64_t *second)
{
    skv_doc_fact fact = {.at = 0};
    *second = (*second + skv_doc_between(w, 1, 90)) % 86400;
    skv_doc_new_key(w, SKV_KEY_NUMBER, &fact.key);
    fact.number[SECOND] = *second;
    fact.number[TOOK] = skv_doc_number(w, 1, 999);
    fact.number[2] = (int64_t)skv_doc_below(w, sizeof levels / sizeof levels[0]);
    snprintf(fact.value.text, sizeof fact.value.text, "%s-%d", skv_doc_pick(w, SKV_WORDS_SERVICES),
             (int)skv_doc_between(w, 1, 9));
    const int s = (int)*second;
    if (!skv_doc_line(w, &fact.at, "%02d:%02d:%02d %s %s request %s took %d ms\n", s / 3600,
                      s / 60 % 60, s % 60, levels[fact.number[2]], fact.value.text, fact.key.text,
                      (int)fact.number[TOOK])) {
        return false;
    }
    skv_doc_fact *kept = skv_doc_fact_new(w);
    if (kept) *kept = fact;
    return kept;
}

static bool ask_entry(skv_doc_writer *w)
{
    const skv_doc_fact *fact = &w->facts[skv_doc_below(w, w->n_facts)];
    const int s = (int)fact->number[SECOND];
    const char *key = fact->key.text;
    char question[QUESTION_MAX], answer[SKV_DOC_WORD_MAX];
    switch (skv_doc_below(w, 4)) {
    case 0:
        snprintf(question, sizeof question, "Which service handled request %s?", key);
        return skv_doc_ask(w, fact->at, question, fact->value.text);
    case 1:
        snprintf(question, sizeof question, "How many ms did request %s take?", key);
        snprintf(answer, sizeof answer, "%d", (int)fact->number[TOOK]);
        break;
    case 2:
        snprintf(question, sizeof question, "At what time was request %s?", key);
        snprintf(answer, sizeof answer, "%02d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
        break;
    default:
        snprintf(question, sizeof question, "What is the level of request %s?", key);
        snprintf(answer, sizeof answer, "%s", levels[fact->number[2]]);
        break;
    }
    return skv_doc_ask(w, fact->at, question, answer);
}

void skv_doc_write_log(skv_doc_writer *w)
{
    int64_t second = skv_doc_between(w, 0, 86399);
    while (add_entry(w, &second)) continue;
    bool more = w->n_facts > 0;
    while (more) more = ask_entry(w);
}
