//! libFuzzer entry of `weir_fuzz::postgres_startup`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::postgres_startup(data));
