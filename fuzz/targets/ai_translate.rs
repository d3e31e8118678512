//! libFuzzer entry of `weir_fuzz::ai_translate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::ai_translate(data));
