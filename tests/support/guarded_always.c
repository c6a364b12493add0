/* The guarded back end in place of the CPU's, wherever a program makes one. */
#include "guarded_backend.h"

skv_status __wrap_skv_backend_create(const skv_backend_options *options, skv_backend **out,
                                     skv_error *err);

skv_status __wrap_skv_backend_create(const skv_backend_options *options, skv_backend **out,
                                     skv_error *err)
{
    return guarded_create(options, out, err);
}
