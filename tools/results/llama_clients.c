/*
 * llama.cpp under a closed loop of clients, in one process and without HTTP: the part of
 * tools/results/bench_serving.py that runs its batched API. Batches are filled as its server fills them: a
 * token of every answer, then prompts in the order of their requests, up to BATCH tokens.
 *
 *     llama_clients FILE CLIENTS REQUESTS PROMPT GEN THREADS
 *
 * Each client sends its next request when its last one is answered. Prompts are random ids. For
 * every request a line is printed: when it began, when its first and its last token came, in
 * seconds.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <llama.h>

enum { BATCH = 2048, PART = 512, CLIENTS_MAX = 64, FIRST_ID = 3 };

typedef struct client {
    long number;             /* of its request; the least is the oldest */
    int n_seen, n_told, row; /* row: of the batch whose logits are its next token's, -1: none */
    llama_token token;
    double begun, first;
} client;

typedef struct load {
    struct llama_context *context;
    struct llama_batch batch;
    client clients[CLIENTS_MAX];
    int n_clients, n_prompt, n_gen, n_vocab;
    long n_requests, n_begun, n_done;
    unsigned long long seed;
    bool says;
} load;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static llama_token draw(load *l)
{
    l->seed = l->seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return FIRST_ID + (llama_token)((l->seed >> 33) % (unsigned long long)(l->n_vocab - FIRST_ID));
}

static void add(load *l, int i_client, llama_token token, bool wanted)
{
    struct llama_batch *b = &l->batch;
    client *c = &l->clients[i_client];
    const int row = b->n_tokens++;
    b->token[row] = token;
    b->pos[row] = c->n_seen++;
    b->n_seq_id[row] = 1;
    b->seq_id[row][0] = i_client;
    b->logits[row] = wanted;
    if (wanted) c->row = row;
}

static void begin(load *l, int i_client)
{
    l->clients[i_client] = (client){.number = -1, .row = -1};
    if (l->n_begun == l->n_requests) return;
    (void)llama_memory_seq_rm(llama_get_memory(l->context), i_client, -1, -1);
    l->clients[i_client].number = l->n_begun++;
    l->clients[i_client].begun = now();
}

static int oldest_prompt(const load *l)
{
    int best = -1;
    for (int i = 0; i < l->n_clients; i++) {
        const client *c = &l->clients[i];
        if (c->number < 0 || c->n_seen >= l->n_prompt) continue;
        if (best < 0 || c->number < l->clients[best].number) best = i;
    }
    return best;
}

static void fill(load *l)
{
    l->batch.n_tokens = 0;
    for (int i = 0; i < l->n_clients; i++) {
        client *c = &l->clients[i];
        c->row = -1;
        if (c->number >= 0 && c->n_told > 0) add(l, i, c->token, true);
    }
    for (int i; l->batch.n_tokens < BATCH && (i = oldest_prompt(l)) >= 0;) {
        client *c = &l->clients[i];
        while (l->batch.n_tokens < BATCH && c->n_seen < l->n_prompt) {
            add(l, i, draw(l), c->n_seen + 1 == l->n_prompt);
        }
    }
}

static llama_token most_likely(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

static void take(load *l)
{
    for (int i = 0; i < l->n_clients; i++) {
        client *c = &l->clients[i];
        if (c->row < 0) continue;
        c->token = most_likely(llama_get_logits_ith(l->context, c->row), l->n_vocab);
        if (c->n_told++ == 0) c->first = now();
        if (c->n_told < l->n_gen) continue;
        if (l->says) printf("%.6f %.6f %.6f\n", c->begun, c->first, now());
        l->n_done++;
        begin(l, i);
    }
}

static bool run(load *l, long n_requests, bool says)
{
    l->n_requests = n_requests;
    l->n_begun = l->n_done = 0;
    l->says = says;
    for (int i = 0; i < l->n_clients; i++) begin(l, i);
    while (l->n_done < n_requests) {
        fill(l);
        if (llama_decode(l->context, l->batch) != 0) return false;
        take(l);
    }
    return true;
}

static void keep_silent(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) (void)fputs(text, stderr);
}

static bool open_model(load *l, const char *path, int n_threads)
{
    struct llama_model_params how = llama_model_default_params();
    struct llama_model *model = llama_model_load_from_file(path, how);
    if (!model) return false;
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = (uint32_t)(l->n_clients * (l->n_prompt + l->n_gen + 64));
    p.n_batch = BATCH;
    p.n_ubatch = PART;
    p.n_seq_max = (uint32_t)l->n_clients;
    p.n_threads = p.n_threads_batch = n_threads;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    l->context = llama_init_from_model(model, p);
    l->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    l->batch = llama_batch_init(BATCH, 0, 1);
    return l->context;
}

int main(int n_words, char **words)
{
    if (n_words != 7) return 2;
    load l = {.n_clients = (int)strtol(words[2], NULL, 10),
              .n_prompt = (int)strtol(words[4], NULL, 10),
              .n_gen = (int)strtol(words[5], NULL, 10)};
    if (l.n_clients < 1 || l.n_clients > CLIENTS_MAX) return 2;
    llama_log_set(keep_silent, NULL);
    llama_backend_init();
    if (!open_model(&l, words[1], (int)strtol(words[6], NULL, 10))) return 1;
    const bool done = run(&l, 1, false) && run(&l, strtol(words[3], NULL, 10), true);
    return done ? 0 : 1;
}
