/*
 * The emulated device: the guarded back end with activations that are bfloat16, and memory of its
 * own. It promises only that it repeats. Programs ask for it as device "emulated".
 */
#include "guarded_state.h"

static size_t memory_bytes = (size_t)1 << 36;

void emulated_device_has(size_t n_bytes)
{
    memory_bytes = n_bytes;
}

static skv_status fits(const skv_backend *base, const skv_backend_shape *shape, skv_error *err)
{
    (void)base;
    SKV_REQUIRE(shape->weights != SKV_WEIGHT_QUANT_F32, err, SKV_UNSUPPORTED,
                "device emulated: codes of weights beside rows of f32: activations are bfloat16");
    return SKV_OK;
}

static skv_bytes available(const skv_backend *base)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return (skv_bytes){.device = memory_bytes, .host = cpu->available(cpu).host};
}

/* Whatever computes lies in the device's memory. */
static skv_bytes own(skv_bytes bytes)
{
    return (skv_bytes){.device = bytes.host};
}

#define OWN_BYTES(name, type)                                                                      \
    static skv_bytes name(const skv_backend *base, const type *of)                                 \
    {                                                                                              \
        const skv_backend *cpu = ((const guarded *)base)->cpu;                                     \
        return own(cpu->name(cpu, of));                                                            \
    }
OWN_BYTES(reserve_bytes, skv_backend_limits)
OWN_BYTES(linear_bytes, skv_linear_spec)
OWN_BYTES(states_bytes, skv_states_spec)

static skv_bytes areas_bytes(const skv_backend *base, const skv_area_spec *specs, size_t n)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return own(cpu->areas_bytes(cpu, specs, n));
}

static skv_bytes pool_bytes(const skv_backend *base, size_t page_bytes, size_t n_pages)
{
    const skv_backend *cpu = ((const guarded *)base)->cpu;
    return own(cpu->pool_bytes(cpu, page_bytes, n_pages));
}

static skv_bytes embedding_bytes(const skv_backend *base, size_t n_rows, size_t K)
{
    (void)base;
    return (skv_bytes){.device = n_rows * K * sizeof(float)};
}

void guarded_emulate(guarded *g)
{
    g->rounds = true;
    g->base.name = "emulated";
    g->base.promises = SKV_PROMISE_REPEATS;
    g->base.fits = fits;
    g->base.available = available;
    g->base.reserve_bytes = reserve_bytes;
    g->base.linear_bytes = linear_bytes;
    g->base.states_bytes = states_bytes;
    g->base.areas_bytes = areas_bytes;
    g->base.embedding_bytes = embedding_bytes;
    g->base.pool_bytes = pool_bytes;
}
