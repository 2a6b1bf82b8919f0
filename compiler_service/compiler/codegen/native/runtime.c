/* runtime.c - the C ABI of ingot.h around the one module that this library holds. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime.h"
#include "thread_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_THREADS 1024

struct ingot_model {
  pthread_mutex_t mutex;
  const char *weights;
  ingot_pool *own_pool;   /* NULL when the host passed one */
  ingot_thread_pool pool; /* whichever runs the tasks */
  pid_t process;
  char *scratch;
  size_t scratch_stride; /* bytes per thread */
  char *arena;
  size_t arena_size;
  size_t memory_limit, memory_kept; /* SIZE_MAX: none */
  int64_t *symbols;
  ingot_slot *slots;
  void **parts; /* states, by kernel index */
  int32_t opened_parts;
  const int64_t **input_shapes;
  int64_t **output_shapes;
  void **input_data, **output_data;
  char error[INGOT_ERROR_BYTES];
};

typedef struct {
  ingot_frame frame; /* first: generated code holds a pointer to it */
  ingot_model *model;
} run_frame;

typedef struct {
  ingot_kernel_function function;
  void *const *buffers;
  const int64_t *symbols;
  char *scratch;
  size_t stride;
  const volatile int32_t *stop;
} kernel_job;

static const volatile int32_t never_stopped = 0;

#define TASKS_OF_SLICE 64 /* each takes microseconds, so a call for some of them costs nothing */

static __thread char create_error[INGOT_ERROR_BYTES];

uint32_t ingot_abi_version(void) { return ingot_this_module.abi_version; }
const char *ingot_compiler_version(void) { return ingot_this_module.compiler_version; }
const char *ingot_plan_digest(void) { return ingot_this_module.plan_digest; }
size_t ingot_weights_size(void) { return (size_t)ingot_this_module.weights_size; }
int32_t ingot_input_count(void) { return ingot_this_module.input_count; }
int32_t ingot_output_count(void) { return ingot_this_module.output_count; }
int32_t ingot_kernel_count(void) { return ingot_this_module.kernel_count; }

const ingot_tensor_info *ingot_input_info(int32_t index) {
  return index >= 0 && index < ingot_this_module.input_count ? &ingot_this_module.inputs[index] : NULL;
}

const ingot_tensor_info *ingot_output_info(int32_t index) {
  return index >= 0 && index < ingot_this_module.output_count ? &ingot_this_module.outputs[index] : NULL;
}

const char *ingot_kernel_name(int32_t index) {
  return index >= 0 && index < ingot_this_module.kernel_count ? ingot_this_module.kernels[index].name : NULL;
}

int32_t ingot_input_has_default(int32_t index) {
  return index >= 0 && index < ingot_this_module.input_count && ingot_this_module.defaults[index].offset >= 0;
}

const char *ingot_last_error(const ingot_model *model) { return model ? model->error : create_error; }

/* ---- launching ---- */

/* Tasks in slices, between which the run may be stopped. */
static void run_slices(const kernel_job *job, int64_t begin, int64_t end, void *scratch) {
  int64_t slice = job->stop == &never_stopped ? end - begin : TASKS_OF_SLICE;
  while (begin < end && !*job->stop) {
    int64_t next = end - begin > slice ? begin + slice : end;
    job->function(job->buffers, job->symbols, begin, next, scratch, job->stop);
    begin = next;
  }
}

static void run_tasks(void *context, int64_t begin, int64_t end, int32_t thread) {
  const kernel_job *job = context;
  uint64_t mode = ingot_enter_float_mode();
  run_slices(job, begin, end, job->scratch + (size_t)thread * job->stride);
  ingot_restore_float_mode(mode);
}

/* A part has one task, or none where its result has no elements. */
static ingot_status run_part(ingot_model *model, int32_t kernel, void *const *buffers, const int64_t *symbols,
                             int64_t tasks, const volatile int32_t *stop) {
  if (tasks < 1 || *stop) return INGOT_OK;
  const ingot_part *part = ingot_this_module.kernels[kernel].part;
  return (ingot_status)part->run(model->parts[kernel], buffers, symbols, model->error);
}

