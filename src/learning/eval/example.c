/* Examples: see example.h. */
#include "eval/example.h"

#include <math.h>

#include "base/mem.h"
#include "base/size.h"

enum { REQUESTS_MAX = 1 << 16, ANSWERS_MAX = 1 << 12 };

void skv_eval_example_init(skv_eval_example *e, size_t index)
{
    *e = (skv_eval_example){.index = index, .depth = (double)NAN};
}

void skv_eval_example_release(skv_eval_example *e)
{
    for (size_t i = 0; i < e->n_requests; i++) {
        skv_ids_release(&e->requests[i].ids);
        skv_ids_release(&e->requests[i].answer);
    }
    skv_free(e->requests);
    for (size_t i = 0; i < e->n_answers; i++) skv_free(e->answers[i]);
    skv_free(e->answers);
    skv_ids_release(&e->right);
    skv_free(e->said);
    skv_eval_example_init(e, e->index);
}

skv_eval_request *skv_eval_request_new(skv_eval_example *e, skv_error *err)
{
    if (e->n_requests == e->requests_capacity) {
        const size_t capacity = e->requests_capacity ? e->requests_capacity * 2 : 4;
        skv_eval_request *requests =
            capacity <= REQUESTS_MAX ? skv_realloc(e->requests, capacity, sizeof *requests) : NULL;
        if (!requests) {
            (void)skv_fail(err, SKV_MEMORY, "example %zu: no memory for %zu requests", e->index,
                           capacity);
            return NULL;
        }
        e->requests = requests;
        e->requests_capacity = capacity;
    }
    skv_eval_request *r = &e->requests[e->n_requests++];
    *r = (skv_eval_request){.stop_id = -1, .n_context = 1};
    return r;
}

skv_status skv_eval_answer_add(skv_eval_example *e, const char *text, size_t n, skv_error *err)
{
    SKV_REQUIRE(e->n_answers < ANSWERS_MAX, err, SKV_RANGE, "more than %d answers", ANSWERS_MAX);
    char **answers = skv_realloc(e->answers, e->n_answers + 1, sizeof *answers);
    if (answers) e->answers = answers;
    char *copy = answers ? skv_strndup(text, n) : NULL;
    SKV_REQUIRE(copy, err, SKV_MEMORY, "no memory for an answer");
    e->answers[e->n_answers++] = copy;
    return SKV_OK;
}

void skv_eval_set(skv_eval_example *e, skv_metric metric, double sum, double weight)
{
    e->values[metric] = (skv_metric_value){sum, weight};
}

size_t skv_eval_tokens(const skv_eval_example *e)
{
    size_t most = 0;
    for (size_t i = 0; i < e->n_requests; i++) {
        most = skv_max_size(most, e->requests[i].ids.n + e->requests[i].max_new);
    }
    return most;
}
