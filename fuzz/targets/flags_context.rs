//! libFuzzer entry of `weir_fuzz::flags_context`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::flags_context(data));
