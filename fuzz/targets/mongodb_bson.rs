//! libFuzzer entry of `weir_fuzz::mongodb_bson`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::mongodb_bson(data));
