/* The module: the functions of all files in one namespace. */
#include "skvpy.h"

static int fill_module(PyObject *module)
{
    PyMethodDef *const tables[] = {
        skvpy_engine_methods,  skvpy_sequence_methods, skvpy_inspect_methods, skvpy_text_methods,
        skvpy_grammar_methods, skvpy_model_methods,    skvpy_learn_methods,   skvpy_eval_methods};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        if (PyModule_AddFunctions(module, tables[i]) < 0) return -1;
    }
    if (PyModule_AddIntConstant(module, "DRAFT_MAX", SKV_DRAFT_MAX) < 0) return -1;
    const char version[] = {'0' + SKV_VERSION_MAJOR, '.', '0' + SKV_VERSION_MINOR, '.',
                            '0' + SKV_VERSION_PATCH, 0};
    return PyModule_AddStringConstant(module, "version", version);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0}};

static PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                 .m_name = "swiftkv._skv",
                                 .m_doc = "libskv's functions; use the classes of swiftkv.",
                                 .m_slots = slots};

PyMODINIT_FUNC PyInit__skv(void)
{
    return PyModuleDef_Init(&definition);
}