static ingot_status launch_kernel(ingot_model *model, int32_t kernel, void *const *buffers, const int64_t *symbols,
                                  int64_t tasks, const volatile int32_t *stop) {
  if (ingot_this_module.kernels[kernel].part) return run_part(model, kernel, buffers, symbols, tasks, stop);
  ingot_kernel_function function = ingot_this_module.kernels[kernel].function;
  kernel_job job = {function, buffers, symbols, model->scratch, model->scratch_stride, stop};
  if (tasks <= 1 || model->pool.threads == 1) {
    run_slices(&job, 0, tasks, model->scratch);
    return INGOT_OK;
  }
  model->pool.run(model->pool.pool, run_tasks, &job, tasks);
  return INGOT_OK;
}

static void launch(ingot_frame *frame, int32_t kernel, void *const *buffers, const int64_t *symbols, int64_t tasks) {
  if (*frame->stop) return; /* what the kernel would have written is not looked at: the module asks before it reads */
  frame->failed = (int32_t)launch_kernel(((run_frame *)frame)->model, kernel, buffers, symbols, tasks, frame->stop);
}

static size_t slots_size(const ingot_model *model) {
  return ingot_slots_size(model->slots, ingot_this_module.slot_count);
}

static int32_t reserve(ingot_frame *frame, ingot_slot *slot, int64_t bytes, int32_t keep) {
  const ingot_model *model = ((run_frame *)frame)->model;
  if (model->memory_limit == SIZE_MAX) return ingot_reserve(slot, bytes, keep, SIZE_MAX);
  size_t others = model->arena_size + slots_size(model) - (size_t)slot->size;
  return others < model->memory_limit && ingot_reserve(slot, bytes, keep, model->memory_limit - others);
}

/* ---- creation ---- */

static ingot_status check_options(const ingot_options *options, const void *weights) {
  const ingot_module *module = &ingot_this_module;
  char feature[64];
  if (ingot_missing_feature(module->features, feature, sizeof(feature))) {
    return ingot_fail(create_error, INGOT_INCOMPATIBLE,
                      "model '%s' was compiled for a CPU with '%s', which this one lacks; compile it for this CPU",
                      module->name, feature);
  }
  if (options->threads < 0 || options->threads > MAX_THREADS) {
    return ingot_fail(create_error, INGOT_INVALID_ARGUMENT, "threads: expected 0 to %d, received %d", MAX_THREADS,
                      (int)options->threads);
  }
  if (options->thread_pool && (!options->thread_pool->run || options->thread_pool->threads < 1)) {
    return ingot_fail(create_error, INGOT_INVALID_ARGUMENT,
                      "thread_pool: expected a run function and at least 1 thread, received %d threads",
                      (int)options->thread_pool->threads);
  }
  if (module->weights_size && !weights) {
    return ingot_fail(create_error, INGOT_INVALID_ARGUMENT, "model '%s': expected %lld bytes of weights, received none",
                      module->name, (long long)module->weights_size);
  }
  if (options->weights && options->weights_size != (size_t)module->weights_size) {
    return ingot_fail(create_error, INGOT_INCOMPATIBLE,
                      "model '%s': expected %lld bytes of weights, received %lld: they belong to another model",
                      module->name, (long long)module->weights_size, (long long)options->weights_size);
  }
  if ((uintptr_t)weights % INGOT_ALIGNMENT) {
    return ingot_fail(create_error, INGOT_INVALID_ARGUMENT, "weights: expected an address aligned to %d bytes",
                      INGOT_ALIGNMENT);
  }
  return INGOT_OK;
}

