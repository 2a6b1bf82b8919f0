/* check.c - what a caller may hand in, and the sentences that refuse the rest. */
#include "runtime.h"

#include <stdarg.h>
#include <stdio.h>

#define SHAPE_BYTES 256
#define EXTENT_LIMIT INT32_MAX

ingot_status ingot_fail(char *buffer, ingot_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer, INGOT_ERROR_BYTES, format, arguments);
  va_end(arguments);
  return status;
}

const char *ingot_dtype_name(ingot_dtype dtype) {
  static const char *const names[] = {
      "undefined", "float32",   "uint8",      "int8",         "uint16",     "int16",          "int32",
      "int64",     "string",    "bool",       "float16",      "float64",    "uint32",         "uint64",
      "complex64", "complex128", "bfloat16",  "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
      "uint4",     "int4",      "float4e2m1", "float8e8m0",   "uint2",      "int2",
  };
  return dtype > 0 && dtype < (ingot_dtype)(sizeof(names) / sizeof(*names)) ? names[dtype] : "an unknown dtype";
}

static void append(char *text, size_t *used, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t *used, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int written = vsnprintf(text + *used, SHAPE_BYTES - *used, format, arguments);
  va_end(arguments);
  if (written > 0) *used += (size_t)written;
  if (*used >= SHAPE_BYTES) *used = SHAPE_BYTES - 1;
}

/* "[1, 3, 48, 192]" */
static const char *extents_text(char *text, const int64_t *extents, int32_t rank) {
  size_t used = 0;
  append(text, &used, "[");
  for (int32_t i = 0; i < rank; i++) append(text, &used, i ? ", %lld" : "%lld", (long long)extents[i]);
  append(text, &used, "]");
  return text;
}

/* "[batch, 3, h, w]" */
static const char *symbols_text(char *text, const ingot_tensor_info *info) {
  size_t used = 0;
  append(text, &used, "[");
  for (int32_t i = 0; i < info->rank; i++) append(text, &used, i ? ", %s" : "%s", info->shape_symbols[i]);
  append(text, &used, "]");
  return text;
}

static ingot_status check_type(char *error, const char *what, const ingot_tensor *tensor, const ingot_tensor_info *info) {
  char expected[SHAPE_BYTES], received[SHAPE_BYTES];
  if (tensor->dtype != info->dtype) {
    return ingot_fail(error, INGOT_INVALID_ARGUMENT, "%s '%s': expected dtype %s, received %s", what, info->name,
                      ingot_dtype_name(info->dtype), ingot_dtype_name(tensor->dtype));
  }
  if (tensor->rank < 0 || tensor->rank > INGOT_MAX_RANK || (tensor->rank && !tensor->shape)) {
    return ingot_fail(error, INGOT_INVALID_ARGUMENT, "%s '%s': expected rank %d, received %s", what, info->name,
                      (int)info->rank, tensor->shape ? "a rank out of range" : "a null shape");
  }
  if (tensor->rank != info->rank) {
    return ingot_fail(error, INGOT_INVALID_ARGUMENT, "%s '%s': expected rank %d %s, received rank %d %s", what,
                      info->name, (int)info->rank, symbols_text(expected, info), (int)tensor->rank,
                      extents_text(received, tensor->shape, tensor->rank));
  }
  return INGOT_OK;
}

static int is_empty(const int64_t *extents, int32_t rank) {
  for (int32_t i = 0; i < rank; i++) {
    if (extents[i] == 0) return 1;
  }
  return 0;
}

static ingot_status check_data(char *error, const char *what, const char *name, const void *data,
                               const int64_t *extents, int32_t rank) {
  if (data || is_empty(extents, rank)) return INGOT_OK;
  return ingot_fail(error, INGOT_INVALID_ARGUMENT, "%s '%s': expected a data pointer, received NULL", what, name);
}

static ingot_status check_input(char *error, const ingot_tensor *tensor, const ingot_tensor_info *info) {
  char expected[SHAPE_BYTES], received[SHAPE_BYTES];
  ingot_status status = check_type(error, "input", tensor, info);
  if (status) return status;
  for (int32_t axis = 0; axis < info->rank; axis++) {
    int64_t fixed = info->shape[axis], extent = tensor->shape[axis];
    if (extent >= 0 && extent <= EXTENT_LIMIT && (fixed < 0 || extent == fixed)) continue;
    return ingot_fail(error, INGOT_INVALID_ARGUMENT, "input '%s': expected shape %s, received %s: axis %d", info->name,
                      symbols_text(expected, info), extents_text(received, tensor->shape, tensor->rank), (int)axis);
  }
  return check_data(error, "input", info->name, tensor->data, tensor->shape, tensor->rank);
}

int ingot_is_default(const ingot_tensor *tensor, int32_t index) {
  return !tensor->data && !tensor->shape && ingot_this_module.defaults[index].offset >= 0;
}

ingot_status ingot_check_inputs(char *error, const ingot_tensor *inputs, int32_t count) {
  const ingot_module *module = &ingot_this_module;
  if (count != module->input_count || (count && !inputs)) {
    return ingot_fail(error, INGOT_INVALID_ARGUMENT, "model '%s': expected %d inputs, received %d", module->name,
                      (int)module->input_count, (int)(inputs ? count : 0));
  }
  for (int32_t i = 0; i < count; i++) {
    if (ingot_is_default(&inputs[i], i)) continue;
    ingot_status status = check_input(error, &inputs[i], &module->inputs[i]);
    if (status) return status;
  }
  return INGOT_OK;
}

static ingot_status check_output(char *error, const ingot_tensor *tensor, const ingot_tensor_info *info,
                                 const int64_t *shape, int owned, int with_data) {
  char expected[SHAPE_BYTES], received[SHAPE_BYTES];
  ingot_status status = check_type(error, "output", tensor, info);
  if (status || !with_data) return status;
  if (owned) {
    if (!tensor->data) return INGOT_OK;
    return ingot_fail(error, INGOT_INVALID_ARGUMENT,
                      "output '%s': expected data to be NULL, since only the run knows the size and the model owns the "
                      "memory, received a pointer",
                      info->name);
  }
  for (int32_t axis = 0; axis < info->rank; axis++) {
    if (tensor->shape[axis] == shape[axis]) continue;
    return ingot_fail(error, INGOT_INVALID_ARGUMENT, "output '%s': expected shape %s for these inputs, received %s",
                      info->name, extents_text(expected, shape, info->rank),
                      extents_text(received, tensor->shape, info->rank));
  }
  return check_data(error, "output", info->name, tensor->data, shape, info->rank);
}

ingot_status ingot_check_outputs(char *error, const ingot_tensor *outputs, int32_t count, int64_t *const *shapes,
                                 int with_data) {
  const ingot_module *module = &ingot_this_module;
  if (count != module->output_count || (count && !outputs)) {
    return ingot_fail(error, INGOT_INVALID_ARGUMENT, "model '%s': expected %d outputs, received %d", module->name,
                      (int)module->output_count, (int)(outputs ? count : 0));
  }
  for (int32_t i = 0; i < count; i++) {
    ingot_status status = check_output(error, &outputs[i], &module->outputs[i], shapes[i], module->output_slots[i] >= 0, with_data);
    if (status) return status;
  }
  return INGOT_OK;
}
