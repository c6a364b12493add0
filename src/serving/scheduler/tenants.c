/* The owner of a job's pages: the domain in which they are shared, and the key that it belongs
 * to. */
#include <string.h>

#include "base/rng.h"
#include "scheduler/worker.h"

/* The input of a domain's hash. Without a salt, tenants are only recognised until the server
 * ends. */
typedef struct domain_key {
    uint64_t who, run, teacher;
    uint64_t adapters; /* of their hashes and scales, in their order */
} domain_key;

static uint64_t hash_adapters(const skv_scheduler *s, const skv_job_params *p)
{
    skv_adapter_mix mix; /* found: the job was checked */
    uint64_t sum = 0, hash;
    if (skv_adapters_mix(&s->engine->adapters, p->adapters, p->n_adapters, &mix, NULL) != SKV_OK) {
        return 0;
    }
    for (size_t i = 0; i < mix.n; i++) {
        uint32_t scale;
        memcpy(&hash, mix.at[i].adapter->file.hash, sizeof hash);
        memcpy(&scale, &mix.at[i].scale, sizeof scale);
        sum = skv_mix64(skv_mix64(sum + hash) + scale);
    }
    return sum;
}

static domain_key owner_key(const skv_scheduler *s, const skv_job_params *p)
{
    return (domain_key){.who = p->salt ? p->salt : p->tenant,
                        .run = p->salt || !p->tenant ? 0 : s->options.seed | 1};
}

uint64_t skv_worker_owner(const skv_scheduler *s, const skv_job_params *p)
{
    const domain_key key = owner_key(s, p);
    skv_spill *names = skv_worker_names(s);
    return names ? skv_spill_hide(names, "owner", &key, sizeof key) : key.who;
}

uint64_t skv_worker_domain(const skv_scheduler *s, const skv_job_params *p)
{
    domain_key key = owner_key(s, p);
    key.teacher = p->prefill == SKV_PREFILL_TEACHER;
    key.adapters = hash_adapters(s, p);
    skv_spill *names = skv_worker_names(s);
    if (names) return skv_spill_hide(names, "domain", &key, sizeof key);
    return skv_mix64(skv_mix64(skv_mix64(key.who) + key.teacher) + key.adapters);
}

uint64_t skv_scheduler_salt(const skv_scheduler *s, const void *key, size_t n)
{
    skv_spill *names = skv_worker_names(s);
    return names ? skv_spill_hide(names, "key", key, n) | 1 : 0;
}
