/* fuzz_driver.c - tests/npu/test_npu_driver.c, where libFuzzer chooses the lies of the driver. */
#define FUZZ 1
#include "../npu/test_npu_driver.c"
