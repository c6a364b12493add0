/* Budgets and accounts: see skv/budget.h and budget_mem.h. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/budget_mem.h"
#include "base/fail.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/system.h"

/* Units of work between two looks at the clock: well below a millisecond. */
enum { LOOK_EVERY = 1 << 14 };

enum { FIRST_BYTES = 2048 /* of an array that grows */ };

/* ---- accounts ---- */

enum {
    PART_TIMES = 3, /* a part may hold this many times the free memory of the whole */
    EARLY_PART = 4  /* early takes leave one part in this many of an account free */
};

struct skv_account {
    skv_account *whole; /* borrowed: this is a part of it; NULL: of none */
    size_t max;
    atomic_size_t used, peak;
    pthread_mutex_t lock; /* of a part: held while it takes, so that it never has too much */
};

static skv_status create(skv_account *whole, size_t max_bytes, skv_account **out, skv_error *err)
{
    skv_account *account = skv_alloc_zero(1, sizeof *account);
    SKV_REQUIRE(account, err, SKV_MEMORY, "account: no memory");
    account->whole = whole;
    account->max = max_bytes;
    (void)pthread_mutex_init(&account->lock, NULL);
    *out = account;
    return SKV_OK;
}

skv_status skv_account_create(size_t max_bytes, skv_account **out, skv_error *err)
{
    return create(NULL, max_bytes, out, err);
}

skv_status skv_account_create_part(skv_account *whole, skv_account **out, skv_error *err)
{
    assert(whole && !whole->whole);
    return create(whole, whole->max - skv_ceil_div(whole->max, PART_TIMES + 1), out, err);
}

void skv_account_free(skv_account *account)
{
    if (!account) return;
    (void)pthread_mutex_destroy(&account->lock);
    skv_free(account);
}

static void raise_peak(skv_account *account, size_t used)
{
    size_t peak = atomic_load_explicit(&account->peak, memory_order_relaxed);
    while (used > peak && !atomic_compare_exchange_weak(&account->peak, &peak, used)) continue;
}

/* Takes n_bytes of a whole account if that leaves at least n_left free. */
static bool take_leaving(skv_account *account, size_t n_bytes, size_t n_left)
{
    size_t used = atomic_load_explicit(&account->used, memory_order_relaxed), sum;
    do {
        if (!skv_size_add(used, n_bytes, &sum) || sum > account->max) return false;
        if (account->max - sum < n_left) return false;
    } while (!atomic_compare_exchange_weak(&account->used, &used, sum));
    raise_peak(account, sum);
    return true;
}

/* Takes n_bytes of a part if it then holds at most `times` times the free memory of the whole. */
static bool take_part(skv_account *part, size_t n_bytes, size_t times)
{
    size_t own;
    pthread_mutex_lock(&part->lock);
    bool taken = skv_size_add(atomic_load(&part->used), n_bytes, &own) &&
                 take_leaving(part->whole, n_bytes, skv_ceil_div(own, times));
    if (taken) raise_peak(part, atomic_fetch_add(&part->used, n_bytes) + n_bytes);
    pthread_mutex_unlock(&part->lock);
    return taken;
}

bool skv_account_take(skv_account *account, size_t n_bytes)
{
    if (!account) return true;
    return account->whole ? take_part(account, n_bytes, PART_TIMES)
                          : take_leaving(account, n_bytes, 0);
}

bool skv_account_take_early(skv_account *account, size_t n_bytes)
{
    if (!account) return true;
    return account->whole ? take_part(account, n_bytes, 1)
                          : take_leaving(account, n_bytes, skv_ceil_div(account->max, EARLY_PART));
}

void skv_account_take_anyway(skv_account *account, size_t n_bytes)
{
    for (; account; account = account->whole) {
        raise_peak(account, atomic_fetch_add(&account->used, n_bytes) + n_bytes);
    }
}

void skv_account_give(skv_account *account, size_t n_bytes)
{
    for (; account; account = account->whole) (void)atomic_fetch_sub(&account->used, n_bytes);
}

size_t skv_account_used(const skv_account *account)
{
    return account ? atomic_load(&account->used) : 0;
}

size_t skv_account_peak(const skv_account *account)
{
    return account ? atomic_load(&account->peak) : 0;
}

size_t skv_account_max(const skv_account *account)
{
    return account ? account->max : 0;
}

