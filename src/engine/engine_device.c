/* Memory of devices, and the devices of this build: see engine_device.h. */
#include "engine/engine_device.h"

#include <string.h>

#include "backend/split/split.h"
#include "base/system.h"
#include "engine/engine.h"
#include "skv/tools.h"

/* ---- memory ---- */

skv_engine_room skv_engine_room_of(const skv_engine *e, size_t available)
{
    skv_engine_room room = {.available = e->be->available(e->be)};
    room.is_own = room.available.device > 0;
    size_t *model = room.is_own ? &room.available.device : &room.available.host;
    if (available > 0) *model = available;
    if (e->options.memory_max > 0) *model = skv_min_size(*model, e->options.memory_max);
    return room;
}

size_t skv_room_main(const skv_engine_room *room, skv_bytes bytes)
{
    return room->is_own ? bytes.device : skv_bytes_sum(bytes);
}

bool skv_room_has(const skv_engine_room *room, skv_bytes bytes)
{
    const size_t n_model = skv_room_main(room, bytes);
    const bool host = !room->is_own || bytes.host <= room->available.host;
    return host && n_model < SIZE_MAX && n_model <= skv_room_main(room, room->available);
}

skv_status skv_engine_check_room(const skv_engine *e, const skv_engine_room *room,
                                 const skv_engine_bytes *bytes, skv_bytes total, skv_error *err)
{
    const double MIB = 1048576.0;
    const size_t available = skv_room_main(room, room->available);
    if (skv_room_has(room, total)) return SKV_OK;
    SKV_REQUIRE(!room->is_own || total.device > available || total.device == SIZE_MAX, err,
                SKV_MEMORY,
                "memory: %.0f MiB of the host's beside that of device %s, %.0f MiB are available%s",
                (double)total.host / MIB, e->be->name, (double)room->available.host / MIB,
                skv_memory_limit(room->available.host));
    return skv_fail(err, SKV_MEMORY,
                    "memory%s%s: weights %.0f MiB + KV cache %.0f MiB for %zu tokens + workspace "
                    "%.0f MiB, %.0f MiB are available%s",
                    room->is_own ? " of device " : "", room->is_own ? e->be->name : "",
                    (double)skv_room_main(room, bytes->weights) / MIB,
                    (double)skv_room_main(room, bytes->kv) / MIB, e->options.kv_tokens,
                    (double)skv_room_main(room, bytes->workspace) / MIB, (double)available / MIB,
                    room->is_own ? "" : skv_memory_limit(available));
}

/* ---- devices ---- */

unsigned skv_device_value(unsigned promises)
{
    return (promises & SKV_PROMISE_ALL) != SKV_PROMISE_ALL;
}

static bool is_processor(const char *device)
{
    return !device || strcmp(device, "cpu") == 0;
}

/* Layers on the device. */
static size_t layers_there(const skv_engine_options *o, size_t n_layers)
{
    return o->by_layer ? skv_min_size(o->device_layers, n_layers) : n_layers;
}

/* The promises of a kind of back end of this build; all of them for NULL and unknown names. */
static unsigned promises_of(const char *name)
{
    const skv_backend_kind *kind;
    return skv_backend_kind_of(name, &kind, NULL) == SKV_OK ? kind->promises : SKV_PROMISE_ALL;
}

unsigned skv_device_value_of(const skv_engine_options *o, size_t n_layers)
{
    const size_t n = layers_there(o, n_layers);
    if (is_processor(o->device) || n == 0) return 0;
    return n < n_layers ? 2 : skv_device_value(promises_of(o->device));
}

unsigned skv_backend_value(const skv_backend *be)
{
    return be->first_layers > 0 ? 2 : skv_device_value(be->promises);
}

/* Threads, weights and pages are divided among the memory nodes that this thread may use. */
static void use_nodes(skv_engine *e)
{
    skv_processor_set mine;
    skv_nodes nodes;
    if (skv_memory_has_policy()) return; /* numactl and its like have the last word */
    skv_processors_get(&mine);
    skv_nodes_find("", &mine, &nodes);
    skv_pool_use_nodes(e->pool, &nodes);
}

