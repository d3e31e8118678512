//! libFuzzer entry of `weir_fuzz::http2_connection`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::http2_connection(data));
