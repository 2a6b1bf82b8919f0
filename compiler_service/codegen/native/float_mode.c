/* float_mode.c - kernels compute with denormal numbers taken and stored as zero.
 *
 * On x86 an operation that meets a denormal is assisted by microcode and takes a hundred times as long, so the latency of a
 * model would hang on its data: weights and states that decay, exp(-100) behind an attention mask. NEON of 32-bit ARM flushes
 * in any case; elsewhere the mode is set, so that every target gives the same numbers. */
#include "runtime.h"

#ifdef __SSE__
#include <xmmintrin.h>
#define FLUSH 0x8040u /* MXCSR: denormal results (bit 15) and operands (bit 6) are zeros */
static uint64_t read_mode(void) { return _mm_getcsr(); }
static void write_mode(uint64_t mode) { _mm_setcsr((unsigned)mode); }
#elif defined(__aarch64__)
#define FLUSH (1u << 24) /* FPCR.FZ */
static uint64_t read_mode(void) {
  uint64_t mode;
  __asm__ __volatile__("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
static void write_mode(uint64_t mode) { __asm__ __volatile__("msr fpcr, %0" ::"r"(mode) : "memory"); }
#elif defined(__arm__) && defined(__ARM_FP)
#define FLUSH (1u << 24) /* FPSCR.FZ */
static uint64_t read_mode(void) {
  uint32_t mode;
  __asm__ __volatile__("vmrs %0, fpscr" : "=r"(mode));
  return mode;
}
static void write_mode(uint64_t mode) { __asm__ __volatile__("vmsr fpscr, %0" ::"r"((uint32_t)mode) : "memory"); }
#else
#define FLUSH 0u /* RISC-V has no such mode, and needs none */
static uint64_t read_mode(void) { return 0; }
static void write_mode(uint64_t mode) { (void)mode; }
#endif

uint64_t ingot_flush_denormals(void) {
  uint64_t before = read_mode();
  if ((before & FLUSH) != FLUSH) write_mode(before | FLUSH);
  return before;
}

void ingot_restore_float_mode(uint64_t before) {
  if ((before & FLUSH) != FLUSH) write_mode(before);
}