/* Threads, scratch and the tables of one run. Nothing here is allocated again, but for a growing arena and slots. */
static int allocate_model(ingot_model *model, const ingot_options *options) {
  const ingot_module *module = &ingot_this_module;
  size_t inputs = (size_t)module->input_count, outputs = (size_t)module->output_count, extents = 0;
  for (size_t i = 0; i < outputs; i++) extents += (size_t)module->outputs[i].rank;
  model->symbols = calloc((size_t)module->symbol_count + extents + 1, sizeof(int64_t));
  model->input_shapes = calloc(inputs + 1, sizeof(int64_t *));
  model->output_shapes = calloc(outputs + 1, sizeof(int64_t *));
  model->input_data = calloc(inputs + outputs + 1, sizeof(void *));
  model->slots = calloc((size_t)module->slot_count + 1, sizeof(ingot_slot));
  model->parts = calloc((size_t)module->kernel_count + 1, sizeof(void *));
  if (!model->symbols || !model->input_shapes || !model->output_shapes || !model->input_data) return 0;
  if (!model->slots || !model->parts) return 0;
  model->output_data = model->input_data + inputs;
  int64_t *next = model->symbols + module->symbol_count;
  for (size_t i = 0; i < outputs; i++) {
    model->output_shapes[i] = next;
    next += module->outputs[i].rank;
  }

  if (options->thread_pool) {
    model->pool = *options->thread_pool;
  } else {
    int32_t threads = options->threads ? options->threads : ingot_cpu_count();
    model->own_pool = ingot_pool_create(threads);
    if (!model->own_pool) return 0;
    model->pool.run = ingot_pool_run;
    model->pool.pool = model->own_pool;
    model->pool.threads = threads;
  }

  int64_t scratch = 0;
  for (int32_t i = 0; i < module->kernel_count; i++) {
    if (module->kernels[i].scratch > scratch) scratch = module->kernels[i].scratch;
  }
  /* Two cache lines apart, so that neighbours do not share one. */
  model->scratch_stride = ((size_t)scratch + 2 * INGOT_ALIGNMENT - 1) / (2 * INGOT_ALIGNMENT) * (2 * INGOT_ALIGNMENT);
  model->scratch = ingot_allocate(model->scratch_stride * (size_t)model->pool.threads);
  return model->scratch != NULL;
}

ingot_status ingot_create(const ingot_options *given, ingot_model **created) {
  ingot_options options = {0};
  if (!created) return ingot_fail(create_error, INGOT_INVALID_ARGUMENT, "model: expected a place for it, received NULL");
  *created = NULL;
  if (given) {
    if (given->struct_size < sizeof(size_t)) {
      return ingot_fail(create_error, INGOT_INVALID_ARGUMENT, "options.struct_size: expected sizeof(ingot_options) = %d",
                        (int)sizeof(ingot_options));
    }
    memcpy(&options, given, given->struct_size < sizeof(options) ? given->struct_size : sizeof(options));
  }
  const void *weights = options.weights ? options.weights : ingot_this_module.bundled_weights;
  ingot_status status = check_options(&options, weights);
  if (status) return status;
  ingot_model *model = calloc(1, sizeof(*model));
  if (!model) return ingot_fail(create_error, INGOT_OUT_OF_MEMORY, "no memory for a model handle");
  pthread_mutex_init(&model->mutex, NULL);
  model->weights = weights;
  model->process = getpid();
  model->memory_limit = options.memory_limit ? options.memory_limit : SIZE_MAX;
  model->memory_kept = options.memory_kept ? options.memory_kept : SIZE_MAX;
  if (!allocate_model(model, &options)) {
    ingot_destroy(model);
    return ingot_fail(create_error, INGOT_OUT_OF_MEMORY, "no memory or threads for model '%s' with %d threads",
                      ingot_this_module.name, (int)options.threads);
  }
  status = ingot_open_parts(model->parts, &model->opened_parts, weights, model->pool.threads, create_error);
  if (status) {
    ingot_destroy(model);
    return status;
  }
  *created = model;
  return INGOT_OK;
}

