/* main.c - the program around a bundled model, for a device with nothing installed.
 *
 *   model --info
 *   model [--threads N] [--repeat N] [--extents] [--shape NAME=EXTENT,...]... INPUT.bin... OUTPUT.bin...
 *
 * Files hold raw row-major little-endian elements; "-" leaves an input to its default. An input with one symbolic extent gets it from the size of its file;
 * --shape gives the others. With --repeat the fastest and the median time of N more runs are printed, with --extents a line for each output, "2,3,224". */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ALIGNMENT 64

typedef struct {
  int32_t threads;
  long repeat;
  int info;
  int extents;
  const char **files;
  int file_count;
  const char **shapes; /* "NAME=1,3,224,224" */
  int shape_count;
} arguments;

static int die(const char *what, const char *name, const char *why) {
  fprintf(stderr, "%s %s: %s\n", what, name, why);
  return 2;
}

/* Bytes of one element of an onnx.TensorProto.DataType, 0 when files cannot hold it. */
static int64_t element_size(ingot_dtype dtype) {
  static const signed char sizes[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  return dtype > 0 && dtype < (ingot_dtype)sizeof(sizes) ? sizes[dtype] : 0;
}

static int64_t element_count(const ingot_tensor *tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor->rank; i++) {
    int64_t extent = tensor->shape[i];
    if (extent < 0 || (extent && count > INT64_MAX / 16 / extent)) return -1;
    count *= extent;
  }
  return count;
}

static void print_tensor(const char *kind, const ingot_tensor_info *info) {
  printf("%s %s: %s[", kind, info->name, ingot_dtype_name(info->dtype));
  for (int32_t i = 0; i < info->rank; i++) printf("%s%s", i ? ", " : "", info->shape_symbols[i]);
  printf("]\n");
}

static int print_info(void) {
  printf("ABI %u, compiler %s, %d kernels, %zu bytes of weights\n", (unsigned)ingot_abi_version(),
         ingot_compiler_version(), (int)ingot_kernel_count(), ingot_weights_size());
  for (int32_t i = 0; i < ingot_input_count(); i++) print_tensor("input", ingot_input_info(i));
  for (int32_t i = 0; i < ingot_output_count(); i++) print_tensor("output", ingot_output_info(i));
  return 0;
}

static int parse_arguments(int count, char **words, arguments *out) {
  out->threads = 0;
  out->repeat = 0;
  out->info = out->extents = out->file_count = out->shape_count = 0;
  for (int i = 1; i < count; i++) {
    const char *value = i + 1 < count ? words[i + 1] : NULL;
    if (!strcmp(words[i], "--info")) {
      out->info = 1;
    } else if (!strcmp(words[i], "--extents")) {
      out->extents = 1;
    } else if (strncmp(words[i], "--", 2)) {
      out->files[out->file_count++] = words[i];
    } else if (!value) {
      return die("option", words[i], "wants a value, or is unknown");
    } else if (!strcmp(words[i], "--threads")) {
      out->threads = (int32_t)strtol(words[++i], NULL, 10);
    } else if (!strcmp(words[i], "--repeat")) {
      out->repeat = strtol(words[++i], NULL, 10);
    } else if (!strcmp(words[i], "--shape")) {
      out->shapes[out->shape_count++] = words[++i];
    } else {
      return die("option", words[i], "is unknown: expected --info, --threads, --repeat, --extents or --shape");
    }
  }
  return 0;
}

/* Reads the whole file into aligned memory. */
static void *read_file(const char *path, int64_t *bytes) {
  FILE *file = fopen(path, "rb");
  void *data = NULL;
  if (!file) return NULL;
  if (!fseek(file, 0, SEEK_END) && (*bytes = ftell(file)) >= 0 && !fseek(file, 0, SEEK_SET) &&
      !posix_memalign(&data, ALIGNMENT, (size_t)*bytes + ALIGNMENT) &&
      fread(data, 1, (size_t)*bytes, file) != (size_t)*bytes) {
    free(data);
    data = NULL;
  }
  fclose(file);
  return data;
}

