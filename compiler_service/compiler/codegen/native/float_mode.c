/* float_mode.c - what kernels do with denormal numbers: those that they read count, results below the least normal one are zero.
 *
 * On x86 an operation whose result is denormal is assisted by microcode and takes a hundred times as long, so the latency of a
 * model would hang on its data: states that decay, exp(-100) behind an attention mask. Flushed results keep that from happening,
 * and no kernel then meets a denormal that another made. Those of the caller are read as what they are: ceil(1e-40) is 1. ARM
 * and RISC-V compute with denormals at full speed and flush nothing, but for NEON of 32-bit ARM, which knows none.
 *
 * A host may have set its own mode; it is the host's again after the call. */
#include "runtime.h"

#include "module.h"

#ifdef __SSE__
#include <xmmintrin.h>
#define RESULTS 0x8000u /* MXCSR: denormal results are zeros */
#define MODE 0x8040u    /* that, and bit 6: denormal operands are zeros */
static uint64_t read_mode(void) { return _mm_getcsr(); }
static void write_mode(uint64_t mode) { _mm_setcsr((unsigned)mode); }
#elif defined(__aarch64__)
#define RESULTS 0u
#define MODE (1u << 24) /* FPCR.FZ */
static uint64_t read_mode(void) {
  uint64_t mode;
  __asm__ __volatile__("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
static void write_mode(uint64_t mode) { __asm__ __volatile__("msr fpcr, %0" ::"r"(mode) : "memory"); }
#elif defined(__arm__) && defined(__ARM_FP)
#define RESULTS 0u
#define MODE (1u << 24) /* FPSCR.FZ */
static uint64_t read_mode(void) {
  uint32_t mode;
  __asm__ __volatile__("vmrs %0, fpscr" : "=r"(mode));
  return mode;
}
static void write_mode(uint64_t mode) { __asm__ __volatile__("vmsr fpscr, %0" ::"r"((uint32_t)mode) : "memory"); }
#else
#define RESULTS 0u
#define MODE 0u
static uint64_t read_mode(void) { return 0; }
static void write_mode(uint64_t mode) { (void)mode; }
#endif

static uint64_t wanted(uint64_t mode) {
  return (mode & ~(uint64_t)MODE) | (ingot_this_module.keeps_denormals ? 0u : RESULTS);
}

uint64_t ingot_enter_float_mode(void) {
  uint64_t before = read_mode();
  if (wanted(before) != before) write_mode(wanted(before));
  return before;
}

void ingot_restore_float_mode(uint64_t before) {
  if (wanted(before) != before) write_mode(before);
}
