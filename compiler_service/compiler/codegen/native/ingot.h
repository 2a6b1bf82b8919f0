/* ingot.h - the C ABI of a compiled model.
 *
 * A model is a shared library (model.so) plus weights.bin; with --bundle the weights are inside. Everything here is
 * exported by the library itself; it needs libc and pthread only.
 *
 *   ingot_model *model;                       weights may be NULL for a bundled library
 *   if (ingot_create(&options, &model)) { puts(ingot_last_error(NULL)); ... }
 *   ingot_output_shapes(model, inputs, 1, outputs, 1);     fills outputs[i].shape for these input shapes
 *   outputs[0].data = malloc(...);
 *   if (ingot_run(model, inputs, 1, outputs, 1)) puts(ingot_last_error(model));
 *   ingot_destroy(model);
 *
 * Where only the run knows the extents of an output (after NonZero, or a Loop that ends early), ingot_output_shapes gives
 * -1 for them, outputs[i].data must be NULL (or what the last run filled in), and ingot_run fills in shape and data: memory of
 * the model, valid until the next call on this handle.
 *
 * An input for which ingot_input_has_default is 1 need not be given: let data and shape of its ingot_tensor be NULL.
 *
 * One ingot_model runs one inference at a time (a second concurrent call waits). Handles that share a library and
 * weights cost only their arena and threads; create them after fork(), threads stay behind. Data pointers should be 64-byte aligned for full speed; any element alignment works.
 */
#ifndef INGOT_H
#define INGOT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define INGOT_ABI_VERSION 1
#define INGOT_MAX_RANK 16

typedef enum {
  INGOT_OK = 0,
  INGOT_INVALID_ARGUMENT = 1, /* wrong count, dtype, rank or extent: nothing was computed */
  INGOT_OUT_OF_MEMORY = 2,
  INGOT_INCOMPATIBLE = 3, /* weights do not belong to this library, CPU lacks a required feature */
  INGOT_INTERNAL = 4,
  INGOT_STOPPED = 5 /* by the flag of ingot_run_stoppable: outputs hold nothing of use */
} ingot_status;

/* Values are those of onnx.TensorProto.DataType. */
typedef int32_t ingot_dtype;

typedef struct {
  void *data;      /* row-major, contiguous, little endian */
  int64_t *shape;  /* `rank` extents */
  int32_t rank;
  ingot_dtype dtype;
} ingot_tensor;

typedef struct {
  const char *name;
  ingot_dtype dtype;
  int32_t rank;
  const int64_t *shape;             /* -1 for a symbolic extent */
  const char *const *shape_symbols; /* text of each extent: "3", "batch", "(w + 1) // 2" */
} ingot_tensor_info;

/* A unit of parallel work: run tasks [begin, end) as thread `thread` of the pool. */
typedef void (*ingot_task)(void *context, int64_t begin, int64_t end, int32_t thread);

/* A host may pass its own pool so that many models share one. `run` must call `task` so that [0, tasks) is covered exactly
 * once by contiguous ranges, thread numbers are in [0, threads), and return when all have finished. */
typedef struct {
  void (*run)(void *pool, ingot_task task, void *context, int64_t tasks);
  void *pool;
  int32_t threads;
} ingot_thread_pool;

typedef struct {
  size_t struct_size;   /* sizeof(ingot_options): lets later versions add fields */
  const void *weights;  /* 64-byte aligned, outlives the model; NULL when bundled */
  size_t weights_size;  /* bytes */
  int32_t threads;      /* own pool of this many threads including the caller; 0: cgroup quota or core count */
  const ingot_thread_pool *thread_pool; /* instead of an own pool, or NULL */
  size_t memory_limit;  /* bytes of intermediate values that a run may take; 0: as many as there are */
  size_t memory_kept;   /* of them, bytes that ingot_give_back leaves for the next run; 0: all */
} ingot_options;

typedef struct ingot_model ingot_model;

uint32_t ingot_abi_version(void);
const char *ingot_compiler_version(void);
size_t ingot_weights_size(void);

/* Digest of the plan.json that this library was made from, "sha256:..." and 64 hexadecimal digits: kernels may be run one by one
 * (ingot_run_kernel) by that plan alone. Libraries built before this function was lack it. */
const char *ingot_plan_digest(void);

int32_t ingot_input_count(void);
int32_t ingot_output_count(void);
int32_t ingot_kernel_count(void);
const ingot_tensor_info *ingot_input_info(int32_t index);
const ingot_tensor_info *ingot_output_info(int32_t index);
const char *ingot_kernel_name(int32_t index);

/* 1 where the model knows what the input is if data and shape are NULL, else 0. Libraries built before this function was lack
 * it, and take no such input. */
int32_t ingot_input_has_default(int32_t index);

ingot_status ingot_create(const ingot_options *options, ingot_model **model);
void ingot_destroy(ingot_model *model);

/* Writes the extents of every output into outputs[i].shape (capacity outputs[i].rank on entry must be the model's rank);
 * -1 where only the run knows them. */
ingot_status ingot_output_shapes(ingot_model *model, const ingot_tensor *inputs, int32_t input_count,
                                 ingot_tensor *outputs, int32_t output_count);

/* Runs the whole model. Every outputs[i].data is written; shapes are checked. Outputs whose extents only the run knows come
 * with data NULL and get their shape, and data that belongs to the model. Denormal numbers count as zero; the mode of the
 * calling thread is restored. */
ingot_status ingot_run(ingot_model *model, const ingot_tensor *inputs, int32_t input_count, ingot_tensor *outputs,
                       int32_t output_count);

/* The same, but ends with INGOT_STOPPED soon after another thread has written something else than 0 to `*stop`: before the next
 * kernel, part of a kernel or round of a loop, and within what takes long in one part. `stop` may be NULL. Libraries built before this function was lack it. */
ingot_status ingot_run_stoppable(ingot_model *model, const ingot_tensor *inputs, int32_t input_count,
                                 ingot_tensor *outputs, int32_t output_count, const volatile int32_t *stop);

/* Frees intermediate memory of the last run where that is more than `memory_kept`, data of outputs that belong to the model
 * included. Libraries built before this function was lack it, and know no limit. */
void ingot_give_back(ingot_model *model);

/* Runs one kernel over [0, tasks) on the model's pool: the graph executor's way in. */
ingot_status ingot_run_kernel(ingot_model *model, int32_t kernel, void *const *buffers, const int64_t *symbols,
                              int64_t tasks);

/* The same, but ends with INGOT_STOPPED as ingot_run_stoppable does. Libraries built before this function was lack it. */
ingot_status ingot_run_kernel_stoppable(ingot_model *model, int32_t kernel, void *const *buffers,
                                        const int64_t *symbols, int64_t tasks, const volatile int32_t *stop);

/* The same as ingot_run_kernel `times` times in a row, and how long they took together: calls from an interpreter cost more than a small kernel.
 * Libraries built before this function was lack it. */
ingot_status ingot_time_kernel(ingot_model *model, int32_t kernel, void *const *buffers, const int64_t *symbols,
                               int64_t tasks, int64_t times, int64_t *nanoseconds);

/* Why the last call on `model` failed, naming tensor, expected and received. With NULL: the calling thread's last
 * failed call that had no model. Valid until the next call. */
const char *ingot_last_error(const ingot_model *model);

#ifdef __cplusplus
}
#endif
#endif
