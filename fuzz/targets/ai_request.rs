//! libFuzzer entry of `weir_fuzz::ai_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::ai_request(data));
