//! libFuzzer entry of `weir_fuzz::redis_differential_reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::redis_differential_reply(data));
