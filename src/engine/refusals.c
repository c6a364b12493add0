/* See refusals.h. */
#include "engine/refusals.h"

#include "base/fail.h"

typedef enum trait {
    FFN_SKIP,
    EARLY_EXIT,
    MERGED,
    ANY_TEACHER,
    UNSKIPPED,
    NO_EXIT_HEAD,
    INVARIANT,
    SERVED
} trait;

/* As the command line and the documents spell them. */
static const char *const names[] = {
    [FFN_SKIP] = "--ffn-skip",
    [EARLY_EXIT] = "--early-exit",
    [MERGED] = "--prefill merged",
    [ANY_TEACHER] = "--prefill teacher",
    [UNSKIPPED] = "--prefill swiftkv-full",
    [NO_EXIT_HEAD] = "a model without an exit head",
    [INVARIANT] = "batch invariance",
    [SERVED] = "serve",
};

static const struct {
    trait method, other;
    const char *why;
} rows[] = {
    {EARLY_EXIT, NO_EXIT_HEAD, "distill --early-exit yes trains one"},
    {EARLY_EXIT, ANY_TEACHER, "the exit is the student's"},
    {EARLY_EXIT, UNSKIPPED, "there every token runs every layer"},
    {MERGED, INVARIANT, "what a token finds of earlier ones depends on the steps they came in"},
    {FFN_SKIP, SERVED, "known prompts do not tell which blocks were left out"},
    {EARLY_EXIT, SERVED, "log-probabilities of a prompt are told in order, exits come first"},
};

enum { N_ROWS = sizeof rows / sizeof *rows };

static bool has(trait t, const skv_engine_options *o, const skv_config *c, bool served)
{
    switch (t) {
    case FFN_SKIP: return o->ffn_skip.on;
    case EARLY_EXIT: return o->early_exit > 0;
    case MERGED: return o->prefill == SKV_PREFILL_MERGED;
    case ANY_TEACHER: return o->prefill == SKV_PREFILL_TEACHER;
    case UNSKIPPED: return o->no_skip;
    case NO_EXIT_HEAD: return !c->early_exit;
    case INVARIANT: return o->batch_invariant;
    case SERVED: return served;
    }
    return false;
}

static skv_status check(const skv_engine_options *o, const skv_config *c, bool served,
                        skv_error *err)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        const bool both = has(rows[i].method, o, c, served) && has(rows[i].other, o, c, served);
        SKV_REQUIRE(!both, err, SKV_UNSUPPORTED, "%s does not go with %s: %s",
                    names[rows[i].method], names[rows[i].other], rows[i].why);
    }
    return SKV_OK;
}

skv_status skv_refusals_check(const skv_engine_options *o, const skv_config *c, skv_error *err)
{
    SKV_REQUIRE(o->early_exit >= 0 && o->early_exit < 1, err, SKV_RANGE,
                "early exit: above a probability of %g, expected above 0 and below 1",
                o->early_exit);
    return check(o, c, false, err);
}

skv_status skv_refusals_check_served(const skv_engine_options *o, const skv_config *c,
                                     skv_error *err)
{
    return check(o, c, true, err);
}

bool skv_skipping_refusal_at(size_t i, const char **method, const char **other, const char **why)
{
    if (i >= N_ROWS) return false;
    *method = names[rows[i].method];
    *other = names[rows[i].other];
    *why = rows[i].why;
    return true;
}
