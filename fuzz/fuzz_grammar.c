/* libFuzzer target: rules in the GBNF notation, compiled and walked through. */
#include "fuzz_grammar.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grammar(SKV_GRAMMAR_GBNF, data, size);
}
