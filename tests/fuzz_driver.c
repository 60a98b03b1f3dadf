/* fuzz_driver.c - tests/test_npu_driver.c, where libFuzzer chooses the lies of the driver. */
#define FUZZ 1
#include "test_npu_driver.c"