size_t skv_account_left(const skv_account *account)
{
    if (!account) return 0;
    const skv_account *whole = account->whole ? account->whole : account;
    size_t used = skv_account_used(whole), left = used < whole->max ? whole->max - used : 0;
    if (whole == account) return left;
    size_t owes = skv_ceil_div(skv_account_used(account), PART_TIMES);
    return owes < left ? (left - owes) / (PART_TIMES + 1) * PART_TIMES : 0;
}

/* ---- budgets ---- */

skv_limits skv_limits_default(void)
{
    return (skv_limits){
        .work = 50000000, .bytes = (size_t)64 << 20, .depth = 64, .max_ns = 1000000000};
}

void skv_budget_init(skv_budget *budget, const skv_limits *limits)
{
    *budget = (skv_budget){.max = limits ? *limits : skv_limits_default()};
    if (budget->max.max_ns > 0) budget->deadline_ns = skv_clock_ns() + budget->max.max_ns;
}

void skv_budget_waited(skv_budget *budget, uint64_t ns)
{
    if (budget->deadline_ns > 0) budget->deadline_ns += ns;
}

void skv_budget_release(skv_budget *budget)
{
    skv_account_give(budget->account, budget->bytes);
    budget->bytes = 0;
}

static bool exceed(skv_budget *budget, skv_exceeded what)
{
    if (budget->exceeded == SKV_EXCEEDED_NONE) budget->exceeded = what;
    return false;
}

static bool look(skv_budget *budget)
{
    budget->look_at = budget->work + LOOK_EVERY;
    if (budget->stopped && budget->stopped(budget->user)) {
        return exceed(budget, SKV_EXCEEDED_STOPPED);
    }
    bool late = budget->deadline_ns > 0 && skv_clock_ns() > budget->deadline_ns;
    return !late || exceed(budget, SKV_EXCEEDED_TIME);
}

bool skv_budget_work(skv_budget *budget, uint64_t n)
{
    if (budget->exceeded != SKV_EXCEEDED_NONE) return false;
    bool fits = n <= budget->max.work - budget->work;
    budget->work = n <= UINT64_MAX - budget->work ? budget->work + n : UINT64_MAX;
    if (!fits) return exceed(budget, SKV_EXCEEDED_WORK);
    return budget->work < budget->look_at || look(budget);
}

static bool is_within(const skv_budget *budget, size_t n_bytes)
{
    return budget->bytes <= budget->max.bytes && n_bytes <= budget->max.bytes - budget->bytes;
}

static bool take_now(const skv_budget *budget, size_t n_bytes)
{
    return budget->wait ? skv_account_take_early(budget->account, n_bytes)
                        : skv_account_take(budget->account, n_bytes);
}

bool skv_budget_take(skv_budget *budget, size_t n_bytes)
{
    if (budget->exceeded != SKV_EXCEEDED_NONE) return false;
    if (!is_within(budget, n_bytes)) return exceed(budget, SKV_EXCEEDED_BYTES);
    if (!take_now(budget, n_bytes) && !(budget->wait && budget->wait(budget->user, n_bytes))) {
        const bool stopped = budget->wait && budget->stopped && budget->stopped(budget->user);
        return exceed(budget, stopped ? SKV_EXCEEDED_STOPPED : SKV_EXCEEDED_ACCOUNT);
    }
    budget->bytes += n_bytes;
    return true;
}

bool skv_budget_try(skv_budget *budget, size_t n_bytes)
{
    if (budget->exceeded != SKV_EXCEEDED_NONE || !is_within(budget, n_bytes)) return false;
    if (!take_now(budget, n_bytes)) return false;
    budget->bytes += n_bytes;
    return true;
}

void skv_budget_give(skv_budget *budget, size_t n_bytes)
{
    n_bytes = skv_min_size(n_bytes, budget->bytes);
    skv_account_give(budget->account, n_bytes);
    budget->bytes -= n_bytes;
}

bool skv_budget_enter(skv_budget *budget)
{
    if (budget->exceeded != SKV_EXCEEDED_NONE) return false;
    if (budget->depth >= budget->max.depth) return exceed(budget, SKV_EXCEEDED_DEPTH);
    budget->depth++;
    return true;
}

void skv_budget_leave(skv_budget *budget)
{
    if (budget->depth > 0) budget->depth--;
}

