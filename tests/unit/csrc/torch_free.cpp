// Stands in for tensor_check.cpp, so that the rest of the extension can be built and tested with an interpreter that has no
// torch: see torch_free.sh.

#include "tensor_check.h"

namespace stoker {

bool is_tensor_spec(PyObject*) { return false; }
bool is_torch_state(PyObject*) { return false; }
bool tensor_matches(PyObject*, PyObject*) { return false; }
bool tensor_spec_runs_python(PyObject*) { return false; }
bool tensor_specs_equal(PyObject*, PyObject*) { return false; }
bool torch_state_matches(PyObject*) { return false; }
bool tensor_size(PyObject*, int64_t, int64_t*) { return false; }
bool tensor_stride(PyObject*, int64_t, int64_t*) { return false; }
bool add_tensor_types(PyObject*) { return true; }

}  // namespace stoker