/* Extents from `--shape NAME=...`; 0 when it does not fit the rank. */
static int parse_shape(const char *text, ingot_tensor *tensor) {
  for (int32_t i = 0; i < tensor->rank; i++) {
    char *end;
    tensor->shape[i] = strtoll(text, &end, 10);
    if (end == text || *end != (i + 1 < tensor->rank ? ',' : 0)) return 0;
    text = end + 1;
  }
  return 1;
}

static int fill_shape(const ingot_tensor_info *info, const arguments *args, int64_t bytes, ingot_tensor *tensor) {
  size_t length = strlen(info->name);
  for (int i = 0; i < args->shape_count; i++) {
    if (strncmp(args->shapes[i], info->name, length) || args->shapes[i][length] != '=') continue;
    return parse_shape(args->shapes[i] + length + 1, tensor)
               ? 0
               : die("input", info->name, "expected one extent per axis in --shape NAME=EXTENT,...");
  }
  int32_t unknown = -1, unknowns = 0;
  int64_t known = element_size(info->dtype);
  for (int32_t i = 0; i < info->rank; i++) {
    tensor->shape[i] = info->shape[i];
    if (info->shape[i] >= 0) {
      known *= info->shape[i];
    } else {
      unknown = i;
      unknowns++;
    }
  }
  if (unknowns > 1) return die("input", info->name, "has several symbolic extents: give --shape NAME=EXTENT,...");
  if (unknowns) tensor->shape[unknown] = known ? bytes / known : 0;
  return 0;
}

static int read_input(int32_t index, const arguments *args, ingot_tensor *tensor) {
  const ingot_tensor_info *info = ingot_input_info(index);
  int64_t bytes = 0;
  tensor->rank = info->rank;
  tensor->dtype = info->dtype;
  if (!strcmp(args->files[index], "-") && ingot_input_has_default(index)) return 0;
  tensor->shape = calloc((size_t)info->rank + 1, sizeof(int64_t));
  tensor->data = read_file(args->files[index], &bytes);
  if (!tensor->data || !tensor->shape) return die("input file", args->files[index], "cannot be read");
  if (fill_shape(info, args, bytes, tensor)) return 2;
  if (element_count(tensor) * element_size(info->dtype) == bytes) return 0;
  fprintf(stderr, "input %s: expected %lld elements of %d bytes, received a file of %lld bytes\n", info->name,
          (long long)element_count(tensor), (int)element_size(info->dtype), (long long)bytes);
  return 2;
}

/* Outputs whose size only the run knows keep the data pointer NULL: the model owns their memory. */
static int make_outputs(ingot_model *model, const ingot_tensor *inputs, ingot_tensor *outputs, char *owned) {
  int32_t count = ingot_output_count();
  for (int32_t i = 0; i < count; i++) {
    const ingot_tensor_info *info = ingot_output_info(i);
    outputs[i].rank = info->rank;
    outputs[i].dtype = info->dtype;
    outputs[i].shape = calloc((size_t)info->rank + 1, sizeof(int64_t));
    if (!outputs[i].shape) return die("output", info->name, "no memory");
  }
  if (ingot_output_shapes(model, inputs, ingot_input_count(), outputs, count)) {
    return die("model", "refused", ingot_last_error(model));
  }
  for (int32_t i = 0; i < count; i++) {
    int64_t elements = element_count(&outputs[i]);
    for (int32_t axis = 0; axis < outputs[i].rank; axis++) owned[i] |= outputs[i].shape[axis] < 0;
    if (owned[i]) continue;
    size_t bytes = (size_t)(elements * element_size(outputs[i].dtype));
    if (elements < 0 || posix_memalign(&outputs[i].data, ALIGNMENT, bytes + ALIGNMENT)) {
      return die("output", ingot_output_info(i)->name, "no memory");
    }
  }
  return 0;
}

