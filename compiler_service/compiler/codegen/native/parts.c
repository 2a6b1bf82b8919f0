/* parts.c - parts of the model that other code generators made. */
#include "runtime.h"

#include <stdlib.h>

#if INGOT_PART_ERROR_BYTES > INGOT_ERROR_BYTES
#error "an error of a part does not fit the one of a model"
#endif

static ingot_status open_part(const ingot_kernel *kernel, const char *weights, int32_t threads, void **state,
                              char *error) {
  const void **constants = calloc((size_t)kernel->constant_count + 1, sizeof(*constants));
  if (!constants) return ingot_fail(error, INGOT_OUT_OF_MEMORY, "no memory for the part '%s'", kernel->name);
  for (int32_t i = 0; i < kernel->constant_count; i++) constants[i] = weights + kernel->constants[i];
  ingot_status status = (ingot_status)kernel->part->open(constants, threads, state, error);
  free((void *)constants);
  return status;
}

ingot_status ingot_open_parts(void **states, int32_t *opened, const char *weights, int32_t threads, char *error) {
  for (*opened = 0; *opened < ingot_this_module.kernel_count; ++*opened) {
    const ingot_kernel *kernel = &ingot_this_module.kernels[*opened];
    if (!kernel->part) continue;
    if (!kernel->part->run) return ingot_fail(error, INGOT_INCOMPATIBLE, "the part '%s' has no function to run", kernel->name);
    if (!kernel->part->open) continue;
    ingot_status status = open_part(kernel, weights, threads, &states[*opened], error);
    if (status) return status;
  }
  return INGOT_OK;
}

void ingot_close_parts(void *const *states, int32_t opened) {
  for (int32_t i = 0; i < opened; i++) {
    const ingot_part *part = ingot_this_module.kernels[i].part;
    if (part && part->close) part->close(states[i]);
  }
}
