/* The back ends by the names of their devices. */
#include "backend/backend.h"

#include <string.h>

#include "backend/cpu/cpu_backend.h"

skv_status skv_backend_create(const skv_backend_options *options, skv_backend **out, skv_error *err)
{
    const char *device = options->device ? options->device : "cpu";
    SKV_REQUIRE(strcmp(device, "cpu") == 0, err, SKV_UNSUPPORTED,
                "device %.64s: unknown, expected cpu", device);
    return skv_backend_cpu_create(options, out, err);
}