static int write_outputs(const arguments *args, const ingot_tensor *outputs) {
  for (int32_t i = 0; i < ingot_output_count(); i++) {
    const char *path = args->files[ingot_input_count() + i];
    size_t bytes = (size_t)(element_count(&outputs[i]) * element_size(outputs[i].dtype));
    FILE *file = fopen(path, "wb");
    int failed = !file || fwrite(outputs[i].data, 1, bytes, file) != bytes;
    if (file && fclose(file)) failed = 1;
    if (failed) return die("output file", path, "cannot be written");
  }
  return 0;
}

static void print_extents(const ingot_tensor *outputs) {
  for (int32_t i = 0; i < ingot_output_count(); i++) {
    for (int32_t axis = 0; axis < outputs[i].rank; axis++) {
      printf("%s%lld", axis ? "," : "", (long long)outputs[i].shape[axis]);
    }
    printf("\n");
  }
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int measure(ingot_model *model, const ingot_tensor *inputs, ingot_tensor *outputs, long repeat) {
  double *times = malloc((size_t)repeat * sizeof(double));
  if (!times) return die("option", "--repeat", "no memory");
  for (long i = 0; i < repeat; i++) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (ingot_run(model, inputs, ingot_input_count(), outputs, ingot_output_count())) {
      free(times);
      return die("model", "failed", ingot_last_error(model));
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    times[i] = (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) / 1e6;
  }
  qsort(times, (size_t)repeat, sizeof(double), by_value);
  printf("fastest %.4f ms, median %.4f ms of %ld runs\n", times[0], times[repeat / 2], repeat);
  free(times);
  return 0;
}

static int run(const arguments *args, ingot_tensor *inputs, ingot_tensor *outputs, char *owned) {
  ingot_options options = {sizeof(ingot_options), NULL, 0, args->threads, NULL, 0, 0};
  ingot_model *model = NULL;
  for (int32_t i = 0; i < ingot_input_count(); i++) {
    if (read_input(i, args, &inputs[i])) return 2;
  }
  if (ingot_create(&options, &model)) return die("model", "cannot start", ingot_last_error(NULL));
  int failed = make_outputs(model, inputs, outputs, owned);
  if (!failed && ingot_run(model, inputs, ingot_input_count(), outputs, ingot_output_count())) {
    failed = die("model", "failed", ingot_last_error(model));
  }
  if (!failed && args->repeat > 0) failed = measure(model, inputs, outputs, args->repeat);
  if (!failed) failed = write_outputs(args, outputs);
  if (!failed && args->extents) print_extents(outputs);
  for (int32_t i = 0; i < ingot_output_count(); i++) {
    if (owned[i]) outputs[i].data = NULL;
  }
  ingot_destroy(model);
  return failed;
}

static void free_tensors(ingot_tensor *tensors, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    free(tensors[i].data);
    free(tensors[i].shape);
  }
  free(tensors);
}

int main(int count, char **words) {
  arguments args;
  args.files = calloc((size_t)count + 1, sizeof(char *));
  args.shapes = calloc((size_t)count + 1, sizeof(char *));
  ingot_tensor *inputs = calloc((size_t)ingot_input_count() + 1, sizeof(ingot_tensor));
  ingot_tensor *outputs = calloc((size_t)ingot_output_count() + 1, sizeof(ingot_tensor));
  char *owned = calloc((size_t)ingot_output_count() + 1, 1);
  int status = 2;
  if (!args.files || !args.shapes || !inputs || !outputs || !owned) {
    status = die("model", "cannot start", "no memory");
  } else if (!parse_arguments(count, words, &args)) {
    if (args.info) {
      status = print_info();
    } else if (args.file_count != ingot_input_count() + ingot_output_count()) {
      fprintf(stderr, "expected %d input and %d output files, received %d files; --info lists them\n",
              (int)ingot_input_count(), (int)ingot_output_count(), args.file_count);
    } else {
      status = run(&args, inputs, outputs, owned);
    }
  }
  if (inputs) free_tensors(inputs, ingot_input_count());
  if (outputs) free_tensors(outputs, ingot_output_count());
  free((void *)args.files);
  free((void *)args.shapes);
  free(owned);
  return status;
}
