/* run.c - a compiled model from C: what goes in and what comes out, one inference over ones, the kernels by name.
 *
 *   ingot compile model.onnx --name model --local --bundle-library --out build
 *   cc -std=c99 -Wall -Wextra -Werror -I build examples/c/run.c build/model.*.so -o run -Wl,-rpath,build
 *   ./run
 *
 * Extents that the model leaves open are 1 here. */
#include "ingot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_TENSORS = 16, FLOAT = 1, FLOATS_SHOWN = 4 };

typedef struct {
  ingot_tensor tensor;
  int64_t shape[INGOT_MAX_RANK];
} shaped_tensor;

static int failed(const char *what, const ingot_model *model) {
  fprintf(stderr, "%s: %s\n", what, ingot_last_error(model));
  return EXIT_FAILURE;
}

static int64_t elements(const ingot_tensor *tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor->rank; i++) count *= tensor->shape[i];
  return count;
}

static void describe(const char *kind, const ingot_tensor_info *info) {
  printf("%s %s: type %" PRId32 " [", kind, info->name, info->dtype);
  for (int32_t i = 0; i < info->rank; i++) printf("%s%s", i ? ", " : "", info->shape_symbols[i]);
  printf("]\n");
}

/* An input of ones, in memory that the caller frees; NULL: no memory, or no floats. */
static float *ones(shaped_tensor *input, const ingot_tensor_info *info) {
  if (info->dtype != FLOAT) return NULL;
  input->tensor = (ingot_tensor){NULL, input->shape, info->rank, info->dtype};
  for (int32_t i = 0; i < info->rank; i++) input->shape[i] = info->shape[i] < 0 ? 1 : info->shape[i];
  const int64_t count = elements(&input->tensor);
  float *data = malloc((size_t)(count > 0 ? count : 1) * sizeof(float));
  for (int64_t i = 0; data && i < count; i++) data[i] = 1.0f;
  input->tensor.data = data;
  return data;
}

static void show(const ingot_tensor_info *info, const ingot_tensor *output) {
  const int64_t count = elements(output);
  printf("%s:", info->name);
  for (int64_t i = 0; info->dtype == FLOAT && i < count && i < FLOATS_SHOWN; i++)
    printf(" %g", (double)((const float *)output->data)[i]);
  printf("%s (%" PRId64 " elements)\n", count > FLOATS_SHOWN ? " ..." : "", count);
}

int main(void) {
  const int32_t inputs = ingot_input_count(), outputs = ingot_output_count();
  if (inputs > MOST_TENSORS || outputs > MOST_TENSORS) return EXIT_FAILURE;
  for (int32_t i = 0; i < inputs; i++) describe("input", ingot_input_info(i));
  for (int32_t i = 0; i < outputs; i++) describe("output", ingot_output_info(i));

  const ingot_options options = {.struct_size = sizeof options, .threads = 1};
  ingot_model *model = NULL;
  if (ingot_create(&options, &model)) return failed("ingot_create", NULL);

  shaped_tensor given[MOST_TENSORS], made[MOST_TENSORS];
  ingot_tensor in[MOST_TENSORS], out[MOST_TENSORS];
  for (int32_t i = 0; i < inputs; i++) {
    if (!ones(&given[i], ingot_input_info(i))) {
      fprintf(stderr, "input %s: this program gives float32 alone\n", ingot_input_info(i)->name);
      return EXIT_FAILURE;
    }
    in[i] = given[i].tensor;
  }
  for (int32_t i = 0; i < outputs; i++) {
    const ingot_tensor_info *info = ingot_output_info(i);
    out[i] = (ingot_tensor){NULL, made[i].shape, info->rank, info->dtype};
  }
  if (ingot_output_shapes(model, in, inputs, out, outputs)) return failed("ingot_output_shapes", model);
  void *own[MOST_TENSORS]; /* a negative count: only the run knows, and gives memory of its own */
  for (int32_t i = 0; i < outputs; i++) {
    const int64_t count = elements(&out[i]);
    own[i] = out[i].data = count < 0 ? NULL : malloc((size_t)count * sizeof(double) + 1);
  }
  if (ingot_run(model, in, inputs, out, outputs)) return failed("ingot_run", model);
  for (int32_t i = 0; i < outputs; i++) show(ingot_output_info(i), &out[i]);

  printf("kernels:");
  for (int32_t i = 0; i < ingot_kernel_count(); i++) printf(" %s", ingot_kernel_name(i));
  printf("\n");
  ingot_destroy(model);
  for (int32_t i = 0; i < inputs; i++) free(in[i].data);
  for (int32_t i = 0; i < outputs; i++) free(own[i]);
  return EXIT_SUCCESS;
}
