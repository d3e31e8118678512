//! libFuzzer entry of `weir_fuzz::http_response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::http_response(data));
