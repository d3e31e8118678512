//! libFuzzer entry of `weir_fuzz::redis_split_invariance`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::redis_split_invariance(data));