void ingot_destroy(ingot_model *model) {
  if (!model) return;
  ingot_close_parts(model->parts, model->opened_parts);
  /* Behind fork() the workers are in the parent, and nobody here would answer who waits for them to end. */
  if (model->process == getpid()) ingot_pool_destroy(model->own_pool);
  ingot_free(model->scratch, model->scratch_stride * (size_t)model->pool.threads);
  ingot_free(model->arena, model->arena_size);
  ingot_free_slots(model->slots, ingot_this_module.slot_count);
  free(model->slots);
  free(model->parts);
  free(model->symbols);
  free((void *)model->input_shapes);
  free((void *)model->output_shapes);
  free(model->input_data);
  pthread_mutex_destroy(&model->mutex);
  free(model);
}

/* ---- running ---- */

/* Takes the model for one call. The workers of a pool do not survive fork(): waiting for them would never end. */
static ingot_status enter(ingot_model *model) {
  if (!model) return ingot_fail(create_error, INGOT_INVALID_ARGUMENT, "model: expected a handle, received NULL");
  if (model->own_pool && model->pool.threads > 1 && model->process != getpid()) {
    return ingot_fail(model->error, INGOT_INTERNAL,
                      "model '%s' was created before fork() and its threads stayed in the parent; create it again here",
                      ingot_this_module.name);
  }
  pthread_mutex_lock(&model->mutex);
  model->error[0] = 0;
  return INGOT_OK;
}

static ingot_status leave(ingot_model *model, ingot_status status) {
  pthread_mutex_unlock(&model->mutex);
  return status;
}

static ingot_status out_of_memory(ingot_model *model) {
  const char *name = ingot_this_module.name;
  const size_t limit = model->memory_limit;
  if (limit == SIZE_MAX) {
    return ingot_fail(model->error, INGOT_OUT_OF_MEMORY, "model '%s' needs more memory than there is for these inputs",
                      name);
  }
  return ingot_fail(model->error, INGOT_OUT_OF_MEMORY,
                    "model '%s' needs more memory for these inputs than there is, or than the %zu bytes a run may take",
                    name, limit);
}

/* The status of what a function of the module returned. */
static ingot_status status_of(ingot_model *model, int32_t found, int64_t expected, int64_t received) {
  if (found == INGOT_DONE) return INGOT_OK;
  if (found == INGOT_NO_MEMORY) return out_of_memory(model);
  return ingot_fail(model->error, INGOT_INVALID_ARGUMENT, "%s %lld, received %lld",
                    ingot_this_module.constraint_messages[found], (long long)expected, (long long)received);
}

/* Fills in the extents of the outputs, as far as they are known before or `after` the run. */
static ingot_status shape_outputs(ingot_model *model, int32_t after) {
  const ingot_module *module = &ingot_this_module;
  if (module->output_shapes(model->symbols, model->output_shapes, after) != INGOT_DONE) return out_of_memory(model);
  for (int32_t i = 0; i < module->output_count; i++) {
    if (!after && module->output_slots[i] >= 0) continue;
    for (int32_t axis = 0; axis < module->outputs[i].rank; axis++) {
      int64_t extent = model->output_shapes[i][axis];
      if (extent >= 0) continue;
      return ingot_fail(model->error, INGOT_INVALID_ARGUMENT,
                        "output '%s' axis %d (%s): these inputs give the impossible extent %lld",
                        module->outputs[i].name, (int)axis, module->outputs[i].shape_symbols[axis], (long long)extent);
    }
  }
  return INGOT_OK;
}

/* Checks the inputs, then fills in symbols and output shapes. */
static ingot_status resolve(ingot_model *model, const ingot_tensor *inputs, int32_t input_count) {
  ingot_status status = ingot_check_inputs(model->error, inputs, input_count);
  if (status) return status;
  for (int32_t i = 0; i < input_count; i++) {
    model->input_shapes[i] = ingot_is_default(&inputs[i], i) ? ingot_this_module.defaults[i].shape : inputs[i].shape;
  }
  int64_t expected = 0, received = 0;
  int32_t found = ingot_this_module.resolve(model->input_shapes, model->symbols, &expected, &received);
  status = status_of(model, found, expected, received);
  return status ? status : shape_outputs(model, 0);
}

