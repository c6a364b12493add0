/*
 * checkkernels [SEED] [--bench]: every kernel of every level that this machine runs, against its
 * oracle, and the loops that measure limits. Needs nothing but the library, so that it also runs
 * where there is no test framework.
 */
#include <stdlib.h>
#include <string.h>

#include "check_attention.h"
#include "check_logits.h"
#include "check_matmul.h"
#include "check_peak.h"
#include "check_quant.h"
#include "check_rows.h"
#include "check_scan.h"

int main(int argc, char **argv)
{
    uint64_t seed = 1;
    bool bench = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0) {
            bench = true;
        } else {
            seed = strtoull(argv[i], NULL, 0);
        }
    }
    int n_failed = 0;
    n_failed += skv_check_matmul(seed, bench, stdout);
    n_failed += skv_check_quant(seed, bench, stdout);
    n_failed += skv_check_rows(seed, bench, stdout);
    n_failed += skv_check_logits(seed, bench, stdout);
    n_failed += skv_check_attention(seed, bench, stdout);
    n_failed += skv_check_scan(seed, bench, stdout);
    n_failed += skv_check_peak(seed, stdout);
    printf("checkkernels: seed %llu, %d failed\n", (unsigned long long)seed, n_failed);
    return n_failed != 0;
}