skv_status skv_engine_create_backend(skv_engine *e, skv_error *err)
{
    const skv_engine_options *o = &e->options;
    const size_t L = e->config->n_layers, n = layers_there(o, L);
    SKV_REQUIRE(!o->by_layer || !is_processor(o->device), err, SKV_ARGUMENT,
                "gpu layers: %zu, and the device is the processor", o->device_layers);
    use_nodes(e);
    const skv_backend_options backend = {.device = n > 0 ? o->device : NULL,
                                         .ordinal = o->team ? o->team->device : 0,
                                         .several = e->ranks && o->team && o->team->one_memory,
                                         .sums = o->sums,
                                         .threads = e->pool,
                                         .level = e->level,
                                         .form = e->form,
                                         .f32 = o->kv == SKV_KV_F32,
                                         .first_layers = n < L ? n : 0};
    return skv_backend_create(&backend, &e->be, err);
}

skv_status skv_engine_divide_plans(skv_engine *e, skv_error *err)
{
    skv_plan *const plans[] = {&e->plan, &e->teacher_plan, &e->spread_plans[0]};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        if (!plans[i]->layers) continue;
        SKV_TRY(skv_plan_divide(plans[i], e->config, e->be->first_layers, err));
    }
    return SKV_OK;
}

/* Whether an engine with so many layers on the device fits. */
static bool fits_with(skv_engine *e, const skv_engine_room *room, skv_engine_count_fn *count,
                      size_t n)
{
    skv_engine_bytes bytes;
    skv_bytes total;
    skv_split_move(e->be, n);
    return skv_engine_divide_plans(e, NULL) == SKV_OK && count(e, &bytes, &total, NULL) == SKV_OK &&
           skv_room_has(room, total);
}

size_t skv_engine_most_layers(skv_engine *e, const skv_engine_room *room,
                              skv_engine_count_fn *count)
{
    const skv_backend_options on_cpu = {.threads = e->pool, .level = e->level, .form = e->form};
    skv_backend *second = NULL, *first = e->be;
    if (!room->is_own || e->ranks || e->kvpred.on || e->options.weights == SKV_WEIGHTS_FP8) {
        return 0;
    }
    if (first->first_layers == 0) {
        if (skv_backend_create(&on_cpu, &second, NULL) != SKV_OK) return 0;
        e->be = NULL;
        if (skv_backend_split_create(first, second, 1, &e->be, NULL) != SKV_OK) return 0;
    }
    size_t low = 0, high = e->config->n_layers - 1; /* low fits, or is 0 */
    while (low < high) {
        const size_t n = low + (high - low + 1) / 2;
        if (fits_with(e, room, count, n)) {
            low = n;
        } else {
            high = n - 1;
        }
    }
    return low;
}

skv_status skv_device_check(const char *name, skv_error *err)
{
    const skv_backend_kind *kind;
    skv_bytes memory, available;
    char found[160];
    SKV_TRY(skv_backend_kind_of(name, &kind, err));
    SKV_REQUIRE(kind->find(found, sizeof found, &memory, &available), err, SKV_UNSUPPORTED,
                "device %s: %s", name, found);
    return SKV_OK;
}

bool skv_device_describe(size_t i, skv_device *out)
{
    const skv_backend_kind *kind = skv_backend_kind_at(i);
    skv_bytes memory = {0}, available = {0};
    if (!kind) return false;
    *out = (skv_device){.name = kind->name, .exact = skv_device_value(kind->promises) == 0};
    out->is_there = kind->find(out->found, sizeof out->found, &memory, &available);
    out->has_memory = memory.device > 0;
    out->memory = out->has_memory ? memory.device : memory.host;
    out->available = out->has_memory ? available.device : available.host;
    return true;
}

/* ---- ranks ---- */

static void sum_over_ranks(void *ranks, float *x, size_t n)
{
    skv_ranks_sum(ranks, x, n);
}

static bool meet_ranks(void *ranks, const void *mine, void *all, size_t n, size_t n_summed)
{
    return skv_ranks_meet(ranks, mine, all, n, n_summed);
}

skv_backend_ranks skv_engine_backend_ranks(const skv_engine *e)
{
    if (!e->ranks) return (skv_backend_ranks){.n = 0};
    return (skv_backend_ranks){.rank = skv_ranks_rank(e->ranks),
                               .n = skv_ranks_size(e->ranks),
                               .ctx = e->ranks,
                               .sum = sum_over_ranks,
                               .meet = e->options.team->one_memory ? meet_ranks : NULL};
}