static void free_arena(ingot_model *model) {
  ingot_free(model->arena, model->arena_size);
  model->arena = NULL;
  model->arena_size = 0;
}

static ingot_status reserve_arena(ingot_model *model) {
  int64_t needed = ingot_this_module.arena_size(model->symbols);
  if (needed >= 0 && model->memory_limit != SIZE_MAX) {
    if ((uint64_t)needed > model->memory_limit) {
      return ingot_fail(model->error, INGOT_OUT_OF_MEMORY, "model '%s' needs %lld bytes for inputs of this size, of %llu that a run may take",
                        ingot_this_module.name, (long long)needed, (unsigned long long)model->memory_limit);
    }
    if (slots_size(model) > model->memory_limit - (size_t)needed) ingot_free_slots(model->slots, ingot_this_module.slot_count);
  }
  if (INGOT_KEEPS_MEMORY && needed >= 0 && (uint64_t)needed <= model->arena_size) return INGOT_OK;
  if (needed >= 0) {
    free_arena(model);
    model->arena = (uint64_t)needed > SIZE_MAX / 2 ? NULL : ingot_allocate((size_t)needed);
    if (model->arena) {
      model->arena_size = (size_t)needed;
      return INGOT_OK;
    }
    return ingot_fail(model->error, INGOT_OUT_OF_MEMORY, "model '%s' needs %lld bytes for inputs of this size",
                      ingot_this_module.name, (long long)needed);
  }
  return ingot_fail(model->error, INGOT_OUT_OF_MEMORY, "model '%s' needs more than 2^63 bytes for inputs of this size",
                    ingot_this_module.name);
}

static void copy_shape(const ingot_model *model, int32_t output, ingot_tensor *tensor) {
  size_t bytes = (size_t)tensor->rank * sizeof(int64_t);
  if (bytes) memcpy(tensor->shape, model->output_shapes[output], bytes);
}

/* A caller may pass what the last run handed out: the tensors of one call serve the next one. */
static void take_back(const ingot_model *model, ingot_tensor *outputs, int32_t output_count) {
  const int32_t *slots = ingot_this_module.output_slots;
  for (int32_t i = 0; outputs && i < output_count && i < ingot_this_module.output_count; i++) {
    if (slots[i] >= 0 && outputs[i].data == model->slots[slots[i]].data) outputs[i].data = NULL;
  }
}

/* Hands out the outputs whose extents the run has defined. */
static ingot_status give_owned(ingot_model *model, ingot_tensor *outputs, int32_t output_count) {
  const int32_t *slots = ingot_this_module.output_slots;
  int32_t owned = 0;
  for (int32_t i = 0; i < output_count; i++) owned += slots[i] >= 0;
  ingot_status status = owned ? shape_outputs(model, 1) : INGOT_OK;
  for (int32_t i = 0; !status && i < output_count; i++) {
    if (slots[i] < 0) continue;
    copy_shape(model, i, &outputs[i]);
    outputs[i].data = model->slots[slots[i]].data;
  }
  return status;
}

static ingot_status stopped(ingot_model *model) {
  return ingot_fail(model->error, INGOT_STOPPED, "the run of model '%s' was stopped", ingot_this_module.name);
}

static ingot_status execute(ingot_model *model, const volatile int32_t *stop) {
  run_frame run = {{model->input_data, model->output_data, model->weights, model->arena, model->symbols, launch,
                    model->slots, reserve, 0, 0, stop ? stop : &never_stopped, 0},
                   model};
  uint64_t mode = ingot_enter_float_mode();
  int32_t found = ingot_this_module.execute(&run.frame);
  ingot_restore_float_mode(mode);
  if (run.frame.failed) return (ingot_status)run.frame.failed;
  if (*run.frame.stop) return stopped(model);
  return status_of(model, found, run.frame.expected, run.frame.received);
}

