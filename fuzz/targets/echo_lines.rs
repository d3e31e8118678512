//! libFuzzer entry of `weir_fuzz::echo_lines`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::echo_lines(data));
