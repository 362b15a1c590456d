// The plan executor: runs a kernel plan without Python.
//
// A plan is a list of steps over slots (buffers) and numbers (sizes, evaluated once per call). stoker/codegen/plan_records.py
// declares its records.
#pragma once

#include "plan_records.h"
#include "python_compat.h"

namespace stoker {

// Reads the plain form of a plan, with the objects that it names by their place. Throws std::exception, or python_error.
PlanRecord read_plan(PyObject* plain, PyObject* objects);

// A tensor over memory of a storage. Plans and recordings stand below autograd.
at::Tensor tensor_over(const c10::Storage& storage, at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides,
                       int64_t offset);

// Frees the memory for temporaries that is kept between calls.
PyObject* release_arenas(PyObject*, PyObject*);

bool add_plan_types(PyObject* module);

}  // namespace stoker