ingot_status ingot_output_shapes(ingot_model *model, const ingot_tensor *inputs, int32_t input_count,
                                 ingot_tensor *outputs, int32_t output_count) {
  ingot_status status = enter(model);
  if (status) return status;
  status = resolve(model, inputs, input_count);
  if (!status) status = ingot_check_outputs(model->error, outputs, output_count, model->output_shapes, 0);
  for (int32_t i = 0; !status && i < output_count; i++) copy_shape(model, i, &outputs[i]);
  return leave(model, status);
}

ingot_status ingot_run(ingot_model *model, const ingot_tensor *inputs, int32_t input_count, ingot_tensor *outputs,
                       int32_t output_count) {
  return ingot_run_stoppable(model, inputs, input_count, outputs, output_count, NULL);
}

ingot_status ingot_run_stoppable(ingot_model *model, const ingot_tensor *inputs, int32_t input_count,
                                 ingot_tensor *outputs, int32_t output_count, const volatile int32_t *stop) {
  ingot_status status = enter(model);
  if (status) return status;
  status = resolve(model, inputs, input_count);
  if (!status) take_back(model, outputs, output_count);
  if (!status) status = ingot_check_outputs(model->error, outputs, output_count, model->output_shapes, 1);
  if (!status) status = reserve_arena(model);
  if (status) return leave(model, status);
  for (int32_t i = 0; i < input_count; i++) {
    int64_t offset = ingot_this_module.defaults[i].offset;
    model->input_data[i] = ingot_is_default(&inputs[i], i) ? (void *)(model->weights + offset) : inputs[i].data;
  }
  for (int32_t i = 0; i < output_count; i++) model->output_data[i] = outputs[i].data;
  status = execute(model, stop);
  if (!status) status = give_owned(model, outputs, output_count);
  return leave(model, status);
}

void ingot_give_back(ingot_model *model) {
  if (enter(model)) return;
  if (model->arena_size + slots_size(model) > model->memory_kept) {
    free_arena(model);
    ingot_free_slots(model->slots, ingot_this_module.slot_count);
  }
  leave(model, INGOT_OK);
}

static ingot_status run_kernel(ingot_model *model, int32_t kernel, void *const *buffers, const int64_t *symbols,
                               int64_t tasks, int64_t times, const volatile int32_t *stop, int64_t *nanoseconds) {
  ingot_status status = enter(model);
  if (status) return status;
  if (kernel < 0 || kernel >= ingot_this_module.kernel_count) {
    status = ingot_fail(model->error, INGOT_INVALID_ARGUMENT, "kernel: expected 0 to %d, received %d",
                        (int)ingot_this_module.kernel_count - 1, (int)kernel);
    return leave(model, status);
  }
  uint64_t mode = ingot_enter_float_mode();
  int64_t start = ingot_now();
  for (int64_t i = 0; !status && i < times; i++) {
    status = launch_kernel(model, kernel, buffers, symbols, tasks, stop);
  }
  *nanoseconds = ingot_now() - start;
  ingot_restore_float_mode(mode);
  if (!status && *stop) status = stopped(model);
  return leave(model, status);
}

ingot_status ingot_run_kernel(ingot_model *model, int32_t kernel, void *const *buffers, const int64_t *symbols,
                              int64_t tasks) {
  return ingot_run_kernel_stoppable(model, kernel, buffers, symbols, tasks, NULL);
}

ingot_status ingot_run_kernel_stoppable(ingot_model *model, int32_t kernel, void *const *buffers,
                                        const int64_t *symbols, int64_t tasks, const volatile int32_t *stop) {
  int64_t nanoseconds;
  return run_kernel(model, kernel, buffers, symbols, tasks, 1, stop ? stop : &never_stopped, &nanoseconds);
}

ingot_status ingot_time_kernel(ingot_model *model, int32_t kernel, void *const *buffers, const int64_t *symbols,
                               int64_t tasks, int64_t times, int64_t *nanoseconds) {
  return run_kernel(model, kernel, buffers, symbols, tasks, times, &never_stopped, nanoseconds);
}
