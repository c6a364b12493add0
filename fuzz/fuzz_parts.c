/* libFuzzer target: grammars of parts, compiled and walked through. */
#include "fuzz.h"
#include "fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grammar(SKV_GRAMMAR_PARTS, data, size);
}