skv_status skv_budget_check(const skv_budget *budget, const char *name, skv_error *err)
{
    const skv_limits *max = &budget->max;
    switch (budget->exceeded) {
    case SKV_EXCEEDED_NONE: break;
    case SKV_EXCEEDED_WORK:
        return skv_fail(err, SKV_RANGE, "%s: needs more than %llu units of work", name,
                        (unsigned long long)max->work);
    case SKV_EXCEEDED_BYTES:
        return skv_fail(err, SKV_RANGE, "%s: needs more than %zu bytes of memory", name,
                        max->bytes);
    case SKV_EXCEEDED_DEPTH:
        return skv_fail(err, SKV_RANGE, "%s: nested more than %zu levels deep", name, max->depth);
    case SKV_EXCEEDED_TIME:
        return skv_fail(err, SKV_RANGE, "%s: takes longer than %g s", name,
                        (double)max->max_ns * 1e-9);
    case SKV_EXCEEDED_ACCOUNT:
        return skv_fail(err, SKV_MEMORY, "%s: other requests hold the memory that it needs", name);
    case SKV_EXCEEDED_STOPPED: return skv_fail(err, SKV_CANCELLED, "%s: cancelled", name);
    }
    return SKV_OK;
}

bool skv_budget_look(skv_budget *budget)
{
    return !budget || (budget->exceeded == SKV_EXCEEDED_NONE && look(budget));
}

/* ---- memory that a budget counts ---- */

static bool take(skv_budget *budget, size_t count, size_t size, size_t *n_bytes)
{
    if (!skv_size_mul(count, size, n_bytes)) return false;
    return !budget || skv_budget_take(budget, *n_bytes);
}

static void give(skv_budget *budget, size_t n_bytes)
{
    if (budget) skv_budget_give(budget, n_bytes);
}

void *skv_budget_alloc_zero(skv_budget *budget, size_t count, size_t size)
{
    size_t n_bytes;
    if (!take(budget, count, size, &n_bytes)) return NULL;
    void *block = skv_alloc_zero(count, size);
    if (!block) give(budget, n_bytes);
    return block;
}

void skv_budget_free(skv_budget *budget, void *block, size_t count, size_t size)
{
    if (!block) return;
    skv_free(block);
    give(budget, count * size);
}

bool skv_budget_grow(skv_budget *budget, void *array, size_t *capacity, size_t need, size_t size,
                     size_t max)
{
    size_t n_bytes;
    if (need <= *capacity) return true;
    if (need > max) return false;
    size_t doubled = *capacity > max / 2 ? max : skv_max_size(2 * *capacity, FIRST_BYTES / size);
    size_t grown = skv_min_size(max, skv_max_size(need, doubled));
    if (!take(budget, grown, size, &n_bytes)) return false;
    void *old, *bigger;
    memcpy(&old, array, sizeof old);
    bigger = skv_realloc(old, grown, size);
    if (!bigger) {
        give(budget, n_bytes);
        return false;
    }
    memcpy(array, &bigger, sizeof bigger);
    give(budget, *capacity * size);
    *capacity = grown;
    return true;
}

bool skv_budget_resize(skv_budget *budget, void *array, size_t *capacity, size_t n, size_t size)
{
    size_t n_bytes, n_old = *capacity * size;
    void *old, *resized;
    memcpy(&old, array, sizeof old);
    if (!skv_size_mul(n, size, &n_bytes)) return false;
    if (budget && n_bytes > n_old && !skv_budget_take(budget, n_bytes - n_old)) return false;
    resized = skv_realloc(old, n, size);
    if (!resized) {
        if (n_bytes > n_old) give(budget, n_bytes - n_old);
        return false;
    }
    memcpy(array, &resized, sizeof resized);
    if (n_bytes < n_old) give(budget, n_old - n_bytes);
    *capacity = n;
    return true;
}

void skv_budget_shrink(skv_budget *budget, void *array, size_t *capacity, size_t n, size_t size)
{
    void *old, *smaller;
    memcpy(&old, array, sizeof old);
    if (n >= *capacity) return;
    smaller = skv_realloc(old, n, size);
    if (!smaller) return;
    memcpy(array, &smaller, sizeof smaller);
    give(budget, (*capacity - n) * size);
    *capacity = n;
}
