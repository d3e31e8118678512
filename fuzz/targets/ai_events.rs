//! libFuzzer entry of `weir_fuzz::ai_events`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::ai_events(data));
