/* Messages of rank 0: see ranks_tell.h. */
#include "ranks/ranks_tell.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static uint64_t name_of(const void *thing)
{
    return (uint64_t)(uintptr_t)thing;
}

static bool tells(const skv_engine *e)
{
    return e->ranks && e->ranks->team->rank == 0;
}

/* Sends a message whose body lies in ranks->out after room for its head. */
static void send(skv_engine *e, skv_told head)
{
    skv_ranks *ranks = e->ranks;
    skv_buf *out = &ranks->out;
    head.engine = name_of(e);
    head.n_bytes = out->size - sizeof head;
    if (out->size < SKV_TOLD_BLOCK) {
        static const char zeros[SKV_TOLD_BLOCK] = {0};
        (void)skv_buf_append(out, zeros, SKV_TOLD_BLOCK - out->size);
    }
    if (out->failed) {
        skv_error err;
        skv_ranks_fail(ranks, skv_fail(&err, SKV_MEMORY, "ranks: no memory for a message"), &err);
        return;
    }
    memcpy(out->data, &head, sizeof head);
    skv_ranks_share(ranks, out->data, SKV_TOLD_BLOCK);
    skv_ranks_share(ranks, out->data + SKV_TOLD_BLOCK, out->size - SKV_TOLD_BLOCK);
}

static skv_buf *begin(skv_engine *e)
{
    const skv_told head = {0};
    skv_buf_clear(&e->ranks->out);
    (void)skv_buf_append(&e->ranks->out, &head, sizeof head);
    return &e->ranks->out;
}

/* A message about an engine, or a sequence of it. */
static void tell(skv_engine *e, skv_told head, const void *body, size_t n_bytes)
{
    if (!tells(e)) return;
    skv_buf *out = begin(e);
    if (n_bytes > 0) (void)skv_buf_append(out, body, n_bytes);
    send(e, head);
}

static void tell_of(const skv_sequence *s, skv_told head, const void *body, size_t n_bytes)
{
    head.sequence = name_of(s);
    tell(s->engine, head, body, n_bytes);
}

/* ---- engines ---- */

skv_status skv_tell_open(skv_engine *e, const char *path, bool preset, skv_error *err)
{
    if (!tells(e)) return SKV_OK;
    const char *level = e->options.cpu ? e->options.cpu : "";
    const char *device = e->options.device ? e->options.device : "";
    skv_told_open told = {.options = e->options,
                          .n_path = strlen(path),
                          .n_level = strlen(level),
                          .n_device = strlen(device),
                          .version = SKV_TOLD_VERSION};
    SKV_REQUIRE(told.n_path < SKV_TOLD_TEXT && told.n_level < SKV_TOLD_TEXT &&
                    told.n_device < SKV_TOLD_TEXT,
                err, SKV_RANGE, "ranks: a path of %zu bytes", (size_t)told.n_path);
    told.options.cpu = told.options.device = NULL;
    told.options.draft_model = told.options.adapters = NULL;
    told.options.team = NULL;
    told.options.memory_needed = NULL;
    told.options.progress = NULL;
    told.options.stopped = NULL;
    told.options.user = NULL;
    skv_buf *out = begin(e);
    (void)skv_buf_append(out, &told, sizeof told);
    (void)skv_buf_append(out, path, told.n_path);
    (void)skv_buf_append(out, level, told.n_level);
    (void)skv_buf_append(out, device, told.n_device);
    send(e, (skv_told){.what = SKV_TOLD_OPEN, .mark = preset});
    return skv_ranks_check(e->ranks, err);
}

/* The properties in which all ranks must agree, in words. */
enum { FACTS = 6, FACT_ROOM = 24 };

typedef struct facts {
    char at[FACTS][FACT_ROOM];
} facts;

static const char *const fact_names[FACTS] = {"device",      "kernels", "compute capability",
                                              "activations", "weights", "keys and values"};

static facts facts_of(const skv_engine *e)
{
    const skv_backend *be = e->be;
    const char *const values[FACTS] = {be->name,
                                       be->level,
                                       be->capability ? be->capability : "none",
                                       be->activations ? be->activations : "f32",
                                       skv_weights_name(e->options.weights),
                                       skv_kv_name(e->options.kv)};
    facts f = {{{0}}};
    for (size_t i = 0; i < FACTS; i++) {
        (void)snprintf(f.at[i], FACT_ROOM, "%s", values[i] ? values[i] : "none");
    }
    return f;
}

/* All ranks find the same first difference. */
static skv_status compare_facts(const facts *all, size_t n, skv_error *err)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < FACTS; k++) {
            const char *here = all[i].at[k], *first = all[0].at[k];
            SKV_REQUIRE(strncmp(here, first, FACT_ROOM) == 0, err, SKV_UNSUPPORTED,
                        "process %zu of %zu has %s %.23s, process 0 has %.23s", i, n, fact_names[k],
                        here, first);
        }
    }
    return SKV_OK;
}

static skv_status agree_on_facts(const skv_engine *e, skv_error *err)
{
    const skv_team *team = e->ranks->team;
    const facts mine = facts_of(e);
    facts *all = skv_alloc_zero(team->size, sizeof *all);
    skv_status status =
        all ? SKV_OK : skv_fail(err, SKV_MEMORY, "ranks: no memory for %zu", team->size);
    status = skv_team_agree(team, status, err);
    if (all && status == SKV_OK) status = team->gather(team->ctx, &mine, all, sizeof mine, err);
    if (all && status == SKV_OK) status = compare_facts(all, team->size, err);
    skv_free(all);
    return status;
}

