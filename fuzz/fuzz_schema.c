/* libFuzzer target: JSON schemas, compiled and walked through; and lists of choices. */
#include "fuzz.h"
#include "fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool choice = size > 0 && data[0] == '[';
    return fuzz_grammar(choice ? SKV_GRAMMAR_CHOICE : SKV_GRAMMAR_JSON_SCHEMA, data, size);
}
