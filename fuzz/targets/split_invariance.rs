//! libFuzzer entry of `weir_fuzz::split_invariance`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::split_invariance(data));
