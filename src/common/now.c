/* The clock of the public interface. */
#include "base/system.h"
#include "skv/tools.h"

uint64_t skv_now_ns(void)
{
    return skv_clock_ns();
}