/* Back ends that add up by themselves agree on how. */
static skv_status join(const skv_engine *e, skv_error *err)
{
    if (!e->be->join) return SKV_OK;
    return skv_team_agree(e->ranks->team, e->be->join(e->be, err), err);
}

/* The values that have to be the same on all ranks. */
static uint64_t hash_engine(const skv_engine *e)
{
    const skv_config *c = e->config;
    const size_t sizes[] = {c->n_layers,  c->hidden,   c->head_dim, c->vocab,
                            c->kv_layers, c->kv_group, c->swiftkv,  (size_t)e->options.weights};
    uint64_t hash = skv_team_hash(0, sizes, sizeof sizes);
    hash = skv_team_hash(hash, c->architecture, strlen(c->architecture));
    for (size_t i = 0; i < c->n_layers; i++) {
        const size_t shape[] = {c->layers[i].n_heads, c->layers[i].n_kv_heads, c->layers[i].ffn,
                                c->layers[i].n_experts, skv_kv_store_pages(e->store)};
        hash = skv_team_hash(hash, shape, sizeof shape);
    }
    return hash;
}

skv_status skv_ranks_agree(skv_engine *e, skv_status mine, skv_error *err)
{
    if (!e->ranks) return mine;
    const skv_team *team = e->ranks->team;
    SKV_TRY(skv_team_agree(team, mine, err));
    SKV_TRY(agree_on_facts(e, err));
    SKV_TRY(skv_team_same(team, hash_engine(e), "another model or memory", err));
    SKV_TRY(join(e, err));
    e->ranks->open = true;
    return SKV_OK;
}

void skv_tell_close(skv_engine *e)
{
    if (!e->ranks || !e->ranks->open) return;
    tell(e, (skv_told){.what = SKV_TOLD_CLOSE}, NULL, 0);
}

skv_ranks_traffic skv_engine_traffic(const skv_engine *e)
{
    skv_ranks_traffic out = {.ranks = 1};
    if (e->ranks) out = e->ranks->traffic;
    out.sums_by = e->be->sums ? e->be->sums : "host";
    return out;
}

/* ---- sequences ---- */

void skv_tell_create(const skv_sequence *s, skv_prefill prefill)
{
    tell_of(s, (skv_told){.what = SKV_TOLD_CREATE, .mark = prefill, .n = s->max_tokens}, NULL, 0);
}

void skv_tell_free(const skv_sequence *s)
{
    tell_of(s, (skv_told){.what = SKV_TOLD_FREE}, NULL, 0);
}

void skv_tell_truncate(const skv_sequence *s, size_t n)
{
    tell_of(s, (skv_told){.what = SKV_TOLD_TRUNCATE, .n = n}, NULL, 0);
}

void skv_tell_share(const skv_sequence *s, const skv_sequence *from, size_t n)
{
    tell_of(s, (skv_told){.what = SKV_TOLD_SHARE, .other = name_of(from), .n = n}, NULL, 0);
}

void skv_tell_eviction(const skv_sequence *s, const skv_eviction *eviction)
{
    tell_of(s, (skv_told){.what = SKV_TOLD_EVICTION}, eviction, sizeof *eviction);
}

void skv_tell_expect(const skv_sequence *s, size_t n)
{
    tell_of(s, (skv_told){.what = SKV_TOLD_EXPECT, .n = n}, NULL, 0);
}

void skv_tell_evict(const skv_sequence *s)
{
    tell_of(s, (skv_told){.what = SKV_TOLD_EVICT}, NULL, 0);
}

skv_status skv_tell_step(skv_engine *e, const skv_span *spans, size_t n_spans, bool grown,
                         skv_error *err)
{
    if (!tells(e)) return skv_ranks_check(e->ranks, err);
    size_t n_ids = 0;
    skv_buf *out = begin(e);
    for (size_t i = 0; i < n_spans; i++) {
        const skv_span *span = &spans[i];
        const skv_told_span told = {name_of(span->sequence), span->n, span->sequence->n_seen,
                                    span->want};
        (void)skv_buf_append(out, &told, sizeof told);
        n_ids += span->n;
    }
    for (size_t i = 0; i < n_spans; i++) {
        (void)skv_buf_append(out, spans[i].ids, spans[i].n * sizeof *spans[i].ids);
    }
    send(e, (skv_told){.what = SKV_TOLD_STEP, .mark = grown, .n = n_spans, .m = n_ids});
    return skv_ranks_check(e->ranks, err);
}

/* ---- the index of known prompts ---- */

void skv_tell_index(skv_engine *e, size_t max_blocks, uint64_t seed)
{
    tell(e, (skv_told){.what = SKV_TOLD_INDEX, .n = max_blocks, .m = seed}, NULL, 0);
}

void skv_tell_match(const skv_sequence *s, uint64_t domain, const int32_t *ids, size_t n,
                    size_t n_found)
{
    tell_of(s, (skv_told){.what = SKV_TOLD_MATCH, .other = n_found, .n = n, .m = domain}, ids,
            n * sizeof *ids);
}

void skv_tell_remember(const skv_sequence *s, uint64_t domain, size_t n)
{
    tell_of(s, (skv_told){.what = SKV_TOLD_REMEMBER, .n = n, .m = domain}, NULL, 0);
}

void skv_tell_touch(skv_engine *e, uint64_t domain, const int32_t *ids, size_t n)
{
    tell(e, (skv_told){.what = SKV_TOLD_TOUCH, .n = n, .m = domain}, ids, n * sizeof *ids);
}

void skv_tell_forget(skv_engine *e, size_t n_pages)
{
    tell(e, (skv_told){.what = SKV_TOLD_FORGET, .n = n_pages}, NULL, 0);
}
